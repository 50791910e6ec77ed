"""From messages to flights: windows that open with each acknowledgement, and what is lost and sent again.

A sender with a window of w segments sends them at once and hears of the first a round trip later; then the next window
goes. A flight that lasts longer than that fills the link, and what is left follows without a pause. (Cardwell, Savage
and Anderson, "Modeling TCP latency", 2000, count flights in this way; here each is followed by itself.)

What is lost is sent again in the next flight: the acknowledgements of what came after it say so (RFC 8985), and what
those of what came before it have let go by then is under way. When nothing came after it, a probe finds out after two
round trips (tail loss probe); when what was sent again is lost again, the retransmission time-out does, and slow start
begins anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.transport.congestion import ALGORITHMS, Mask, SenderFlights
from testbed.emulation.transport.section import Transport
from testbed.emulation.transport.senders import Path, Senders

VARIATION_KEPT = 0.77  # beyond its least, by each round trip but a connection's first (RFC 6298)
MOST_DOUBLINGS = 8  # of the time-out
SAMPLES_SMOOTHED = 16  # segments whose round trips the smoothed one lags behind


@dataclass(frozen=True, eq=False)
class _Lost:
    """What does not arrive of n flights, `(n,)` segments each.

    Attributes:
        all: of all.
        chance: those lost by chance.
        over: those that found the queue full.
        full_after: how many go before the queue is full, where it gets so.
        part: of what goes then that finds no room.
    """

    all: Floats
    chance: Floats
    over: Floats
    full_after: Floats
    part: Floats


class Sending:
    """n messages on their way into flights.

    Args:
        senders: what they know when the messages begin (`Senders.begin`); changed.
        segments: `(n,)` of each message, above 0.
        path: theirs.
        transport: how they send.
        burst: mean segments lost in a row.
        generator: what is lost; None where nothing ever is.

    Attributes:
        queue_s: `(n,)` seconds from sending the last segment until it is through the link.
        dropped: `(n,)` segments so far that found the queue in front of the link full. No flight has them: they take
            none of the link's time.
    """

    def __init__(
        self,
        senders: Senders,
        segments: Ids,
        path: Path,
        transport: Transport,
        burst: float = 1.0,
        generator: np.random.Generator | None = None,
    ) -> None:
        assert transport.segment_bytes is not None
        self.senders, self.path, self.transport = senders, path, transport
        self.limit = transport.window_limit_bytes / transport.segment_bytes
        self.control = ALGORITHMS[transport.congestion_control](transport, self.limit)
        self.left = segments.astype(np.float64)
        self.fits = self.control.fits * (self.left + senders.window)
        self.queue_s, self.dropped = np.zeros(len(segments)), np.zeros(len(segments))
        self._burst, self._generator = burst, generator
        self._began_s, self._next_s = np.zeros(len(segments)), np.zeros(len(segments))
        self._again = np.zeros(len(segments))  # segments of the next flight that were lost before
        self._let_go = np.zeros(len(segments))  # segments of it that left before this was known
        self._surge = np.zeros(len(segments))  # of these, what the window grew by: nothing made room for it
        self._standing_s = np.zeros(len(segments))  # the queue that the flight before has left
        self._doublings = np.zeros(len(segments))  # time-outs in a row

    def run(self) -> tuple[Ids, Floats, Floats]:
        """(whose, segments, gap in seconds) of all flights, those of one message in order."""
        flights = [flight for flight, _ in self._all_flights()]
        owner, size, gap = (np.concatenate(column) for column in zip(*flights, strict=True))
        order = np.argsort(owner, kind="stable")
        return owner[order], size[order], gap[order]

    def flight_by_flight(self) -> Iterator[tuple[float, float, float]]:
        """The same of a single message, each flight only when it is asked for: segments, gap in seconds, segments left.

        What is left counts what was lost, and is 0 after the last flight alone.
        """
        for (_, sent, gap_s), unfinished in self._all_flights():
            yield float(sent[0]), float(gap_s[0]), float(self.left[0]) if len(unfinished) else 0.0

    def _all_flights(self) -> Iterator[tuple[tuple[Ids, Floats, Floats], Ids]]:
        """First, second, ... flights: (whose, segments, gap in seconds), and who has something left after it."""
        who, number = np.arange(len(self.left)), 0
        while len(who):
            flight, who = self._fly(who, number)
            number += 1
            yield flight, who

    def _fly(self, who: Ids, number: int) -> tuple[tuple[Ids, Floats, Floats], Ids]:
        """One flight of each of `who`: see `_all_flights`."""
        senders, path, left = self.senders.take(who), self.path.take(who), self.left[who]
        window = np.minimum(np.maximum(senders.window, self._let_go[who]), senders.buffer)
        window = np.minimum(np.minimum(window, self.limit), left)
        window = np.where(left > window, np.maximum(np.floor(window), 1.0), window)
        fills = (window < left) & (window * path.segment_s >= path.round_trip_s)
        sent = np.where(fills, left, window) if self._generator is None else window
        flight = SenderFlights(number, window, sent, fills, (number > 0) | (window < left))
        sending_s = self.control.sending_s(senders, path, flight)
        late_s = np.where(sent > window, 0.0, sending_s - window * path.segment_s)  # a paced flight as a late burst
        begin_s = self._next_s[who]
        gap_s = begin_s - self._began_s[who] + late_s
        self._began_s[who] = begin_s + late_s
        wait_s = np.maximum(path.round_trip_s, sending_s)
        lost = over = np.zeros(len(who))
        if self._generator is None:
            self.control.acknowledge(senders, path, flight, sending_s)
        else:
            gone = self._lost(self._generator, senders, path, flight, sending_s, who)
            lost, over = gone.all, gone.over
            self.dropped[who] += over
            let_go, surge = self._acknowledge(self._generator, senders, path, flight, sending_s, gone, who)
            silent_s = self._recover(self._generator, senders, path, flight, sending_s, gone, left, who)
            wait_s = np.maximum(path.round_trip_s, sending_s - over * path.segment_s) + silent_s
            self._let_go[who] = np.where(silent_s > 0, 0.0, let_go)
            self._surge[who] = np.where(silent_s > 0, 0.0, surge)
        self._next_s[who] = begin_s + wait_s
        buffer = np.minimum(self.control.buffer_per_window * senders.window, self.fits[who])
        senders.buffer = np.minimum(np.maximum(senders.buffer, buffer), self.limit)
        self.left[who] = left = left - (sent - lost)
        last = left < 0.5
        self._measure(senders, path, flight, who, last)
        self.senders.put(who, senders)
        return (who, sent - over, gap_s), who[~last]

    def _measure(self, senders: Senders, path: Path, flight: SenderFlights, who: Ids, last: Mask) -> None:
        """The round trips that the last segments see, with the queue in front of them."""
        under_way = np.minimum(np.minimum(senders.window, self.limit), flight.sent)
        full_s = np.maximum(under_way * path.segment_s - path.round_trip_s, 0.0)
        queue_s = np.where(flight.fills, full_s, flight.window * path.segment_s * flight.at_once)
        seen = np.maximum(0.0, 1 - SAMPLES_SMOOTHED / np.maximum(flight.window, SAMPLES_SMOOTHED))
        smoothed_s = path.round_trip_s + queue_s * np.where(flight.fills, 1.0, seen)
        senders.smoothed_s = np.where(last, smoothed_s, senders.smoothed_s)
        least = self.transport.minimum_timeout_s
        first = (senders.last_sent_s == np.inf) & (flight.number == 0)
        kept = np.where(first, 1.0, VARIATION_KEPT)
        senders.variation_s = least + np.maximum(senders.variation_s - least, 0.0) * kept
        self.queue_s[who] = np.where(last, queue_s, self.queue_s[who])

    # -- loss ------------------------------------------------------------------------------------------------

    def _lost(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        who: Ids,
    ) -> "_Lost":
        """What does not arrive of each flight: by chance, or because the queue is full."""
        sent = np.maximum(np.rint(flight.sent), 1.0)
        begun = generator.binomial(sent.astype(np.int64), path.loss / self._burst)
        lost = begun.astype(np.float64)
        if self._burst > 1:
            extra = generator.negative_binomial(np.maximum(begun, 1), 1 / self._burst)
            lost += np.where(begun > 0, extra, 0)
        part = self.control.queued_part(senders, path, flight, sending_s)
        surges = self._let_go[who] > 0
        part = np.where(surges, self._surge[who] / np.maximum(self._let_go[who], 1.0), part)
        of = np.where(surges, np.minimum(self._let_go[who], sent - self._again[who]), flight.window)
        pair = np.minimum(self.transport.segments_per_acknowledgement, flight.window)  # what one of them stands for
        most_s = np.maximum(part * of, pair) * path.segment_s + np.where(surges, self._standing_s[who], 0.0)
        queue_s = np.maximum(most_s, flight.window * path.segment_s - path.round_trip_s)
        over = np.maximum(queue_s - path.buffer_s, 0.0) / path.segment_s
        over = np.minimum(np.floor(np.where(np.isfinite(over), over, 0.0)), sent - 1)
        left_s = np.minimum((sent - over) * path.segment_s - path.round_trip_s, path.buffer_s)
        self._standing_s[who] = np.maximum(left_s, 0.0)
        # While the queue gets longer by a part of what is sent, that part of the rest is lost once it is full.
        return _Lost(np.minimum(lost + over, sent), lost, over, of - over / np.where(part > 0, part, 1.0), part)

    def _acknowledge(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        gone: "_Lost",
        who: Ids,
    ) -> tuple[Floats, Floats]:
        """The windows grow until it is known that something is lost; segments let go until then, and the growth."""
        some, arrived = gone.all > 0, flight.sent - gone.all
        before = arrived  # of the first that is lost, which is as likely to be any
        if self.control.heeds_loss:
            before = np.floor((1 - generator.random(len(who)) ** (1 / np.maximum(gone.chance, 1.0))) * (arrived + 1))
            before = np.where(gone.chance > 0, before, arrived)
        before = np.where(gone.over > 0, np.minimum(before, np.maximum(np.floor(gone.full_after), 0.0)), before)
        heard = np.where(some, np.minimum(before, arrived), flight.sent)
        counts = np.maximum(heard - self._let_go[who], 0.0)
        if not self.control.heeds_loss:  # but for the round trip in which it begins, for which the window stays
            counts = np.where(some & (self._again[who] == 0), 0.0, heard)
        self.control.acknowledge(senders, path, replace(flight, sent=counts), sending_s)
        grown = np.maximum(np.minimum(senders.window, self.limit) - flight.window, 0.0)
        return np.where(some, grown + heard, 0.0), np.where(some, grown, 0.0)

    def _recover(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        gone: "_Lost",
        left: Floats,
        who: Ids,
    ) -> Floats:
        """Shrink the windows of those that lost something; seconds that finding out takes longer than the flight."""
        sent, again, doublings = np.maximum(np.rint(flight.sent), 1.0), self._again[who], self._doublings[who]
        lost, over = gone.all, gone.over > 0
        some, everything = lost > 0, lost >= sent
        left_before = generator.random(len(who)) < np.minimum(self._let_go[who] / sent, 1.0) ** lost
        self.control.lose(senders, some & ~left_before)
        # What comes last in a message has nothing after it that would tell; a flight is as likely to lose any segment.
        # Of those that find a full queue it is a part; then not the last one alone, since they come in pairs.
        chance, dropped = generator.random(len(who)), over & (again == 0)
        last = (flight.sent >= left) & ((chance * sent < lost) | (dropped & (chance < gone.part)))
        alone = (generator.random(len(who)) * (sent - 1) >= lost - 1) & ~dropped
        silent = some & (everything | last)
        timed_out = silent & ((again >= sent) | (everything & (again > 0)))
        time_out_s = senders.time_out_s(self.transport)
        probe_s = 2 * path.round_trip_s + np.where(alone, self.transport.minimum_timeout_s, 0.0)
        probe_s = np.minimum(probe_s, time_out_s) + np.where(alone, 0.0, path.round_trip_s)  # and what it finds
        found_s = np.where(timed_out, time_out_s * 2.0 ** np.minimum(doublings, MOST_DOUBLINGS), probe_s)
        found_s = sending_s + np.where(everything, 0.0, path.round_trip_s) + found_s
        senders.window = np.where(timed_out, 1.0, senders.window)
        self._doublings[who] = np.where(timed_out, doublings + 1, np.where(everything, doublings, 0.0))
        self._again[who] = lost
        return np.where(silent, found_s - np.maximum(path.round_trip_s, sending_s), 0.0)
