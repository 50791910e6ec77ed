"""Concurrent transfers on a shared link: how long the virtual clock takes to compute them.

    python -m benchmarks.transfers

All start within a second and share the server's link, which has a given multiple of what they ask for at most; rates
are constant, or change every second (1000-second traces); all bytes at once, or in flights that double from 14.6 kB,
0.1 s apart. The floor is the least work of any event-driven method: a heap that takes in and gives out one event
per transfer. Target: four times that for 10^5 at constant rates. All is CPU time of one thread.
"""

import heapq
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from testbed.emulation.links import BandwidthTraces, Rates
from testbed.emulation.transport.flights import Flights
from testbed.network.fair_sharing.transfers import transfer

MEGABYTE = 1e6
TRACES, TRACE_SECONDS = 86, 1000
FIRST_FLIGHT, GAP_S = 14_600.0, 0.1


def best_of(call: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the fastest of `times` calls."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent)


def heap_seconds(count: int) -> float:
    """The floor: `count` events into a heap and out again."""
    moments = np.random.default_rng(1).random(count).tolist()

    def once() -> None:
        heap: list[tuple[float, int]] = []
        for position, moment in enumerate(moments):
            heapq.heappush(heap, (moment, position))
        while heap:
            heapq.heappop(heap)

    return best_of(once)


def changing_rates(count: int, generator: np.random.Generator) -> Rates:
    """Rates that change every second, `(count,)`."""
    steps = generator.uniform(0.1, 1.0, TRACES * TRACE_SECONDS) * MEGABYTE
    offsets = np.arange(TRACES + 1) * TRACE_SECONDS
    seconds = np.tile(np.arange(TRACE_SECONDS, dtype=np.float64), TRACES)
    traces = BandwidthTraces.of(offsets, seconds, steps, np.full(TRACES, float(TRACE_SECONDS)))
    return Rates.traced(traces, generator.integers(0, TRACES, count), generator.uniform(0, TRACE_SECONDS, count), 1.0)


def doubling_flights(count: int) -> Flights:
    """A megabyte in doubling flights, `count` times the same."""
    flights, left = [(FIRST_FLIGHT, 0.0)], MEGABYTE - FIRST_FLIGHT
    while left > 0:
        flights.append((min(left, 2 * flights[-1][0]), GAP_S))
        left -= flights[-1][0]
    return Flights.of([flights]).take(np.zeros(count, np.int64))


def main() -> None:
    """Measure and print."""
    parser = arguments("Concurrent transfers sharing a link max-min fairly.")
    parser.add_argument("--transfers", type=int, default=100_000, help="how many")
    options = parser.parse_args()
    count, generator = options.transfers, np.random.default_rng(7)
    start, size = generator.random(count), np.full(count, MEGABYTE)
    constant = Rates.constant(generator.uniform(0.1, 1.0, count) * MEGABYTE)
    equal, changing = Rates.constant(np.full(count, MEGABYTE)), changing_rates(count, generator)
    demand = float(constant.maximum().sum())
    leaving = start + generator.exponential(2.0, count)
    cases: list[tuple[str, Rates, float, object]] = [
        ("equal rates, link shared by all", equal, demand / 2, np.inf),
        ("different rates, half the demand", constant, demand / 2, np.inf),
        ("different rates, clients that leave", constant, demand / 2, leaving),
        ("changing rates, link not full", changing, demand * 2, np.inf),
        ("changing rates, half the demand", changing, demand / 2, np.inf),
        ("changing rates, clients that leave", changing, demand / 2, leaving),
    ]
    rows, flights = [], doubling_flights(count)
    for name, rates, capacity, stop in cases:

        def once(
            sent_in: Flights | None, rates: Rates = rates, capacity: float = capacity, stop: object = stop
        ) -> object:
            return transfer(start, size, rates, capacity, stop, sent_in)  # type: ignore[arg-type]

        rows.append(
            {
                "case": name,
                "transfers": count,
                "seconds": best_of(lambda once=once: once(None)),  # type: ignore[misc]
                "in_flights_seconds": best_of(lambda once=once: once(flights)),  # type: ignore[misc]
            }
        )
    floor = heap_seconds(count)
    headline = rows[1]["seconds"]
    assert isinstance(headline, float)
    emit({"seconds": headline, "floor_seconds": floor, "ratio": headline / floor}, rows, options.format == "json")


if __name__ == "__main__":
    main()
