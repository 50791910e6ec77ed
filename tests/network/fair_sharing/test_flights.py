"""Transfers that go in flights: the exact definition, and the properties that any fair link has."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed.emulation.links.rates import CONSTANT, Rates
from testbed.emulation.transport.flights import Flights
from testbed.network.fair_sharing import windows
from testbed.network.fair_sharing.transfers import transfer
from tests.network.fair_sharing.definition import Case, cases_in_flights, exact
from tests.thoroughness import examples

CLOSE = 1e-9


def constant(case: Case) -> Case:
    """The same with rates that do not change, none of them 0."""
    made = [
        (start, size, stop, CONSTANT, 0, 1 + (phase + scale) % 4)
        for start, size, stop, _, phase, scale in case.transfers
    ]
    return Case(case.traces, made, case.capacity, case.flights)


@pytest.fixture(autouse=True, params=[2, 1000], ids=["short windows", "long windows"], scope="module")
def window_length(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "EVENTS", request.param)
        yield


@settings(max_examples=examples(200))
@given(cases_in_flights())
def test_equals_the_definition(case: Case) -> None:
    start, size, stop = case.columns()
    found = transfer(start, size, case.rates(), case.capacity, stop, case.in_flights())
    finish, delivered = exact(case)
    np.testing.assert_allclose(found.finish_s, finish, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(found.delivered_bytes, delivered, rtol=CLOSE, atol=1e-7)


@settings(max_examples=examples(200))
@given(cases_in_flights(stops=False).map(constant))
def test_equals_the_definition_at_constant_rates(case: Case) -> None:
    start, size, _ = case.columns()
    rates = Rates.constant(case.rates().maximum())
    found = transfer(start, size, rates, case.capacity, flights=case.in_flights())
    np.testing.assert_allclose(found.finish_s, exact(case)[0], rtol=CLOSE, atol=CLOSE)
    assert (found.delivered_bytes == size).all()


@given(cases_in_flights().map(constant))
def test_constant_rates_and_traces_that_never_change_are_the_same(case: Case) -> None:
    start, size, stop = case.columns()
    fixed = Rates.constant(case.rates().maximum())
    found = transfer(start, size, fixed, case.capacity, stop, case.in_flights())
    traced = transfer(start, size, case.rates(), case.capacity, stop, case.in_flights())
    np.testing.assert_allclose(traced.finish_s, found.finish_s, rtol=CLOSE, atol=CLOSE)


@given(st.one_of(cases_in_flights(), cases_in_flights(stops=False).map(constant)), st.randoms(use_true_random=False))
def test_the_order_of_the_transfers_does_not_matter(case: Case, random) -> None:
    start, size, stop = case.columns()
    flights, rates, order = case.in_flights(), case.rates(), np.array(random.sample(range(len(start)), len(start)))
    thirds = Flights(flights.pattern, flights.offsets, flights.size_bytes / 3, flights.gap_s / 7)
    found = transfer(start / 7, size / 3, rates, case.capacity / 3, stop / 7, thirds)
    shuffled = transfer(
        start[order] / 7, size[order] / 3, rates.take(order), case.capacity / 3, stop[order] / 7, thirds.take(order)
    )
    assert shuffled.finish_s.tobytes() == found.finish_s[order].tobytes()
    assert shuffled.delivered_bytes.tobytes() == found.delivered_bytes[order].tobytes()


@given(cases_in_flights(), st.booleans())
def test_one_flight_is_none(case: Case, steady: bool) -> None:
    start, size, stop = case.columns()
    rates = Rates.constant(case.rates().maximum() / 7) if steady else case.rates()
    sizes, pattern = np.unique(size / 3, return_inverse=True)
    one = Flights.of([[(amount, 0.0)] if amount else [] for amount in sizes]).take(pattern)
    for capacity in (case.capacity / 3, math.inf):
        without = transfer(start / 7, size / 3, rates, capacity, stop)
        found = transfer(start / 7, size / 3, rates, capacity, stop, one)
        assert found.finish_s.tobytes() == without.finish_s.tobytes()
        assert found.delivered_bytes.tobytes() == without.delivered_bytes.tobytes()


@given(cases_in_flights())
def test_flights_without_gaps_are_none(case: Case) -> None:
    start, size, stop = case.columns()
    flights, rates = case.in_flights(), case.rates()
    without = transfer(start, size, rates, case.capacity, stop)
    no_gaps = Flights(flights.pattern, flights.offsets, flights.size_bytes, np.zeros(len(flights.gap_s)))
    found = transfer(start, size, rates, case.capacity, stop, no_gaps)
    np.testing.assert_allclose(found.finish_s, without.finish_s, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(found.delivered_bytes, without.delivered_bytes, rtol=CLOSE, atol=1e-7)


@given(cases_in_flights(), st.integers(-1000, 1000))
def test_a_later_start_shifts_everything(case: Case, shift: int) -> None:
    start, size, stop = case.columns()
    rates, flights = case.rates(), case.in_flights()
    unmoved = transfer(start, size, rates, case.capacity, stop, flights)
    # Where a transfer ends in the very moment in which a rate does, rounding decides whether it waits for the next one.
    for a_little in (-1e-9, 1e-9):
        nearby = transfer(start + a_little, size, rates, case.capacity, stop, flights)
        assume(np.allclose(nearby.finish_s, unmoved.finish_s, rtol=1e-6, atol=1e-6))
    moved = transfer(start + shift, size, rates.delayed(shift), case.capacity, stop + shift, flights)
    np.testing.assert_allclose(moved.finish_s - shift, unmoved.finish_s, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(moved.delivered_bytes, unmoved.delivered_bytes, rtol=1e-7, atol=1e-6)


@settings(max_examples=examples(50))
@given(cases_in_flights())
def test_no_link_carries_more_than_it_can(case: Case) -> None:
    start, size, stop = case.columns()
    rates, flights = case.rates(), case.in_flights()
    found = transfer(start, size, rates, case.capacity, stop, flights)
    until = np.where(np.isfinite(found.finish_s), found.finish_s, stop)
    own = rates.bytes_between(start, until)
    assert (found.delivered_bytes <= own * (1 + CLOSE) + 1e-7).all()
    complete = np.isfinite(found.finish_s)
    assert (found.delivered_bytes[complete] == size[complete]).all()
    assert (found.delivered_bytes <= size).all()
    carried = 0.0
    for before, moment in itertools.pairwise(np.unique(np.append(until[np.isfinite(until)], start))):
        by_then = transfer(start, size, rates, case.capacity, np.minimum(stop, moment), flights).delivered_bytes.sum()
        assert by_then - carried <= case.capacity * (moment - before) * (1 + CLOSE) + 1e-6
        carried = by_then


@given(cases_in_flights())
def test_a_link_without_limit_is_many_links(case: Case) -> None:
    start, size, stop = case.columns()
    rates, flights = case.rates(), case.in_flights()
    together = transfer(start, size, rates, math.inf, stop, flights)
    wide = transfer(start, size, rates, 1e9, stop, flights)
    np.testing.assert_allclose(wide.finish_s, together.finish_s, rtol=CLOSE, atol=CLOSE)
    for index in range(len(start)):
        one = np.array([index])
        alone = transfer(start[one], size[one], rates.take(one), math.inf, stop[one], flights.take(one))
        assert alone.finish_s[0] == together.finish_s[index]
        assert alone.delivered_bytes[0] == together.delivered_bytes[index]


@given(cases_in_flights(stops=False), st.integers(1, 4), st.floats(0, 1))
def test_nothing_makes_a_lone_transfer_later_that_should_not(case: Case, more: int, part: float) -> None:
    start, size, _ = case.columns()
    flights, one, capacity = case.in_flights(), np.array([0]), case.capacity
    rates = case.rates().take(one)
    faster = Rates.traced(rates.traces, rates.trace_of, rates.phase_s, rates.scale * more)
    sooner = Flights(flights.pattern, flights.offsets, flights.size_bytes, flights.gap_s * part)

    def finish(rates: Rates, flights: Flights, capacity: float) -> float:
        return float(transfer(start[one], size[one], rates, capacity, flights=flights.take(one)).finish_s[0])

    before = finish(rates, flights, capacity)
    if before < math.inf:
        assert finish(faster, flights, capacity) <= before * (1 + CLOSE)
        assert finish(rates, sooner, capacity) <= before * (1 + CLOSE)
        assert finish(rates, flights, capacity + more) <= before * (1 + CLOSE)


def test_a_window_waits_for_its_round_trip_and_then_the_link() -> None:
    # 10 bytes take 1 s, the next flight begins at 3 s; its 20 take 2 s, just until the third may go; and the last.
    flights = Flights.of([[(10, 0.0), (20, 3.0), (40, 2.0), (5, 2.0)]])
    assert transfer([1.0], [75], Rates.constant([10.0]), math.inf, flights=flights).finish_s.tolist() == [10.5]


def test_the_first_gap_counts_from_the_start() -> None:
    flights = Flights.of([[(10, 2.0)], [], [(10, 2.0)]])
    found = transfer([1, 1, 1], [10, 0, 10], Rates.constant([5, 5, 5]), 5, [9, 9, 2], flights)
    assert found.finish_s.tolist() == [5, 1, math.inf]
    assert found.delivered_bytes.tolist() == [10, 0, 0]


def test_a_client_that_waits_for_a_round_trip_leaves_the_link_to_others() -> None:
    # The first sends at 5 for 2 s, waits until 10 s, and sends at 5 again; the second has 10 meanwhile.
    flights = Flights.of([[(10, 0.0), (10, 10.0)], [(100, 0.0)]])
    for rates in (Rates.constant([10, 10]), Rates.constant([math.inf, 10])):
        found = transfer([0, 0], [20, 100], rates, 10, flights=flights)
        np.testing.assert_allclose(found.finish_s, [12, 12])
        cut = transfer([0, 0], [20, 100], rates, 10, [6, math.inf], flights)
        np.testing.assert_allclose(cut.finish_s, [math.inf, 11])
        np.testing.assert_allclose(cut.delivered_bytes, [10, 100])


def test_many_transfers_agree_with_the_definition() -> None:
    generator = np.random.default_rng(5)
    traces = []
    for _ in range(4):
        times = [0, *np.sort(generator.choice(np.arange(1, 40), 8, replace=False)).tolist()]
        traces.append(([(time, int(generator.integers(0, 60))) for time in times], 41))
    n = 80
    patterns = [[(10 * 2**k, 4) for k in range(4)], [(200, 0)], [(30, 1), (3, 9), (80, 9), (5, 1)]]
    flights = [patterns[which] for which in generator.integers(0, 3, n)]
    drawn = [generator.integers(low, high, n).tolist() for low, high in ((0, 40), (60, 300), (-1, 4), (0, 41), (1, 3))]
    sizes = [sum(size for size, _ in each) for each in flights]
    columns = (drawn[0], sizes, *drawn[1:])
    for capacity in (60, 500, 1500):
        case = Case(traces, list(zip(*columns, strict=True)), capacity, flights)
        start, size, stop = case.columns()
        found = transfer(start, size, case.rates(), capacity, stop, case.in_flights())
        finish, delivered = exact(case)
        np.testing.assert_allclose(found.finish_s, finish, rtol=CLOSE)
        np.testing.assert_allclose(found.delivered_bytes, delivered, rtol=CLOSE, atol=1e-7)


@pytest.mark.parametrize(
    ("flights", "message"),
    [
        ([[(1.0, 0.0)]], "2 transfers"),
        ([[(1.0, 0.0)], [(2.0, 0.0), (0.0, 0.0)]], "size"),
        ([[(1.0, 0.0)], [(2.0, -1.0)]], "gap"),
        ([[(1.0, 0.0)], [(2.0, math.nan)]], "gap"),
        ([[(1.0, 0.0)], [(1.0, 0.0)]], "total"),
    ],
)
def test_impossible_flights_are_refused(flights, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transfer([0, 0], [1, 2], Rates.constant([1, 1]), 1, flights=Flights.of(flights))
