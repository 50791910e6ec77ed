"""Short names of the points of a sweep, made of the values that differ among them.

A value with a ``label:`` has this name. The value of a ``protocol`` stands alone; other values are ``key=value`` with
as much of the key's end as is unambiguous. A mapping is named only by the keys that distinguish it from the other
values.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.flattening import flattened

# Keys that name an alternative of a section: they always appear in the name if they differ.
_HEADS = ("protocol", "model", "dataset", "scheme", "name", "kind")
_TRIED = 3  # combinations of up to this many keys are tried before all keys are named

Leaves = dict[str, Any]
"""The values of a mapping by dotted keys."""


def names_of_points(points: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the name of each value of each point, by key; keys with equal values in all points are left out.

    Args:
        points: values by swept key; a key may be missing in some points.
        labels: for each point the labels given in the experiment, by key.
    """
    keys = list(dict.fromkeys(key for point in points for key in point))
    pairs = list(zip(points, labels, strict=True))
    varying = [key for key in keys if _differ([canonical([point.get(key), label.get(key)]) for point, label in pairs])]
    among = [leaf for key in varying for point in points if key in point for leaf in leaves_of(key, point[key])]
    names: list[dict[str, str]] = [{} for _ in points]
    for key in varying:
        having = [place for place, point in enumerate(points) if key in point]
        values = [points[place][key] for place in having]
        label = [labels[place].get(key, "") for place in having]
        for place, name in zip(having, value_names(key, values, label, among), strict=True):
            names[place][key] = name
    return names


def value_names(
    key: str, values: Sequence[Any], labels: Sequence[str] | None = None, among: Iterable[str] = ()
) -> list[str]:
    """Return a short name for each value of a key: different values have different names, equal values the same name.

    Args:
        key: dotted.
        values: scalars, lists or mappings.
        labels: the label of each value in the experiment; empty: none.
        among: other dotted keys in the name, from which the end of this key has to differ.

    Example:
        >>> value_names("selection.participants", [10, 20])
        ['participants=10', 'participants=20']
    """
    labels = labels or [""] * len(values)
    distinct = {canonical(value): value for value, label in zip(values, labels, strict=True) if not label}
    leaves = {text: leaves_of(key, value) for text, value in distinct.items()}
    shorts = _short_keys(dict.fromkeys([*among, key, *(leaf for flat in leaves.values() for leaf in flat)]))
    name_of = dict(zip(leaves, _named(list(leaves.values()), shorts), strict=True))
    name_of = {text: name or f"{shorts[key]}={text}" for text, name in name_of.items()}
    if len({*name_of.values()} | {*labels} - {""}) < len(name_of) + len({*labels} - {""}):
        name_of = {text: f"{shorts[key]}={text}" for text in name_of}
    return [label or name_of[canonical(value)] for value, label in zip(values, labels, strict=True)]


def leaves_of(key: str, value: Any) -> Leaves:
    """Return the values in a mapping by dotted keys; any other value by `key`; nothing of an empty mapping.

    Args:
        key: dotted.
        value: of the key.
    """
    return dict(flattened({key: value}))


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def shown_value(value: Any) -> str:
    """Return a value as it appears in a name, in one line.

    Example:
        >>> shown_value(None), shown_value(True), shown_value(4), shown_value(["a", "b"])
        ('none', 'true', '4', 'a+b')
    """
    if value is None or value == []:
        return "none"
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        text = "+".join(value)
    else:
        text = value if isinstance(value, str) else canonical(value)
    return text if text.isprintable() else repr(text)


def _named(values: Sequence[Leaves], shorts: Mapping[str, str]) -> list[str]:
    """Return the names of different mappings; empty for a mapping without any value."""
    keys = list(dict.fromkeys(key for value in values for key in value))
    differing = [key for key in keys if _differ([canonical(value.get(key, _ABSENT)) for value in values])]
    heads = [key for key in differing if key.rpartition(".")[2] in _HEADS]
    if not differing:  # a single value: by its protocol, or in full
        heads = [key for key in keys if key.endswith(".protocol")][:1] or keys
    groups: dict[str, list[int]] = {}
    for place, value in enumerate(values):
        groups.setdefault(canonical([value.get(head, _ABSENT) for head in heads]), []).append(place)
    names = [""] * len(values)
    for places in groups.values():
        alike = [values[place] for place in places]
        further = [
            key for key in differing if key not in heads and _differ([canonical(value.get(key)) for value in alike])
        ]
        for place, name in zip(places, _told_apart(alike, heads, further, shorts), strict=True):
            names[place] = name or _joined(values[place], differing, shorts)
    return names


def _told_apart(
    values: Sequence[Leaves], heads: Sequence[str], further: Sequence[str], shorts: Mapping[str, str]
) -> list[str]:
    """Return names made of `heads` and the fewest `further` keys that make all names different."""
    names: list[str] = []
    sizes = [*range(min(_TRIED, len(further)) + 1), len(further)]
    for size in sizes:
        # The fewest keys that distinguish all points; 100 combinations bound the search.
        for chosen in itertools.islice(itertools.combinations(further, size), 100):
            names = [_joined(value, [*heads, *chosen], shorts) for value in values]
            if all(names) and not len(set(names)) < len(names):
                return names
    return names


def _joined(value: Leaves, keys: Sequence[str], shorts: Mapping[str, str]) -> str:
    parts = []
    for key in keys:
        if key in value and value[key] != {}:
            text = shown_value(value[key])
            parts.append(text if key.rpartition(".")[2] == "protocol" and value[key] else f"{shorts[key]}={text}")
    return ",".join(parts)


def _short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return for each dotted key its shortest end that is unique."""
    keys = list(keys)
    shorts = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[-length:]) for length in range(1, len(parts) + 1)]
        shorts[key] = next((end for end in ends if not _other_ends_in(keys, key, end)), key)
    return shorts


def _other_ends_in(keys: Sequence[str], key: str, end: str) -> bool:
    return any(other != key and (other == end or other.endswith(f".{end}")) for other in keys)


def _differ(texts: Sequence[str]) -> bool:
    return len(set(texts)) > 1


_ABSENT = "\0"  # no value of an experiment is this text
