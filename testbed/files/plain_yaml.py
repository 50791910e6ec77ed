"""Untrusted YAML as plain data, with bounds that are checked before anything is built.

A small YAML file can stand for much data: nested aliases ("billion laughs"), numbers of a million digits, nested lists.
So the file's size is limited, and its events are counted with the same parser before anything is built: values, with
aliases expanded; nesting; the length of numbers, and the number of numeric keys. `testbed.files.limits` has the limits.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.files import limits

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader, in C where available; both build plain data only."""


def read(path: Path, loader: Any = SAFE) -> Any:
    """Return the plain data in a YAML file.

    Args:
        path: the file.
        loader: a safe loader, i.e. one derived from `SAFE`.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        limits.TooLarge: it has too many bytes.
        yaml.YAMLError, and errors of PyYAML for odd values (ValueError, TypeError, ...): see `parsed`.
    """
    return parsed(limits.text(path, limits.YAML_BYTES), loader)


def parsed(text: str, loader: Any = SAFE) -> Any:
    """Return the plain data in a YAML document.

    Args:
        text: the document.
        loader: a safe loader, i.e. one derived from `SAFE`.

    Raises:
        yaml.MarkedYAMLError: the document is out of bounds.
        Exception: as `read`.
    """
    # With the events of the same parser: another one could see another document.
    _check(text, loader)
    return yaml.load(text, loader)


def _check(text: str, loader: Any) -> None:
    reading = loader(text)
    try:
        _Counting(reading).check()
    finally:
        reading.dispose()


@dataclass
class _Open:
    """A value that has begun.

    Attributes:
        anchor: its anchor.
        before: count at its beginning.
        is_mapping: whether it is a mapping.
        values: number of its values so far.
    """

    anchor: str | None
    before: int
    is_mapping: bool
    values: int = 0


class _Counting:
    """Counter of a document's values, from its events.

    Args:
        reading: a loader at the beginning of its document.
    """

    def __init__(self, reading: Any) -> None:
        self._reading = reading
        self._count = 0
        self._number_keys = 0
        self._open: list[_Open] = []
        self._sizes: dict[str, int] = {}  # number of values by anchor

    def check(self) -> None:
        """Raise `yaml.MarkedYAMLError` if the document is out of bounds."""
        while self._reading.check_event():
            event = self._reading.get_event()
            if isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
                self._begin(event)
                self._end()
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
                if len(self._open) > limits.YAML_DEPTH:
                    raise _out_of_bounds(event, f"more than {limits.YAML_DEPTH} nested sections and lists")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()

    def _begin(self, event: Any) -> None:
        before = self._count
        self._add(1, event)
        self._open.append(_Open(event.anchor, before, isinstance(event, yaml.MappingStartEvent)))

    def _end(self) -> None:
        ended = self._open.pop()
        if ended.anchor is not None:
            self._sizes[ended.anchor] = self._count - ended.before

    def _alias(self, event: Any) -> None:
        # A value that contains itself has no end once its aliases are expanded.
        if any(value.anchor == event.anchor for value in self._open):
            raise _out_of_bounds(event, f"the alias *{event.anchor} is part of its own value")
        self._add(self._sizes.get(event.anchor, 1), event)  # PyYAML's composer refuses an unknown anchor

    def _add(self, values: int, event: Any) -> None:
        self._count += values
        if self._open:
            self._open[-1].values += 1
        if self._count > limits.YAML_NODES:
            raise _out_of_bounds(event, f"more than {limits.YAML_NODES} values with aliases expanded")

    def _scalar(self, event: Any) -> None:
        # Keys and values alternate in a mapping.
        is_key = bool(self._open) and self._open[-1].is_mapping and self._open[-1].values % 2 == 0
        if not (is_key or len(event.value) > limits.NUMBER_CHARACTERS):
            return
        tag = event.tag
        if tag in (None, "!"):
            tag = self._reading.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in _NUMBERS:
            return
        if len(event.value) > limits.NUMBER_CHARACTERS:
            what = f"a number of {len(event.value)} characters; at most {limits.NUMBER_CHARACTERS}"
            raise _out_of_bounds(event, what)
        self._number_keys += is_key
        if self._number_keys > limits.NUMBER_KEYS:
            raise _out_of_bounds(event, f"more than {limits.NUMBER_KEYS} keys that are numbers")


def _out_of_bounds(event: Any, what: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, what, event.start_mark)
