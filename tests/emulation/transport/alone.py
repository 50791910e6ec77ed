"""Messages that have their links to themselves."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.arrays import Floats
from testbed.emulation.transport.section import Transport
from testbed.emulation.transport.senders import Path, Senders
from testbed.emulation.transport.windows import Sending

SEGMENT, PACKET, ACKNOWLEDGEMENT = 1448, 1514, 66
HUGE = 10**9


def transport(congestion_control: str = "reno", **keys: Any) -> Transport:
    """TCP with a window that nothing else limits."""
    given = {"preset": "tcp", "congestion_control": congestion_control, "window_limit_bytes": HUGE}
    return Transport.model_validate(given | keys)


def path(mbit_s: float, delay_s: float, count: int = 1, loss: float = 0.0) -> Path:
    """`count` links of that rate, `delay_s` there and back."""
    rate = mbit_s * 1e6 / 8
    round_trip_s = delay_s + 2 * PACKET / rate + ACKNOWLEDGEMENT / rate
    columns = (PACKET / rate, round_trip_s, loss, np.inf)
    return Path(*(np.full(count, value) for value in columns))


@dataclass(frozen=True, eq=False)
class Sent:
    """The outcome of n messages: `(n,)` seconds until through the link, and all their flights."""

    through_s: Floats
    owner: Floats
    segments: Floats
    gap_s: Floats
    sending: Sending


def send(
    how: Transport,
    way: Path,
    segments: list[int],
    *,
    senders: Senders | None = None,
    start_s: float = 0.0,
    seed: int | None = None,
    burst: float = 1.0,
) -> Sent:
    """Send n messages, each over its own path; `senders` is changed."""
    known = Senders.new(how, len(segments)) if senders is None else senders
    known.begin(how, way.round_trip_s, np.full(len(segments), start_s))
    generator = None if seed is None else np.random.default_rng(seed)
    sending = Sending(known, np.array(segments), way, how, burst, generator)
    owner, size, gap_s = sending.run()
    through_s = np.zeros(len(segments))
    for one in range(len(segments)):
        begun_s = finish_s = 0.0
        for number, flight in enumerate(np.flatnonzero(owner == one)):
            begun_s = max(finish_s, begun_s + gap_s[flight]) if number else gap_s[flight]
            finish_s = begun_s + size[flight] * way.segment_s[one]
        through_s[one] = finish_s
    known.last_sent_s = start_s + through_s - sending.queue_s
    return Sent(through_s, owner, size, gap_s, sending)


def warm(how: Transport, window: float, threshold: float = np.inf) -> Senders:
    """One sender with that window, and a send buffer that holds anything."""
    known = Senders.new(how, 1)
    known.window[:], known.threshold[:], known.buffer[:] = window, threshold, np.inf
    return known
