"""Availability traces: checks of rows, and online intervals, compared with Python lists."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.interval_files import RowCheck
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError
from tests.messages_named import naming

Intervals = list[tuple[float, float]]


@dataclass
class Oracle:
    """The same intervals as Python lists, by client; clients that are never online have an empty one."""

    of: dict[int, Intervals]

    def rows(self) -> tuple[list[int], list[float], list[float]]:
        rows = [(client, *interval) for client in sorted(self.of) for interval in self.of[client]]
        return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]

    def trace(self, **extent: object) -> AvailabilityTrace:
        return AvailabilityTrace.from_rows(*self.rows(), clients=list(self.of), **extent)

    def online_until(self, client: int, time_s: float) -> float:
        until = -math.inf
        for begin, end in self.of[client]:
            if begin <= time_s < end or begin == until:
                until = end
        return until


@st.composite
def oracles(draw: st.DrawFn) -> Oracle:
    clients = draw(st.lists(st.integers(0, 10**12), min_size=1, max_size=6, unique=True))
    origin = draw(st.sampled_from([0, -7, 2_410_196]))
    of: dict[int, Intervals] = {}
    for client in clients:
        now, of[client] = origin, []
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=6)):
            of[client].append((float(now + gap), float(now + gap + length)))
            now += gap + length
    if not any(of.values()):
        of[clients[0]] = [(float(origin), origin + 2.0)]
    return Oracle(of)


@given(oracles(), st.data())
def test_queries_agree_with_a_search_through_the_list(oracle: Oracle, data: st.DataObject) -> None:
    trace = oracle.trace()
    assert trace.clients.tolist() == sorted(oracle.of)
    begin, end = trace.horizon
    devices = data.draw(st.lists(st.integers(0, len(trace) - 1), max_size=12))
    moment = st.integers(2 * int(begin) - 4, 2 * int(end) + 4).map(lambda half: half / 2)
    times = data.draw(st.lists(moment, min_size=len(devices), max_size=len(devices)))
    expected = [oracle.online_until(int(trace.clients[d]), t) for d, t in zip(devices, times, strict=True)]
    asked = np.array(devices, np.int64)
    assert trace.online_until(asked, times).tolist() == expected
    assert (trace.online_until(asked, times) > -np.inf).tolist() == [until > -math.inf for until in expected]
    for time_s in times[:2]:
        one = [oracle.online_until(int(trace.clients[d]), time_s) for d in devices]
        assert trace.online_until(asked, time_s).tolist() == one


@given(oracles())
def test_stretches_are_the_intervals_with_touching_ones_joined(oracle: Oracle) -> None:
    trace = oracle.trace()
    expected = []
    for device, client in enumerate(trace.clients.tolist()):
        stretches: list[list[float]] = []
        for begin, end in oracle.of[client]:
            if stretches and stretches[-1][1] == begin:
                stretches[-1][1] = end
            else:
                stretches.append([begin, end])
        expected += [(device, *stretch) for stretch in stretches]
    assert list(zip(*(column.tolist() for column in trace.stretches()), strict=True)) == expected


def test_intervals_are_half_open() -> None:
    trace = AvailabilityTrace.from_rows([4, 4], [1.0, 5.0], [3.0, 6.0])
    device = np.zeros(1, np.int64)
    before = np.nextafter(3.0, 0)
    online = {
        t: bool((trace.online_until(device, t) > -np.inf)[0])
        for t in (np.nextafter(1.0, 0), 1.0, before, 3.0, 5.0, 6.0)
    }
    assert list(online.values()) == [False, True, True, False, True, False]


def test_intervals_of_neighbours_are_not_joined() -> None:
    trace = AvailabilityTrace.from_rows([0, 1], [0, 5], [5, 9])
    assert trace.online_until(np.array([0, 1]), [4.0, 6.0]).tolist() == [5.0, 9.0]


def test_horizon_and_clients_that_were_never_online() -> None:
    trace = AvailabilityTrace.from_rows([3], [10], [20], horizon=(0, 100), clients=[9, 1, 3, 1])
    assert trace.clients.tolist() == [1, 3, 9]
    assert trace.never_online.tolist() == [1, 9]
    assert (trace.horizon, trace.horizon_s) == ((0.0, 100.0), 100.0)
    assert (trace.online_until(np.arange(3), 15.0) > -np.inf).tolist() == [False, True, False]
    assert AvailabilityTrace.from_rows([3], [10], [20]).horizon == (10.0, 20.0)


@pytest.mark.parametrize("horizon", [(11, 30), (0, 19), (0, math.inf), (math.nan, 30), (30, 0), (-1.7e308, 1.7e308)])
def test_a_horizon_must_hold_the_intervals(horizon: tuple[float, float]) -> None:
    with pytest.raises(TraceError, match=naming("here", "horizon", "finite")):
        AvailabilityTrace.from_rows([3], [10], [20], "here", horizon=horizon)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 1, 2), (0, 5, 4)], "row 2: reversed interval: from 5.0 until 4.0"),
        ([(0, 1, 1)], "row 1: empty interval: from 1.0 until 1.0"),
        ([(0, 1, 3), (0, 2, 4)], "row 2: overlaps the row above: begins at 2.0, that one lasts until 3.0"),
        ([(0, 1, 3), (0, 1, 3)], "row 2: overlaps the row above"),
        ([(0, 5, 6), (0, 1, 2)], "row 2: begins at 1.0, before the row above (5.0); sort by client"),
        ([(1, 0, 1), (2, 0, 1), (1, 2, 3)], "row 3: client 1 comes after client 2; sort by client"),
        ([(0, 1, math.nan)], "row 1: online_until_s is nan"),
        ([(0, -math.inf, 1)], "row 1: online_from_s is -inf"),
        ([(0, math.nan, 1), (0, 5, 1)], "row 1: online_from_s is nan"),
        ([(0, 1, 2), (-1, 1, 2)], "row 2: client -1 is negative"),
        ([(0, 1, 2), (1.5, 1, 2)], "row 2: client 1.5 is not a whole number"),
        ([(math.nan, 1, 2)], "row 1: client nan is not a whole number"),
        ([(1e300, 1, 2)], "row 1: client 1e+300 is not a whole number"),
        ([], "no intervals"),
    ],
)
def test_a_bad_row_is_named(rows: list[tuple[float, float, float]], message: str) -> None:
    client, begin, until = ([row[place] for row in rows] for place in range(3))
    with pytest.raises(TraceError) as raised:
        AvailabilityTrace.from_rows(client, begin, until, "here")
    assert str(raised.value).startswith(f"here: {message}")
    assert "\n" not in str(raised.value)


def test_columns_must_be_numbers_of_one_length() -> None:
    with pytest.raises(TraceError, match=naming("client", "numbers")):
        AvailabilityTrace.from_rows(["a"], [1], [2])
    with pytest.raises(TraceError, match="differ in length"):
        AvailabilityTrace.from_rows([1, 2], [1], [2])
    with pytest.raises(TraceError, match=naming("row 1", "client 18446744073709551615", "whole number")):
        AvailabilityTrace.from_rows(np.array([2**64 - 1], np.uint64), [1], [2])


def first_bad_row(rows: list[tuple[float, float, float]]) -> int | None:
    """Row by row, as the format's description says."""
    for at, (client, begin, until) in enumerate(rows):
        fine = client >= 0 and math.isfinite(begin) and math.isfinite(until) and begin < until
        if at:
            client_above, _, until_above = rows[at - 1]
            fine = fine and (client > client_above or (client == client_above and begin >= until_above))
        if not fine:
            return at + 1
    return None


TIMES = st.one_of(st.integers(0, 30).map(float), st.sampled_from([math.nan, math.inf]))
MESSY = st.lists(st.tuples(st.integers(-1, 2), TIMES, TIMES), min_size=1, max_size=8)


@st.composite
def nearly_right(draw: st.DrawFn) -> list[tuple[float, float, float]]:
    """The rows of a trace with one of them changed, or none."""
    rows: list[tuple[float, float, float]] = [*zip(*draw(oracles()).rows(), strict=True)]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(rows) - 1))
        rows[at] = draw(st.tuples(st.sampled_from([rows[at][0], -1, rows[0][0]]), TIMES, TIMES))
    return rows


@given(st.one_of(MESSY, nearly_right()), st.data())
def test_the_first_bad_row_is_found_however_the_rows_come_in_batches(
    rows: list[tuple[float, float, float]], data: st.DataObject
) -> None:
    check, expected, found = RowCheck("here"), first_bad_row(rows), None
    at = 0
    try:
        while at < len(rows):
            size = data.draw(st.integers(1, len(rows)))
            check.add(*np.array(rows[at : at + size]).T)
            at += size
    except TraceError as error:
        found = int(str(error).split("row ")[1].split(":")[0])
    assert found == expected
    if expected is None:
        whole, batched = AvailabilityTrace.from_rows(*zip(*rows, strict=True)), check.finish()
        for name in ("clients", "offsets", "online_from_s", "online_until_s"):
            assert getattr(whole, name).tolist() == getattr(batched, name).tolist()


@given(oracles(), st.integers(-1000, 10**6))
def test_moving_all_times_moves_all_answers(oracle: Oracle, shift: int) -> None:
    trace = oracle.trace()
    client, begin, until = oracle.rows()
    moved = AvailabilityTrace.from_rows(client, np.add(begin, shift), np.add(until, shift), clients=list(oracle.of))
    assert moved.horizon == (trace.horizon[0] + shift, trace.horizon[1] + shift)
    devices = np.repeat(np.arange(len(trace)), 20)
    times = np.tile(np.linspace(*trace.horizon, 20).round(), len(trace))
    assert (moved.online_until(devices, times + shift) == trace.online_until(devices, times) + shift).all()


def test_the_callers_arrays_stay_the_callers() -> None:
    begin, until = np.array([1.0]), np.array([2.0])
    trace = AvailabilityTrace.from_rows([0], begin, until)
    begin[0] = until[0] = 99
    assert (trace.online_until(np.zeros(1, np.int64), 1.5) > -np.inf).all()
