"""Check for rows that cannot be ranked because their differences are smaller than the intervals of the differences."""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, Finding, counted, span
from analysis.statistics import mean_interval
from testbed.records import RunRecords

ACCURACY = "accuracy"
WIDE_TIME = 0.05
"""Relative half-width (half-width over the baseline's round time) from which the interval of a round time is wide."""
WIDE_ACCURACY = 0.02
"""Half-width from which the interval of a difference in accuracy is wide: two percentage points."""
WIDE_TARGET = 0.1
"""Half-width from which the interval of the ratio of two times to a target is wide."""
SEEN_TIME, SEEN_ACCURACY, SEEN_TARGET = 0.01, 0.005, 0.02
"""Differences below these are too small to rank rows by."""
FEWEST_POINTS = 0.05
"""Difference in accuracy below which rows with one seed, thus without an interval, are not ranked: five points."""


@dataclass(frozen=True)
class _Difference:
    """The difference between a row and its baseline in one measure.

    Attributes:
        value: row minus baseline.
        half_width: of the 95% interval of the difference; infinite: unknown.
    """

    value: float
    half_width: float


@dataclass(frozen=True)
class _Unranked:
    """A row that cannot be ranked against its baseline by one measure.

    Attributes:
        row, base: the row and its baseline.
        measure: e.g. ``accuracy``.
        difference: in points of accuracy, otherwise relative to the baseline.
        over: the sample of the interval, e.g. ``3 seeds``; empty: there is no interval.
    """

    row: ComparisonRow
    base: ComparisonRow
    measure: str
    difference: _Difference
    over: str


def difference(values: Mapping[Hashable, float], others: Mapping[Hashable, float]) -> _Difference | None:
    """Return the difference of two means with its 95% interval; None if either sample is empty.

    The interval is that of paired samples if both have the same keys, otherwise of independent samples.

    Args:
        values, others: samples by the key that pairs them (a seed, a round).
    """
    if not values or not others:
        return None
    mine, theirs = list(values.values()), list(others.values())
    if values.keys() == others.keys():
        paired = mean_interval([values[key] - others[key] for key in values])
        assert paired.mean is not None
        return _Difference(paired.mean, math.inf if paired.half_width is None else paired.half_width)
    first, second = mean_interval(mine), mean_interval(theirs)
    assert first.mean is not None
    assert second.mean is not None
    width = math.inf
    if first.half_width is not None and second.half_width is not None:
        width = float(np.hypot(first.half_width, second.half_width))  # independent means: variances add
    return _Difference(first.mean - second.mean, width)


def cannot_be_ranked(compared: ComparedRows) -> list[Finding]:
    """Find rows that differ from their baseline by less than the interval of the difference, if it is wide.

    Rows with the same baseline, the same seeds and the same measures share a finding.
    """
    measures: dict[tuple[int, str], list[_Unranked]] = {}
    for entry in _unranked(compared):
        measures.setdefault((id(entry.row), entry.over), []).append(entry)
    groups: dict[tuple[int, str, tuple[str, ...]], list[list[_Unranked]]] = {}
    for of_row in measures.values():
        key = (id(of_row[0].base), of_row[0].over, tuple(entry.measure for entry in of_row))
        groups.setdefault(key, []).append(of_row)
    return [_finding(compared, rows) for rows in groups.values()]


def _unranked(compared: ComparedRows) -> Iterator[_Unranked]:
    targets = _targets(compared)
    for row, base in zip(compared.rows, compared.baselines, strict=True):
        if base is None or base is row:
            continue
        seeds = _seeds(row, base)
        time_s = difference(_round_times(row), _round_times(base))
        mean_s = float(np.mean(list(_round_times(base).values()) or [np.nan]))
        if time_s is not None and mean_s > 0:
            part = _Difference(time_s.value / mean_s, time_s.half_width / mean_s)
            if _overlaps(part, SEEN_TIME, WIDE_TIME):
                over = "the rounds of one seed" if len(row.runs) == len(base.runs) == 1 else seeds
                yield _Unranked(row, base, "round time", part, over)
        accuracy = difference(_accuracies(row), _accuracies(base))
        if accuracy is not None and _overlaps(accuracy, SEEN_ACCURACY, WIDE_ACCURACY):
            yield _Unranked(row, base, ACCURACY, accuracy, seeds)
        elif accuracy is not None and _is_close(accuracy):
            yield _Unranked(row, base, ACCURACY, accuracy, "")
        if id(row) in targets:
            yield _Unranked(row, base, "time to target", targets[id(row)], seeds)


def _overlaps(candidate: _Difference, ranked_from: float, wide_from: float) -> bool:
    """Return whether a difference is large enough to rank by, but smaller than its interval, which is wide."""
    return ranked_from <= abs(candidate.value) < candidate.half_width < math.inf and candidate.half_width >= wide_from


def _is_close(accuracy: _Difference) -> bool:
    """Return whether accuracies without an interval are too close to rank rows by."""
    return math.isinf(accuracy.half_width) and SEEN_ACCURACY <= abs(accuracy.value) < FEWEST_POINTS


def _seeds(row: ComparisonRow, base: ComparisonRow) -> str:
    numbers = sorted({len(row.runs), len(base.runs)})
    return counted(numbers[0], "seed") if len(numbers) == 1 else f"{numbers[0]} and {numbers[1]} seeds"


def _finding(compared: ComparedRows, rows: list[list[_Unranked]]) -> Finding:
    """Return the finding of rows with the same baseline, seeds and measures.

    Args:
        compared: all rows.
        rows: for each row, its measures in the same order.
    """
    first = rows[0][0]
    parts = [_part(list(of_measure)) for of_measure in zip(*rows, strict=True)]
    base = f"the baseline {first.base.full_label}"
    if first.over:
        text = f"the 95% interval of the difference from {base} includes zero over {first.over}: {', '.join(parts)}"
    else:
        text = f"the difference from {base} has no interval, because there is only 1 seed: {', '.join(parts)}"
    keys = ("sweep.seed", "rounds") if first.over == "the rounds of one seed" else ("sweep.seed",)
    return Finding("cannot-be-ranked", text, compared.labels(of_row[0].row for of_row in rows), keys)


def _part(unranked: list[_Unranked]) -> str:
    """Return the text of one measure: of a single row with its value, of several rows with the range of half-widths.

    For example ``accuracy +5.3 ±28.4 points`` and ``accuracy ±20.1 to 28.4 points``.
    """
    unit = "points" if unranked[0].measure == ACCURACY else "%"
    values, widths = (
        [100 * entry.difference.value for entry in unranked],
        [100 * entry.difference.half_width for entry in unranked],
    )
    if math.isinf(max(widths)):
        return f"{unranked[0].measure} {span(values, '{:+.1f}')} {unit}"
    value = f"{values[0]:+.1f} " if len(unranked) == 1 else ""
    return f"{unranked[0].measure} {value}±{span(widths, '{:.1f}')} {unit}"


def _round_times(row: ComparisonRow) -> dict[Hashable, float]:
    """Return seconds of the completed rounds: by round if the row has one seed, otherwise means by seed."""
    if len(row.runs) == 1:
        completed = _completed(row.runs[0])
        return dict(zip(completed["round"], completed["ended_s"] - completed["started_s"], strict=True))
    means = {_seed(run): _completed(run) for run in row.runs}
    return {seed: float((entry["ended_s"] - entry["started_s"]).mean()) for seed, entry in means.items() if len(entry)}


def _completed(run: RunRecords) -> pd.DataFrame:
    return run.rounds[run.rounds["outcome"] == "completed"]


def _accuracies(row: ComparisonRow) -> dict[Hashable, float]:
    """Return the last accuracy of each run, by its seed."""
    evaluations = {_seed(run): run.rounds["accuracy"].dropna() for run in row.runs}
    return {seed: float(values.iloc[-1]) for seed, values in evaluations.items() if len(values)}


def _seed(run: RunRecords) -> Hashable:
    """Return the key that pairs two runs: their seed; a run without a seed has no partner."""
    seed = run.experiment.get("seed")
    return seed if isinstance(seed, int) else str(run.path)


def _targets(compared: ComparedRows) -> dict[int, _Difference]:
    """Return the widest unranked difference (ratio - 1) of times to a target, by identity of the row."""
    frame = compared.targets
    if frame is None:
        return {}
    rows = {(row.setting, row.label): row for row in compared.rows}
    widest: dict[int, _Difference] = {}
    for setting, label, base, ratio, width in frame[
        ["setting", "label", "is_baseline", "time_to_target_s_ratio", "time_to_target_s_ratio_half_width"]
    ].itertuples(index=False):
        row = rows.get((setting, label))
        if row is None or base or not (np.isfinite(ratio) and np.isfinite(width)):
            continue
        candidate = _Difference(ratio - 1, width)
        if _overlaps(candidate, SEEN_TARGET, WIDE_TARGET) and (
            id(row) not in widest or width > widest[id(row)].half_width
        ):
            widest[id(row)] = candidate
    return widest
