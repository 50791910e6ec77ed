"""Exchanges with single clients that run beside the stages that the server waits for.

An exchange is one or more questions to one client, each asked when the previous one has been answered. Its times are
those of a stage (`emulated`): server uplink share -> latency -> client downlink -> compute -> client uplink -> latency
-> server downlink share. The server does not wait for all exchanges to end.

Exchanges share the server's link max-min fairly with one another, exactly (`fair_sharing.open_ended`). They do not
share it with the stages that a protocol asks meanwhile: each is as fast as if the other did not exist.
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
"""Stages of the questions of exchanges; in the records, such a stage begins when its question is asked."""


@dataclass
class PendingQuestion:
    """One question and its answer.

    Attributes:
        limit_s: seconds after which the server stops waiting.
        size_down: bytes of the question.
        size_up: bytes of the answer; 0 if there is none.
        compute_s: seconds of work on the client's device.
        outcome: position in `OUTCOMES`: at first the client's reaction, in the end the outcome.
        drops: whether the client drops out when it has received the question.
        sent_s: seconds at which the question was asked; infinite: never.
        received_s: seconds at which the answer was complete; infinite: never.
        down: share of the question that got through, 0 to 1.
        up: share of the answer that got through, 0 to 1.
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
    """The exchange with one client.

    Attributes:
        client: number of the client.
        round: round in which the exchange began.
        latency_s: one-way latency at the beginning, seconds.
        leaves_s: seconds at which the client goes offline.
        legs: the questions, in order.
        at: index of the current or last question.
        end_s: seconds at which the exchange ends, with the last answer or when the server knows that no answer will
            come; infinite: not known yet.
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
        """The current question."""
        return self.legs[self.at]

    @property
    def answered(self) -> bool:
        """Whether all questions have been answered."""
        return self.at == len(self.legs) - 1 and self.leg.outcome == ANSWERED and self.leg.received_s < math.inf


class PendingExchanges:
    """All exchanges in progress.

    Args:
        links: links of the clients and of the server.
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
        """Ask the first question of each exchange; none of these clients may have an exchange in progress."""
        self._happen(now_s)
        for flight in flights:
            self._flights[flight.client] = flight
        self._ask(now_s, flights)

    @property
    def next_s(self) -> float:
        """Seconds at which the next transfer or exchange ends; infinite: no exchange is in progress."""
        over_s = min((flight.end_s for flight in self._flights.values()), default=math.inf)
        return min(self._down.next_s, self._up.next_s, over_s)

    def advance(self, until_s: float) -> list[PendingExchange]:
        """Advance to `until_s`; return the exchanges that have ended, in the order in which they ended."""
        self._happen(until_s)
        over = [flight for flight in self._flights.values() if flight.end_s <= until_s]
        for flight in over:
            del self._flights[flight.client]
        return sorted(over, key=lambda flight: (flight.end_s, flight.client))

    def _happen(self, until_s: float) -> None:
        """Process each message that is through or cut off by `until_s`, in order of time."""
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
            # At the server's end: bytes reach a client until it leaves only if they were sent one latency before.
            np.minimum(np.array([flight.leaves_s for flight in flights]) - latency_s, _limits(flights)),
            -latency_s,
        )

    def _arrived(self, now_s: float, questions: Sequence[EndedTransfer]) -> None:
        """Process questions that have arrived completely, or never will."""
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
        """Process answers that have arrived completely, or never will."""
        continuing = []
        for ended in answers:
            flight = self._flights[ended.client]
            leg = flight.leg
            leg.up = ended.share
            if not ended.complete:
                self._lose(flight)
                continue
            leg.received_s = ended.end_s
            # A refusal ends the exchange, also before the last question.
            if leg.outcome == REFUSED or flight.at == len(flight.legs) - 1:
                flight.end_s = ended.end_s
            else:
                flight.at += 1
                continuing.append(flight)
        self._ask(now_s, continuing)

    def _lose(self, flight: PendingExchange, known_s: float | None = None) -> None:
        """End an exchange without an answer: the client left, is late, or stays silent, or `known_s` says when."""
        leg = flight.leg
        limit_s = leg.sent_s + leg.limit_s
        # A silent client is never noticed, so its outcome stays and the server waits for the whole limit.
        if known_s is None and leg.outcome != SILENT:
            leg.outcome = DROPPED if flight.leaves_s < limit_s else LATE
            known_s = flight.leaves_s if self._visible else math.inf
        flight.end_s = min(limit_s, math.inf if known_s is None else known_s)

    def _wire(self, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
        size = np.array(sizes, np.int64)
        return size + self._links.transport.overhead(size)[0]

    def to_checkpoint(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state that a resumed run needs; empty when no exchange is in progress."""
        if not self._flights:
            return {}
        ways = {"down": self._down.to_checkpoint(), "up": self._up.to_checkpoint()}
        return packed(list(self._flights.values())) | ways

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the state that `to_checkpoint` returned."""
        self._flights = {flight.client: flight for flight in unpacked(saved)} if saved else {}
        for direction, name in ((self._down, "down"), (self._up, "up")):
            direction.restore(saved.get(name, np.zeros((0, 7))))


def packed(flights: Sequence[PendingExchange]) -> dict[str, npt.NDArray[Any]]:
    """Return exchanges, at least one, as the arrays "flights" and "legs" of a checkpoint."""
    # The order of the fields is the format of checkpoints: `unpacked` reads by position.
    rows = [(f.client, f.round, f.latency_s, f.leaves_s, f.at, f.end_s) for f in flights]
    legs = [[astuple(leg) for leg in flight.legs] for flight in flights]
    return {"flights": np.array(rows, np.float64), "legs": np.array(legs, np.float64)}


def unpacked(saved: Mapping[str, npt.NDArray[Any]]) -> list[PendingExchange]:
    """Return the exchanges that `packed` stored."""
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
