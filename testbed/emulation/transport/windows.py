"""Computation of flights: windows that open with acknowledgements, losses and retransmissions.

A sender with a window of w segments sends them at once and receives the first acknowledgement a round trip later; then
the next window goes. A flight that lasts longer than a round trip fills the link, and the remaining segments follow
without a pause. (Cardwell, Savage and Anderson, "Modeling TCP latency", 2000, count flights in this way; here each
flight is followed by itself.)

Lost segments are sent again in the next flight: acknowledgements of later segments reveal the loss (RFC 8985). Segments
that acknowledgements of earlier segments have released until then are already under way. If no later segment was sent,
a probe reveals the loss after two round trips (tail loss probe). If a retransmission is lost, the retransmission
time-out reveals the loss, and slow start begins again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.transport.congestion import ALGORITHMS, Mask, SenderFlights
from testbed.emulation.transport.section import Transport
from testbed.emulation.transport.senders import Path, Senders

VARIATION_KEPT = 0.77  # of the part above the minimum, by each round trip but a connection's first (RFC 6298)
MOST_DOUBLINGS = 8  # of the retransmission time-out
SAMPLES_SMOOTHED = 16  # segments by which the smoothed round trip lags behind the measured ones


@dataclass(frozen=True, eq=False)
class _Lost:
    """Lost segments of n flights, `(n,)` each.

    Attributes:
        all: all lost segments.
        chance: segments lost by chance.
        over: segments that met a full queue.
        full_after: segments sent before the queue is full, where it becomes full.
        part: lost part of the segments sent from then on.
    """

    all: Floats
    chance: Floats
    over: Floats
    full_after: Floats
    part: Floats


class Sending:
    """The division of n messages into flights.

    Args:
        senders: state of the senders when the messages begin (`Senders.begin`); changed.
        segments: `(n,)` segments of each message, above 0.
        path: paths of the senders.
        transport: congestion control and its numbers.
        burst: mean number of segments lost in a row.
        generator: source of the losses; None if no segment is ever lost.

    Attributes:
        queue_s: `(n,)` seconds from sending the last segment until it is through the link.
        dropped: `(n,)` segments so far that met a full queue in front of the link. No flight includes them: they take
            no time on the link.
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
        self._let_go = np.zeros(len(segments))  # segments of the next flight that left before the loss was known
        self._surge = np.zeros(len(segments))  # those by which the window grew: no acknowledgement made room for them
        self._standing_s = np.zeros(len(segments))  # seconds of queue left by the flight before
        self._doublings = np.zeros(len(segments))  # time-outs in a row

    def run(self) -> tuple[Ids, Floats, Floats]:
        """Return all flights: index of the message, segments, gap in seconds; flights of one message in order."""
        flights = [flight for flight, _ in self._all_flights()]
        owner, size, gap = (np.concatenate(column) for column in zip(*flights, strict=True))
        order = np.argsort(owner, kind="stable")
        return owner[order], size[order], gap[order]

    def flight_by_flight(self) -> Iterator[tuple[float, float, float]]:
        """Yield the flights of a single message when they are needed: segments, gap in seconds, remaining segments.

        The remaining segments include lost ones, and are 0 after the last flight alone.
        """
        for (_, flight_segments, gap_s), unfinished in self._all_flights():
            yield float(flight_segments[0]), float(gap_s[0]), float(self.left[0]) if len(unfinished) else 0.0

    def _all_flights(self) -> Iterator[tuple[tuple[Ids, Floats, Floats], Ids]]:
        """Yield the first, second, ... flights (ids, segments, gaps in seconds), and the ids of unfinished messages."""
        ids, number = np.arange(len(self.left)), 0
        while len(ids):
            flight, ids = self._fly(ids, number)
            number += 1
            yield flight, ids

    def _fly(self, ids: Ids, number: int) -> tuple[tuple[Ids, Floats, Floats], Ids]:
        """Compute the next flight of each of the messages `ids`; see `_all_flights`."""
        senders, path, left = self.senders.take(ids), self.path.take(ids), self.left[ids]
        window = np.minimum(np.maximum(senders.window, self._let_go[ids]), senders.buffer)
        window = np.minimum(np.minimum(window, self.limit), left)
        # Whole segments, at least one; the last flight takes the rest.
        window = np.where(left > window, np.maximum(np.floor(window), 1.0), window)
        fills = (window < left) & (window * path.segment_s >= path.round_trip_s)
        segments = np.where(fills, left, window) if self._generator is None else window
        flight = SenderFlights(number, window, segments, fills, (number > 0) | (window < left))
        sending_s = self.control.sending_s(senders, path, flight)
        late_s = np.where(segments > window, 0.0, sending_s - window * path.segment_s)  # a paced flight as a late burst
        begin_s = self._next_s[ids]
        gap_s = begin_s - self._began_s[ids] + late_s
        self._began_s[ids] = begin_s + late_s
        wait_s = np.maximum(path.round_trip_s, sending_s)
        lost = overflow = np.zeros(len(ids))
        if self._generator is None:
            self.control.acknowledge(senders, path, flight, sending_s)
        else:
            losses = self._lost(self._generator, senders, path, flight, sending_s, ids)
            lost, overflow = losses.all, losses.over
            self.dropped[ids] += overflow
            let_go, surge = self._acknowledge(self._generator, senders, path, flight, sending_s, losses, ids)
            silent_s = self._recover(self._generator, senders, path, flight, sending_s, losses, left, ids)
            wait_s = np.maximum(path.round_trip_s, sending_s - overflow * path.segment_s) + silent_s
            # After silence nothing is under way any more.
            self._let_go[ids] = np.where(silent_s > 0, 0.0, let_go)
            self._surge[ids] = np.where(silent_s > 0, 0.0, surge)
        self._next_s[ids] = begin_s + wait_s
        buffer = np.minimum(self.control.buffer_per_window * senders.window, self.fits[ids])
        senders.buffer = np.minimum(np.maximum(senders.buffer, buffer), self.limit)
        self.left[ids] = left = left - (segments - lost)
        # Segments are whole, but counted in floats.
        last = left < 0.5
        self._measure(senders, path, flight, ids, last)
        self.senders.put(ids, senders)
        return (ids, segments - overflow, gap_s), ids[~last]

    def _measure(self, senders: Senders, path: Path, flight: SenderFlights, ids: Ids, last: Mask) -> None:
        """Update the smoothed round trips by those of the last segments, with the queue in front of them."""
        under_way = np.minimum(np.minimum(senders.window, self.limit), flight.segments)
        full_s = np.maximum(under_way * path.segment_s - path.round_trip_s, 0.0)
        queue_s = np.where(flight.fills, full_s, flight.window * path.segment_s * flight.at_once)
        seen_part = np.maximum(0.0, 1 - SAMPLES_SMOOTHED / np.maximum(flight.window, SAMPLES_SMOOTHED))
        smoothed_s = path.round_trip_s + queue_s * np.where(flight.fills, 1.0, seen_part)
        senders.smoothed_s = np.where(last, smoothed_s, senders.smoothed_s)
        least = self.transport.minimum_timeout_s
        first = (senders.last_sent_s == np.inf) & (flight.number == 0)
        variation_kept = np.where(first, 1.0, VARIATION_KEPT)
        senders.variation_s = least + np.maximum(senders.variation_s - least, 0.0) * variation_kept
        self.queue_s[ids] = np.where(last, queue_s, self.queue_s[ids])

    # -- loss ------------------------------------------------------------------------------------------------

    def _lost(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        ids: Ids,
    ) -> "_Lost":
        """Draw the lost segments of each flight: by chance, or because the queue is full."""
        segments = np.maximum(np.rint(flight.segments), 1.0)
        # Bursts begin so rarely that the mean share of lost segments is `loss`.
        begun = generator.binomial(segments.astype(np.int64), path.loss / self._burst)
        lost = begun.astype(np.float64)
        if self._burst > 1:
            # The sum of geometric lengths, less the first segment of each burst.
            extra = generator.negative_binomial(np.maximum(begun, 1), 1 / self._burst)
            lost += np.where(begun > 0, extra, 0)
        part = self.control.queued_part(senders, path, flight, sending_s)
        surges = self._let_go[ids] > 0
        part = np.where(surges, self._surge[ids] / np.maximum(self._let_go[ids], 1.0), part)
        of = np.where(surges, np.minimum(self._let_go[ids], segments - self._again[ids]), flight.window)
        pair = np.minimum(self.transport.segments_per_acknowledgement, flight.window)  # segments per acknowledgement
        most_s = np.maximum(part * of, pair) * path.segment_s + np.where(surges, self._standing_s[ids], 0.0)
        queue_s = np.maximum(most_s, flight.window * path.segment_s - path.round_trip_s)
        overflow = np.maximum(queue_s - path.buffer_s, 0.0) / path.segment_s
        overflow = np.minimum(np.floor(np.where(np.isfinite(overflow), overflow, 0.0)), segments - 1)
        left_s = np.minimum((segments - overflow) * path.segment_s - path.round_trip_s, path.buffer_s)
        self._standing_s[ids] = np.maximum(left_s, 0.0)
        # A growing queue takes in a part of each sent segment; once it is full, this part of the rest is lost.
        return _Lost(
            np.minimum(lost + overflow, segments), lost, overflow, of - overflow / np.where(part > 0, part, 1.0), part
        )

    def _acknowledge(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        losses: "_Lost",
        ids: Ids,
    ) -> tuple[Floats, Floats]:
        """Grow the windows until a loss is detected; return the segments released until then, and the growth."""
        has_loss, arrived = losses.all > 0, flight.segments - losses.all
        before = arrived  # before the first lost segment, which is any with equal probability
        if self.control.heeds_loss:
            # The smallest of k uniform positions, by inversion: 1 - U^(1/k).
            before = np.floor((1 - generator.random(len(ids)) ** (1 / np.maximum(losses.chance, 1.0))) * (arrived + 1))
            before = np.where(losses.chance > 0, before, arrived)
        before = np.where(losses.over > 0, np.minimum(before, np.maximum(np.floor(losses.full_after), 0.0)), before)
        acknowledged = np.where(has_loss, np.minimum(before, arrived), flight.segments)
        counts = np.maximum(acknowledged - self._let_go[ids], 0.0)
        if not self.control.heeds_loss:  # but for the round trip in which it begins, for which the window stays
            counts = np.where(has_loss & (self._again[ids] == 0), 0.0, acknowledged)
        self.control.acknowledge(senders, path, replace(flight, segments=counts), sending_s)
        grown = np.maximum(np.minimum(senders.window, self.limit) - flight.window, 0.0)
        return np.where(has_loss, grown + acknowledged, 0.0), np.where(has_loss, grown, 0.0)

    def _recover(
        self,
        generator: np.random.Generator,
        senders: Senders,
        path: Path,
        flight: SenderFlights,
        sending_s: Floats,
        losses: "_Lost",
        left: Floats,
        ids: Ids,
    ) -> Floats:
        """Shrink the windows of senders with a loss; return the seconds that loss detection takes beyond the flight."""
        segments, again, doublings = np.maximum(np.rint(flight.segments), 1.0), self._again[ids], self._doublings[ids]
        lost, overflowed = losses.all, losses.over > 0
        has_loss, all_lost = lost > 0, lost >= segments
        # Losses among segments of the same window as the loss before: the window shrinks once for all of them.
        left_before = generator.random(len(ids)) < np.minimum(self._let_go[ids] / segments, 1.0) ** lost
        self.control.lose(senders, has_loss & ~left_before)
        # The last segment of a message has no later segment to reveal its loss. A flight loses any segment with equal
        # probability; a full queue drops a part of the segments, and never the last one alone: they come in pairs.
        chance, dropped = generator.random(len(ids)), overflowed & (again == 0)
        last = (flight.segments >= left) & ((chance * segments < lost) | (dropped & (chance < losses.part)))
        last_alone = (generator.random(len(ids)) * (segments - 1) >= lost - 1) & ~dropped
        silent = has_loss & (all_lost | last)
        timed_out = silent & ((again >= segments) | (all_lost & (again > 0)))
        time_out_s = senders.time_out_s(self.transport)
        # RFC 8985, 7.2: a single segment's acknowledgement may be delayed, so its probe waits longer.
        probe_s = 2 * path.round_trip_s + np.where(last_alone, self.transport.minimum_timeout_s, 0.0)
        probe_s = np.minimum(probe_s, time_out_s) + np.where(
            last_alone, 0.0, path.round_trip_s
        )  # and the retransmission
        detection_s = np.where(timed_out, time_out_s * 2.0 ** np.minimum(doublings, MOST_DOUBLINGS), probe_s)
        detection_s = sending_s + np.where(all_lost, 0.0, path.round_trip_s) + detection_s
        # RFC 5681, 3.1: the loss window is one segment.
        senders.window = np.where(timed_out, 1.0, senders.window)
        self._doublings[ids] = np.where(timed_out, doublings + 1, np.where(all_lost, doublings, 0.0))
        self._again[ids] = lost
        return np.where(silent, detection_s - np.maximum(path.round_trip_s, sending_s), 0.0)
