"""Exchanges with single clients that begin and end when they do, beside the stages that the server waits for.

A flight is one or more questions to one client, each asked when the one before has been answered. Its times are those
of a stage (`emulated`): server uplink share -> latency -> client downlink -> compute -> client uplink -> latency ->
server downlink share; only that nobody waits for all of them.

Flights share the server's link max-min fairly with one another, exactly (`fair_sharing.open_ended`). With the stages
that a protocol asks meanwhile they do not: either is as fast as if the other was not there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.emulation.links import ClientLinks
from testbed.network.exchanges import ANSWERED, DROPPED, LATE, REFUSED, SILENT
from testbed.network.fair_sharing.open_ended import EndedTransfer, OpenTransfers

STAGES = ("train", "plain/update")
"""Of questions that are asked in flights, in runs that have them; in their records, stages begin when each is asked."""


@dataclass
class PendingQuestion:
    """One question and its answer.

    Attributes:
        limit_s: after how many seconds the server gives up waiting.
        size_down, size_up: bytes of the question, and of the answer (0: there is none).
        compute_s: seconds that the answer takes on the client's device.
        outcome: position in `OUTCOMES`: what the client does, and in the end what became of it.
        drops: whether the client is lost when it has the question.
        sent_s, received_s: when it was asked, and when the answer was complete (infinite: never).
        down, up: shares of question and answer that got through.
    """

    limit_s: float
    size_down: int
    size_up: int
    compute_s: float
    outcome: int
    drops: bool = False
    sent_s: float = math.inf
    received_s: float = math.inf
    down: float = 0.0
    up: float = 0.0


@dataclass
class PendingExchange:
    """One client's.

    Attributes:
        client: its number.
        round: in which it began.
        latency_s: one way, from the beginning on.
        leaves_s: when the client goes offline.
        legs: its questions, in order.
        at: the leg that is under way, or was the last.
        end_s: when it is over: the last answer is there, or the server knows that none will come; infinite: not known.
    """

    client: int
    round: int
    latency_s: float
    leaves_s: float
    legs: list[PendingQuestion] = field(default_factory=list)
    at: int = 0
    end_s: float = math.inf

    @property
    def leg(self) -> PendingQuestion:
        """The one under way."""
        return self.legs[self.at]

    @property
    def answered(self) -> bool:
        """Whether all questions have been."""
        return self.at == len(self.legs) - 1 and self.leg.outcome == ANSWERED and self.leg.received_s < math.inf


class PendingExchanges:
    """All flights that are under way.

    Args:
        links: the clients' and the server's.
        disconnects_visible: whether the server learns at once that a client has gone, instead of by timeout.
    """

    def __init__(self, links: ClientLinks, disconnects_visible: bool) -> None:
        self._links, self._visible = links, disconnects_visible
        self._down = OpenTransfers(links.down, links.server_up_bytes_s)
        self._up = OpenTransfers(links.up, links.server_down_bytes_s)
        self._flights: dict[int, PendingExchange] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[int]:
        return iter(self._flights)

    def begin(self, now_s: float, flights: Sequence[PendingExchange]) -> None:
        """Ask their first questions; none of these clients has a flight."""
        self._happen(now_s)
        for flight in flights:
            self._flights[flight.client] = flight
        self._ask(now_s, flights)

    @property
    def next_s(self) -> float:
        """When something happens next; infinite: nothing is under way."""
        over_s = min((flight.end_s for flight in self._flights.values()), default=math.inf)
        return min(self._down.next_s, self._up.next_s, over_s)

    def advance(self, until_s: float) -> list[PendingExchange]:
        """Let happen what happens until then; the flights that are over, in the order in which they ended."""
        self._happen(until_s)
        over = [flight for flight in self._flights.values() if flight.end_s <= until_s]
        for flight in over:
            del self._flights[flight.client]
        return sorted(over, key=lambda flight: (flight.end_s, flight.client))

    def _happen(self, until_s: float) -> None:
        """Each message that is through, or cut off, in the order of time."""
        while (now_s := min(self._down.next_s, self._up.next_s)) <= until_s:
            questions, answers = self._down.take_ended(now_s), self._up.take_ended(now_s)
            self._arrived(now_s, questions)
            self._answered(now_s, answers)

    def _ask(self, now_s: float, flights: Sequence[PendingExchange]) -> None:
        if not flights:
            return
        for flight in flights:
            flight.leg.sent_s = now_s
        latency_s = np.array([flight.latency_s for flight in flights])
        self._down.add(
            now_s,
            np.array([flight.client for flight in flights]),
            np.full(len(flights), now_s),
            self._wire([flight.leg.size_down for flight in flights]),
            np.minimum(np.array([flight.leaves_s for flight in flights]) - latency_s, _limits(flights)),
            -latency_s,
        )

    def _arrived(self, now_s: float, questions: Sequence[EndedTransfer]) -> None:
        """Questions have arrived whole, or never will."""
        answering = []
        for ended in questions:
            flight = self._flights[ended.client]
            leg = flight.leg
            leg.down = ended.share
            there_s = ended.end_s + flight.latency_s
            if not ended.complete:
                self._lose(flight)
            elif leg.drops:
                leg.outcome = DROPPED
                self._lose(flight, there_s if self._visible else math.inf)
            elif leg.outcome == SILENT:
                self._lose(flight)
            else:
                answering.append((flight, there_s + leg.compute_s + flight.latency_s))
        if not answering:
            return
        flights = [flight for flight, _ in answering]
        latency_s = np.array([flight.latency_s for flight in flights])
        self._up.add(
            now_s,
            np.array([flight.client for flight in flights]),
            np.array([start_s for _, start_s in answering]),
            self._wire([flight.leg.size_up for flight in flights]),
            np.minimum(np.array([flight.leaves_s for flight in flights]) + latency_s, _limits(flights)),
            latency_s,
        )

    def _answered(self, now_s: float, answers: Sequence[EndedTransfer]) -> None:
        """Answers have arrived whole, or never will."""
        asked = []
        for ended in answers:
            flight = self._flights[ended.client]
            leg = flight.leg
            leg.up = ended.share
            if not ended.complete:
                self._lose(flight)
                continue
            leg.received_s = ended.end_s
            if leg.outcome == REFUSED or flight.at == len(flight.legs) - 1:
                flight.end_s = ended.end_s
            else:
                flight.at += 1
                asked.append(flight)
        self._ask(now_s, asked)

    def _lose(self, flight: PendingExchange, known_s: float | None = None) -> None:
        """No answer will come: since the client has left, is too late, or (`known_s`) for what its leg says."""
        leg = flight.leg
        limit_s = leg.sent_s + leg.limit_s
        if known_s is None and leg.outcome != SILENT:
            leg.outcome = DROPPED if flight.leaves_s < limit_s else LATE
            known_s = flight.leaves_s if self._visible else math.inf
        flight.end_s = min(limit_s, math.inf if known_s is None else known_s)

    def _wire(self, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
        size = np.array(sizes, np.int64)
        return size + self._links.transport.overhead(size)[0]

    def to_checkpoint(self) -> dict[str, npt.NDArray[Any]]:
        """What a run that is resumed must know; nothing when nothing is under way."""
        if not self._flights:
            return {}
        ways = {"down": self._down.to_checkpoint(), "up": self._up.to_checkpoint()}
        return packed(list(self._flights.values())) | ways

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """Resume with what `to_checkpoint` gave."""
        self._flights = {flight.client: flight for flight in unpacked(saved)} if saved else {}
        for direction, name in ((self._down, "down"), (self._up, "up")):
            direction.restore(saved.get(name, np.zeros((0, 7))))


def packed(flights: Sequence[PendingExchange]) -> dict[str, npt.NDArray[Any]]:
    """Flights, at least one, as arrays of a checkpoint: "flights" and "legs"."""
    rows = [(f.client, f.round, f.latency_s, f.leaves_s, f.at, f.end_s) for f in flights]
    legs = [[astuple(leg) for leg in flight.legs] for flight in flights]
    return {"flights": np.array(rows, np.float64), "legs": np.array(legs, np.float64)}


def unpacked(saved: Mapping[str, npt.NDArray[Any]]) -> list[PendingExchange]:
    """Inverse of `packed`."""
    flights = []
    for row, legs in zip(saved["flights"].tolist(), saved["legs"].tolist(), strict=True):
        client, number, latency_s, leaves_s, at, end_s = row
        flight = PendingExchange(int(client), int(number), latency_s, leaves_s, [], int(at), end_s)
        for limit_s, down, up, compute_s, outcome, drops, *rest in legs:
            flight.legs.append(
                PendingQuestion(limit_s, int(down), int(up), compute_s, int(outcome), bool(drops), *rest)
            )
        flights.append(flight)
    return flights


def _limits(flights: Sequence[PendingExchange]) -> npt.NDArray[np.float64]:
    return np.array([flight.leg.sent_s + flight.leg.limit_s for flight in flights])
