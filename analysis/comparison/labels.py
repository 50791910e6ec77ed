"""Names for rows and settings of a comparison, made of the values that differ among the runs.

Values of a sweep are named by `testbed.records.point_names`. A run outside of the sweep of the other runs is named
after its experiment.
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
_ABSENT = "\0"  # stands for a missing key, which differs from null
_LONGEST_SETTING = 40  # characters for the values of a run that did not sweep the section
_MOST_DIFFERENCES = 2  # keys that distinguish runs with the same label; beyond, their directories do


def sweep_of(run: RunRecords) -> dict[str, Any]:
    """Return the swept keys of a run and their values."""
    swept: dict[str, Any] = run.value("provenance.sweep", {})
    return swept


def names_of(run: RunRecords) -> dict[str, str]:
    """Return the names that the experiment gives to values of swept keys, by key."""
    names: dict[str, str] = run.value("provenance.sweep_labels", {})
    return names


def has_key(run: RunRecords, key: str) -> bool:
    """Return whether the run's experiment has a value for a dotted key.

    Args:
        run: the records.
        key: e.g. ``links.latency_ms``.
    """
    section, _, name = key.rpartition(".")
    values = value_of(run, section) if section else run.experiment
    return isinstance(values, Mapping) and name in values


def value_of(run: RunRecords, key: str) -> Any:
    """Return the value of a dotted key, swept or not; None if the run has none.

    Args:
        run: the records.
        key: e.g. ``links.latency_ms``.
    """
    if key in sweep_of(run):
        return sweep_of(run)[key]
    value: Any = run.experiment
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def of_selection(key: str) -> bool:
    """Return whether a dotted key is the section `selection` or lies in it."""
    return key.split(".")[0] == _SELECTION


def variant_of(run: RunRecords, swept: Sequence[str]) -> dict[str, Any]:
    """Return the swept keys of `selection` that this run has, except for the protocol, with their values.

    Args:
        run: the records.
        swept: the swept keys of all runs that are compared.
    """
    section = run.experiment.get(_SELECTION)
    names: list[str] = []
    for key in swept:
        value = sweep_of(run).get(key)
        names += list(value) if key == _SELECTION and isinstance(value, Mapping) else [key.partition(".")[2]]
    if not isinstance(section, Mapping):
        return {}
    return {name: section[name] for name in dict.fromkeys(names) if name not in ("", "protocol") and name in section}


def settings_of(runs: Sequence[RunRecords], keys: Sequence[str]) -> list[str]:
    """Return the values of `keys` in each run, e.g. ``"population=100,latency_ms=50"``.

    Args:
        runs: one run per row.
        keys: dotted keys that define the settings.
    """
    columns = [_setting_names(runs, key, keys) for key in keys]
    return [",".join(column[place] for column in columns) for place in range(len(runs))]


def _setting_names(runs: Sequence[RunRecords], key: str, keys: Sequence[str]) -> list[str]:
    """Return the names of one key's values; a run that did not sweep the key is named like an equal point."""
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
    """Return whether the experiment of `run` has the values that `point` swept."""
    leaves = leaves_of(key, sweep_of(point)[key])
    return bool(leaves) and all(canonical(value_of(run, leaf)) == canonical(value) for leaf, value in leaves.items())


def labels_of(
    repetitions: Sequence[Sequence[RunRecords]], settings: Sequence[str], in_settings: Sequence[str] = ()
) -> list[str]:
    """Return a label for each row, unique within its setting.

    Args:
        repetitions: the runs of each row.
        settings: the name of each row's setting.
        in_settings: keys that are part of the settings' names; labels omit them.
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
    """Return a key that is equal for runs of the same experiment with the same swept keys."""
    return run.experiment.get("name"), frozenset(sweep_of(run)) - {"seed"}


def _own_names(runs: Sequence[RunRecords], settings: Sequence[str], in_settings: Sequence[str]) -> list[str]:
    """Return the names of points of one sweep, by the keys in which they differ; empty if they differ in none."""
    keys = [key for key in dict.fromkeys(key for run in runs for key in sweep_of(run)) if key != "seed"]
    keys = [key for key in keys if key not in in_settings]
    values = {key: [_without(key, sweep_of(run).get(key), in_settings) for run in runs] for key in keys}
    labels = {key: [names_of(run).get(key, "") for run in runs] for key in keys}
    identities = {key: [canonical(pair) for pair in zip(values[key], labels[key], strict=True)] for key in keys}
    grouped_by_selection = any(of_selection(key) for key in in_settings)

    def varies(key: str, place: int) -> bool:
        """Return whether the point differs in a key: from its setting, or for `selection` from the whole table."""
        everywhere = of_selection(key) and not grouped_by_selection
        alike = [other for other, setting in enumerate(settings) if everywhere or setting == settings[place]]
        return len({identities[key][other] for other in alike}) > 1

    among = [
        leaf for key in keys if len(set(identities[key])) > 1 for value in values[key] for leaf in leaves_of(key, value)
    ]
    names = {key: value_names(key, values[key], labels[key], among) for key in keys}
    return [",".join(names[key][place] for key in keys if varies(key, place)) for place in range(len(runs))]


def _without(key: str, value: Any, left_out: Sequence[str]) -> Any:
    """Return the value of a swept section without the keys that are named elsewhere."""
    if not isinstance(value, Mapping):
        return value
    return {name: part for name, part in value.items() if f"{key}.{name}" not in left_out}


def _name_alone(group: Sequence[RunRecords], protocol: str | None) -> str:
    """Return the name of a row that is not a point among others: of its run, its protocol or its experiment."""
    run = group[0]
    sweep = sweep_of(run)
    if not sweep or (protocol and len(group) == 1 and "seed" not in sweep):
        return run.label
    return protocol or str(run.experiment.get("name") or run.label)


def _unique(
    labels: Sequence[str], own: Sequence[str], settings: Sequence[str], runs: Sequence[RunRecords]
) -> list[str]:
    """Return the labels; duplicates within a setting are extended.

    They are extended by the name of the experiment, by the differing values, or by the directory.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(settings, labels, strict=True)):
        places.setdefault(key, []).append(place)
    unique_labels = list(labels)
    for (_, label), alike in places.items():
        if len(alike) > 1:
            apart = _told_apart(label, [runs[at] for at in alike], is_own=any(own[at] for at in alike))
            for place, name in zip(alike, apart, strict=True):
                unique_labels[place] = name
    return unique_labels


def _told_apart(label: str, runs: Sequence[RunRecords], *, is_own: bool) -> list[str]:
    """Return different labels for rows with the same label; `is_own`: the label names a point and has to stay."""
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
    """Return the ends of the paths: the shortest that are all different."""
    whole = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, whole)) + 1):  # ends of paths: runs share the beginning
        tails = ["/".join(parts[-length:]) for parts in whole]
        if len(set(tails)) == len(tails):
            break
    return tails


def differing_keys(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted keys in which experiments differ, without the keys that say where and how often they run.

    If the protocol of a section differs (or another key that names an alternative), keys that only one of the
    alternatives has are left out, because they follow from it.
    """
    flat = [
        dict(flattened({key: value for key, value in experiment.items() if key not in _ASIDE}))
        for experiment in experiments
    ]
    keys = list(dict.fromkeys(key for flat_experiment in flat for key in flat_experiment))
    differing = [
        key for key in keys if len({canonical(flat_experiment.get(key, _ABSENT)) for flat_experiment in flat}) > 1
    ]
    sections = {key.rpartition(".")[0] for key in differing if key.rpartition(".")[2] in ("protocol", "model")}
    return [
        key
        for key in differing
        if all(key in flat_experiment for flat_experiment in flat)
        or not any(key.startswith(f"{section}.") for section in sections)
    ]
