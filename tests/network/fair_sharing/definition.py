"""The shared link by its definition, event by event in rational numbers: slow, and right for all to see."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from testbed.emulation.links import BandwidthTraces
from testbed.emulation.links.rates import CONSTANT, Rates
from testbed.emulation.transport.flights import Flights

NEVER = 10**6


@dataclass(frozen=True)
class Case:
    """Transfers in whole numbers; `traces` are (steps of (seconds, rate), period)."""

    traces: list[tuple[list[tuple[int, int]], int]]
    transfers: list[tuple[int, int, int, int, int, int]]  # start, size, stop, trace, phase, scale
    capacity: int
    flights: list[list[tuple[int, int]]] | None = None  # of each transfer: (bytes, gap); None: one each

    def rates(self) -> Rates:
        steps = [steps for steps, _ in self.traces]
        offsets = np.cumsum([0] + [len(trace) for trace in steps])
        flat = np.array([step for trace in steps for step in trace], float)
        traces = BandwidthTraces.of(offsets, flat[:, 0], flat[:, 1], [period for _, period in self.traces])
        _, _, _, trace, phase, scale = np.array(self.transfers).T
        return Rates.traced(traces, trace, phase, scale)

    def in_flights(self) -> Flights:
        """Transfers that go alike have one pattern."""
        assert self.flights is not None
        distinct = sorted(set(map(tuple, self.flights)))
        return Flights.of(list(map(list, distinct))).take(np.array([distinct.index(tuple(f)) for f in self.flights]))

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        start, size, stop, *_ = np.array(self.transfers, float).T
        return start, size, np.where(stop == NEVER, np.inf, stop)


def rate_and_end(case: Case, index: int, now: Fraction) -> tuple[Fraction, Fraction | None]:
    """The rate of a transfer's own link, and until when it has that rate at least."""
    _, _, _, trace, phase, scale = case.transfers[index]
    if trace == CONSTANT:
        return Fraction(scale), None
    steps, period = case.traces[trace]
    place = (now + phase) % period
    at = max(number for number, (time, _) in enumerate(steps) if time <= place)
    end = steps[at + 1][0] if at + 1 < len(steps) else period
    return Fraction(steps[at][1] * scale), now + end - place


def fair(caps: dict[int, Fraction], capacity: Fraction) -> dict[int, Fraction]:
    """Return the rates of water-filling: in ascending order, each gets its cap or an equal part of the rest."""
    given, spare = {}, capacity
    for position, (index, cap) in enumerate(sorted(caps.items(), key=lambda item: item[1])):
        given[index] = min(cap, spare / (len(caps) - position))
        spare -= given[index]
    return given


def exact(case: Case) -> tuple[list[float], list[float]]:
    """Finish times and delivered bytes by the definition, event by event, in rational numbers."""
    flights = case.flights or [[(size, 0)] if size else [] for _, size, *_ in case.transfers]
    finish = [math.inf if size or start > stop else float(start) for start, size, stop, *_ in case.transfers]
    left = [
        Fraction(each[0][0] if each else 0) for each in flights
    ]  # of the flight number[i], which begins at begin[i]
    begin = [Fraction(one[0] + (each[0][1] if each else 0)) for one, each in zip(case.transfers, flights, strict=True)]
    number = [0] * len(flights)
    mute = [
        (trace != CONSTANT and not any(rate for _, rate in case.traces[trace][0])) or not scale
        for *_, trace, _, scale in case.transfers
    ]
    now = min(begin)
    while True:
        remaining = [i for i, (_, _, stop, *_) in enumerate(case.transfers) if left[i] and stop > now and not mute[i]]
        active = [i for i in remaining if begin[i] <= now]
        moments = [begin[i] for i in remaining if i not in active]
        moments += [Fraction(case.transfers[i][2]) for i in active]
        if not remaining:
            break
        own = {i: rate_and_end(case, i, now) for i in active}
        moments += [end for _, end in own.values() if end is not None]
        rate = fair({i: cap for i, (cap, _) in own.items()}, Fraction(case.capacity))
        moments += [now + left[i] / rate[i] for i in active if rate[i]]
        then = min(moments)
        for i in active:
            left[i] -= rate[i] * (then - now)
            if left[i]:
                continue
            number[i] += 1
            if number[i] == len(flights[i]):
                finish[i] = float(then)
            else:
                size, gap = flights[i][number[i]]
                left[i], begin[i] = Fraction(size), max(then, begin[i] + gap)
        now = then
    to_come = [sum(size for size, _ in each[at + 1 :]) for each, at in zip(flights, number, strict=True)]
    return finish, [float(one[1] - left[i] - to_come[i]) for i, one in enumerate(case.transfers)]


def traces_of(times: st.SearchStrategy[int], rates: st.SearchStrategy[int]) -> st.SearchStrategy:
    steps = st.lists(st.tuples(times, rates), max_size=4, unique_by=lambda step: step[0])
    return st.tuples(st.integers(0, 6).flatmap(lambda first: steps.map(lambda rest: [(0, first), *sorted(rest)])),
                     st.integers(1, 4)).map(lambda made: (made[0], made[0][-1][0] + made[1]))  # fmt: skip


# Few distinct values, so that ties and exactly full links are frequent; and arbitrary ones.
COARSE = (st.integers(0, 6), st.sampled_from([0, 1, 2, 3, 6, 24]), st.sampled_from([0, 1, 2, 3, 5, 8, 13, NEVER]))
FINE = (st.integers(0, 20), st.integers(0, 300), st.one_of(st.just(NEVER), st.integers(0, 60)))


@st.composite
def cases(draw: st.DrawFn, stops: bool = True) -> Case:
    traces = draw(st.lists(traces_of(st.integers(1, 6), st.sampled_from([0, 1, 2, 3, 5])), min_size=1, max_size=3))
    start, size, stop = draw(st.sampled_from([COARSE, FINE]))
    one = st.tuples(start, size, stop if stops else st.just(NEVER), st.integers(CONSTANT, len(traces) - 1),
                    st.integers(0, 7), st.sampled_from([0, 1, 1, 2]))  # fmt: skip
    return Case(traces, draw(st.lists(one, min_size=1, max_size=10)), draw(st.integers(1, 12)))


@st.composite
def cases_in_flights(draw: st.DrawFn, stops: bool = True) -> Case:
    """Transfers that go in flights, some of them alike."""
    case = draw(cases(stops))
    coarse = st.tuples(st.sampled_from([1, 2, 3, 6]), st.sampled_from([0, 1, 2, 3]))
    fine = st.tuples(st.integers(1, 60), st.integers(0, 12))
    patterns = draw(st.lists(st.lists(draw(st.sampled_from([coarse, fine])), max_size=5), min_size=1, max_size=4))
    flights = [draw(st.sampled_from(patterns)) for _ in case.transfers]
    transfers = [
        (start, sum(size for size, _ in each), *rest)
        for (start, _, *rest), each in zip(case.transfers, flights, strict=True)
    ]
    return Case(case.traces, transfers, case.capacity, flights)
