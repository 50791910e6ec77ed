"""Kaplan-Meier, restricted means and ratios: published numbers, oracles, and what they are where nobody is censored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics import mean_interval, ratio_interval
from analysis.survival import kaplan_meier, ratio_of_means, restricted_mean
from tests.thoroughness import examples

# Weeks of remission under maintenance chemotherapy, and without (R. Miller, Survival Analysis, 1981, p. 49; `aml` in
# the R package survival); False: censored.
MAINTAINED = [9, 13, 13, 18, 23, 28, 31, 34, 45, 48, 161], [1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0]
NOT_MAINTAINED = [5, 5, 8, 8, 12, 16, 23, 27, 30, 33, 43, 45], [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]

watched = st.lists(st.tuples(st.integers(1, 20).map(float), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("data", "mean", "error", "median", "horizon"),
    [(MAINTAINED, 52.6, 19.83, 31, 161), (NOT_MAINTAINED, 22.7, 4.18, 23, 45)],
)
def test_the_published_example(
    data: tuple[list[int], list[int]], mean: float, error: float, median: float, horizon: float
) -> None:
    """R: print(survfit(Surv(time, status) ~ x, aml), rmean="individual"); its errors are without n / (n - 1)."""
    count = len(data[0])
    found = restricted_mean(*data)
    assert found.mean == pytest.approx(mean, abs=0.05)
    assert found.half_width is not None
    plain = found.half_width / stats.t.ppf(0.975, count - 1) * np.sqrt((count - 1) / count)
    assert plain == pytest.approx(error, abs=0.005)
    curve = kaplan_meier(*data)
    assert (curve.median, curve.horizon) == (median, horizon)


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


@given(watched, st.floats(0.5, 25))
@settings(max_examples=examples(100))
def test_the_restricted_mean_is_the_area_below_the_curve(data: list[tuple[float, bool]], end: float) -> None:
    """Summed in small steps by the product over all events so far, as a person would on paper."""
    values, happened = (np.array(side) for side in zip(*data, strict=True))
    end = min(end, values.max())
    step = 1 / 64
    area = 0.0
    for at in np.arange(0, end, step):
        left = 1.0
        for time in sorted(set(values[happened])):
            if time <= at:
                left *= 1 - np.sum((values == time) & happened) / np.sum(values >= time)
        area += left * min(step, end - at)
    found = restricted_mean(values, happened, end).mean
    assert found is not None
    assert found == pytest.approx(area, abs=2 * step)
    assert found <= end + 1e-9


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10))
@settings(max_examples=examples(100))
def test_where_all_is_seen_it_is_the_mean_with_students_interval(values: list[float]) -> None:
    found, ordinary = restricted_mean(values, [True] * len(values)), mean_interval(values)
    assert found.mean == pytest.approx(ordinary.mean)
    if len(values) > 1:
        assert found.half_width == pytest.approx(ordinary.half_width, abs=1e-6 * max(values))
    else:
        assert found.half_width is None


@given(watched.filter(lambda data: len(data) > 1 and any(did for _, did in data)))
@settings(max_examples=examples(100))
def test_up_to_a_time_at_which_all_are_watched_it_is_the_mean_of_what_was_seen(data: list[tuple[float, bool]]) -> None:
    values, happened = (np.array(side) for side in zip(*data, strict=True))
    end = min([values.max(), *values[~happened]])
    found, seen = restricted_mean(values, happened, end), mean_interval(np.minimum(values, end))
    assert found.mean == pytest.approx(seen.mean)
    if found.half_width is not None:
        assert found.half_width == pytest.approx(seen.half_width, abs=1e-6)


def test_to_whom_nothing_happens_leaves_the_horizon_and_no_interval() -> None:
    found = restricted_mean([3.0, 5.0, 4.0], [False] * 3)
    assert (found.mean, found.half_width, kaplan_meier([3.0, 5.0], [False] * 2).median) == (5.0, None, None)


def test_the_interval_of_a_ratio_holds_as_often_as_it_says() -> None:
    """Independent samples; and the same numbers as the paired one where the other side is a constant."""
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        one, two = generator.normal(20, 3, 8), generator.normal(10, 1, 8)
        found = ratio_of_means(mean_interval(one), mean_interval(two), 8, 8)
        assert found.mean is not None
        assert found.half_width is not None
        inside += abs(found.mean - 2) <= found.half_width
    assert inside >= 375
    constant = mean_interval([5.0, 5.0, 5.0])
    found = ratio_of_means(mean_interval([1.0, 2.0, 4.0]), constant, 3, 3)
    assert found == ratio_interval([1.0, 2.0, 4.0], [5.0, 5.0, 5.0])
