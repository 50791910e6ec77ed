"""State of a sender's connection, and the path to its receiver."""

from dataclasses import dataclass, fields, replace

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.transport.section import Transport

BUFFER_PER_WINDOW = 3.82  # segments of send buffer per segment of window: 2 x 4352 / 2280 bytes, as Linux counts
TIMER_S = 0.004  # a tick of Linux' timers


@dataclass(eq=False)
class Senders:
    """Connection state of n senders, `(n,)` float64 each. Windows and buffers are counted in segments, as in Linux.

    Attributes:
        window: the congestion window.
        threshold: the window at which slow start ends (ssthresh); infinite until it has ended once.
        buffer: capacity of the send buffer.
        smoothed_s: measured round trip in seconds, queues included; NaN before the first message.
        variation_s: four times its mean deviation, which is large at first.
        last_sent_s: time at which the last segment was sent.
        peak_window: window before the last loss; 0 if there was none (CUBIC's W_max).
        since_loss_s: seconds of sending since then, in whole round trips.
        rate: segments per second, as estimated by BBR.
        full: round trips without a gain in rate, as counted by BBR: up to three.
    """

    window: Floats
    threshold: Floats
    buffer: Floats
    smoothed_s: Floats
    variation_s: Floats
    last_sent_s: Floats
    peak_window: Floats
    since_loss_s: Floats
    rate: Floats
    full: Floats

    @classmethod
    def new(cls, transport: Transport, count: int) -> "Senders":
        """Return the state of `count` connections that have just been opened."""
        first = float(transport.initial_window_segments)
        return cls(
            window=np.full(count, first),
            threshold=np.full(count, np.inf),
            buffer=np.full(count, max(10.0, first) * BUFFER_PER_WINDOW),
            smoothed_s=np.full(count, np.nan),
            variation_s=np.full(count, np.nan),
            last_sent_s=np.full(count, np.inf),
            peak_window=np.zeros(count),
            since_loss_s=np.zeros(count),
            rate=np.zeros(count),
            full=np.zeros(count),
        )

    def __len__(self) -> int:
        return len(self.window)

    def take(self, ids: Ids) -> "Senders":
        """Return a copy of the senders `ids`."""
        return Senders(*(column[ids] for column in self.columns()))

    def put(self, ids: Ids, others: "Senders") -> None:
        """Set the senders `ids` to the state `others`."""
        for column, values in zip(self.columns(), others.columns(), strict=True):
            column[ids] = values

    def columns(self) -> list[Floats]:
        """Return all arrays, in the order of the attributes."""
        return [getattr(self, name) for name in _SENDERS]

    def pattern(self) -> list[Floats]:
        """Return all state that decides the flights of a message: whether, not when, a segment was sent before."""
        return replace(self, last_sent_s=np.isfinite(self.last_sent_s).astype(np.float64)).columns()

    def time_out_s(self, transport: Transport) -> Floats:
        """Return the `(n,)` retransmission time-outs in seconds (RFC 6298, as in Linux)."""
        return self.smoothed_s + np.maximum(self.variation_s, transport.minimum_timeout_s) + TIMER_S

    def begin(self, transport: Transport, round_trip_s: Floats, start_s: Floats) -> None:
        """Prepare for messages sent at `start_s`: measure the round trip of new connections, restart idle ones."""
        # RFC 6298, 2.2: the first sample R is the smoothed round trip, and four times the variation is 2 R.
        new = np.isnan(self.smoothed_s)
        self.smoothed_s[new], self.variation_s[new] = round_trip_s[new], 2 * round_trip_s[new]
        # Linux leaves algorithms that pace themselves, such as BBR, as they are.
        if not transport.slow_start_after_idle or transport.congestion_control == "bbr":
            return
        idle_s = np.maximum(start_s - self.last_sent_s, 0.0)
        # One halving per time-out of silence (`tcp_cwnd_restart` in Linux, after RFC 2861).
        halvings = np.minimum(np.floor(idle_s / self.time_out_s(transport)), 60.0)
        idle = halvings > 0
        least = np.minimum(self.window, transport.initial_window_segments)
        shrunk = np.maximum(np.floor(self.window * 0.5**halvings), least)
        # Remembers three quarters of the window, so that slow start gets back there quickly.
        self.threshold[idle] = np.maximum(self.threshold, 0.75 * self.window)[idle]
        self.window[idle] = shrunk[idle]


@dataclass(frozen=True, eq=False)
class Path:
    """Paths from n senders to their receivers, `(n,)` float64 each.

    Attributes:
        segment_s: seconds that a full segment takes on the link.
        round_trip_s: seconds from sending a segment to its acknowledgement, on an empty link.
        loss: probability that a packet is lost.
        buffer_s: longest queue in front of the link in seconds; infinite: any length.
    """

    segment_s: Floats
    round_trip_s: Floats
    loss: Floats
    buffer_s: Floats

    def take(self, ids: Ids) -> "Path":
        """Return the paths `ids`."""
        return Path(*(column[ids] for column in self.columns()))

    def columns(self) -> list[Floats]:
        """Return all arrays, in the order of the attributes."""
        return [getattr(self, name) for name in _PATH]


_SENDERS, _PATH = (tuple(field.name for field in fields(kind)) for kind in (Senders, Path))
