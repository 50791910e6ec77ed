"""Congestion control: reaction of a window to acknowledgements and loss. Reno, CUBIC and BBR, as in Linux 6.x.

- Slow start: a window grows by the acknowledged segments, if it was used (RFC 5681, 3.1; RFC 7661).
- Reno: beyond the threshold the window grows by one segment per round trip; at a loss it halves.
- CUBIC (RFC 9438; `net/ipv4/tcp_cubic.c`): the window grows by 5 % per round trip before the first loss, then by the
  cubic function or as fast as Reno, whichever is more; at a loss it shrinks to seven tenths. HyStart (Ha and Rhee,
  2011) ends the first slow start when the acknowledgements of one flight spread over half a round trip, or when the
  link is full.
- BBR (Cardwell et al., 2016; version 1, `net/ipv4/tcp_bbr.c`): sends at 2/ln 2 times the observed rate at first, later
  at the observed rate; loss does not change the pace. The probing of the round trip every 10 s is left out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.transport.section import Transport
from testbed.emulation.transport.senders import BUFFER_PER_WINDOW, Path, Senders

Mask = npt.NDArray[np.bool_]

HYSTART_LEAST_WINDOW = 16  # segments (hystart_low_window)
HYSTART_ACK_SPACING_S = 0.002  # longest gap within a train of acknowledgements (hystart_ack_delta_us)
HYSTART_SLACK_S = 0.0005
CUBIC_FIRST_GROWTH = 1 / 20  # of the window per round trip, before there is a W_max
CUBIC_C, CUBIC_BETA, RENO_BETA = 0.4, 717 / 1024, 0.5  # RFC 9438, 5; 717 / 1024 is Linux's 0.7
CUBIC_AS_RENO = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA)  # segments a round trip (RFC 9438, 4.3)
BBR_GAIN = 2.885 * 0.99  # 2 / ln 2, less the margin that Linux leaves
BBR_SPARE_SEGMENTS = 6
BBR_FULL_ROUNDS = 3  # round trips without growth after which the link counts as full (bbr_full_bw_cnt)
BBR_THIRD_FLIGHT = 0.86  # the estimate is a round trip old when the window has doubled twice


@dataclass(frozen=True, eq=False)
class SenderFlights:
    """One flight of each of n senders, `(n,)` each.

    Attributes:
        number: number of earlier flights of the message.
        window: segments that may be under way at once.
        segments: segments in this flight; all remaining segments if the flight fills the link.
        fills: whether the flight lasts until its first acknowledgements arrive.
        limited: whether the window, not the message, limits the flight.
    """

    number: int
    window: Floats
    segments: Floats
    fills: Mask
    limited: Mask

    @property
    def at_once(self) -> float:
        """Part of the window that queues; in later flights each acknowledgement releases two segments per arrival."""
        return 0.5 if self.number else 1.0


class CongestionControl:
    """Base class of the algorithms, with the behaviour of Reno.

    Args:
        transport: initial window and limit.
        limit: largest number of segments under way.
    """

    beta = RENO_BETA
    heeds_loss = True
    """Whether a window stops growing when a loss is detected."""
    buffer_per_window = BUFFER_PER_WINDOW
    fits = 0.83
    """Part of the message and of the initial window that a send buffer holds once the whole rest fits into it."""

    def __init__(self, transport: Transport, limit: float) -> None:
        self.first_window = float(transport.initial_window_segments)
        self.limit = limit

    def sending_s(self, senders: Senders, path: Path, flight: SenderFlights) -> Floats:
        """Return the `(n,)` seconds from the first to the last segment of a flight's window."""
        return flight.window * path.segment_s

    def queued_part(self, senders: Senders, path: Path, flight: SenderFlights, sending_s: Floats) -> Floats:
        """Return the `(n,)` part of a flight by which the queue grows faster than acknowledgements empty it."""
        return np.where((flight.number == 0) | (senders.window < senders.threshold), flight.at_once, 0.0)

    def acknowledge(self, senders: Senders, path: Path, flight: SenderFlights, sending_s: Floats) -> None:
        """Grow the windows after a flight has arrived."""
        # A window that the message did not use grows to twice the used part at most (RFC 7661).
        most = np.where(flight.limited, 2 * np.maximum(self.limit, senders.window), 2 * flight.window)
        most = np.maximum(most, senders.window)
        slow = np.minimum(
            np.minimum(flight.segments, most - senders.window), np.maximum(senders.threshold - senders.window, 0.0)
        )
        slow = self.leave_slow_start(senders, path, flight, slow)
        senders.window = senders.window + slow
        rest = np.where(flight.limited & (senders.window >= senders.threshold), flight.segments - slow, 0.0)
        senders.since_loss_s = senders.since_loss_s + np.where(rest > 0, path.round_trip_s, 0.0)
        senders.window = np.minimum(self.avoid_congestion(senders, path, rest), most)

    def leave_slow_start(self, senders: Senders, path: Path, flight: SenderFlights, slow: Floats) -> Floats:
        """Return the segments by which windows grow in slow start: `slow`, or less if slow start ends before."""
        return slow

    def avoid_congestion(self, senders: Senders, path: Path, acknowledged: Floats) -> Floats:
        """Return the windows after `(n,)` segments were acknowledged beyond the threshold."""
        return np.asarray(senders.window + acknowledged / np.maximum(senders.window, 1.0))

    def lose(self, senders: Senders, which: Mask) -> None:
        """Shrink the windows of the senders in the mask, which have detected a loss."""
        senders.peak_window = np.where(which, senders.window, senders.peak_window)
        # RFC 5681, equation 4: at least two segments.
        senders.threshold = np.where(which, np.maximum(senders.window * self.beta, 2.0), senders.threshold)
        senders.window = np.where(which, senders.threshold, senders.window)
        senders.since_loss_s = np.where(which, 0.0, senders.since_loss_s)


class Reno(CongestionControl):
    """Reno (RFC 5681)."""


class Cubic(CongestionControl):
    """CUBIC (RFC 9438), with HyStart."""

    beta = CUBIC_BETA

    def leave_slow_start(self, senders: Senders, path: Path, flight: SenderFlights, slow: Floats) -> Floats:
        """Apply HyStart, once in a connection before its first loss."""
        half_s = path.round_trip_s / 2 + HYSTART_SLACK_S
        train = (flight.window - 2) * path.segment_s >= half_s
        train &= 2 * path.segment_s <= HYSTART_ACK_SPACING_S
        late = ~train & (flight.window * path.segment_s >= path.round_trip_s)
        leaves = (train | late) & (senders.threshold == np.inf)
        leaves &= senders.window + slow >= HYSTART_LEAST_WINDOW
        at = np.where(train, half_s, path.round_trip_s) / path.segment_s
        slow = np.where(leaves, np.minimum(slow, at), slow)
        senders.threshold = np.where(leaves, senders.window + slow, senders.threshold)
        return slow

    def avoid_congestion(self, senders: Senders, path: Path, acknowledged: Floats) -> Floats:
        peak, window = senders.peak_window, senders.window
        first = window + acknowledged * CUBIC_FIRST_GROWTH
        # RFC 9438, 4.2, equation 2: K, the time until the window is W_max again.
        until_peak_s = np.cbrt(peak * (1 - self.beta) / CUBIC_C)
        # RFC 9438, 4.2, equation 1.
        cubic = CUBIC_C * (senders.since_loss_s - until_peak_s) ** 3 + peak
        # RFC 9438, 4.3: W_est, the window that Reno would have.
        as_reno = self.beta * peak + CUBIC_AS_RENO * senders.since_loss_s / path.round_trip_s
        # RFC 9438, 4.2: never down, and at most by half per round trip.
        later = np.clip(np.maximum(cubic, as_reno), window, 1.5 * window)
        grown = np.where(peak > 0, np.where(acknowledged > 0, later, window), first)
        return np.asarray(grown)

    def lose(self, senders: Senders, which: Mask) -> None:
        """Shrink windows to seven tenths; reduce the peak if the loss comes before the last peak (fast convergence)."""
        before = senders.window < senders.peak_window
        # RFC 9438, 4.7: leave room to flows that have just begun.
        peak = np.where(before, senders.window * (1 + self.beta) / 2, senders.window)
        super().lose(senders, which)
        senders.peak_window = np.where(which, peak, senders.peak_window)


class Bbr(CongestionControl):
    """BBR, version 1."""

    heeds_loss = False
    buffer_per_window = 1.5 * BUFFER_PER_WINDOW
    fits = 1.0

    def sending_s(self, senders: Senders, path: Path, flight: SenderFlights) -> Floats:
        """Return the seconds of a paced flight."""
        return np.maximum(super().sending_s(senders, path, flight), self._pace_s(senders, path, flight))

    def _pace_s(self, senders: Senders, path: Path, flight: SenderFlights) -> Floats:
        """Return the `(n,)` seconds over which a window is spread; the pace is never below the initial one."""
        first = BBR_GAIN * self.first_window / path.round_trip_s
        pace = np.maximum(BBR_GAIN * senders.rate, first)
        if flight.number:
            aged = BBR_THIRD_FLIGHT if flight.number == 2 else 1.0
            pace = np.maximum(pace, aged * senders.window / path.round_trip_s)
        pace = np.where(senders.full >= BBR_FULL_ROUNDS, np.maximum(senders.rate, 1.0), pace)
        return np.asarray((flight.window - 1) / pace)

    def queued_part(self, senders: Senders, path: Path, flight: SenderFlights, sending_s: Floats) -> Floats:
        """Return the part of the pace beyond the link's rate."""
        pace_s = self._pace_s(senders, path, flight)
        return np.maximum(1 - pace_s / np.maximum(flight.window * path.segment_s, pace_s), 0.0)

    def acknowledge(self, senders: Senders, path: Path, flight: SenderFlights, sending_s: Floats) -> None:
        """Update the estimate of the rate and the window that follows from it."""
        took_s = np.maximum(sending_s, path.round_trip_s) if flight.number > 1 else sending_s + path.round_trip_s
        sample = np.where(flight.fills, np.inf, flight.window / took_s)
        senders.rate = np.maximum(senders.rate, np.minimum(sample, 1 / path.segment_s))
        lasts_s = (flight.segments - flight.window) * path.segment_s
        rounds = np.where(lasts_s >= BBR_FULL_ROUNDS * path.round_trip_s, BBR_FULL_ROUNDS, 0)
        rounds = np.where(lasts_s > 0, rounds, 1)  # where packets may be lost, each window is a flight
        senders.full = np.minimum(senders.full + np.where(flight.fills, rounds, 0), BBR_FULL_ROUNDS)
        full = senders.full >= BBR_FULL_ROUNDS
        under_way = senders.rate * path.round_trip_s
        # Two bandwidth-delay products once the link is full, as acknowledgements are delayed (Cardwell et al., 2016).
        most = np.where(full, 2.0, BBR_GAIN) * under_way + BBR_SPARE_SEGMENTS
        grown = np.maximum(senders.window, np.minimum(senders.window + flight.segments, most))
        starting = (flight.number == 0) & (flight.window <= self.first_window)
        grown = np.where(starting, senders.window + flight.segments, grown)
        senders.window = np.where(full, most, grown)

    def lose(self, senders: Senders, which: Mask) -> None:
        """Do nothing: loss does not change the window."""


ALGORITHMS: dict[str, type[CongestionControl]] = {"reno": Reno, "cubic": Cubic, "bbr": Bbr}
