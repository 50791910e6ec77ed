"""Short names of the points of a sweep, made of the values that differ among them.

A value with a ``label:`` is called by it. The value of a ``protocol`` stands by itself; any other is ``key=value``
with as much of the key's end as is clear. Of a mapping only those keys are named that tell it from the other values.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.flattening import flattened

# Keys that name an alternative of a section: where they differ, they are always named.
_HEADS = ("protocol", "model", "dataset", "scheme", "name", "kind")
_TRIED = 3  # keys of a mapping that are tried together before all are named

Leaves = dict[str, Any]
"""The values of a mapping by dotted keys."""


def names_of_points(points: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The name of each value of each point, by key; keys whose values are alike in all points are left out.

    Args:
        points: values by swept key; a key may be missing in some.
        labels: for each point the labels that somebody gave, by key.
    """
    keys = list(dict.fromkeys(key for point in points for key in point))
    pairs = list(zip(points, labels, strict=True))
    varying = [key for key in keys if _differ([canonical([one.get(key), given.get(key)]) for one, given in pairs])]
    among = [leaf for key in varying for point in points if key in point for leaf in leaves_of(key, point[key])]
    names: list[dict[str, str]] = [{} for _ in points]
    for key in varying:
        having = [place for place, point in enumerate(points) if key in point]
        values = [points[place][key] for place in having]
        given = [labels[place].get(key, "") for place in having]
        for place, name in zip(having, value_names(key, values, given, among), strict=True):
            names[place][key] = name
    return names


def value_names(
    key: str, values: Sequence[Any], labels: Sequence[str] | None = None, among: Iterable[str] = ()
) -> list[str]:
    """A short name for each value of a key: different values have different names, equal ones the same.

    Args:
        key: dotted.
        values: scalars, lists or mappings.
        labels: the label that somebody gave to each value; empty: none.
        among: other dotted keys that stand beside this one, from which its last part has to differ.
    """
    labels = labels or [""] * len(values)
    distinct = {canonical(value): value for value, label in zip(values, labels, strict=True) if not label}
    leaves = {text: leaves_of(key, value) for text, value in distinct.items()}
    shorts = _short_keys(dict.fromkeys([*among, key, *(leaf for one in leaves.values() for leaf in one)]))
    named = dict(zip(leaves, _named(list(leaves.values()), shorts), strict=True))
    named = {text: name or f"{shorts[key]}={text}" for text, name in named.items()}
    if len({*named.values()} | {*labels} - {""}) < len(named) + len({*labels} - {""}):
        named = {text: f"{shorts[key]}={text}" for text in named}
    return [label or named[canonical(value)] for value, label in zip(values, labels, strict=True)]


def leaves_of(key: str, value: Any) -> Leaves:
    """The values in a mapping by dotted keys; any other value by `key`; nothing of an empty mapping."""
    return dict(flattened({key: value}))


def canonical(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, sort_keys=True, default=str)


def shown_value(value: Any) -> str:
    """A value as it stands in a name, in one line: ``none``, ``true``, ``4``, ``a+b`` of a list of words."""
    if value is None or value == []:
        return "none"
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        text = "+".join(value)
    else:
        text = value if isinstance(value, str) else canonical(value)
    return text if text.isprintable() else repr(text)


def _named(values: Sequence[Leaves], shorts: Mapping[str, str]) -> list[str]:
    """The names of different mappings, empty where there is nothing to name."""
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
        further = [key for key in differing if key not in heads and _differ([canonical(one.get(key)) for one in alike])]
        for place, name in zip(places, _told_apart(alike, heads, further, shorts), strict=True):
            names[place] = name or _joined(values[place], differing, shorts)
    return names


def _told_apart(
    values: Sequence[Leaves], heads: Sequence[str], further: Sequence[str], shorts: Mapping[str, str]
) -> list[str]:
    """Names from `heads` and the fewest of the `further` keys with which all differ; the first such keys."""
    names: list[str] = []
    sizes = [*range(min(_TRIED, len(further)) + 1), len(further)]
    for size in sizes:
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
    """For each dotted key the shortest end that no other has."""
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


_ABSENT = "\0"
