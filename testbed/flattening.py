"""Plain data by dotted keys."""

from collections.abc import Iterator, Mapping
from typing import Any


def flattened(plain: Mapping[str, Any], prefix: str = "", *, keep_empty: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested mappings, and their values; lists stay whole.

    Args:
        plain: e.g. an experiment.
        prefix: begins each key, e.g. ``workload.``.
        keep_empty: whether an empty mapping is a value; else it has no key.

    Example:
        >>> list(flattened({"a": {"b": 1, "c": {}}, "d": [2]}))
        [('a.b', 1), ('d', [2])]
    """
    for key, value in plain.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            yield from flattened(value, f"{prefix}{key}.", keep_empty=keep_empty)
        else:
            yield f"{prefix}{key}", value
