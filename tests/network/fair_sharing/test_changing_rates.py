"""Changing rates and transfers cut off: exact textbook water-filling, and the properties that any fair link has."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links import BandwidthTraces
from testbed.emulation.links.rates import CONSTANT, Rates
from testbed.network.fair_sharing import windows
from testbed.network.fair_sharing.transfers import transfer
from tests.network.fair_sharing.definition import Case, cases, exact, fair
from tests.thoroughness import examples

CLOSE = 1e-9


@pytest.fixture(autouse=True, params=[2, 1000], ids=["short windows", "long windows"], scope="module")
def window_length(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "EVENTS", request.param)
        yield


@given(cases())
def test_equals_the_definition(case: Case) -> None:
    start, size, stop = case.columns()
    found = transfer(start, size, case.rates(), case.capacity, stop)
    finish, delivered = exact(case)
    np.testing.assert_allclose(found.finish_s, finish, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(found.delivered_bytes, delivered, rtol=CLOSE, atol=1e-7)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_transfers_does_not_matter(case: Case, random) -> None:
    start, size, stop = case.columns()
    rates, order = case.rates(), np.array(random.sample(range(len(start)), len(start)))
    found = transfer(start / 7, size / 3, rates, case.capacity / 3, stop / 7)
    shuffled = transfer(start[order] / 7, size[order] / 3, rates.take(order), case.capacity / 3, stop[order] / 7)
    assert shuffled.finish_s.tobytes() == found.finish_s[order].tobytes()
    assert shuffled.delivered_bytes.tobytes() == found.delivered_bytes[order].tobytes()


@given(cases(), st.integers(-1000, 1000))
def test_a_later_start_shifts_everything(case: Case, shift: int) -> None:
    start, size, stop = case.columns()
    _, _, _, trace, phase, scale = np.array(case.transfers).T
    rates = case.rates()
    unmoved = transfer(start, size, rates, case.capacity, stop)
    later = Rates.traced(rates.traces, trace, phase - shift, scale)
    moved = transfer(start + shift, size, later, case.capacity, stop + shift)
    np.testing.assert_allclose(moved.finish_s - shift, unmoved.finish_s, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(moved.delivered_bytes, unmoved.delivered_bytes, rtol=1e-7, atol=1e-6)


@given(cases(stops=False), st.integers(0, 30), st.integers(0, 30))
def test_later_transfers_do_not_change_a_complete_one(case: Case, moment: int, later: int) -> None:
    start, size, _ = case.columns()
    free = transfer(start, size, case.rates(), case.capacity)
    stop = np.where(np.arange(len(start)) % 2, moment, moment + later).astype(float)
    cut = transfer(start, size, case.rates(), case.capacity, stop)
    before = free.finish_s <= moment
    np.testing.assert_allclose(cut.finish_s[before], free.finish_s[before], rtol=CLOSE, atol=CLOSE)
    # A transfer that is complete although others were cut off is not later for that.


@settings(max_examples=examples(50))
@given(cases())
def test_no_link_carries_more_than_it_can(case: Case) -> None:
    start, size, stop = case.columns()
    rates = case.rates()
    found = transfer(start, size, rates, case.capacity, stop)
    until = np.where(np.isfinite(found.finish_s), found.finish_s, stop)
    own = rates.bytes_between(start, until)
    assert (found.delivered_bytes <= own * (1 + CLOSE) + 1e-7).all()
    assert (found.delivered_bytes <= size).all()
    # The server's link: by any moment t at most its capacity from the first start until t.
    for moment in np.unique(until[np.isfinite(until)]):
        by_then = transfer(start, size, rates, case.capacity, np.minimum(stop, moment)).delivered_bytes
        assert by_then.sum() <= case.capacity * max(moment - start.min(), 0) * (1 + CLOSE) + 1e-6


@settings(max_examples=examples(30))
@given(cases())
def test_bytes_are_delivered_at_the_fair_rates(case: Case) -> None:
    """The bytes that get through between two close moments are the water-filling rate times the time."""
    start, size, stop = case.columns()
    rates = case.rates()
    moments = np.linspace(0, 20, 41)
    got = [transfer(start, size, rates, case.capacity, np.minimum(stop, moment)) for moment in moments]
    for (begin, before), (end, after) in itertools.pairwise(zip(moments, got, strict=True)):
        steady = (after.finish_s <= begin) | ~np.isfinite(after.finish_s)
        steady &= (start <= begin) | (start >= end)
        steady &= (stop <= begin) | (stop >= end)
        if not steady.all():
            continue
        active = np.flatnonzero((start <= begin) & (stop >= end) & ~np.isfinite(before.finish_s) & (size > 0))
        caps = {int(i): Fraction(rates.at(begin)[i]) for i in active}
        if len(rates.take(active).changes(begin, end)[0]):
            continue
        expected = np.zeros(len(start))
        for index, rate in fair(caps, Fraction(case.capacity)).items():
            expected[index] = float(rate) * (end - begin)
        np.testing.assert_allclose(after.delivered_bytes - before.delivered_bytes, expected, rtol=1e-7, atol=1e-6)


@given(cases(stops=False), st.integers(1, 40))
def test_more_capacity_never_makes_anybody_later_at_constant_rates(case: Case, more: int) -> None:
    start, size, _ = case.columns()
    rates = Rates.constant(1.0 + np.arange(len(start)) % 3)
    before = transfer(start, size, rates, case.capacity).finish_s
    assert (transfer(start, size, rates, case.capacity + more).finish_s <= before * (1 + CLOSE)).all()


@given(cases())
def test_traces_that_never_change_are_constant_rates(case: Case) -> None:
    start, size, stop = case.columns()
    caps = 1.0 + np.arange(len(start)) % 4
    flat = BandwidthTraces.of([0, 2], [0.0, 1.5], [1.0, 1.0], [2.0])
    traced = transfer(start, size, Rates.traced(flat, np.zeros(len(start), int), 0, caps), case.capacity, stop)
    constant = transfer(start, size, Rates.constant(caps), case.capacity, stop)
    np.testing.assert_allclose(traced.finish_s, constant.finish_s, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(traced.delivered_bytes, constant.delivered_bytes, rtol=CLOSE, atol=1e-7)


ON_OFF = BandwidthTraces.of([0, 2], [0.0, 4.0], [2.0, 0.0], [10.0])  # 4 s at 2 bytes/s, then 6 s without connection


def test_a_lost_connection_stalls_a_transfer_and_leaves_its_share_to_the_others() -> None:
    # Shared 1.5 + 1.5 until 4 s; then the second has its own 3 bytes/s until the first comes back at 10 s.
    rates = Rates.traced(ON_OFF, [0, CONSTANT], 0, [1, 3])
    found = transfer([0, 0], [9, 30], rates, 3.0)
    np.testing.assert_allclose(found.finish_s, [12, 13])
    assert transfer([5.0], [1], rates.take([0]), 3.0, 10.0).delivered_bytes.tolist() == [0]


def test_a_transfer_complete_just_as_the_connection_is_lost_does_not_wait_for_it() -> None:
    # Three share 1 byte/s; a third of a byte per second has no exact float.
    rates = Rates.traced(ON_OFF, [0, 0, 0])
    found = transfer([0, 0, 0], [4 / 3, 4 / 3, 4 / 3], rates, 1.0)
    np.testing.assert_allclose(found.finish_s, [4, 4, 4])


def test_stops_before_at_and_after() -> None:
    rates = Rates.constant([1, 1, 1, 1, 1, 1])
    stop = [-np.inf, 1, 2, 3, 7, np.inf]
    found = transfer([2, 2, 2, 2, 2, 2], [5, 5, 5, 5, 5, 5], rates, np.inf, stop)
    assert found.finish_s.tolist() == [np.inf, np.inf, np.inf, np.inf, 7, 7]
    assert found.delivered_bytes.tolist() == [0, 0, 0, 1, 5, 5]


def test_a_transfer_cut_off_leaves_its_share_to_the_others() -> None:
    found = transfer([0, 0], [100, 75], Rates.constant([50, 50]), 50, [2, np.inf])
    assert found.finish_s.tolist() == [np.inf, 2.5]
    assert found.delivered_bytes.tolist() == [50, 75]


@pytest.mark.parametrize("capacity", [30.0, 3000.0, np.inf])
def test_a_stop_at_the_computed_finish_cuts_no_transfer_off(capacity: float) -> None:
    generator = np.random.default_rng(3)
    start, size = generator.random(60) * 1e5, generator.random(60) * 1000
    traced = Rates.traced(ON_OFF, np.zeros(60, int), generator.random(60) * 10, generator.random(60) * 40)
    for rates in (traced, Rates.constant(traced.scale)):
        free = transfer(start, size, rates, capacity)
        for last in np.sort(free.finish_s)[::10]:
            latency = 0.05
            cut = transfer(start, size, rates, capacity, (last + latency) - latency)
            assert np.isfinite(cut.finish_s).tolist() == (free.finish_s <= last).tolist()


def test_unlimited_links_on_a_limited_server_with_stops() -> None:
    found = transfer([0, 0, 4], [10, 10, 10], Rates.constant([np.inf, np.inf, 1]), 5, [2, 9, 9])
    np.testing.assert_allclose(found.finish_s, [np.inf, 3, np.inf])
    np.testing.assert_allclose(found.delivered_bytes, [5, 10, 5])
    unlimited = transfer([0, 1], [10, 10], Rates.constant([np.inf, 2]), np.inf, [9, 3])
    assert unlimited.finish_s.tolist() == [0, np.inf]
    assert unlimited.delivered_bytes.tolist() == [10, 4]


def test_nothing_to_send_never_started_never_ending() -> None:
    rates = Rates.constant([0, 1, 1, 0, 1, 1])
    found = transfer([3, np.inf, np.inf, 1, 1, 5], [0, 0, 5, 5, 0, 0], rates, 0.5, [9, 9, np.inf, np.inf, 1, 4])
    assert found.finish_s.tolist() == [3, np.inf, np.inf, np.inf, 1, np.inf]
    assert found.delivered_bytes.tolist() == [0] * 6
    silent = BandwidthTraces.of([0, 1], [0.0], [0.0], [1.0])
    found = transfer([0, 0], [5, 8], Rates.traced(silent, [0, CONSTANT], 0, 2), 1.0)
    assert found.finish_s.tolist() == [np.inf, 8]
    assert transfer([1, 2], [5, 0], Rates.constant([1, 1]), 0, 4).finish_s.tolist() == [np.inf, 2]
    assert transfer([], [], Rates.constant([]), 5).finish_s.shape == (0,)


def test_many_traced_transfers_agree_with_the_definition() -> None:
    generator = np.random.default_rng(5)
    traces = []
    for _ in range(6):
        times = [0, *np.sort(generator.choice(np.arange(1, 40), 12, replace=False)).tolist()]
        traces.append(([(time, int(generator.integers(0, 60))) for time in times], 41))
    n = 120
    drawn = [generator.integers(low, high, n).tolist()
             for low, high in ((0, 40), (1, 900), (30, 300), (0, 6), (0, 41), (1, 3))]  # fmt: skip
    for capacity in (60, 900, 2500):
        case = Case(traces, list(zip(*drawn, strict=True)), capacity)
        start, size, stop = case.columns()
        found = transfer(start, size, case.rates(), capacity, stop)
        finish, delivered = exact(case)
        np.testing.assert_allclose(found.finish_s, finish, rtol=CLOSE)
        np.testing.assert_allclose(found.delivered_bytes, delivered, rtol=CLOSE, atol=1e-7)


@pytest.mark.parametrize("stop", [np.nan, [1.0, 2.0]])
def test_impossible_stops_are_refused(stop) -> None:
    with pytest.raises(ValueError, match="stop"):
        transfer([0.0], [1.0], Rates.constant([1.0]), 1.0, stop)
