"""Connections and congestion windows, live: who has to connect first, and which bytes of a message may go when.

The model is that of the virtual clock (`network.connections`). There the moments follow from the plan; here a message
begins when its sender has it, and each flight when the one before is through and its gap has passed in this run.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.transport.flights import Flights
from testbed.network.connections import DOWN, UP, Connections, stage_word


class Flight(NamedTuple):
    """What a sender sends without waiting for an acknowledgement.

    Attributes:
        payload: bytes of the message; 0 where a small message is sent again.
        wire_bytes: what that takes of the links, with headers and what is sent again.
        gap_s: it begins no earlier than so long after the one before, the first one after the transfer.
    """

    payload: int
    wire_bytes: float
    gap_s: float


class Pacing:
    """How far one message has come in its flights.

    Args:
        flights: its, at least one; the last one carries something.
        on_end: called with when the last byte went through, or was cut off.

    Attributes:
        began_s: when the flight that is under way began, or the transfer.
        payload_left: bytes of the message that this flight has yet to carry.
    """

    def __init__(self, flights: list[Flight], on_end: Callable[[float], None] = lambda through_s: None) -> None:
        self._coming = flights[::-1]
        self.end = on_end
        self.began_s = 0.0
        self.payload_left, self._wire_left = 0, 0.0

    @property
    def next_s(self) -> float:
        """When the next flight may begin, if the present one is through."""
        return self.began_s + self._coming[-1].gap_s

    def begin_flight(self, at_s: float) -> None:
        """The next flight begins."""
        self.payload_left, self._wire_left, _ = self._coming.pop()
        self.began_s = at_s

    def take(self, payload: int) -> float:
        """Bytes on the links of the next `payload` bytes of this flight; of the last ones, all that is left."""
        wire_bytes = self._wire_left
        if payload < self.payload_left:
            wire_bytes *= payload / self.payload_left
        self.payload_left -= payload
        self._wire_left -= wire_bytes
        return wire_bytes


def flights_of(flights: Flights, size: int) -> list[Flight]:
    """The flights of the one transfer in `flights`, a message of `size` bytes, spread over them evenly."""
    at = slice(int(flights.first[0]), int(flights.first[0] + flights.count[0]))
    wire_bytes = flights.size_bytes[at]
    through = np.cumsum(wire_bytes)
    ends = np.floor(size * (through / through[-1])).astype(np.int64)
    return list(map(Flight, np.diff(ends, prepend=0).tolist(), wire_bytes.tolist(), flights.gap_s[at].tolist()))


class StageSenders:
    """Both ends of the connections in one stage.

    Args:
        connections: the run's; None: nothing is held back.
        key: (round, number of the stage).
        began_s: when the stage began.
        recipients: `(m,)` who is asked.
        there: `(k,)` positions of those who are there: they connect.

    Attributes:
        opening: what that takes, `(m,)` each; None: nothing.
        resent_down, resent_up: `(m,)` bytes that questions and answers need to be sent again, as far as is known.
    """

    def __init__(
        self, connections: Connections | None, key: tuple[int, int], began_s: float, recipients: Ids, there: Ids
    ) -> None:
        self._connections, self._recipients = connections, recipients
        self._word, self._began_s = stage_word(*key), began_s
        self.resent_down, self.resent_up = np.zeros(len(recipients), np.int64), np.zeros(len(recipients), np.int64)
        opening = None if connections is None else connections.open(recipients[there], began_s, self._word)
        self.opening = None if opening is None else opening.spread(there, len(recipients))

    def connected_s(self, position: int) -> float:
        """When the client at this position of the recipients is connected."""
        return self._began_s + (0.0 if self.opening is None else float(self.opening.delay_s[position]))

    def down(self, position: int, size: int, start_s: float) -> Pacing | None:
        """How a question of `size` bytes goes that is sent from `start_s` on; None: nothing holds it back."""
        return self._pacing(DOWN, position, size, start_s, self.resent_down)

    def up(self, position: int, size: int, start_s: float) -> Pacing | None:
        """The same of an answer."""
        return self._pacing(UP, position, size, start_s, self.resent_up)

    def _pacing(self, way: int, position: int, size: int, start_s: float, resent: Ids) -> Pacing | None:
        connections = self._connections
        if connections is None:
            return None
        client, sizes = self._recipients[position : position + 1], np.array([size], np.int64)
        whole = sizes + connections.transport.overhead(sizes)[0]
        starts = np.array([start_s])
        word = self._word | 1 + way
        plan = connections.plan(way, client, self._began_s, starts, sizes, whole, word, alone=int(client[0]))
        if plan is None:
            return None
        resent[position] = plan.resent(whole)[0]

        def end(through_s: float) -> None:
            connections.sent(way, client, plan, np.array([through_s]), through_s)

        return Pacing(flights_of(plan.flights, size), end)
