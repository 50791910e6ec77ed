"""Names of the rows of a comparison and of their settings, made of the values that differ among them.

The values of a sweep are named by `testbed.records.point_names`. A run that is no point of the others' sweep is
called by its experiment's name.
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.tables import protocol_name
from testbed.flattening import flattened
from testbed.records import RunRecords
from testbed.records.point_names import canonical, leaves_of, value_names

__all__ = [
    "canonical",
    "has_key",
    "labels_of",
    "names_of",
    "of_selection",
    "settings_of",
    "sweep_of",
    "value_of",
    "variant_of",
]

_SELECTION = "selection"
_ASIDE = ("seed", "provenance", "output", "sweep", "cluster", "targets", "name")
_ABSENT = "\0"
_LONGEST_SETTING = 40  # characters of the values of a run that has not swept a section
_MOST_DIFFERENCES = 2  # keys that tell runs with the same label apart, before their directories do


def sweep_of(run: RunRecords) -> dict[str, Any]:
    """The swept keys of a run and their values."""
    swept: dict[str, Any] = run.value("provenance.sweep", {})
    return swept


def names_of(run: RunRecords) -> dict[str, str]:
    """The swept keys of a run whose values have a name, and these names."""
    names: dict[str, str] = run.value("provenance.sweep_labels", {})
    return names


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
    """The values of `keys` in each run, e.g. ``"population=100,latency_ms=50"``."""
    columns = [_setting_names(runs, key, keys) for key in keys]
    return [",".join(column[place] for column in columns) for place in range(len(runs))]


def _setting_names(runs: Sequence[RunRecords], key: str, keys: Sequence[str]) -> list[str]:
    """The names of one key's values; a run that has not swept it has the name of a point with the same values."""
    swept = [sweep_of(run)[key] for run in runs if key in sweep_of(run)]
    leaves = list(
        dict.fromkeys(leaf for value in swept if isinstance(value, Mapping) for leaf in leaves_of(key, value))
    )
    values, labels = [], []
    for run in runs:
        if key in sweep_of(run):
            values.append(sweep_of(run)[key])
            labels.append(names_of(run).get(key, ""))
            continue
        point = next((other for other in runs if key in sweep_of(other) and _has_values_of(run, other, key)), None)
        if point is not None:
            values.append(sweep_of(point)[key])
            labels.append(names_of(point).get(key, ""))
        elif leaves:
            values.append({leaf.removeprefix(f"{key}."): value_of(run, leaf) for leaf in leaves if has_key(run, leaf)})
            labels.append("")
        else:
            values.append(value_of(run, key))
            labels.append("")
    names = value_names(key, values, labels, keys)
    return [
        str(run.experiment.get("name") or name)
        if key not in sweep_of(run) and isinstance(value, Mapping) and len(name) > _LONGEST_SETTING
        else name
        for run, value, name in zip(runs, values, names, strict=True)
    ]


def _has_values_of(run: RunRecords, point: RunRecords, key: str) -> bool:
    """Whether a run has, in its experiment, the values that another has swept."""
    leaves = leaves_of(key, sweep_of(point)[key])
    return bool(leaves) and all(canonical(value_of(run, leaf)) == canonical(value) for leaf, value in leaves.items())


def labels_of(
    repetitions: Sequence[Sequence[RunRecords]], settings: Sequence[str], in_settings: Sequence[str] = ()
) -> list[str]:
    """A label for each row, unique within its setting.

    Args:
        repetitions: the runs of each row.
        settings: of each row, its name.
        in_settings: keys that the settings name, so that the labels need not.
    """
    firsts = [group[0] for group in repetitions]
    families = [_family(run) for run in firsts]
    own = [""] * len(firsts)
    for family in dict.fromkeys(families):
        places = [place for place, other in enumerate(families) if other == family]
        names = _own_names([firsts[place] for place in places], [settings[place] for place in places], in_settings)
        for place, name in zip(places, names, strict=True):
            own[place] = name
    protocols = [protocol_name(run.experiment.get(_SELECTION)) for run in firsts]
    by_protocol = not any(own) and (len(set(families)) == 1 or len(set(protocols)) == len(protocols))
    labels = [
        name or _name_alone(group, protocol if by_protocol else None)
        for name, group, protocol in zip(own, repetitions, protocols, strict=True)
    ]
    return _unique(labels, own, settings, firsts)


def _family(run: RunRecords) -> Hashable:
    """Runs of the same experiment with the same swept keys."""
    return run.experiment.get("name"), frozenset(sweep_of(run)) - {"seed"}


def _own_names(runs: Sequence[RunRecords], settings: Sequence[str], in_settings: Sequence[str]) -> list[str]:
    """The names of points of one sweep, by the keys in which they differ; empty where there is none."""
    keys = [key for key in dict.fromkeys(key for run in runs for key in sweep_of(run)) if key != "seed"]
    keys = [key for key in keys if key not in in_settings]
    values = {key: [_without(key, sweep_of(run).get(key), in_settings) for run in runs] for key in keys}
    labels = {key: [names_of(run).get(key, "") for run in runs] for key in keys}
    identities = {key: [canonical(pair) for pair in zip(values[key], labels[key], strict=True)] for key in keys}
    grouped_by_selection = any(of_selection(key) for key in in_settings)

    def varies(key: str, place: int) -> bool:
        """Whether the point differs from others in a key: of `selection` in the whole table, else in its setting."""
        everywhere = of_selection(key) and not grouped_by_selection
        alike = [other for other, setting in enumerate(settings) if everywhere or setting == settings[place]]
        return len({identities[key][other] for other in alike}) > 1

    among = [
        leaf for key in keys if len(set(identities[key])) > 1 for one in values[key] for leaf in leaves_of(key, one)
    ]
    names = {key: value_names(key, values[key], labels[key], among) for key in keys}
    return [",".join(names[key][place] for key in keys if varies(key, place)) for place in range(len(runs))]


def _without(key: str, value: Any, left_out: Sequence[str]) -> Any:
    """A swept section without the keys that are named elsewhere."""
    if not isinstance(value, Mapping):
        return value
    return {name: part for name, part in value.items() if f"{key}.{name}" not in left_out}


def _name_alone(group: Sequence[RunRecords], protocol: str | None) -> str:
    """The name of a row that is no point among others: of its run, its protocol or its experiment."""
    run = group[0]
    sweep = sweep_of(run)
    if not sweep or (protocol and len(group) == 1 and "seed" not in sweep):
        return run.label
    return protocol or str(run.experiment.get("name") or run.label)


def _unique(
    labels: Sequence[str], own: Sequence[str], settings: Sequence[str], runs: Sequence[RunRecords]
) -> list[str]:
    """The labels; those that occur twice in a setting with the experiment's name, what differs, or the directory."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(settings, labels, strict=True)):
        places.setdefault(key, []).append(place)
    told = list(labels)
    for (_, label), alike in places.items():
        if len(alike) > 1:
            apart = _told_apart(label, [runs[at] for at in alike], is_own=any(own[at] for at in alike))
            for place, name in zip(alike, apart, strict=True):
                told[place] = name
    return told


def _told_apart(label: str, runs: Sequence[RunRecords], *, is_own: bool) -> list[str]:
    """Different labels for rows of one label; `is_own`: it says something of a point, and has to stay."""
    names = [str(run.experiment.get("name")) for run in runs]
    if len(set(names)) == len(names):
        return [f"{name},{label}" if is_own else name for name in names]
    differing = differing_keys([run.experiment for run in runs])
    if 0 < len(differing) <= _MOST_DIFFERENCES:
        columns = [value_names(key, [value_of(run, key) for run in runs], among=differing) for key in differing]
        texts = [",".join(column[place] for column in columns) for place in range(len(runs))]
        if len(set(texts)) == len(texts) and max(map(len, texts)) <= _LONGEST_SETTING:
            return [f"{label},{text}" for text in texts]
    return [f"{label} [{tail}]" for tail in _tails([run.path for run in runs])]


def _tails(paths: Sequence[Path]) -> list[str]:
    """The ends of the paths, the shortest in which all differ."""
    whole = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, whole)) + 1):
        tails = ["/".join(parts[-length:]) for parts in whole]
        if len(set(tails)) == len(tails):
            break
    return tails


def differing_keys(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted keys in which experiments differ, without those that say where and how often they run.

    Where the protocol of a section differs (or another key that names an alternative), the keys that only one of the
    alternatives has follow from that, and are left out.
    """
    flat = [
        dict(flattened({key: value for key, value in experiment.items() if key not in _ASIDE}))
        for experiment in experiments
    ]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    differing = [key for key in keys if len({canonical(one.get(key, _ABSENT)) for one in flat}) > 1]
    sections = {key.rpartition(".")[0] for key in differing if key.rpartition(".")[2] in ("protocol", "model")}
    return [
        key
        for key in differing
        if all(key in one for one in flat) or not any(key.startswith(f"{section}.") for section in sections)
    ]
