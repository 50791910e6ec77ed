"""Which runs belong together: repetitions of one experiment are one row, rows of one setting share a baseline.

Runs whose experiments are equal in everything but the seed are repetitions (a sweep over the seed). Rows that agree
in every swept key outside of `selection` (a sweep over the population, say) form a setting, and each setting has its
own baseline.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.tables import protocol_name
from testbed.errors import ExperimentError
from testbed.records import RunRecords

# What does not change what a run measures.
_ASIDE = ("seed", "provenance", "output", "sweep", "cluster", "targets")

_NAMES = ("protocol", "model", "name", "kind")  # what names an alternative of a section


@dataclass(frozen=True)
class Row:
    """One row of a comparison.

    Attributes:
        label: what tells the row from the others of its setting.
        setting: the values of the other swept keys, e.g. ``"population=100"``; empty when nothing else varies.
        protocol: `selection.protocol`.
        variant: the other swept keys of `selection` and their values.
        runs: the repetitions, one per seed.
    """

    label: str
    setting: str
    protocol: str | None
    variant: Mapping[str, Any]
    runs: tuple[RunRecords, ...]

    @property
    def full_label(self) -> str:
        """The label together with the setting: unique among all rows."""
        return ",".join(part for part in (self.label, self.setting) if part)

    @property
    def full_names(self) -> set[str]:
        """Names that mean this row in whatever setting."""
        return {self.full_label} | {run.label for run in self.runs} | {run.path.name for run in self.runs}

    @property
    def short_names(self) -> set[str]:
        """Names that mean this row within its setting."""
        return {self.label} | ({self.protocol} if self.protocol else set())


def rows_of(runs: Sequence[RunRecords]) -> list[Row]:
    """The runs as rows, setting by setting; settings in the order of their values, rows in that of the runs.

    Raises `ExperimentError` when there is no run.
    """
    if not runs:
        raise ExperimentError("no runs to compare; give the directory of a run or of a sweep")
    repetitions = list(_repetitions(runs).values())
    swept = list(dict.fromkeys(key for run in runs for key in _sweep(run) if key != "seed"))
    keys = [key for key in dict.fromkeys(["population", *swept]) if not _of_selection(key)]
    keys = [key for key in keys if len({_canonical(_value(run, key)) for run in runs}) > 1]
    values = [tuple(_value(group[0], key) for key in keys) for group in repetitions]
    columns = list(zip(*values, strict=True))
    settings = [",".join(map(_told, _short(keys), at, columns)) for at in values]
    variants = [_variant(group[0], [key for key in swept if _of_selection(key)]) for group in repetitions]
    labels = _labels(repetitions, variants, settings)
    if max(Counter(settings).values()) == 1 and len(settings) > 1:
        # Nothing shares a setting (a sweep over the aggregation alone): then all rows are one setting.
        if len(set(labels)) < len(labels):
            labels = [f"{label},{setting}" for label, setting in zip(labels, settings, strict=True)]
        settings = [""] * len(settings)
    labels = _unique(labels, settings, repetitions)
    order = sorted(range(len(repetitions)), key=lambda row: [_sortable(value) for value in values[row]])
    return [
        Row(
            labels[row],
            settings[row],
            protocol_name(repetitions[row][0].experiment.get("selection")),
            variants[row],
            tuple(repetitions[row]),
        )
        for row in order
    ]


def baselines_of(rows: Sequence[Row], name: str | None = None) -> list[Row | None]:
    """The baseline of each row, aligned with `rows`; None where a setting has no such row (yet).

    Args:
        rows: from `rows_of`.
        name: a label, the name of a protocol, or of a run's directory. Default: the row whose selection protocol is
            `random`; where all or none are random, the first.

    Raises `ExperimentError`, naming the labels there are, when `name` is unknown or fits several rows of a setting.
    """
    if name is not None:
        exact = [row for row in rows if name in row.full_names]
        if len(exact) == 1 and name not in exact[0].short_names:
            return [exact[0]] * len(rows)
        matching = [row for row in rows if name in row.short_names | row.full_names]
        if not matching:
            raise ExperimentError(f"baseline {name!r}: no such run; there are {_list(rows)}")
    else:
        matching = [row for row in rows if row.protocol == "random"]
        if len(matching) in (0, len(rows)):
            firsts = {row.setting: row for row in reversed(rows)}
            return [firsts[row.setting] for row in rows]
    return [_baseline_of(row, [m for m in matching if m.setting == row.setting], name) for row in rows]


def _baseline_of(row: Row, matching: list[Row], name: str | None) -> Row | None:
    if len(matching) > 1 and name is not None:  # a label says more than a protocol's name
        matching = [other for other in matching if other.label == name] or matching
    if len(matching) > 1:  # a sweep over other keys of `selection` as well
        matching = [other for other in matching if other.variant == row.variant] or matching
    if len(matching) > 1:
        raise ExperimentError(
            f"baseline {name or 'random'!r} is ambiguous: it may be {_list(matching)}; "
            "name one of them (--baseline), or one of its directory"
        )
    return matching[0] if matching else None


def _list(rows: Sequence[Row]) -> str:
    return ", ".join(repr(row.full_label) for row in rows)


def _repetitions(runs: Sequence[RunRecords]) -> dict[tuple[str, int], list[RunRecords]]:
    """Runs that differ in the seed only. The same seed again is no repetition: it makes another row."""
    groups: dict[tuple[str, int], list[RunRecords]] = {}
    copies: Counter[str] = Counter()
    for run in runs:
        experiment = run.experiment
        config = _canonical({key: value for key, value in experiment.items() if key not in _ASIDE})
        seed = experiment.get("seed")
        repeated = _canonical([config, seed])
        groups.setdefault((config, copies[repeated]), []).append(run)
        if seed is not None:
            copies[repeated] += 1
    return groups


def _labels(repetitions: list[list[RunRecords]], variants: list[dict[str, Any]], settings: list[str]) -> list[str]:
    """A label for each row: the run's own, or, where that also names a seed or the setting, one without these."""
    protocols = [protocol_name(group[0].experiment.get("selection")) for group in repetitions]
    labels = []
    for group, protocol, variant, setting in zip(repetitions, protocols, variants, settings, strict=True):
        sweep = _sweep(group[0])
        if protocol is None or not sweep or not (setting or len(group) > 1 or "seed" in sweep):
            labels.append(group[0].label)
            continue
        alike = [
            other
            for other, name, where in zip(variants, protocols, settings, strict=True)
            if (name, where) == (protocol, setting)
        ]
        telling = [key for key in variant if len({_canonical(other.get(key)) for other in alike}) > 1]
        told = (_told(key, variant[key], [other.get(key) for other in alike]) for key in telling)
        labels.append(",".join([protocol, *told]))
    return labels


def _short(keys: Sequence[str]) -> list[str]:
    """The last part of each dotted key, or the whole of those that would be alike, or that several sections have."""
    last = [key.rpartition(".")[2] for key in keys]
    telling = [last.count(short) == 1 and short not in _NAMES for short in last]
    return [short if tells else key for key, short, tells in zip(keys, last, telling, strict=True)]


def _told(key: str, value: Any, others: Sequence[Any]) -> str:
    """key=value; of a mapping only those of its keys that differ among `others`."""
    if isinstance(value, Mapping):
        mappings = [other for other in others if isinstance(other, Mapping)]
        differing = [part for part in value if len({_canonical(other.get(part)) for other in mappings}) > 1]
        if differing:
            return ",".join(f"{part}={_named(value[part])}" for part in differing)
    return f"{key}={_named(value)}"


def _unique(labels: list[str], settings: list[str], repetitions: list[list[RunRecords]]) -> list[str]:
    """The labels, those that occur twice in a setting with their run's directory."""
    seen = Counter(zip(settings, labels, strict=True))
    return [
        f"{label} [{group[0].path.name}]" if seen[setting, label] > 1 else label
        for label, setting, group in zip(labels, settings, repetitions, strict=True)
    ]


def _of_selection(key: str) -> bool:
    return key.split(".")[0] == "selection"


def _sweep(run: RunRecords) -> dict[str, Any]:
    return (run.experiment.get("provenance") or {}).get("sweep") or {}


def _value(run: RunRecords, key: str) -> Any:
    """What the run has for a swept key, also when it was not swept there."""
    if key in _sweep(run):
        return _sweep(run)[key]
    value: Any = run.experiment
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _variant(run: RunRecords, swept: Sequence[str]) -> dict[str, Any]:
    """The swept keys of `selection` other than the protocol, as far as this run has them."""
    section = run.experiment.get("selection")
    names: list[str] = []
    for key in swept:
        value = _sweep(run).get(key)
        names += list(value) if key == "selection" and isinstance(value, Mapping) else [key.partition(".")[2]]
    if not isinstance(section, Mapping):
        return {}
    return {name: section[name] for name in dict.fromkeys(names) if name not in ("", "protocol") and name in section}


def _named(value: Any) -> str:
    """A swept value in a label."""
    if isinstance(value, Mapping):
        name = next((value[key] for key in _NAMES if key in value), None)
        return str(name) if name is not None else _canonical(value)
    return value if isinstance(value, str) else _canonical(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _sortable(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, _canonical(value)
