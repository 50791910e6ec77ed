"""Availability by a trace, against a search through each client's intervals laid out on the virtual clock."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from testbed.emulation.availability.clocked import TracedAvailability, assign_devices
from testbed.emulation.availability.models import Presence
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import ExperimentError
from tests.emulation.availability.models import model_of
from tests.messages_named import naming

LENGTH = 24
ORIGINS = st.sampled_from([0, -5, 2_410_196])
SUSPICIOUS = 1e-4


def trace_of(sets: list[set[int]], origin: int, length: int = LENGTH) -> AvailabilityTrace:
    """Device i is online in the seconds [origin + t, origin + t + 1) for t in sets[i]; every interval a second long."""
    rows = [(device, origin + t, origin + t + 1) for device, online in enumerate(sets) for t in sorted(online)]
    client, begin, until = zip(*rows, strict=True)
    return AvailabilityTrace.from_rows(
        client, begin, until, horizon=(origin, origin + length), clients=list(range(len(sets)))
    )


ARCS = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH)), max_size=3)  # many go round the end
SETS = st.lists(
    ARCS.map(lambda arcs: {(begin + i) % LENGTH for begin, length in arcs for i in range(length)}),
    min_size=1,
    max_size=4,
).filter(any)


def expected(online: set[int], ahead: int, start: int, repeat: bool, now: float) -> tuple[bool, float]:
    """Whether a client is there at `now`, and when it leaves: second by second on the virtual clock."""

    def there(second: int) -> bool:
        return (repeat or start + second < LENGTH) and (start + ahead + second) % LENGTH in online

    second = math.floor(now)
    if not there(second):
        return False, math.inf
    for later in range(second, second + 2 * LENGTH):
        if not there(later):
            return True, float(later)
    return True, math.inf


@given(SETS, ORIGINS, st.booleans(), st.integers(0, LENGTH - 1), st.data())
def test_presence_agrees_with_the_seconds_laid_out(
    sets: list[set[int]], origin: int, repeat: bool, start: int, data: st.DataObject
) -> None:
    clients = data.draw(st.lists(st.tuples(st.integers(0, len(sets) - 1), st.integers(0, 60)), min_size=1, max_size=6))
    device, shift = zip(*clients, strict=True)
    shifts = np.array(shift, float)
    model = TracedAvailability(trace_of(sets, origin), np.array(device), shifts, repeat, float(start))
    assert model.comes_back
    asked = np.array(sorted(data.draw(st.sets(st.integers(0, len(clients) - 1)))), np.int64)
    first = data.draw(st.integers(0, 16 * LENGTH))
    for now in np.arange(first, first + 2 * LENGTH) / 2:
        presence = model.presence(1, "train", now, asked)
        wanted = [expected(sets[device[c]], shift[c], start, repeat, now) for c in asked]
        assert presence.reachable.tolist() == [reachable for reachable, _ in wanted]
        assert presence.leaves_s.tolist() == [leaves for _, leaves in wanted]
        assert presence.drops.tolist() == [False] * len(asked)


def both(model: TracedAvailability, now_s: float, clients: int) -> Presence:
    return model.presence(1, "train", now_s, np.arange(clients))


@given(SETS, ORIGINS, st.booleans(), st.integers(-(10**6), 10**6), st.integers(0, 3 * LENGTH))
def test_moving_the_whole_trace_changes_nothing(
    sets: list[set[int]], origin: int, repeat: bool, moved_by: int, now: int
) -> None:
    device, shift = np.arange(len(sets)), np.linspace(0, LENGTH - 1, len(sets)).round()
    one, other = (
        both(TracedAvailability(trace_of(sets, begin), device, shift, repeat), now, len(sets))
        for begin in (origin, origin + moved_by)
    )
    assert (one.reachable == other.reachable).all()
    assert (one.leaves_s == other.leaves_s).all()


@given(SETS, st.integers(0, LENGTH - 1), st.integers(0, 3 * LENGTH))
def test_starting_later_is_asking_later(sets: list[set[int]], start: int, now: int) -> None:
    device, shift = np.arange(len(sets)), np.zeros(len(sets))
    later = both(TracedAvailability(trace_of(sets, 0), device, shift, True, start), now, len(sets))
    plain = both(TracedAvailability(trace_of(sets, 0), device, shift, True), now + start, len(sets))
    assert (later.reachable == plain.reachable).all()
    assert (later.leaves_s + start == plain.leaves_s).all()


@given(st.integers(0, 2**32), st.booleans())
def test_times_that_are_no_round_numbers(seed: int, repeat: bool) -> None:
    """A client that is there leaves later than now, is there until it leaves, and is gone when it has left."""
    generator = np.random.default_rng(seed)
    bounds = np.cumsum(generator.exponential(1000, (20, 10)), axis=1) + 2_410_196.7
    trace = AvailabilityTrace.from_rows(np.repeat(np.arange(20), 5), bounds[:, ::2].ravel(), bounds[:, 1::2].ravel())
    device_of, shift_s = assign_devices(200, trace, generator, random_shift=True)
    model = TracedAvailability(trace, device_of, shift_s, repeat)
    for now in generator.random(5) * trace.horizon_s * 2.5:
        first = both(model, now, 200)
        there = np.flatnonzero(first.reachable & (first.leaves_s < np.inf))
        assert (first.leaves_s[there] >= now).all()
        for client in there[:10].tolist():
            leaves = float(first.leaves_s[client])
            alone = np.array([client])
            just_before = model.presence(1, "train", max(now, leaves - 1e-6), alone)
            assert just_before.reachable.all()
            assert just_before.leaves_s[0] == leaves  # the same departure, bit for bit, whenever one asks
            assert not model.presence(1, "train", leaves + 1e-6, alone).reachable.any()


def test_a_client_online_all_the_time_never_leaves_a_repeated_trace() -> None:
    trace = AvailabilityTrace.from_rows([0, 0, 1], [0, 4, 0], [4, 10, 10])
    for now in (0.0, 3.0, 9.5, 1e6):
        model = TracedAvailability(trace, np.array([0, 1]), np.array([0.0, 3.3]), repeat=True)
        assert both(model, now, 2).leaves_s.tolist() == [np.inf, np.inf]
    once = TracedAvailability(trace, np.array([0, 1]), np.array([0.0, 3.3]), repeat=False, start_s=4.0)
    assert both(once, 5.0, 2).leaves_s.tolist() == [6.0, 6.0]
    assert not both(once, 6.0, 2).reachable.any()


def test_a_client_online_at_both_ends_stays_over_the_end() -> None:
    trace = AvailabilityTrace.from_rows([0, 0], [0, 7], [2, 10])
    model = TracedAvailability(trace, np.array([0, 0]), np.array([0.0, 4.0]), repeat=True)
    assert both(model, 8.0, 2).leaves_s.tolist() == [12.0, np.inf]
    assert both(model, 8.0, 2).reachable.tolist() == [True, False]
    assert both(model, 25.0, 2).leaves_s.tolist() == [np.inf, 28.0]


def test_a_device_that_is_never_online_is_allowed() -> None:
    trace = AvailabilityTrace.from_rows([0], [0], [4], clients=[5])
    model = TracedAvailability(trace, np.array([1, 0, 1]), np.zeros(3), repeat=True)
    presence = both(model, 1.0, 3)
    assert presence.reachable.tolist() == [False, True, False]


@given(st.integers(1, 60), st.booleans(), st.integers(0, 2**32))
def test_with_enough_devices_each_client_has_a_different_one(population: int, random_shift: bool, seed: int) -> None:
    trace = AvailabilityTrace.from_rows(np.arange(60), np.zeros(60), np.full(60, 7.5))
    device_of, shift_s = assign_devices(population, trace, np.random.default_rng(seed), random_shift)
    assert len(set(device_of.tolist())) == population
    assert device_of.dtype == np.int64
    assert ((shift_s >= 0) & (shift_s < 7.5)).all()
    again = assign_devices(population, trace, np.random.default_rng(seed), not random_shift)
    assert (again[0] == device_of).all()
    assert shift_s.any() == random_shift


def test_more_clients_than_devices_draw_with_replacement_evenly() -> None:
    trace = AvailabilityTrace.from_rows(np.arange(20), np.zeros(20), np.full(20, 7.5))
    device_of, shift_s = assign_devices(20_000, trace, np.random.default_rng(3), random_shift=True)
    assert chisquare(np.bincount(device_of, minlength=20)).pvalue > SUSPICIOUS
    assert kstest(shift_s / 7.5, "uniform").pvalue > SUSPICIOUS


def test_which_client_gets_which_device_is_even_too() -> None:
    trace = AvailabilityTrace.from_rows(np.arange(6), np.zeros(6), np.ones(6))
    generator = np.random.default_rng(4)
    first = [int(assign_devices(3, trace, generator)[0][0]) for _ in range(6000)]
    assert chisquare(np.bincount(first, minlength=6)).pvalue > SUSPICIOUS


def test_a_run_begins_within_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    AvailabilityTrace.from_rows([0, 1], [0, 1], [4, 5]).write(path)
    assert model_of(2, model="trace", path=path, start_s=4.9).presence(1, "", 0.0, np.arange(2)).reachable.any()
    with pytest.raises(ExperimentError, match=naming("availability.start_s", "trace.csv", "5 s")):
        model_of(2, model="trace", path=path, start_s=5)


SPANS = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH)).map(
    lambda span: (span[0], min(LENGTH, span[0] + span[1]))
)


@given(st.lists(st.tuples(SPANS, st.sets(st.integers(0, LENGTH - 1))), min_size=1, max_size=4), ORIGINS, st.data())
def test_a_recording_of_its_own_is_repeated_for_itself(
    devices: list[tuple[tuple[int, int], set[int]]], origin: int, data: st.DataObject
) -> None:
    """Against looking each second up in the device's own recording."""
    sets = [{second for second in online if begin <= second < end} for (begin, end), online in devices]
    assume(any(sets))
    rows = [(device, origin + t, origin + t + 1) for device, online in enumerate(sets) for t in sorted(online)]
    begins, ends = zip(*(span for span, _ in devices), strict=True)
    trace = AvailabilityTrace.from_rows(
        *zip(*rows, strict=True),
        horizon=(origin, origin + LENGTH),
        clients=list(range(len(sets))),
        recorded=(np.array(begins) + origin, np.array(ends) + origin),
    )
    shift, start = data.draw(st.integers(0, LENGTH - 1)), data.draw(st.integers(0, LENGTH - 1))
    model = TracedAvailability(trace, np.arange(len(sets)), np.full(len(sets), float(shift)), True, float(start))

    def there(device: int, second: int) -> bool:
        begin, end = devices[device][0]
        return begin + (second + shift + start - begin) % (end - begin) in sets[device]

    for now in range(data.draw(st.integers(0, 5 * LENGTH)), 7 * LENGTH, 5):
        presence = both(model, float(now), len(sets))
        assert presence.reachable.tolist() == [there(device, now) for device in range(len(sets))]
        for device, leaves in enumerate(presence.leaves_s.tolist()):
            gone = next((late for late in range(now, now + 3 * LENGTH) if not there(device, late)), math.inf)
            assert leaves == (gone if gone > now else math.inf)
    laid = TracedAvailability(trace.laid_out(), np.arange(len(sets)), np.zeros(len(sets)), True)
    kept = TracedAvailability(trace, np.arange(len(sets)), np.zeros(len(sets)), True)
    for now in range(LENGTH):
        assert both(laid, now, len(sets)).reachable.tolist() == both(kept, now, len(sets)).reachable.tolist()


def test_clients_may_follow_the_devices_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    AvailabilityTrace.from_rows([0, 4, 9], [0, 1, 2], [1, 2, 3]).write(path)
    model = model_of(5, model="trace", path=path, assign="cycle")
    for now in range(3):
        there = model.presence(1, "", now + 0.5, np.arange(5)).reachable.tolist()
        assert there == [client % 3 == now for client in range(5)]
