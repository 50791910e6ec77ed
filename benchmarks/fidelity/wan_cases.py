"""Cases over long distances: connections, round trips, rates, sizes and loss, drawn by seed.

A seed draws the same cases everywhere. Each value of each dimension comes up about equally often: the columns are
shuffled decks, dealt again when they are used up.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from benchmarks.fidelity.cases import KB, MB, Case
from benchmarks.fidelity.wire import Line

RTTS_MS = (5.0, 20.0, 50.0, 100.0, 300.0)
RATES_MBIT_S = (2.0, 10.0, 44.0, 100.0)
SIZES = (200, 20 * KB, 100 * KB, MB, 10 * MB)
ALGORITHMS = ("reno", "cubic", "bbr")
CLIENTS = (1, 1, 4, 8)
LOSSES = (0.001, 0.01)
QUEUES_S = (0.01, 0.02, 0.05)
SMALL = 200
SEGMENT_BYTES = 1448
LONGEST_S, LONGEST_LOSSY_S = 7.0, 2.0  # least time of a case's larger message; with loss there are repetitions

STATES = {"new": None, "warm": 0.0, "idle 0.3 s": 0.3, "idle 3 s": 3.0}
"""Of the connection when the stage begins: not there yet; used just now; used by the same stage so long ago."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class WanCase:
    """One stage over the wire; all clients alike.

    Attributes:
        rtt_ms: round trip of small packets.
        mbit_s: of each client's link, both ways.
        question_bytes, answer_bytes: payloads.
        algorithm: of congestion control, at both ends.
        state: see `STATES`.
        clients: how many take part.
        server_mbit_s: of the server's link, both ways; infinite: not limited.
        loss: probability that a packet is lost, each way.
        queue_s: how long the queue in front of each client's link may get; infinite: any length.
    """

    rtt_ms: float
    mbit_s: float
    question_bytes: int
    answer_bytes: int
    algorithm: str
    state: str
    clients: int = 1
    server_mbit_s: float = math.inf
    loss: float = 0.0
    queue_s: float = math.inf

    @property
    def name(self) -> str:
        """All of it, in one line."""
        shared = "" if self.clients == 1 else f", {self.clients} clients at {self.server_mbit_s:g}"
        lossy = f", {100 * self.loss:g}% loss" if self.loss else ""
        lossy += f", queue {1000 * self.queue_s:g} ms" if self.queue_s < math.inf else ""
        sizes = f"{size_text(self.question_bytes)} / {size_text(self.answer_bytes)}"
        return f"{self.algorithm}, {self.rtt_ms:g} ms, {self.mbit_s:g} Mbit/s{shared}, {sizes}, {self.state}{lossy}"

    @property
    def stage(self) -> Case:
        """The same as a case without a wire."""
        rates, server = (self.mbit_s,) * self.clients, self.server_mbit_s
        return Case(self.name, rates, rates, self.question_bytes, (self.answer_bytes,) * self.clients, server, server)

    @property
    def line(self) -> Line:
        """Each client's part of the wire."""
        return Line(self.mbit_s, self.mbit_s, self.rtt_ms / 2000, loss=self.loss, queue_s=self.queue_s)

    @property
    def least_s(self) -> float:
        """Seconds that the larger message takes, at the narrowest link and at the rate that loss leaves.

        The latter after Mathis et al. 1997: sqrt(3/2) segments a round trip over the root of the loss.
        """
        largest = max(self.question_bytes, self.answer_bytes)
        narrowest = min(self.mbit_s, self.server_mbit_s / self.clients)
        lossy_s = largest / SEGMENT_BYTES * self.rtt_ms / 1000 * math.sqrt(self.loss / 1.5)
        return max(largest * 8e-6 / narrowest, lossy_s)


def wan_cases(count: int, lossy: int, seed: int) -> list[WanCase]:
    """`count` cases without loss and `lossy` with it."""
    generator = np.random.default_rng(seed)
    drawn = _drawn(generator)
    found: dict[WanCase, None] = {}
    while len(found) < count:
        case = next(drawn)
        if case.least_s <= LONGEST_S:
            found[case] = None
    losses = Deck(LOSSES, generator)
    while len(found) < count + lossy:
        case = replace(next(drawn), loss=losses.next())
        large = max(case.question_bytes, case.answer_bytes) > SMALL
        if large and case.least_s <= LONGEST_LOSSY_S and case.state != "idle 3 s":
            found[case] = None
    return list(found)


def queue_cases() -> list[WanCase]:
    """Large messages on new connections, in front of queues that are shorter than a window."""
    far = [WanCase(100.0, 44.0, 5 * MB, SMALL, name, "new", queue_s=s) for name in ALGORITHMS for s in QUEUES_S]
    near = [WanCase(20.0, 10.0, MB, SMALL, name, "new", queue_s=s) for name in ALGORITHMS for s in QUEUES_S]
    return far + near


class Deck(Generic[_T]):
    """Deals values in random order, all of them before any comes again."""

    def __init__(self, values: Sequence[_T], generator: np.random.Generator) -> None:
        self._values = values
        self._generator = generator
        self._left: list[_T] = []

    def next(self) -> _T:
        """The next one."""
        if not self._left:
            self._left = [self._values[at] for at in self._generator.permutation(len(self._values))]
        return self._left.pop()


def _drawn(generator: np.random.Generator) -> Iterator[WanCase]:
    """Any number of cases, some of which may last too long."""
    rtts, rates, sizes = Deck(RTTS_MS, generator), Deck(RATES_MBIT_S, generator), Deck(SIZES, generator)
    algorithms, states, clients = Deck(ALGORITHMS, generator), Deck(list(STATES), generator), Deck(CLIENTS, generator)
    ways = Deck(((1, 1), (1, 0), (0, 1)), generator)  # large both ways, or one way only
    while True:
        rate, count, size = rates.next(), clients.next(), sizes.next()
        down, up = ways.next()
        shared = rate if generator.random() < 0.5 else max(RATES_MBIT_S)
        yield WanCase(
            rtts.next(), rate, size if down else SMALL, size if up else SMALL, algorithms.next(), states.next(), count,
            math.inf if count == 1 else shared,
        )  # fmt: skip


def size_text(count: int) -> str:
    """Bytes as people write them."""
    return f"{count / MB:g} MB" if count >= MB else f"{count / KB:g} kB" if count >= KB else f"{count} B"
