"""Connections and congestion windows of the live network: handshakes, and the time at which bytes may be sent.

The model is that of the virtual clock (`network.connections`). There all times follow from the plan of a stage. In a
live stage a message begins when its sender has it, and each flight when the previous one is through and its gap has
passed in real time. Losses are drawn for each message by itself, unlike on the virtual clock.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from testbed.arrays import Ids
from testbed.network.connections import DOWN, UP, Connections, stage_word


class Flight(NamedTuple):
    """The bytes that a sender sends without waiting for an acknowledgement.

    Attributes:
        payload: bytes of the message that get through with it; 0 if all of it is lost.
        wire_bytes: bytes on the links, with headers and with bytes that are lost or were lost before.
        gap_s: minimum seconds after the beginning of the previous flight; for the first one, of the transfer.
    """

    payload: int
    wire_bytes: float
    gap_s: float


class Pacing:
    """How far one message has come in its flights.

    Args:
        flights: its, each found out when the one before is through; the last one carries something.
        on_end: called with when the last byte went through, or was cut off.

    Attributes:
        began_s: when the flight that is under way began, or the transfer.
        payload_left: bytes of the message that this flight has yet to carry.
    """

    def __init__(self, flights: Iterator[Flight], on_end: Callable[[float], None] = lambda through_s: None) -> None:
        self.flights, self.end = flights, on_end
        self.began_s = 0.0
        self.payload_left, self._wire_left = 0, 0.0

    def begin(self, flight: Flight, at_s: float) -> None:
        """Begin the next one of `flights`."""
        self.payload_left, self._wire_left, _ = flight
        self.began_s = at_s

    def take(self, payload: int) -> float:
        """Return the bytes on the links of the next `payload` bytes of this flight; the last ones take the rest."""
        wire_bytes = self._wire_left
        if payload < self.payload_left:
            wire_bytes *= payload / self.payload_left
        self.payload_left -= payload
        self._wire_left -= wire_bytes
        return wire_bytes


class StageSenders:
    """Both ends of the connections in one stage.

    Args:
        connections: the run's connections; None: nothing is held back.
        key: (round, number of the stage).
        began_s: seconds at which the stage began.
        recipients: `(m,)` int64, the clients that are asked.
        there: `(k,)` positions of the reachable clients: they connect.

    Attributes:
        opening: cost of connecting, `(m,)` each; None if there is none.
        resent_down: `(m,)` float64 bytes of questions that were sent again, or will be in this flight.
        resent_up: `(m,)` float64 bytes of answers that were sent again, or will be in this flight.
    """

    def __init__(
        self, connections: Connections | None, key: tuple[int, int], began_s: float, recipients: Ids, there: Ids
    ) -> None:
        self._connections, self._recipients = connections, recipients
        self._word, self._began_s = stage_word(*key), began_s
        self.resent_down, self.resent_up = np.zeros(len(recipients)), np.zeros(len(recipients))
        opening = None if connections is None else connections.open(recipients[there], began_s, self._word)
        self.opening = None if opening is None else opening.spread(there, len(recipients))

    def connected_s(self, position: int) -> float:
        """Return when the client at this position of the recipients is connected."""
        return self._began_s + (0.0 if self.opening is None else float(self.opening.delay_s[position]))

    def question(self, position: int, size: int, start_s: float) -> Pacing | None:
        """Return the pacing of a question of `size` bytes sent from `start_s` on; None if nothing holds it back."""
        return self._pacing(DOWN, position, size, start_s)

    def answer(self, position: int, size: int, start_s: float) -> Pacing | None:
        """Return the pacing of an answer of `size` bytes sent from `start_s` on; None if nothing holds it back."""
        return self._pacing(UP, position, size, start_s)

    def _pacing(self, way: int, position: int, size: int, start_s: float) -> Pacing | None:
        connections, client = self._connections, int(self._recipients[position])
        if connections is None:
            return None
        headers, _ = connections.transport.overhead(np.array([size]))
        whole = size + int(headers[0])
        sending = connections.sending(way, client, self._began_s, start_s, size, whole, self._word | 1 + way)
        if sending is None:
            return None
        resent = self.resent_down if way == DOWN else self.resent_up

        def flights() -> Iterator[Flight]:
            segments = float(sending.left[0])
            left, payload, dropped = segments, 0, 0.0
            for segments_sent, gap_s, still_left in sending.flight_by_flight():
                again = segments_sent + float(sending.dropped[0]) - dropped - (left - still_left)
                # Before the flight goes: if the transfer is cut off in it, these bytes count as sent.
                resent[position] += again * whole / segments
                dropped = float(sending.dropped[0])
                through = int(size * (1 - still_left / segments))
                yield Flight(through - payload, segments_sent * whole / segments, gap_s)
                left, payload = still_left, through

        return Pacing(flights(), lambda through_s: connections.record_stopped(way, client, sending, through_s))
