"""Kaplan-Meier: published numbers, scipy's curve, and what it is where nobody is censored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.survival import kaplan_meier
from tests.thoroughness import examples

# Weeks of remission under maintenance chemotherapy, and without (R. Miller, Survival Analysis, 1981, p. 49; `aml` in
# the R package survival); False: censored.
MAINTAINED = [9, 13, 13, 18, 23, 28, 31, 34, 45, 48, 161], [1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0]
NOT_MAINTAINED = [5, 5, 8, 8, 12, 16, 23, 27, 30, 33, 43, 45], [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]

watched = st.lists(st.tuples(st.integers(1, 20).map(float), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize(("data", "mean", "median"), [(MAINTAINED, 52.6, 31), (NOT_MAINTAINED, 22.7, 23)])
def test_the_published_example(data: tuple[list[int], list[int]], mean: float, median: float) -> None:
    """R: print(survfit(Surv(time, status) ~ x, aml), rmean="individual"); rmean is the area below the curve."""
    curve = kaplan_meier(*data)
    area = np.diff([0, *curve.times, max(data[0])]) @ [1, *curve.remaining]
    assert (round(area, 1), curve.median) == (mean, median)


def test_the_curve_of_kaplan_and_meier() -> None:
    """Their own example (1958, section 2): deaths at 0.8, 3.1, 5.4 and 9.2 months, losses at 1.0, 2.7, 7.0 and 12.1."""
    curve = kaplan_meier([0.8, 1.0, 2.7, 3.1, 5.4, 7.0, 9.2, 12.1], [1, 0, 0, 1, 1, 0, 1, 0])
    assert curve.times.tolist() == [0.8, 3.1, 5.4, 9.2]
    assert curve.remaining == pytest.approx([7 / 8, 7 / 10, 21 / 40, 21 / 80])


@given(watched)
@settings(max_examples=examples(100))
def test_the_curve_is_that_of_scipy(data: list[tuple[float, bool]]) -> None:
    values, happened = (np.array(side) for side in zip(*data, strict=True))
    theirs = stats.ecdf(stats.CensoredData.right_censored(values, ~happened)).sf
    curve = kaplan_meier(values, happened)
    at = np.flatnonzero(np.isin(theirs.quantiles, curve.times))
    assert curve.remaining == pytest.approx(theirs.probabilities[at])
    assert theirs.probabilities.min() == pytest.approx(curve.remaining.min(initial=1.0))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9))
@settings(max_examples=examples(50))
def test_where_all_is_seen_the_median_is_the_time_by_which_half_have(values: list[int]) -> None:
    assert kaplan_meier(values, [True] * len(values)).median == sorted(values)[(len(values) - 1) // 2]


def test_whom_nothing_happens_to_has_no_median() -> None:
    curve = kaplan_meier([3.0, 5.0, 4.0], [False] * 3)
    assert (curve.times.tolist(), curve.median) == ([], None)
    assert kaplan_meier([3.0, 5.0, 4.0], [True, False, False]).median is None
