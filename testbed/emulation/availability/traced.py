"""Availability by a trace: each client follows a device of an `AvailabilityTrace` on the virtual clock."""

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.presence import Presence
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError


def assigned(
    population: int, trace: AvailabilityTrace, generator: np.random.Generator, random_shift: bool = False
) -> tuple[Ids, Floats]:
    """Which device each client follows, and how far its trace is turned.

    With no more clients than devices, each client gets a device of its own, in random order; otherwise devices are
    drawn with replacement. The devices do not depend on whether there is a shift.

    Args:
        population: number of clients n.
        trace: the trace with its k devices.
        generator: all draws come from here.
        random_shift: shift every client by a time drawn uniformly from the horizon, so that clients with the same
            device are not online at the same times; otherwise by 0.

    Returns:
        `(n,)` int64 places in the trace, and `(n,)` float64 seconds, for `TracedAvailability`.
    """
    devices = len(trace)
    if population <= devices:
        device_of = generator.permutation(devices)[:population].astype(np.int64)
    else:
        device_of = generator.integers(0, devices, population, dtype=np.int64)
    shift_s = generator.random(population) * trace.horizon_s if random_shift else np.zeros(population)
    return device_of, np.minimum(shift_s, np.nextafter(trace.horizon_s, 0))


class TracedAvailability:
    """Clients are reachable while their device is online, and leave when it goes offline.

    At virtual time t client i is where its device was `start_s + shift_s[i] + t` seconds after the horizon's begin.
    The trace is a circle: a shift turns it, what goes beyond the end goes on at the begin, and a device that is
    online at the end and at the begin is online throughout in between. With `repeat` this goes on for ever; otherwise
    nobody is online any more once `start_s + t` has reached the length of the horizon.

    Args:
        trace: who was online when.
        device_of: `(n,)` int64 places in the trace, one for each client.
        shift_s: `(n,)` float64 seconds, at least 0.
        repeat: begin again when the trace is over.
        start_s: seconds after the horizon's begin at which virtual time 0 lies.

    Raises:
        TraceError: `start_s` is not within the trace.
        ValueError: arrays of different lengths, a device that the trace has not, or a shift that is none.
    """

    comes_back = True

    def __init__(
        self, trace: AvailabilityTrace, device_of: Ids, shift_s: Floats, repeat: bool, start_s: float = 0.0
    ) -> None:
        if not 0 <= start_s < trace.horizon_s:
            raise TraceError(f"start_s is {start_s}; it must lie within the trace, which lasts {trace.horizon_s} s")
        device_of, shift_s = np.asarray(device_of, np.int64), np.asarray(shift_s, np.float64)
        if device_of.shape != shift_s.shape or device_of.ndim != 1:
            raise ValueError(f"device_of and shift_s differ in shape: {device_of.shape}, {shift_s.shape}")
        if ((device_of < 0) | (device_of >= len(trace))).any():
            raise ValueError(f"a client follows a device that is not in the trace, which has {len(trace)}")
        if not ((shift_s >= 0) & (shift_s < np.inf)).all():
            raise ValueError("a shift must be a finite number of seconds, at least 0")
        self._trace = trace
        self._device_of = device_of
        self._ahead_s = shift_s + start_s
        self._over_s = np.inf if repeat else trace.horizon_s - start_s

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`; the round and the stage play no part."""
        trace, device, ahead = self._trace, self._device_of[clients], self._ahead_s[clients]
        begin, end = trace.horizon
        if now_s >= self._over_s:
            return Presence.of(np.zeros(len(device), np.bool_))
        turns, into = np.divmod(now_s + ahead, trace.horizon_s)
        until = trace.online_until(device, np.minimum(begin + into, np.nextafter(end, -np.inf)))  # a sum may round up
        reachable = until > -np.inf
        # The end of the interval alone decides when a client leaves, not the moment of the question: the same
        # departure is the same number, bit for bit, whenever it is asked for.
        seam = np.flatnonzero(until == end)
        after_seam = trace.online_until(device[seam], begin)
        goes_on = after_seam > -np.inf
        until[seam[goes_on]] = after_seam[goes_on]
        turns[seam[goes_on]] += 1
        leaves = (until - begin) + turns * trace.horizon_s - ahead
        leaves[seam[goes_on & (after_seam == end)]] = np.inf  # online all the time
        leaves = np.where(reachable, np.clip(leaves, now_s, self._over_s), np.inf)
        return Presence(reachable, np.zeros(len(device), np.bool_), leaves)
