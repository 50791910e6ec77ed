"""Transfers of which there are several alike, given once with their number, fare as if each were given by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.transfers import exceeds, transfer
from tests.network.fair_sharing.definition import Case, cases, cases_in_flights
from tests.thoroughness import examples


def same(case: Case, counts: list[int], capacity: float) -> None:
    """Check equality to the last bit, in any order."""
    start, size, stop = case.columns()
    count = np.resize(np.array(counts), len(start))
    flights = None if case.flights is None else case.in_flights()
    rows = np.repeat(np.arange(len(start)), count)
    each = None if flights is None else flights.take(rows)
    together = transfer(start, size, case.rates(), capacity, stop, flights, count)
    alone = transfer(start[rows], size[rows], case.rates().take(rows), capacity, stop[rows], each)
    assert np.array_equal(together.finish_s[rows], alone.finish_s)
    assert np.array_equal(together.delivered_bytes[rows], alone.delivered_bytes)


counts = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@settings(max_examples=examples(200))
@given(cases(), counts)
def test_counted_transfers_fare_as_single_ones(case: Case, several: list[int]) -> None:
    same(case, several, case.capacity)


@settings(max_examples=examples(200))
@given(cases_in_flights(), counts)
def test_also_in_flights(case: Case, several: list[int]) -> None:
    same(case, several, case.capacity)


@settings(max_examples=examples(200))
@given(cases(stops=False), counts, st.integers(-2, 2))
def test_also_where_rounding_decides_whether_the_link_is_full(case: Case, several: list[int], steps: int) -> None:
    most = case.rates().maximum() / 3
    capacity = float(np.repeat(most, np.resize(several, len(most))).sum())
    for _ in range(abs(steps)):
        capacity = float(np.nextafter(capacity, np.inf if steps > 0 else 0.0))
    rates = case.rates()
    thirds = type(rates)(rates.traces, rates.trace_of, rates.phase_s, rates.scale / 3)
    start, size, _ = case.columns()
    count = np.resize(np.array(several), len(start))
    rows = np.repeat(np.arange(len(start)), count)
    together = transfer(start, size, thirds, capacity, count=count)
    alone = transfer(start[rows], size[rows], thirds.take(rows), capacity)
    assert np.array_equal(together.finish_s[rows], alone.finish_s)
    assert exceeds(thirds.maximum(), capacity, count) == exceeds(thirds.maximum()[rows], capacity)


def test_unlimited_links_that_are_counted() -> None:
    infinite = Rates.constant([np.inf, 5.0])
    found = transfer(np.zeros(2), np.array([30.0, 10.0]), infinite, 10.0, count=np.array([2, 3]))
    single = transfer(
        np.zeros(5), np.array([30.0, 30.0, 10.0, 10.0, 10.0]), infinite.take([0, 0, 1, 1, 1]), 10.0
    ).finish_s
    assert found.finish_s.tolist() == [single[0], single[2]]


@pytest.mark.parametrize("number", [1, 10**7])
def test_ten_million_alike_are_one(number: int) -> None:
    found = transfer(np.zeros(1), np.full(1, 100.0), Rates.constant([50.0]), 10.0, count=np.array([number]))
    assert found.finish_s[0] == pytest.approx(10.0 * number)
