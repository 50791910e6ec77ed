"""Rows that cannot be ranked: their differences are smaller than the intervals of the differences."""

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


@dataclass(frozen=True)
class _Unranked:
    """A row that cannot be ranked against its baseline by one measure.

    Attributes:
        row, base: the row and its baseline.
        measure: e.g. ``accuracy``.
        difference: in points of accuracy, else in per cent of the baseline.
        over: the sample of the interval, e.g. ``3 seeds``; empty: there is no interval.
    """

    row: ComparisonRow
    base: ComparisonRow
    measure: str
    difference: _Difference
    over: str


def difference(values: Mapping[Hashable, float], others: Mapping[Hashable, float]) -> _Difference | None:
    """The difference of two means with its 95% interval: of the pairs where all values have one, else independent.

    Args:
        values, others: by the key that pairs them (a seed, a round).
    """
    if not values or not others:
        return None
    mine, theirs = list(values.values()), list(others.values())
    if values.keys() == others.keys():
        paired = mean_interval([values[key] - others[key] for key in values])
        assert paired.mean is not None
        return _Difference(paired.mean, math.inf if paired.half_width is None else paired.half_width)
    one, two = mean_interval(mine), mean_interval(theirs)
    assert one.mean is not None
    assert two.mean is not None
    width = math.inf
    if one.half_width is not None and two.half_width is not None:
        width = float(np.hypot(one.half_width, two.half_width))
    return _Difference(one.mean - two.mean, width)


def cannot_be_ranked(compared: ComparedRows) -> list[Finding]:
    """Rows whose difference to their baseline is smaller than its interval, where that interval is wide.

    One finding holds for the rows that have the same baseline, the same seeds and the same measures.
    """
    measures: dict[tuple[int, str], list[_Unranked]] = {}
    for one in _unranked(compared):
        measures.setdefault((id(one.row), one.over), []).append(one)
    groups: dict[tuple[int, str, tuple[str, ...]], list[list[_Unranked]]] = {}
    for of_row in measures.values():
        key = (id(of_row[0].base), of_row[0].over, tuple(one.measure for one in of_row))
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


def _overlaps(found: _Difference, seen: float, wide: float) -> bool:
    """Whether a difference that somebody may rank by is smaller than its interval, which is wide."""
    return seen <= abs(found.value) < found.half_width < math.inf and found.half_width >= wide


def _is_close(accuracy: _Difference) -> bool:
    """Whether accuracies that have no interval are too close to rank rows by."""
    return math.isinf(accuracy.half_width) and SEEN_ACCURACY <= abs(accuracy.value) < FEWEST_POINTS


def _seeds(row: ComparisonRow, base: ComparisonRow) -> str:
    numbers = sorted({len(row.runs), len(base.runs)})
    return counted(numbers[0], "seed") if len(numbers) == 1 else f"{numbers[0]} and {numbers[1]} seeds"


def _finding(compared: ComparedRows, rows: list[list[_Unranked]]) -> Finding:
    """The finding of rows with the same baseline, seeds and measures.

    Args:
        compared: all rows.
        rows: for each row, its measures in the same order.
    """
    first = rows[0][0]
    parts = [_part(list(of_measure)) for of_measure in zip(*rows, strict=True)]
    base = f"the baseline {first.base.full_label}"
    if first.over:
        text = f"the 95% interval of the difference to {base} includes zero over {first.over}: {', '.join(parts)}"
    else:
        text = f"the difference to {base} has no interval, as there is only one seed: {', '.join(parts)}"
    keys = ("sweep.seed", "rounds") if first.over == "the rounds of one seed" else ("sweep.seed",)
    return Finding("cannot-be-ranked", text, compared.labels(of_row[0].row for of_row in rows), keys)


def _part(found: list[_Unranked]) -> str:
    """E.g. ``accuracy +5.3 ±28.4 points`` of one row, ``accuracy ±20.1 to 28.4 points`` of several."""
    unit = "points" if found[0].measure == ACCURACY else "%"
    values, widths = (
        [100 * one.difference.value for one in found],
        [100 * one.difference.half_width for one in found],
    )
    if math.isinf(max(widths)):
        return f"{found[0].measure} {span(values, '{:+.1f}')} {unit}"
    value = f"{values[0]:+.1f} " if len(found) == 1 else ""
    return f"{found[0].measure} {value}±{span(widths, '{:.1f}')} {unit}"


def _round_times(row: ComparisonRow) -> dict[Hashable, float]:
    """Seconds of the completed rounds: of one seed by round, else means by seed."""
    if len(row.runs) == 1:
        completed = _completed(row.runs[0])
        return dict(zip(completed["round"], completed["ended_s"] - completed["started_s"], strict=True))
    means = {_seed(run): _completed(run) for run in row.runs}
    return {seed: float((one["ended_s"] - one["started_s"]).mean()) for seed, one in means.items() if len(one)}


def _completed(run: RunRecords) -> pd.DataFrame:
    return run.rounds[run.rounds["outcome"] == "completed"]


def _accuracies(row: ComparisonRow) -> dict[Hashable, float]:
    """The last accuracy of each run, by its seed."""
    found = {_seed(run): run.rounds["accuracy"].dropna() for run in row.runs}
    return {seed: float(values.iloc[-1]) for seed, values in found.items() if len(values)}


def _seed(run: RunRecords) -> Hashable:
    """The key that pairs two runs: their seed; a run without a seed has no partner."""
    seed = run.experiment.get("seed")
    return seed if isinstance(seed, int) else str(run.path)


def _targets(compared: ComparedRows) -> dict[int, _Difference]:
    """Rows (by identity) whose ratio of times to a target has 1 in its interval: the widest, as a difference to 1."""
    frame = compared.targets
    if frame is None:
        return {}
    rows = {(row.setting, row.label): row for row in compared.rows}
    found: dict[int, _Difference] = {}
    for setting, label, base, ratio, width in frame[
        ["setting", "label", "is_baseline", "time_to_target_s_ratio", "time_to_target_s_ratio_half_width"]
    ].itertuples(index=False):
        row = rows.get((setting, label))
        if row is None or base or not (np.isfinite(ratio) and np.isfinite(width)):
            continue
        one = _Difference(ratio - 1, width)
        if _overlaps(one, SEEN_TARGET, WIDE_TARGET) and (id(row) not in found or width > found[id(row)].half_width):
            found[id(row)] = one
    return found
