"""Availability models in continuous time, drawn (`AlternatingAvailability`) or measured (`TracedAvailability`)."""

import math

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.models import Mask, Presence
from testbed.emulation.availability.section import DiurnalWeibull, Markov
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.randomness import Randomness

_DRAWS_KEPT, _BLOCKS_KEPT = 2**24, 1024  # at most 128 MiB of float64
_STEPS_OF_DAY = 1440  # the rhythm's speed changes each minute (of a day of 24 hours)


class DailyRhythm:
    """A clock that runs at 1 + amplitude cos(2 pi (t - peak) / day) times the speed of real time, 1 in the mean.

    The speed is constant within each of `_STEPS_OF_DAY` steps of the day, so that both directions are exact.

    Args:
        amplitude: 0 to below 1.
        peak_s: time of the day at which the clock runs fastest, in seconds; day 0 begins at time 0.
        day_s: length of a day in seconds.
    """

    def __init__(self, amplitude: float, peak_s: float, day_s: float) -> None:
        self.day_s = day_s
        self._real = np.linspace(0.0, day_s, _STEPS_OF_DAY + 1)
        middle = (self._real[1:] + self._real[:-1]) / 2
        speed = 1 + amplitude * np.cos(2 * math.pi * (middle - peak_s) / day_s)
        self._shown = np.append(0.0, np.cumsum(speed / speed.sum())) * day_s
        # Exactly, despite rounding: days must join without a gap.
        self._shown[-1] = day_s

    def shown(self, time_s: Floats) -> Floats:
        """Return the clock's time in seconds at real times, which may be negative; 0 at 0."""
        days, rest = np.divmod(time_s, self.day_s)
        return days * self.day_s + np.interp(rest, self._real, self._shown)

    def shows_at(self, shown_s: Floats) -> Floats:
        """Return the real times at which the clock shows `shown_s`; the inverse of `shown`."""
        days, rest = np.divmod(shown_s, self.day_s)
        return days * self.day_s + np.interp(rest, self._shown, self._real)


class AlternatingAvailability:
    """Clients that go online and offline in turn, for independently drawn durations.

    A client's life is a sequence of *stretches*, online and offline by turns. The k-th stretch of all clients comes
    from one block of draws. A client's life therefore depends on the seed and the client's number alone, not on the
    questions that were asked. Clients are advanced together, as far as questions need. A resumed run replays their
    lives from the beginning.

    The process begins in equilibrium: the first stretch is online with probability mean_online / (mean_online +
    mean_offline), and its remaining time has the density P(duration > t) / mean. Under a daily rhythm the process
    begins one day before time 0, so that the rhythm is under way at time 0. An offline stretch of drawn duration d that
    begins at s ends when the client's `DailyRhythm` has advanced by d since s.

    Args:
        section: mean durations; for Weibull durations also shapes and the daily rhythm.
        population: number of clients n.
        randomness: of the experiment.

    Source:
        D. R. Cox, Renewal Theory, 1962, chapter 5.
    """

    comes_back = True

    def __init__(self, section: Markov | DiurnalWeibull, population: int, randomness: Randomness) -> None:
        self._population = population
        self._randomness = randomness
        self._mean = np.array([section.mean_offline_s, section.mean_online_s])
        self._shape = np.ones(2)
        self._rhythm: DailyRhythm | None = None
        self._begin_s = 0.0
        if isinstance(section, DiurnalWeibull):
            self._shape = np.array([section.offline_shape, section.online_shape])
            if section.amplitude > 0:
                self._rhythm = DailyRhythm(section.amplitude, section.peak_hour / 24 * section.day_s, section.day_s)
                self._begin_s = -section.day_s
                # A stream of its own, so that time zones leave all other draws as they are.
                zones = randomness.generator("availability", 0, "time zone").random(population) - 0.5
                self._local_s = zones * (section.spread_hours / 24 * section.day_s)
        self._scale = self._mean / np.array([math.gamma(1 + 1 / shape) for shape in self._shape])
        share_online = section.mean_online_s / (section.mean_online_s + section.mean_offline_s)
        self._first_online = randomness.generator("availability", 0, "online").random(population) < share_online
        self._blocks: dict[int, Floats] = {}
        self._restart()

    def _restart(self) -> None:
        """Move all clients before their first stretch."""
        self._stretch = np.full(self._population, -1, np.int64)
        self._until_s = np.full(self._population, self._begin_s)
        self._asked_s = -math.inf

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        # Earlier stretches and their draws may be gone, so a step back in time replays the lives from the beginning.
        if now_s < self._asked_s:
            self._restart()
        self._asked_s = now_s
        lagging = clients[self._until_s[clients] <= now_s]
        while len(lagging):
            stretch = self._stretch[lagging] + 1
            number = int(stretch.min())
            # The furthest behind first: a block of draws is used by all clients before the next one is needed.
            moving = lagging[stretch == number]
            self._stretch[moving] = number
            self._until_s[moving] = self._ends(number, moving, self._until_s[moving])
            lagging = lagging[self._until_s[lagging] <= now_s]
        online = self._online(self._stretch[clients], clients)
        return Presence.of(online, leaves_s=np.where(online, self._until_s[clients], np.inf))

    def intervals(self, population: int, horizon_s: float) -> tuple[Ids, Floats, Floats]:
        """Return the intervals in which the first `population` clients are online between time 0 and `horizon_s`.

        Args:
            population: number of clients, at most n.
            horizon_s: end of the last interval, in seconds.

        Returns:
            Client numbers `(m,)` int64, and begin and end of each interval, `(m,)` float64 seconds; sorted by client,
            then by time. Clients that are never online have no row.
        """
        clients = np.arange(population, dtype=np.int64)
        since = np.full(population, self._begin_s)
        rows: list[tuple[Ids, Floats, Floats]] = []
        number = 0
        while len(clients):
            until = self._ends(number, clients, since)
            begin, end = np.maximum(since, 0.0), np.minimum(until, horizon_s)
            is_online = self._online(np.full(len(clients), number), clients) & (begin < end)
            rows.append((clients[is_online], begin[is_online], end[is_online]))
            going = until < horizon_s
            # A client that has passed the horizon needs no more draws.
            clients, since = clients[going], until[going]
            number += 1
        client, begin, end = (np.concatenate(column) for column in zip(*rows, strict=True))
        order = np.argsort(client, kind="stable")
        return client[order], begin[order], end[order]

    def _online(self, stretch: npt.NDArray[np.int64], clients: Ids) -> Mask:
        """Return whether these stretches of these clients are online."""
        online: Mask = self._first_online[clients] ^ (stretch % 2 == 1)
        return online

    def _ends(self, number: int, clients: Ids, since_s: Floats) -> Floats:
        """Return `(m,)` end times of the stretches `number` of these clients, which begin at `since_s`."""
        draws = self._block(number)[clients]
        state = self._online(np.full(len(clients), number), clients).astype(np.intp)
        duration = np.empty(len(clients))
        for online in (0, 1):
            of_state = state == online
            shape, scale, draw = self._shape[online], self._scale[online], draws[of_state]
            if shape == 1:  # exponential: the remaining time is distributed as the whole
                # log1p keeps the digits of small draws; a draw is below 1, so the logarithm is finite.
                duration[of_state] = -scale * np.log1p(-draw)
            elif number == 0:  # the integral of P(duration > t) / mean is an incomplete gamma function
                from scipy.special import gammaincinv  # slow to import

                duration[of_state] = scale * gammaincinv(1 / shape, draw) ** (1 / shape)
            else:
                duration[of_state] = scale * (-np.log1p(-draw)) ** (1 / shape)
        until = since_s + duration
        if self._rhythm is not None:
            offline = state == 0
            local = self._local_s[clients[offline]]
            shown = self._rhythm.shown(since_s[offline] + local) + duration[offline]
            # Rounding in the rhythm must not end a stretch before it begins.
            until[offline] = np.maximum(self._rhythm.shows_at(shown) - local, since_s[offline])
        return until

    def _block(self, number: int) -> Floats:
        """Return `(n,)` draws in [0, 1) for the stretches `number` of all clients; the latest blocks are kept."""
        block = self._blocks.get(number)
        if block is None:
            block = self._randomness.generator("availability", number, "dwell").random(self._population)
            most_blocks = min(_BLOCKS_KEPT, max(1, _DRAWS_KEPT // self._population))
            while len(self._blocks) >= most_blocks:
                # The earliest one: clients only move on, unless they are replayed.
                del self._blocks[min(self._blocks)]
            self._blocks[number] = block
        return block


def assign_devices(
    population: int, trace: AvailabilityTrace, generator: np.random.Generator, random_shift: bool = False
) -> tuple[Ids, Floats]:
    """Assign a device of a trace and a shift to each client.

    If there are no more clients than devices, each client gets a different device, in random order. Otherwise devices
    are drawn with replacement. The devices do not depend on whether there is a shift.

    Args:
        population: number of clients n.
        trace: the trace with its k devices.
        generator: source of all draws.
        random_shift: shift every client by a time drawn uniformly from the horizon, so that clients with the same
            device are not online at the same times; otherwise by 0.

    Returns:
        `(n,)` int64 positions in the trace, and `(n,)` float64 seconds, for `TracedAvailability`.
    """
    devices = len(trace)
    if population <= devices:
        device_of = generator.permutation(devices)[:population].astype(np.int64)
    else:
        device_of = generator.integers(0, devices, population, dtype=np.int64)
    shift_s = generator.random(population) * trace.horizon_s if random_shift else np.zeros(population)
    # random() times the horizon may round up to the horizon itself.
    return device_of, np.minimum(shift_s, np.nextafter(trace.horizon_s, 0))


class TracedAvailability:
    """Clients that are online while their device of a trace is online.

    At virtual time t client i is where its device was `start_s + shift_s[i] + t` seconds after the beginning of the
    horizon. The recording of a device is a circle: a shift turns the recording, and after its end comes its beginning
    again. A device that is online at the end and at the beginning is online without interruption in between. A device
    that was recorded for a part of the horizon repeats its recording before and after that part. With `repeat` this
    continues for ever; otherwise all clients are offline once `start_s + t` has reached the length of the horizon.

    Args:
        trace: the online intervals of the devices.
        device_of: `(n,)` int64 positions in the trace, one for each client.
        shift_s: `(n,)` float64 seconds, at least 0.
        repeat: begin again when the trace is over.
        start_s: seconds after the beginning of the horizon at which virtual time 0 lies; within the trace.
    """

    comes_back = True

    def __init__(
        self, trace: AvailabilityTrace, device_of: Ids, shift_s: Floats, repeat: bool, start_s: float = 0.0
    ) -> None:
        self._trace = trace
        self._device_of = device_of
        self._ahead_s = shift_s + start_s
        self._over_s = np.inf if repeat else trace.horizon_s - start_s
        self._begin_s = trace.recorded_from_s[device_of]
        self._end_s = trace.recorded_until_s[device_of]

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        trace, device, begin, end = self._trace, self._device_of[clients], self._begin_s[clients], self._end_s[clients]
        period, ahead = end - begin, self._ahead_s[clients] - (begin - trace.horizon[0])
        if now_s >= self._over_s:
            return Presence.of(np.zeros(len(device), np.bool_))
        turns, into = np.divmod(now_s + ahead, period)
        until = trace.online_until(device, np.minimum(begin + into, np.nextafter(end, -np.inf)))  # a sum may round up
        reachable = until > -np.inf
        # A client's departure is computed from the end of the interval alone, not from the moment of the question: so
        # the same departure is the same number, bit for bit, in every question.
        seam = np.flatnonzero(until == end)
        after_seam = trace.online_until(device[seam], begin[seam])
        goes_on = after_seam > -np.inf
        until[seam[goes_on]] = after_seam[goes_on]
        turns[seam[goes_on]] += 1
        leaves = (until - begin) + turns * period - ahead
        leaves[seam[goes_on & (after_seam == end[seam])]] = np.inf  # online all the time
        leaves = np.where(reachable, np.clip(leaves, now_s, self._over_s), np.inf)
        return Presence(reachable, np.zeros(len(device), np.bool_), leaves)
