"""Time, rounds and traffic until the model reaches a target: per run, and over the seeds of each row.

A run that has not reached the target is censored at its last evaluation: it would have taken longer, and counts with
the value up to there. If all seeds of a row reach the target, the row has their mean; otherwise it has the restricted
mean, over the values up to the target or the last evaluation, and the mean is at least that.

Only a model that a round has changed can reach a target (`analysis.comparison.targets.model_changed`): an evaluation
before the first completed round measures the initial model.
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
    parse_targets,
    require_evaluated,
    require_same_workload,
    values_of,
    workload_of,
)
from analysis.statistics import Interval, mean_interval, ratio_interval, ratio_of_means
from analysis.survival import kaplan_meier
from testbed.errors import ExperimentError
from testbed.records import RunRecords

# Column of the table: attribute of `TimeToTarget`.
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
    """The time, rounds and traffic until a run reached a target, or until its last evaluation if it did not.

    Attributes:
        reached: whether the run reached the target.
        met_at_start: whether an evaluation before the first completed round met the target, so the initial model did.
        rounds: the number of the round of the evaluation.
        time_s: by the run's clock, at the end of that round.
        server_bytes: between the server and all clients since the start of the run, including failed rounds.
        client_bytes: of all clients, including their PKI look-ups.
    """

    reached: bool
    met_at_start: bool
    rounds: int
    time_s: float
    server_bytes: int
    client_bytes: int


def trajectory(run: RunRecords, metric: Metric = "accuracy", smooth: int = 1) -> pd.DataFrame:
    """Return one row per evaluated round of a run, which may be unfinished.

    Columns: round; time_s, server_bytes, client_bytes since the start of the run, as in `TimeToTarget`; value (of the
    metric; NaN if it is not a number, or before enough evaluations for smoothing); changed (bool: whether a round has
    changed the model by then, see `analysis.comparison.targets.model_changed`).

    Args:
        run: the records.
        metric, smooth: as for `analysis.comparison.targets.values_of`.
    """
    rounds, values = run.rounds, values_of(run, metric, smooth)
    server = (rounds["bytes_down"] + rounds["bytes_up"]).cumsum()
    pki = pd.Series(0, index=rounds["round"])
    for rows in run.exchanges_in_stretches(_PKI, keep=False):  # too many rows to hold at once
        pki_bytes = rows.groupby("round")[_PKI].sum().sum(axis=1)
        pki[pki_bytes.index] = pki_bytes
    frame = pd.DataFrame({"round": rounds["round"], "time_s": rounds["ended_s"], "server_bytes": server})
    frame["client_bytes"] = server + pki.cumsum().to_numpy()
    changed = model_changed(rounds)[values.index]
    return frame.loc[values.index].assign(value=values, changed=changed).reset_index(drop=True)


def reach(run: RunRecords, target: Target, smooth: int = 1) -> TimeToTarget:
    """Return when a run reached a target: the first evaluation of a changed model that meets it.

    Args:
        run: the records.
        target: the target.
        smooth: number of evaluations that are averaged, ending with the current one; the mean has to meet the target.
    """
    return reached_in(trajectory(run, target.metric, smooth), target)


def reached_in(frame: pd.DataFrame, target: Target) -> TimeToTarget:
    """Return when a trajectory reached a target; a trajectory without evaluations is censored at 0.

    Args:
        frame: from `trajectory`.
        target: of the same metric.
    """
    if frame.empty:
        return TimeToTarget(False, False, 0, 0.0, 0, 0)
    meets, changed = target.met(frame["value"]), frame["changed"].to_numpy(bool)
    met = np.flatnonzero(meets & changed)
    row = frame.iloc[met[0] if len(met) else -1]  # or the last evaluation, at which it is censored
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
    """Return the cost of reaching each target: one row per target and row of `analysis.comparison.rows.rows_of`.

    Columns:

    - setting, label, protocol; baseline, is_baseline; target (`Target.column`), metric, threshold, is_default;
    - seeds (runs), reached (number of them that reached the target), unfinished (number of runs that may still reach
      it: censored for now), estimator (``mean``, ``restricted mean`` or ``not reached``), rounds_watched (smallest
      number of rounds of a run that did not reach it; missing if all did), evaluated_every (largest number of rounds
      between two evaluations), ratio_is (``exact``; ``at least``, ``at most``: one side is a restricted mean; empty:
      both are, and there is no ratio), smooth;
    - time_to_target_s, rounds_to_target, server_bytes_to_target, client_bytes_to_target (of all clients together), each
      with ``_half_width`` of its 95% interval over the seeds, ``_ratio`` to the baseline and ``_ratio_half_width``
      (paired if both have the same seeds; missing for a bound);
    - rounds_to_target_median: the round by which half of the seeds had reached the target (Kaplan-Meier).

    Unknown values are missing.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        targets: texts that `Target.parse` takes, ``best``, or targets; default: ``best``, the best target that all runs
            reach (`analysis.comparison.targets.default_target`), for each workload if several are compared separately.
        baseline: as for `analysis.comparison.rows.baselines_of`.
        smooth: number of evaluations that are averaged, ending with the current one; the mean has to meet the target.
        across_workloads: compare runs although they are evaluated on different data.
        group_by: as for `analysis.comparison.rows.rows_of`.

    Raises:
        ExperimentError: an invalid target, a run that was never evaluated, accuracies that are not comparable, or as
            `baselines_of`.
    """
    if smooth < 1:
        raise ExperimentError(f"--smooth {smooth}: should be a number of evaluations, at least 1")
    requested = [None] if targets is None else parse_targets(targets)
    rows = rows_of(runs, group_by)
    baselines = baselines_of(rows, baseline)
    names = baseline_names(rows, baselines)
    if not across_workloads:
        require_same_workload(rows, baselines)
    trajectories: dict[tuple[int, Metric], pd.DataFrame] = {}
    records = []
    for named in requested:
        for target, among in [(named, rows)] if named else _defaults(rows, smooth, across_workloads):
            results = {id(row): _Reached.of(row, target, smooth, trajectories) for row in among}
            for row, base, name in zip(rows, baselines, names, strict=True):
                if id(row) in results:
                    against = None if base is None else results[id(base)]
                    records.append(
                        _named(row, base, name)
                        | {"target": target.column, "metric": target.metric, "threshold": target.threshold}
                        | {"is_default": named is None, "smooth": smooth}
                        | results[id(row)].columns(against)
                    )
    frame = pd.DataFrame(records)
    order = [
        *_named(rows[0], None, None),
        "target",
        "metric",
        "threshold",
        "is_default",
        *_COUNTS,
        "ratio_is",
        "smooth",
    ]
    return frame[[*order, *(name for name in frame.columns if name not in order)]].astype(_TYPES)


def targets_beside(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    across_workloads: bool = False,
    group_by: Sequence[str] = (),
) -> tuple[pd.DataFrame | None, str]:
    """Return the table of `compare_targets` for display beside another table, or a reason for its absence.

    The targets are those that the experiments name, otherwise the best that all runs reach. The reason is empty if the
    runs have fewer than two evaluations, because then a table is not expected.

    Args:
        runs, baseline, across_workloads, group_by: as for `compare_targets`.

    Returns:
        the table or None, and the reason.
    """
    try:
        targets = named_targets(runs)
        if not targets and not is_measured(rows_of(runs, group_by)):
            return None, ""
        table = compare_targets(runs, targets or None, baseline, across_workloads=across_workloads, group_by=group_by)
        return table, ""
    except ExperimentError as error:
        return None, str(error)


def _defaults(
    rows: Sequence[ComparisonRow], smooth: int, across_workloads: bool
) -> list[tuple[Target, list[ComparisonRow]]]:
    """Return the default target of each workload, with its rows."""
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


_COUNTS = (
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
    """The runs of a row, with the evaluation at which each reached one target."""

    row: ComparisonRow
    target: Target
    frames: tuple[pd.DataFrame, ...]

    @classmethod
    def of(
        cls, row: ComparisonRow, target: Target, smooth: int, trajectories: dict[tuple[int, Metric], pd.DataFrame]
    ) -> "_Reached":
        """Return the result of a row; `trajectories` caches the runs' trajectories for further targets."""
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
        """Time to the target of each run."""
        return [reached_in(frame, self.target) for frame in self.frames]

    @property
    def reached(self) -> int:
        return sum(at.reached for at in self.each)

    @property
    def estimator(self) -> str:
        return MEAN if self.reached == len(self.each) else RESTRICTED if self.reached else NOT_REACHED

    @property
    def rounds_watched(self) -> int | None:
        """Smallest number of rounds of a run that did not reach the target."""
        return min((at.rounds for at in self.each if not at.reached), default=None)

    def values(self, measure: str) -> list[float]:
        return [float(getattr(at, MEASURES[measure])) for at in self.each]

    def columns(self, base: "_Reached | None") -> dict[str, Any]:
        """Return the row's numbers, and their ratios to the baseline's."""
        kind = "" if base is None else self._ratio_is(base)
        unfinished = [not at.reached and is_unfinished(run) for run, at in zip(self.row.runs, self.each, strict=True)]
        gaps = [int(np.diff(frame["round"], prepend=0).max(initial=0)) for frame in self.frames]
        values: dict[str, Any] = {
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
            # If no run reached it, all values are ends of observation, and their spread is no uncertainty.
            values |= (mean if self.reached else Interval(mean.mean, None)).named(measure)
            values |= self._ratio(base, measure, kind).named(f"{measure}_ratio")
        happened = [at.reached for at in self.each]
        # Over rounds alone: in seconds or bytes the curve is biased, as a run with short, failing rounds is censored
        # early because it is bad (D. Lin et al., Biometrics 53, 1997, on costs).
        return values | {MEDIAN: kaplan_meier(self.values("rounds_to_target"), happened).median}

    def _ratio_is(self, base: "_Reached") -> str:
        complete = self.estimator == MEAN, base.estimator == MEAN
        # A restricted mean is too small: above the line it bounds the ratio from below, under it from above.
        kinds = {(True, True): "exact", (False, True): "at least", (True, False): "at most"}
        return kinds.get(complete, "")

    def _ratio(self, base: "_Reached | None", measure: str, kind: str) -> Interval:
        if base is None or not kind:
            return Interval(None, None)
        values, others = self.values(measure), base.values(measure)
        if kind == "exact" and (places := self._pairs(base)):
            return ratio_interval(values, [others[at] for at in places])
        ratio = ratio_of_means(mean_interval(values), mean_interval(others), len(values), len(others))
        return ratio if kind == "exact" else Interval(ratio.mean, None)

    def _pairs(self, base: "_Reached") -> list[int]:
        """Return for each run the index of the baseline's run with the same seed; empty if their seeds differ."""
        mine, theirs = ([run.experiment.get("seed") for run in reached_row.row.runs] for reached_row in (self, base))
        places: Mapping[Any, int] = {seed: place for place, seed in enumerate(theirs)}
        # Repeated seeds have no unique partner.
        if None in mine or set(mine) != set(theirs) or len(places) < len(theirs) or len(mine) != len(theirs):
            return []
        return [places[seed] for seed in mine]
