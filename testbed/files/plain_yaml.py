"""YAML that somebody else has written, as plain data: bounded before any of it is built.

A small YAML file can stand for much: aliases that repeat aliases ("billion laughs"), numbers of a million digits,
lists within lists. So the file's size is limited, and then its events are counted, without building anything, by the
very parser that reads it afterwards: values, with each alias counted as what it stands for; nesting; the length of
numbers, and how many of them are keys. The limits are in `testbed.files.limits`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.files import limits

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader, in C where it was built so; both build plain data only."""


def read(path: Path, loader: Any = SAFE) -> Any:
    """The plain data in a YAML file.

    Args:
        path: the file.
        loader: a safe loader, i.e. one derived from `SAFE`.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        limits.TooLarge: it has too many bytes.
        yaml.YAMLError, and what PyYAML lets through for odd values (ValueError, TypeError, ...): see `parsed`.
    """
    return parsed(limits.text(path, limits.YAML_BYTES), loader)


def parsed(text: str, loader: Any = SAFE) -> Any:
    """The plain data in a YAML document; raises as `read`, `yaml.MarkedYAMLError` for one that is out of bounds."""
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
    """A value that has begun: its anchor, the count at its beginning, and of a mapping how many values it has."""

    anchor: str | None
    before: int
    is_mapping: bool
    values: int = 0


class _Counting:
    """Counts the values of a document from its events.

    Args:
        reading: a loader at the beginning of its document.
    """

    def __init__(self, reading: Any) -> None:
        self._reading = reading
        self._count = 0
        self._number_keys = 0
        self._open: list[_Open] = []
        self._known: dict[str, int] = {}  # by anchor: how many values it stands for

    def check(self) -> None:
        """Raise `yaml.MarkedYAMLError` when the document is out of bounds."""
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
                    raise _out_of_bounds(event, f"more than {limits.YAML_DEPTH} sections and lists in one another")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()

    def _begin(self, event: Any) -> None:
        before = self._count
        self._add(1, event)
        self._open.append(_Open(event.anchor, before, isinstance(event, yaml.MappingStartEvent)))

    def _end(self) -> None:
        ended = self._open.pop()
        if ended.anchor is not None:
            self._known[ended.anchor] = self._count - ended.before

    def _alias(self, event: Any) -> None:
        if any(one.anchor == event.anchor for one in self._open):
            raise _out_of_bounds(event, f"the alias *{event.anchor} stands for what it is in")
        self._add(self._known.get(event.anchor, 1), event)  # an unknown one is the composer's to refuse

    def _add(self, values: int, event: Any) -> None:
        self._count += values
        if self._open:
            self._open[-1].values += 1
        if self._count > limits.YAML_NODES:
            raise _out_of_bounds(event, f"more than {limits.YAML_NODES} values, aliases written out")

    def _scalar(self, event: Any) -> None:
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
