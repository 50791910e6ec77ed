"""Rows that cannot be ranked: their differences are smaller than the intervals of the differences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, counted
from analysis.findings.finding import Finding
from analysis.statistics import mean_interval
from testbed.records import RunRecords

WIDE_TIME = 0.05
"""Half-width of a difference in round time, over the baseline's, from which on it is too wide."""
WIDE_ACCURACY = 0.02
"""The same of a difference in accuracy: two points."""
WIDE_TARGET = 0.1
"""The same of the ratio of two times to a target."""
SEEN_TIME, SEEN_ACCURACY, SEEN_TARGET = 0.01, 0.005, 0.02
"""Differences below these are none that anybody ranks rows by."""
FEWEST_POINTS = 0.05
"""With one seed there is no interval of an accuracy: closer rows than five points are not ranked by it."""


@dataclass(frozen=True)
class _Difference:
    """How a row differs from its baseline in one measure.

    Attributes:
        value: row less baseline.
        half_width: of the 95% interval of the difference; infinite: not known.
    """

    value: float
    half_width: float


def difference(values: Mapping[int, float], others: Mapping[int, float]) -> _Difference | None:
    """The difference of two means with its 95% interval, the narrower one of paired and independent values.

    Args:
        values, others: by what pairs them (a seed, a round).
    """
    if not values or not others:
        return None
    mine, theirs = list(values.values()), list(others.values())
    one, two = mean_interval(mine), mean_interval(theirs)
    assert one.mean is not None
    assert two.mean is not None
    width = math.inf
    if one.half_width is not None and two.half_width is not None:
        width = float(np.hypot(one.half_width, two.half_width))
    both = [key for key in values if key in others]
    if len(both) == len(mine) == len(theirs):
        paired = mean_interval([values[key] - others[key] for key in both])
        width = min(width, math.inf if paired.half_width is None else paired.half_width)
    return _Difference(one.mean - two.mean, width)


def cannot_be_ranked(compared: ComparedRows) -> list[Finding]:
    """Rows whose difference to their baseline is smaller than its interval, where that interval is wide."""
    unranked: dict[str, list[tuple[Row, float]]] = {}
    close: list[tuple[Row, float]] = []
    for row, base in zip(compared.rows, compared.baselines, strict=True):
        if base is None or base is row:
            continue
        time_s = difference(_round_times(row), _round_times(base))
        mean_s = float(np.mean(list(_round_times(base).values()) or [np.nan]))
        if time_s is not None and np.isfinite(time_s.half_width) and mean_s > 0:
            size, width = abs(time_s.value) / mean_s, time_s.half_width / mean_s
            if SEEN_TIME <= size < width and width >= WIDE_TIME:
                unranked.setdefault("round time", []).append((row, width))
        accuracy = difference(_accuracies(row), _accuracies(base))
        if accuracy is not None:
            size, width = abs(accuracy.value), accuracy.half_width
            if np.isfinite(width) and SEEN_ACCURACY <= size < width and width >= WIDE_ACCURACY:
                unranked.setdefault("accuracy", []).append((row, width))
            elif not np.isfinite(width) and SEEN_ACCURACY <= size < FEWEST_POINTS:
                close.append((row, size))
    for row, width in _targets(compared):
        unranked.setdefault("time to target", []).append((row, width))
    if not unranked and not close:
        return []
    seeds = max(len(row.runs) for row in compared.rows)
    parts = [_part(name, found) for name, found in unranked.items()]
    said = ""
    if parts:
        over = counted(seeds, "seed") if seeds > 1 else "the rounds of one seed"
        said = f"differences are smaller than their 95% intervals over {over}: {', '.join(parts)}"
    if close:
        points = max(size for _, size in close)
        alone = f"accuracies of one seed differ by up to {100 * points:.1f} points, and have no interval"
        said = f"{said}; {alone}" if said else alone
    rows = [row for found in unranked.values() for row, _ in found] + [row for row, _ in close]
    bases = [base for row, base in zip(compared.rows, compared.baselines, strict=True) if row in rows and base]
    keys = ("sweep.seed",) if seeds > 1 or close else ("sweep.seed", "rounds")
    return [Finding("cannot-be-ranked", said, compared.labels([*rows, *bases]), keys)]


def _part(name: str, found: list[tuple[Row, float]]) -> str:
    width = max(width for _, width in found)
    return f"{name} (±{100 * width:.1f} {'points' if name == 'accuracy' else '%'})"


def _round_times(row: Row) -> dict[int, float]:
    """Seconds of the completed rounds: of one seed by round, else means by seed."""
    if len(row.runs) == 1:
        completed = _completed(row.runs[0])
        return dict(zip(completed["round"], completed["ended_s"] - completed["started_s"], strict=True))
    means = {_seed(run, at): _completed(run) for at, run in enumerate(row.runs)}
    return {seed: float((one["ended_s"] - one["started_s"]).mean()) for seed, one in means.items() if len(one)}


def _completed(run: RunRecords) -> pd.DataFrame:
    return run.rounds[run.rounds["outcome"] == "completed"]


def _accuracies(row: Row) -> dict[int, float]:
    """The last accuracy of each run, by its seed."""
    found = {_seed(run, at): run.rounds["accuracy"].dropna() for at, run in enumerate(row.runs)}
    return {seed: float(values.iloc[-1]) for seed, values in found.items() if len(values)}


def _seed(run: RunRecords, place: int) -> int:
    seed = run.experiment.get("seed")
    return seed if isinstance(seed, int) else -1 - place


def _targets(compared: ComparedRows) -> list[tuple[Row, float]]:
    """Rows whose ratio of times to a target has 1 in its interval, and the half-width of it."""
    frame = compared.targets
    if frame is None:
        return []
    rows = {(row.setting, row.label): row for row in compared.rows}
    found: dict[int, tuple[Row, float]] = {}
    for setting, label, base, ratio, width in frame[
        ["setting", "label", "is_baseline", "time_to_target_s_ratio", "time_to_target_s_ratio_half_width"]
    ].itertuples(index=False):
        row = rows.get((setting, label))
        if row is None or base or not (np.isfinite(ratio) and np.isfinite(width)):
            continue
        if SEEN_TARGET <= abs(ratio - 1) < width and width >= WIDE_TARGET:
            found[id(row)] = (row, max(width, found.get(id(row), (row, 0.0))[1]))
    return list(found.values())
