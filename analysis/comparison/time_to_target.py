"""Time, rounds and traffic until the model is good enough: per run, and over the seeds of each row.

A run that has not reached the target is censored at its last evaluation: it would have taken more than up to there, and
counts with that. Where all seeds of a row reach the target the row has their mean; else it is the restricted mean, of
what was taken up to the target or the last evaluation, and the mean is at least that.

Only a model that a round has changed can reach a target (`analysis.comparison.targets.model_changed`): an evaluation
before the first completed round measures the initial model, however good that is.

No Kaplan-Meier curve stands behind times and bytes, as it would be wrong there: runs end after a number of rounds, so
one whose rounds are short because they fail is censored early, in seconds, for being bad (D. Lin et al., "Estimating
medical costs from incomplete follow-up data", Biometrics 53, 1997, say so of costs). Over rounds it is right, and gives
the median.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.rows import ComparisonRow, baseline_names, baselines_of, rows_of
from analysis.comparison.targets import (
    Metric,
    Target,
    default_target,
    is_measured,
    is_unfinished,
    model_changed,
    named_targets,
    parsed,
    require_evaluated,
    require_same_workload,
    values_of,
    workload_of,
)
from analysis.statistics import Interval, mean_interval, ratio_interval, ratio_of_means
from analysis.survival import kaplan_meier
from testbed.errors import ExperimentError
from testbed.records import RunRecords

# Column of the table: what it is of a run (`TimeToTarget`).
MEASURES = {
    "time_to_target_s": "time_s",
    "rounds_to_target": "rounds",
    "server_bytes_to_target": "server_bytes",
    "client_bytes_to_target": "client_bytes",
}
MEDIAN = "rounds_to_target_median"
ENDS = ("", "_half_width", "_ratio", "_ratio_half_width")
MEAN, RESTRICTED, NOT_REACHED = "mean", "restricted mean", "not reached"

_PKI = ["pki_bytes_down", "pki_bytes_up"]
_TYPES = {
    **dict.fromkeys(("seeds", "reached", "unfinished", "unchanged", "met_at_start"), "int64"),
    **dict.fromkeys(("evaluated_every", "smooth"), "int64"),
    **dict.fromkeys(("threshold", "rounds_watched", MEDIAN), "float64"),
    **{f"{measure}{end}": "float64" for measure in MEASURES for end in ENDS},
}


@dataclass(frozen=True)
class TimeToTarget:
    """When a run reached a target, or how far it went without: its last evaluation.

    Attributes:
        reached: whether it did.
        met_at_start: whether an evaluation before the first completed round met the target: the initial model did.
        rounds: the number of that round.
        time_s: by the run's clock, when that round had ended.
        server_bytes: between the server and all clients since the start of the run, failed rounds included.
        client_bytes: of all clients, their look-ups at the PKI included.
    """

    reached: bool
    met_at_start: bool
    rounds: int
    time_s: float
    server_bytes: int
    client_bytes: int


def trajectory(run: RunRecords, metric: Metric = "accuracy", smooth: int = 1) -> pd.DataFrame:
    """One row per evaluated round of a run, also of one that goes on.

    Columns: round; time_s, server_bytes, client_bytes since the start of the run, as of `TimeToTarget`; value (of the
    metric; NaN where it is not a number, or smoothed over more evaluations than there are yet);
    changed (bool: whether a round
    has changed the model by then, see `analysis.comparison.targets.model_changed`).

    Args:
        run: the records.
        metric, smooth: see `analysis.comparison.targets.values_of`.
    """
    rounds, values = run.rounds, values_of(run, metric, smooth)
    server = (rounds["bytes_down"] + rounds["bytes_up"]).cumsum()
    pki = pd.Series(0, index=rounds["round"])
    for rows in run.exchanges_in_stretches(_PKI, keep=False):
        found = rows.groupby("round")[_PKI].sum().sum(axis=1)
        pki[found.index] = found
    frame = pd.DataFrame({"round": rounds["round"], "time_s": rounds["ended_s"], "server_bytes": server})
    frame["client_bytes"] = server + pki.cumsum().to_numpy()
    changed = model_changed(rounds)[values.index]
    return frame.loc[values.index].assign(value=values, changed=changed).reset_index(drop=True)


def reach(run: RunRecords, target: Target, smooth: int = 1) -> TimeToTarget:
    """When a run reached a target: at the first evaluation of a changed model that meets it.

    Args:
        run: the records.
        target: to be reached.
        smooth: the mean over so many evaluations, this one the last, has to meet it.
    """
    return reached_in(trajectory(run, target.metric, smooth), target)


def reached_in(frame: pd.DataFrame, target: Target) -> TimeToTarget:
    """`reach` of a trajectory; before the first evaluation nothing is known, so it is censored at 0."""
    if frame.empty:
        return TimeToTarget(False, False, 0, 0.0, 0, 0)
    meets, changed = target.met(frame["value"]), frame["changed"].to_numpy(bool)
    met = np.flatnonzero(meets & changed)
    row = frame.iloc[met[0] if len(met) else -1]
    values = int(row["round"]), float(row["time_s"]), int(row["server_bytes"]), int(row["client_bytes"])
    return TimeToTarget(len(met) > 0, bool((meets & ~changed).any()), *values)


def compare_targets(
    runs: Sequence[RunRecords],
    targets: Sequence[str | Target] | None = None,
    baseline: str | None = None,
    smooth: int = 1,
    *,
    across_workloads: bool = False,
    group_by: Sequence[str] = (),
) -> pd.DataFrame:
    """What it took to reach each target: one row per target and row of `analysis.comparison.rows.rows_of`.

    Columns: setting, label, protocol; baseline, is_baseline; target (`Target.column`), metric, threshold, is_default;
    seeds (runs), reached (of them), unfinished (that go on and have not reached it: censored so far), estimator
    (``mean``, ``restricted mean`` or ``not reached``), rounds_watched (of a run that has not reached it, the fewest;
    missing if all have), evaluated_every (the most rounds between two evaluations), ratio_is (``exact``; ``at least``,
    ``at most``: one side is a restricted mean; empty: both are, and there is no ratio), smooth. Then for each of
    time_to_target_s, rounds_to_target, server_bytes_to_target, client_bytes_to_target (of all clients together):
    itself, ``_half_width`` of its 95% interval over the seeds, ``_ratio`` to the baseline and ``_ratio_half_width``
    (paired where both have the same seeds; none of a bound). Then rounds_to_target_median: by which round half of the
    seeds had reached it (Kaplan-Meier). Unknown values are missing.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        targets: texts that `Target.parse` takes, ``best``, or targets; default: ``best``, the best that all reach
            (`analysis.comparison.targets.default_target`), by workload where several are compared apart.
        baseline: see `analysis.comparison.rows.baselines_of`, which also says what it raises.
        smooth: the mean over so many evaluations, the last of them this one, has to meet the target.
        across_workloads: compare runs although they are evaluated on different data.
        group_by: see `analysis.comparison.rows.rows_of`.

    Raises:
        ExperimentError: a target is none, a run was never evaluated, or their accuracies do not compare.
    """
    if smooth < 1:
        raise ExperimentError(f"--smooth {smooth}: a number of evaluations is at least 1")
    wanted = [None] if targets is None else parsed(targets)
    rows = rows_of(runs, group_by)
    baselines = baselines_of(rows, baseline)
    names = baseline_names(rows, baselines)
    if not across_workloads:
        require_same_workload(rows, baselines)
    trajectories: dict[tuple[int, Metric], pd.DataFrame] = {}
    records = []
    for named in wanted:
        for target, among in [(named, rows)] if named else _defaults(rows, smooth, across_workloads):
            found = {id(row): _Reached.of(row, target, smooth, trajectories) for row in among}
            for row, base, name in zip(rows, baselines, names, strict=True):
                if id(row) in found:
                    against = None if base is None else found[id(base)]
                    records.append(
                        _named(row, base, name)
                        | {"target": target.column, "metric": target.metric, "threshold": target.threshold}
                        | {"is_default": named is None, "smooth": smooth}
                        | found[id(row)].columns(against)
                    )
    frame = pd.DataFrame(records)
    order = [*_named(rows[0], None, None), "target", "metric", "threshold", "is_default", *_SEEN, "ratio_is", "smooth"]
    return frame[[*order, *(name for name in frame.columns if name not in order)]].astype(_TYPES)


def targets_beside(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    across_workloads: bool = False,
    group_by: Sequence[str] = (),
) -> tuple[pd.DataFrame | None, str]:
    """`compare_targets` where nobody has asked for it, so that it must not fail: the table, or why there is none.

    The targets are those that the experiments name, else the best that all reach. A reason is empty where the runs were
    not evaluated twice at least: then nobody expects a table.
    """
    try:
        targets = named_targets(runs)
        if not targets and not is_measured(rows_of(runs, group_by)):
            return None, ""
        found = compare_targets(runs, targets or None, baseline, across_workloads=across_workloads, group_by=group_by)
        return found, ""
    except ExperimentError as error:
        return None, str(error)


def _defaults(
    rows: Sequence[ComparisonRow], smooth: int, across_workloads: bool
) -> list[tuple[Target, list[ComparisonRow]]]:
    """The default target of each workload, with its rows."""
    groups: dict[Any, list[ComparisonRow]] = {}
    for row in rows:
        groups.setdefault(None if across_workloads else workload_of(row), []).append(row)
    return [(default_target(among, smooth), among) for among in groups.values()]


def _named(row: ComparisonRow, base: ComparisonRow | None, name: str | None) -> dict[str, Any]:
    return {
        "setting": row.setting,
        "label": row.label,
        "protocol": row.protocol,
        "baseline": name,
        "is_baseline": base is row,
    }


_SEEN = (
    "seeds",
    "reached",
    "unfinished",
    "unchanged",
    "met_at_start",
    "estimator",
    "rounds_watched",
    "evaluated_every",
)


@dataclass(frozen=True)
class _Reached:
    """The runs of a row, and when each of them reached one target."""

    row: ComparisonRow
    target: Target
    frames: tuple[pd.DataFrame, ...]

    @classmethod
    def of(
        cls, row: ComparisonRow, target: Target, smooth: int, trajectories: dict[tuple[int, Metric], pd.DataFrame]
    ) -> "_Reached":
        """Of a row; trajectories are kept for other targets."""
        frames = []
        for run in row.runs:
            require_evaluated(run, target.metric, f"target {target.label}")
            key = (id(run), target.metric)
            if key not in trajectories:
                trajectories[key] = trajectory(run, target.metric, smooth)
            frames.append(trajectories[key])
        return cls(row, target, tuple(frames))

    @cached_property
    def each(self) -> list[TimeToTarget]:
        """When each run reached it."""
        return [reached_in(frame, self.target) for frame in self.frames]

    @property
    def reached(self) -> int:
        return sum(at.reached for at in self.each)

    @property
    def estimator(self) -> str:
        return MEAN if self.reached == len(self.each) else RESTRICTED if self.reached else NOT_REACHED

    @property
    def rounds_watched(self) -> int | None:
        """Of a run that has not reached it, the fewest."""
        return min((at.rounds for at in self.each if not at.reached), default=None)

    def values(self, measure: str) -> list[float]:
        return [float(getattr(at, MEASURES[measure])) for at in self.each]

    def columns(self, base: "_Reached | None") -> dict[str, Any]:
        """The row's numbers, and their ratios to the baseline's."""
        kind = "" if base is None else self._ratio_is(base)
        unfinished = [not at.reached and is_unfinished(run) for run, at in zip(self.row.runs, self.each, strict=True)]
        gaps = [int(np.diff(frame["round"], prepend=0).max(initial=0)) for frame in self.frames]
        found: dict[str, Any] = {
            "seeds": len(self.each),
            "reached": self.reached,
            "unfinished": sum(unfinished),
            "unchanged": sum(len(run.rounds) > 0 and not model_changed(run.rounds).any() for run in self.row.runs),
            "met_at_start": sum(at.met_at_start for at in self.each),
            "estimator": self.estimator,
            "rounds_watched": self.rounds_watched,
            "evaluated_every": max(gaps),
            "ratio_is": kind,
        }
        for measure in MEASURES:
            mean = mean_interval(self.values(measure))
            found |= (mean if self.reached else Interval(mean.mean, None)).named(measure)
            found |= self._ratio(base, measure, kind).named(f"{measure}_ratio")
        happened = [at.reached for at in self.each]
        return found | {MEDIAN: kaplan_meier(self.values("rounds_to_target"), happened).median}

    def _ratio_is(self, base: "_Reached") -> str:
        complete = self.estimator == MEAN, base.estimator == MEAN
        known = {(True, True): "exact", (False, True): "at least", (True, False): "at most"}
        return known.get(complete, "")

    def _ratio(self, base: "_Reached | None", measure: str, kind: str) -> Interval:
        if base is None or not kind:
            return Interval(None, None)
        values, others = self.values(measure), base.values(measure)
        if kind == "exact" and (places := self._pairs(base)):
            return ratio_interval(values, [others[at] for at in places])
        found = ratio_of_means(mean_interval(values), mean_interval(others), len(values), len(others))
        return found if kind == "exact" else Interval(found.mean, None)

    def _pairs(self, base: "_Reached") -> list[int]:
        """For each run the place of the baseline's of the same seed; empty where they have not just the same seeds."""
        mine, theirs = ([run.experiment.get("seed") for run in each.row.runs] for each in (self, base))
        places: Mapping[Any, int] = {seed: place for place, seed in enumerate(theirs)}
        if None in mine or set(mine) != set(theirs) or len(places) < len(theirs) or len(mine) != len(theirs):
            return []
        return [places[seed] for seed in mine]
