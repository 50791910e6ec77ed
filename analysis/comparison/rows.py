"""Grouping of runs into rows: repetitions of an experiment form a row, rows of a setting share a baseline.

Runs are repetitions if their experiments are equal in everything but the seed (a sweep over the seed). Rows form a
setting if they agree in every swept key outside of `selection` (a sweep over the population, say), or in the keys that
the user groups them by. Each setting has its own baseline. Rows and settings are in the order of the runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.comparison.labels import (
    canonical,
    has_key,
    labels_of,
    of_selection,
    settings_of,
    sweep_of,
    value_of,
    variant_of,
)
from analysis.tables import protocol_name
from testbed.errors import ExperimentError
from testbed.records import RunRecords

# Sections that do not change the measurements of a run.
_ASIDE = ("seed", "provenance", "output", "sweep", "cluster", "targets")
_SHOWN = 20  # labels listed in an error message


@dataclass(frozen=True)
class ComparisonRow:
    """One row of a comparison.

    Attributes:
        label: distinguishes the row from the other rows of its setting.
        setting: the values of the other swept keys, e.g. ``"population=100"``, or the values of the keys that rows are
            grouped by; empty if nothing else varies.
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
        """The label together with the setting, unique among all rows."""
        return ",".join(part for part in (self.label, self.setting) if part)

    @property
    def full_names(self) -> set[str]:
        """Names that identify this row in any setting."""
        return {self.full_label} | {run.label for run in self.runs} | {run.path.name for run in self.runs}

    @property
    def short_names(self) -> set[str]:
        """Names that identify this row within its setting."""
        return {self.label} | ({self.protocol} if self.protocol else set())


def rows_of(runs: Sequence[RunRecords], group_by: Sequence[str] = ()) -> list[ComparisonRow]:
    """Return the runs as rows, setting by setting; settings and rows keep the order of the runs.

    Args:
        runs: in the order of the table, e.g. from `testbed.records.find_runs`.
        group_by: dotted keys that define the settings, e.g. ``links.latency_ms``. Default: the population and all swept
            keys outside of `selection` in which the runs differ. If every setting had a single row then (a sweep over
            the aggregation alone), all rows form one setting.

    Raises:
        ExperimentError: there are no runs, or `group_by` has a key that no run has.
    """
    if not runs:
        raise ExperimentError("no runs to compare; name the directory of a run or a sweep")
    repetitions = list(_repetitions(runs).values())
    firsts = [group[0] for group in repetitions]
    swept = list(dict.fromkeys(key for run in runs for key in sweep_of(run) if key != "seed"))
    differing = [key for key in dict.fromkeys(["population", *swept]) if _differ(runs, key)]
    _check_keys(runs, group_by, differing)
    elsewhere = [key for key in differing if not of_selection(key)]
    keys = list(dict.fromkeys(group_by)) or elsewhere
    settings = settings_of(firsts, keys)
    variants = [variant_of(run, [key for key in swept if of_selection(key)]) for run in firsts]
    swept_there = [frozenset(sweep_of(run)).intersection(keys) for run in firsts]
    if max(Counter(zip(settings, swept_there, strict=True)).values()) == 1 and len(settings) > 1 and not group_by:
        # No two rows share a setting, e.g. in a sweep over the aggregation alone: all rows form one setting.
        settings, keys = [""] * len(settings), []
    labels = labels_of(repetitions, settings, keys)
    rows = [
        ComparisonRow(label, setting, protocol_name(group[0].experiment.get("selection")), variant, tuple(group))
        for label, setting, variant, group in zip(labels, settings, variants, repetitions, strict=True)
    ]
    place = {setting: at for at, setting in reversed(list(enumerate(settings)))}  # the first place: later entries win
    return sorted(rows, key=lambda row: place[row.setting])


def baselines_of(rows: Sequence[ComparisonRow], name: str | None = None) -> list[ComparisonRow | None]:
    """Return the baseline of each row, aligned with `rows`; None if a setting has no matching row yet.

    Args:
        rows: from `rows_of`.
        name: a label, or the name of a protocol or of a run's directory: the matching row of each setting is the
            baseline. The name of a single row of one setting (its label with the setting, its directory) makes this row
            the baseline of all settings. Default: the first row; in other settings the row with the same protocol (the
            first row, if no setting has more than one protocol). If several rows have that protocol, as in a grid over
            another key of `selection`, the row with the same values is chosen. If the rows come from several sweeps,
            each sweep of several rows keeps the baselines that it would have alone.

    Raises:
        ExperimentError: `name` is unknown or fits several rows of a setting; the message lists the labels.
    """
    if name is None:
        return _default_baselines(rows)
    exact = [row for row in rows if name in row.full_names]
    if len(exact) == 1 and name not in exact[0].short_names:
        return [exact[0]] * len(rows)
    matching = [row for row in rows if name in row.short_names | row.full_names]
    if not matching:
        raise ExperimentError(f"baseline {name!r}: no such run; choose among {_list(rows)}")
    return [_named_baseline(row, [m for m in matching if m.setting == row.setting], name) for row in rows]


def baseline_names(rows: Sequence[ComparisonRow], baselines: Sequence[ComparisonRow | None]) -> list[str | None]:
    """Return the name of each row's baseline, including the setting if the label alone is ambiguous.

    The label is enough if each setting has its own baseline and all baselines have the same label.

    Args:
        rows: from `rows_of`.
        baselines: of each row, from `baselines_of`.
    """
    pairs = [(row, base) for row, base in zip(rows, baselines, strict=True) if base is not None]
    is_short = len({base.label for _, base in pairs}) == 1 and all(base.setting == row.setting for row, base in pairs)
    return [None if base is None else base.label if is_short else base.full_label for base in baselines]


def _default_baselines(rows: Sequence[ComparisonRow]) -> list[ComparisonRow | None]:
    baselines = _first_baselines(rows)
    sweeps: dict[tuple[Path, tuple[str, ...]], list[ComparisonRow]] = {}
    for row in rows:
        run = row.runs[0]
        sweeps.setdefault((run.path.parent, tuple(sweep_of(run))), []).append(row)
    of_row = {id(row): base for row, base in zip(rows, baselines, strict=True)}
    for (_, swept), members in sweeps.items():
        if swept and 1 < len(members) < len(rows):
            of_row |= {id(row): base for row, base in zip(members, _baselines_alone(members), strict=True) if base}
    return [of_row[id(row)] for row in rows]


def _baselines_alone(rows: Sequence[ComparisonRow]) -> list[ComparisonRow | None]:
    """Return the baselines that the rows of one sweep would have in a comparison of their own."""
    if len({row.setting for row in rows}) == len(rows):  # `rows_of` then makes all rows one setting
        return [rows[0]] * len(rows)
    return _first_baselines(rows)


def _first_baselines(rows: Sequence[ComparisonRow]) -> list[ComparisonRow | None]:
    first = rows[0]
    protocols: dict[str, set[str | None]] = {}
    for row in rows:
        protocols.setdefault(row.setting, set()).add(row.protocol)
    comparable = any(len(baselines) > 1 for baselines in protocols.values())
    shared_keys = [key for key in first.variant if all(key in row.variant for row in rows)]
    baselines: list[ComparisonRow | None] = []
    for row in rows:
        setting = [other for other in rows if other.setting == row.setting]
        if comparable:
            setting = [other for other in setting if other.protocol == first.protocol]
            alike = [other for other in setting if all(other.variant[key] == row.variant[key] for key in shared_keys)]
            setting = alike or setting
        baselines.append(setting[0] if setting else None)
    return baselines


def _named_baseline(row: ComparisonRow, matching: list[ComparisonRow], name: str) -> ComparisonRow | None:
    if len(matching) > 1:  # a label is more specific than the name of a protocol
        matching = [other for other in matching if other.label == name] or matching
    if len(matching) > 1:  # the sweep also covers other keys of `selection`
        matching = [other for other in matching if other.variant == row.variant] or matching
    if len(matching) > 1:
        raise ExperimentError(
            f"baseline {name!r} is ambiguous: it matches {_list(matching)}; "
            "give one of these labels to --baseline, or the directory of a run"
        )
    return matching[0] if matching else None


def _list(rows: Sequence[ComparisonRow]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(repr(row.full_label) for row in rows[:_SHOWN]) + more


def _differ(runs: Sequence[RunRecords], key: str) -> bool:
    return len({canonical(value_of(run, key)) for run in runs}) > 1


def _check_keys(runs: Sequence[RunRecords], keys: Sequence[str], differing: Sequence[str]) -> None:
    for key in keys:
        if key.partition(".")[0] in _ASIDE:
            raise ExperimentError(
                f"--group-by {key}: not a key to group by; runs that differ only in this key form one row"
            )
        if not any(has_key(run, key) for run in runs):
            differing_keys = ", ".join(differing) or "the seed only"
            raise ExperimentError(f"--group-by {key}: no run has this key; the runs differ in {differing_keys}")


def _repetitions(runs: Sequence[RunRecords]) -> dict[tuple[str, int], list[RunRecords]]:
    """Return the groups of runs that differ only in the seed.

    A second run with the same seed is no repetition: it begins another group, thus another row.
    """
    groups: dict[tuple[str, int], list[RunRecords]] = {}
    copies: Counter[str] = Counter()
    for run in runs:
        experiment = run.experiment
        config = canonical({key: value for key, value in experiment.items() if key not in _ASIDE})
        seed = experiment.get("seed")
        repeated = canonical([config, seed])
        groups.setdefault((config, copies[repeated]), []).append(run)
        if seed is not None:  # runs without a seed all differ, so none of them is a copy
            copies[repeated] += 1
    return groups
