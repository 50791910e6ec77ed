"""Transfers that all begin before one ends: computed in sorted order, and equal to following the level by events."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.emulation.transport.flights import Flights
from testbed.network.fair_sharing.cohort import begin_before_any_ends, cohort_finish
from testbed.network.fair_sharing.max_min import contended_finish
from tests.network.fair_sharing.test_transfers import exact_finish

SAME = 1e-12


def by_events(start: np.ndarray, size: np.ndarray, rate: np.ndarray, count: np.ndarray, capacity: float) -> np.ndarray:
    return contended_finish(start, rate, Flights.whole(size), count, capacity)


one = st.tuples(st.floats(0, 1), st.floats(1, 50), st.floats(0.1, 20), st.integers(1, 4))
alike = st.tuples(
    st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from([5.0, 8.0]), st.sampled_from([1.0, 2.0, 4.0]), st.integers(1, 4)
)


@given(st.lists(st.one_of(one, alike), min_size=1, max_size=30), st.floats(0.05, 1.0))
def test_as_the_level_followed_from_event_to_event(transfers: list[tuple], part: float) -> None:
    start, size, rate, count = np.array(sorted(transfers)).T
    counts = count.astype(np.int64)
    capacity = part * float(rate @ count)  # the link is full, or just about
    assume(begin_before_any_ends(start, size, rate, capacity))
    found, expected = (method(start, size, rate, counts, capacity) for method in (cohort_finish, by_events))
    np.testing.assert_allclose(found, expected, rtol=SAME)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("together", [True, False])
def test_thousands(part: float, together: bool) -> None:
    generator = np.random.default_rng(11)
    start = np.zeros(3000) if together else np.sort(generator.random(3000))
    size, rate = generator.uniform(1e6, 3e6, 3000), generator.uniform(0.1, 1.0, 3000) * 1e6
    count, capacity = generator.integers(1, 3, 3000), part * float(rate.sum())
    assert begin_before_any_ends(start, size, rate, capacity)
    found, expected = (method(start, size, rate, count, capacity) for method in (cohort_finish, by_events))
    np.testing.assert_allclose(found, expected, rtol=SAME)


def test_as_in_rational_numbers() -> None:
    generator = np.random.default_rng(12)
    columns = [np.sort(generator.integers(0, 5, 60)), generator.integers(300, 900, 60), generator.integers(1, 60, 60)]
    transfers = list(zip(*(column.tolist() for column in columns), strict=True))
    start, size, rate = (column.astype(np.float64) for column in columns)
    for capacity in (7, 500, 1200):
        assert begin_before_any_ends(start, size, rate, capacity)
        found = cohort_finish(start, size, rate, np.ones(60, np.int64), capacity)
        np.testing.assert_allclose(found, [float(end) for end in exact_finish(transfers, capacity)], rtol=SAME)


def test_unlimited_links() -> None:
    start, size, rate = np.zeros(3), np.array([10.0, 10.0, 1.0]), np.array([np.inf, np.inf, 0.25])
    found = cohort_finish(start, size, rate, np.ones(3, np.int64), 5.0)
    # The third has its own rate for four seconds; the others share 4.75, and are through after 20 / 4.75 > 4 seconds.
    np.testing.assert_allclose(found, [4 + 1 / 5, 4 + 1 / 5, 4.0])


def test_a_transfer_that_begins_when_another_may_be_complete() -> None:
    size, rate = np.array([10.0, 10.0]), np.array([5.0, 1.0])
    assert begin_before_any_ends(np.array([0.0, 2.0]), size, rate, 100.0)
    assert not begin_before_any_ends(np.array([0.0, 2.1]), size, rate, 100.0)
    assert begin_before_any_ends(np.array([0.0, 2.1]), size, rate, 4.0)  # nobody is faster than the link
