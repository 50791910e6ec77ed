"""What rows of a comparison and their settings are called: by the keys in which their experiments differ.

A value of a sweep that has a name (``label:``) is called by it; any other is ``key=value``, with the last part of the
key where that is clear.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.tables import protocol_name
from testbed.records import RunRecords

_NAMES = ("protocol", "model", "name", "kind")  # what names an alternative of a section
_SELECTION = "selection"
_PROTOCOL = "selection.protocol"


def sweep_of(run: RunRecords) -> dict[str, Any]:
    """The swept keys of a run and their values."""
    return (run.experiment.get("provenance") or {}).get("sweep") or {}


def names_of(run: RunRecords) -> dict[str, str]:
    """The swept keys of a run whose values have a name, and these names."""
    return (run.experiment.get("provenance") or {}).get("sweep_labels") or {}


def has_key(run: RunRecords, key: str) -> bool:
    """Whether the run's experiment has a value for a dotted key."""
    section, _, name = key.rpartition(".")
    values = value_of(run, section) if section else run.experiment
    return isinstance(values, Mapping) and name in values


def value_of(run: RunRecords, key: str) -> Any:
    """What the run has for a dotted key, swept or not; None: nothing."""
    if key in sweep_of(run):
        return sweep_of(run)[key]
    value: Any = run.experiment
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def canonical(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, sort_keys=True, default=str)


def of_selection(key: str) -> bool:
    """Whether a dotted key is of the section `selection`, or that section."""
    return key.split(".")[0] == _SELECTION


def variant_of(run: RunRecords, swept: Sequence[str]) -> dict[str, Any]:
    """The swept keys of `selection` other than the protocol, as far as this run has them, and their values."""
    section = run.experiment.get(_SELECTION)
    names: list[str] = []
    for key in swept:
        value = sweep_of(run).get(key)
        names += list(value) if key == _SELECTION and isinstance(value, Mapping) else [key.partition(".")[2]]
    if not isinstance(section, Mapping):
        return {}
    return {name: section[name] for name in dict.fromkeys(names) if name not in ("", "protocol") and name in section}


def settings_of(runs: Sequence[RunRecords], keys: Sequence[str]) -> list[str]:
    """What `keys` say of each run, e.g. ``"population=100,latency_ms=50"``."""
    told = [_Told(key, short) for key, short in zip(keys, _short(keys), strict=True)]
    return [",".join(each.of(run, runs) for each in told) for run in runs]


def labels_of(
    repetitions: Sequence[Sequence[RunRecords]],
    variants: Sequence[Mapping[str, Any]],
    settings: Sequence[str],
    rest: Sequence[str] = (),
    grouped: Sequence[str] = (),
) -> list[str]:
    """A label for each row: the run's own, or, where that also names a seed or the setting, one without these.

    Args:
        repetitions: the runs of each row.
        variants: from `variant_of`, aligned.
        settings: aligned.
        rest: keys outside of `selection` that are not in the settings, so that the labels have to name them.
        grouped: keys that are in the settings because somebody asked for it.
    """
    firsts = [group[0] for group in repetitions]
    told = [_Told(key, short) for key, short in zip(rest, _short(rest), strict=True)]
    labels = []
    for group, variant, setting in zip(repetitions, variants, settings, strict=True):
        run = group[0]
        protocol = protocol_name(run.experiment.get(_SELECTION))
        sweep = sweep_of(run)
        if protocol is None or not sweep or not (setting or rest or grouped or len(group) > 1 or "seed" in sweep):
            labels.append(run.label)
            continue
        alike = [place for place, where in enumerate(settings) if where == setting]
        parts = [] if _PROTOCOL in grouped or _SELECTION in grouped else [_word(run, protocol)]
        same = [
            variants[place] for place in alike if protocol_name(firsts[place].experiment.get(_SELECTION)) == protocol
        ]
        parts += _variant_told(run, variant, same, grouped)
        parts += [each.of(run, [firsts[place] for place in alike]) for each in told if each.varies(firsts, alike)]
        labels.append(",".join(parts) or protocol)
    return labels


def unique(labels: Sequence[str], settings: Sequence[str], repetitions: Sequence[Sequence[RunRecords]]) -> list[str]:
    """The labels, those that occur twice in a setting with their run's directory, as much of it as tells them apart."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(settings, labels, strict=True)):
        places.setdefault(key, []).append(place)
    found = list(labels)
    for alike in places.values():
        if len(alike) > 1:
            for place, tail in zip(alike, _tails([repetitions[place][0].path for place in alike]), strict=True):
                found[place] = f"{labels[place]} [{tail}]"
    return found


def _tails(paths: Sequence[Path]) -> list[str]:
    """The ends of the paths, the shortest in which all differ."""
    whole = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, whole)) + 1):
        tails = ["/".join(parts[-length:]) for parts in whole]
        if len(set(tails)) == len(tails):
            break
    return tails


def _word(run: RunRecords, protocol: str) -> str:
    """The name of what is selected with, or else the protocol's."""
    names = names_of(run)
    return names.get(_SELECTION) or names.get(_PROTOCOL) or protocol


def _variant_told(
    run: RunRecords, variant: Mapping[str, Any], others: Sequence[Mapping[str, Any]], grouped: Sequence[str]
) -> list[str]:
    """The keys of `selection` that tell this row from others of its protocol and setting."""
    names = names_of(run)
    section = sweep_of(run).get(_SELECTION)
    said = set(section) if _SELECTION in names and isinstance(section, Mapping) else set()
    told = []
    for key, value in variant.items():
        if key in said or f"{_SELECTION}.{key}" in grouped:
            continue
        if len({canonical(other.get(key)) for other in others}) > 1:
            name = names.get(f"{_SELECTION}.{key}")
            told.append(name or _key_value(key, value, [other.get(key) for other in others]))
    return told


@dataclass(frozen=True)
class _Told:
    """How the values of one key are told.

    Attributes:
        key: dotted.
        short: what stands before a value without a name.
    """

    key: str
    short: str

    def varies(self, runs: Sequence[RunRecords], places: Sequence[int]) -> bool:
        """Whether some of the runs differ in it."""
        return len({canonical(value_of(runs[place], self.key)) for place in places}) > 1

    def of(self, run: RunRecords, others: Sequence[RunRecords]) -> str:
        """The name of the run's value, or key=value."""
        name = names_of(run).get(self.key)
        return name or _key_value(self.short, value_of(run, self.key), [value_of(other, self.key) for other in others])


def _short(keys: Sequence[str]) -> list[str]:
    """The last part of each dotted key, or the whole of those that would be alike, or that several sections have."""
    last = [key.rpartition(".")[2] for key in keys]
    telling = [last.count(short) == 1 and short not in _NAMES for short in last]
    return [short if tells else key for key, short, tells in zip(keys, last, telling, strict=True)]


def _key_value(key: str, value: Any, others: Sequence[Any]) -> str:
    """key=value; of a mapping only those of its keys that differ among `others`."""
    if isinstance(value, Mapping):
        mappings = [other for other in others if isinstance(other, Mapping)]
        differing = [part for part in value if len({canonical(other.get(part)) for other in mappings}) > 1]
        if differing:
            return ",".join(f"{part}={_named(value[part])}" for part in differing)
    return f"{key}={_named(value)}"


def _named(value: Any) -> str:
    """A swept value in a label."""
    if isinstance(value, Mapping):
        name = next((value[key] for key in _NAMES if key in value), None)
        return str(name) if name is not None else canonical(value)
    return value if isinstance(value, str) else canonical(value)
