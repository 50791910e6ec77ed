"""Rates over time against exact integration, step by step."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.links import BandwidthTraces
from testbed.emulation.links.rates import CONSTANT, Rates

EXAMPLE = BandwidthTraces.of([0, 3, 5], [0, 1, 4, 0, 2], [10, 0, 5, 0, 7], [6, 3])
Steps = list[tuple[int, int]]


@st.composite
def traces(draw: st.DrawFn) -> tuple[Steps, int]:
    times = sorted(draw(st.sets(st.integers(1, 12), max_size=5)))
    rates = draw(st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=len(times) + 1, max_size=len(times) + 1))
    return list(zip([0, *times], rates, strict=True)), (times[-1] if times else 0) + draw(st.integers(1, 5))


def traced(made: list[tuple[Steps, int]], phase: int, scale: int) -> Rates:
    """One client on each trace."""
    flat = np.array([step for steps, _ in made for step in steps], float)
    offsets = np.cumsum([0] + [len(steps) for steps, _ in made])
    of = BandwidthTraces.of(offsets, flat[:, 0], flat[:, 1], [period for _, period in made])
    return Rates.traced(of, np.arange(len(made)), phase, scale)


def exact_bytes(trace: tuple[Steps, int], begin: Fraction, end: Fraction) -> Fraction:
    """The integral of the rate over `begin..end`, in seconds of the trace, one step after the other."""
    steps, period = trace
    ends = [time for time, _ in steps[1:]] + [period]
    amount, now = Fraction(0), begin
    while now < end:
        place = now % period
        at = max(i for i, (time, _) in enumerate(steps) if time <= place)
        then = min(end, now + ends[at] - place)
        amount += steps[at][1] * (then - now)
        now = then
    return amount


quarters = st.integers(-80, 160).map(lambda number: Fraction(number, 4))
several = st.lists(traces(), min_size=1, max_size=4)


@given(several, quarters, quarters, st.integers(-20, 20), st.integers(0, 3))
def test_bytes_are_the_integral_of_the_rate(made, begin: Fraction, end: Fraction, phase: int, scale: int) -> None:
    found = traced(made, phase, scale).bytes_between(float(begin), float(end))
    expected = [float(scale * exact_bytes(trace, begin + phase, end + phase)) for trace in made]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


@given(several, quarters, st.integers(-20, 20), st.integers(1, 3), st.integers(1, 300))
def test_the_time_to_send_is_the_first_moment_with_so_many_bytes(made, begin, phase, scale, size) -> None:
    rates = traced(made, phase, scale)
    found = rates.time_to_send(float(begin), size)
    sends = np.array([any(rate for _, rate in steps) for steps, _ in made])
    assert np.isfinite(found).tolist() == sends.tolist()
    np.testing.assert_allclose(rates.bytes_between(float(begin), found)[sends], size, rtol=1e-12)
    for trace, finish in zip(made, found.tolist(), strict=True):
        if math.isfinite(finish):  # just before, some of it is missing
            earlier = Fraction(finish) - Fraction(1, 10**6)
            assert scale * exact_bytes(trace, begin + phase, earlier + phase) < size


@given(several, quarters, st.integers(0, 100), st.integers(-20, 20), st.integers(1, 3))
def test_changes_are_where_the_rate_changes(made, begin: Fraction, length: int, phase: int, scale: int) -> None:
    rates, end = traced(made, phase, scale), begin + Fraction(length, 2)
    who, time_s, rate = rates.changes(float(begin), float(end))
    found = list(zip(who.tolist(), time_s.tolist(), rate.tolist(), strict=True))
    expected = []
    for client, (steps, period) in enumerate(made):
        moments = {time - phase + turn * period for time, _ in steps for turn in range(-60, 200)}
        for moment in sorted(moment for moment in moments if begin < moment < end):
            before, after = (rates.at(float(moment) + shift)[client] for shift in (-0.125, 0.125))
            if before != after:
                expected.append((client, float(moment), after))
    assert found == expected


@given(several, quarters, st.integers(-20, 20), st.integers(0, 3))
def test_the_rate_at_a_moment_is_that_of_its_step(made, moment: Fraction, phase: int, scale: int) -> None:
    found = traced(made, phase, scale).at(float(moment))
    for (steps, period), rate in zip(made, found.tolist(), strict=True):
        assert rate == scale * [rate for time, rate in steps if time <= (moment + phase) % period][-1]


def test_all_clients_at_once_equal_one_by_one() -> None:
    generator = np.random.default_rng(2)
    of = generator.integers(CONSTANT, 2, 500)
    rates = Rates.traced(EXAMPLE, of, generator.random(500) * 100 - 50, generator.random(500))
    begin, size = generator.random(500) * 1e4, generator.random(500) * 1e4
    finish, most = rates.time_to_send(begin, size), rates.maximum()
    for client in range(500):
        alone = rates.take([client])
        assert alone.time_to_send(begin[client], size[client])[0] == finish[client]
        assert alone.maximum()[0] == most[client]
    np.testing.assert_allclose(rates.bytes_between(begin, finish), size, rtol=1e-9)
    assert (rates.at(begin) <= most).all()


@given(several, several, st.integers(-20, 20), st.integers(0, 3), st.data())
def test_replaced_clients_have_the_others_rates(made, others, phase: int, scale: int, data: st.DataObject) -> None:
    clients = min(len(made), len(others))
    ours, theirs = traced(made[:clients], 0, 2), traced(others[:clients], phase, scale)
    constant = Rates.constant(np.arange(1.0, clients + 1))
    who = data.draw(st.lists(st.integers(0, clients - 1), unique=True))
    for base, new in ((ours, theirs), (ours, constant), (constant, theirs), (constant, constant), (ours, ours)):
        mixed = base.replaced(who, new)
        for one in (base, new, mixed):
            assert len(one) == clients
        for name, arguments in (
            ("at", (3.25,)),
            ("bytes_between", (1.5, 40)),
            ("time_to_send", (2.5, 33)),
            ("mean", ()),
        ):
            found, old, replacing = (getattr(rates, name)(*arguments) for rates in (mixed, base, new))
            assert found.tolist() == [replacing[i] if i in who else old[i] for i in range(clients)]


@given(several, st.integers(-20, 20), st.integers(0, 3))
def test_the_mean_is_that_of_a_period(made, phase: int, scale: int) -> None:
    expected = [float(scale * exact_bytes(one, Fraction(0), Fraction(one[1])) / one[1]) for one in made]
    np.testing.assert_allclose(traced(made, phase, scale).mean(), expected, rtol=1e-12)
    assert Rates.traced(EXAMPLE, [CONSTANT, 1], 0, [3, 1]).mean().tolist() == [3, 7 / 3]
    assert Rates.constant([2, 0]).mean().tolist() == [2, 0]


def test_far_into_the_repetitions() -> None:
    rates = Rates.traced(EXAMPLE, [0, 1])
    np.testing.assert_allclose(rates.bytes_between(6e9, 6e9 + 12), [40, 28])
    np.testing.assert_allclose(rates.time_to_send(6e9, [20, 14]) - 6e9, [6, 6])
    np.testing.assert_allclose(rates.time_to_send(0, [20e6, 7e6]), [6e6, 3e6])


def test_sent_just_as_the_connection_is_lost() -> None:
    thirds = BandwidthTraces.of([0, 3], [0, 1, 2], [0.1, 0.2, 0.0], [1000.0])
    rates = Rates.traced(thirds, [0])
    assert rates.time_to_send(0, 0.1 + 0.2)[0] == pytest.approx(2)  # 0.30000000000000004
    assert rates.time_to_send(0, 0.1 + 0.2 + 1e-6)[0] > 1000


def test_constant_rates() -> None:
    rates = Rates.constant([0, 2, np.inf])
    assert rates.is_constant
    assert len(rates) == 3
    assert rates.at(5).tolist() == rates.maximum().tolist() == [0, 2, np.inf]
    assert rates.bytes_between(1, [4, 4, 4]).tolist() == [0, 6, np.inf]
    assert rates.bytes_between(4, 1).tolist() == [0, 0, 0]
    assert rates.bytes_between(1, np.inf).tolist() == [0, np.inf, np.inf]
    assert rates.time_to_send(1, 6).tolist() == [np.inf, 4, 1]
    assert rates.time_to_send(1, 0).tolist() == [1, 1, 1]
    assert rates.time_to_send(np.inf, [0, 1, 1]).tolist() == [np.inf] * 3
    assert rates.take([2, 1]).at(0).tolist() == [np.inf, 2]
    assert not len(rates.changes(0, 100)[0])


def test_a_mixture_of_constant_and_traced() -> None:
    rates = Rates.traced(EXAMPLE, [CONSTANT, 1], 0, [3, 2])
    assert not rates.is_constant
    assert rates.take([0]).is_constant
    assert rates.maximum().tolist() == [3, 14]
    assert rates.time_to_send(0, 28).tolist() == [28 / 3, 6]
    assert rates.bytes_between(0, np.inf).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("offsets", "time_s", "rate", "period", "complaint"),
    [
        ([0, 2], [0, 1], [1, -1], [2], "rate"),
        ([0, 2], [0, 1], [1, np.nan], [2], "rate"),
        ([0, 2], [0, 1], [1, np.inf], [2], "rate"),
        ([0, 2], [0, 0], [1, 1], [2], "step 1"),
        ([0, 3], [0, 2, 1], [1, 1, 1], [3], "step 2"),
        ([0, 2], [0, np.nan], [1, 1], [3], "step 1"),
        ([0, 2], [1, 2], [1, 1], [3], "begin at 0"),
        ([0, 2], [0, 2], [1, 1], [2], "period"),
        ([0, 2], [0, 2], [1, 1], [np.inf], "period"),
        ([0, 2], [0, 2], [1, 1], [np.nan], "period"),
        ([0, 2], [0, 2], [1, 1], [3, 3], "periods"),
        ([0, 2], [0, 2], [1], [3], "shape"),
        ([0, 1, 1], [0], [1], [3, 3], "trace 1 has no steps"),
        ([0, 1], [0, 2], [1, 1], [3], "offsets"),
        ([], [], [], [], "offsets"),
    ],
)
def test_impossible_traces_are_refused(offsets, time_s, rate, period, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        BandwidthTraces.of(offsets, time_s, rate, period)


def test_impossible_rates_are_refused() -> None:
    for bad in ([-1.0], [np.nan]):
        with pytest.raises(ValueError, match="rate"):
            Rates.constant(bad)
        with pytest.raises(ValueError, match="scale"):
            Rates.traced(EXAMPLE, [0], 0, bad)
    with pytest.raises(ValueError, match="dimension"):
        Rates.constant(1.0)
    for bad_trace in ([2], [-2], 0):
        with pytest.raises(ValueError, match="trace_of"):
            Rates.traced(EXAMPLE, bad_trace)
    with pytest.raises(ValueError, match="phase"):
        Rates.traced(EXAMPLE, [0], np.inf)
