"""The speed of runs, measured from their events, and estimates of the remaining time."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

_WARM = 3  # rounds from which the first, which also fills caches, is left out of the mean


class Pace:
    """The speed of one run, measured from its events.

    Args:
        now_s: seconds at which it began.
        rounds_left: rounds to run.
        alike: paces of the most similar runs; they give its speed until its own first round has ended.
    """

    def __init__(self, now_s: float, rounds_left: int, alike: "Sequence[Pace]" = ()) -> None:
        self.rounds_left = rounds_left
        self.alike = alike
        self._began_s = now_s
        self._first_round_s: float | None = None
        self._last_end_s = now_s
        self._first_end_s = now_s
        self._rounds = 0

    def under_way(self, now_s: float) -> None:
        """Note that the rounds have begun; only the first call counts."""
        if self._first_round_s is None:
            self._first_round_s = self._last_end_s = now_s

    def round_ended(self, now_s: float) -> None:
        """Note that a round has ended."""
        self.under_way(now_s)
        self._rounds += 1
        self.rounds_left -= 1
        self._last_end_s = now_s
        if self._rounds == 1:
            self._first_end_s = now_s

    @property
    def preparation_s(self) -> float | None:
        """Seconds before the first round, once that has begun."""
        return None if self._first_round_s is None else self._first_round_s - self._began_s

    @property
    def round_s(self) -> float | None:
        """Mean seconds of a round, once one has ended; without the first once there are others enough."""
        if self._first_round_s is None or not self._rounds:
            return None
        if self._rounds >= _WARM:
            return (self._last_end_s - self._first_end_s) / (self._rounds - 1)
        return (self._last_end_s - self._first_round_s) / self._rounds

    def left_s(self, now_s: float, round_s: float, preparation_s: float = 0.0) -> float:
        """Return the seconds to the run's end.

        Args:
            now_s: the current time, seconds.
            round_s: seconds per round.
            preparation_s: seconds of the preparation before the first round.
        """
        spent = now_s - self._last_end_s
        if self._first_round_s is None:
            return max(0.0, preparation_s - spent) + self.rounds_left * round_s
        # A round that takes longer than usual must not count as several finished ones.
        return max(0.0, self.rounds_left * round_s - min(spent, round_s))


@dataclass(frozen=True)
class WaitingRun:
    """A run that has not begun.

    Attributes:
        rounds: how many it will have.
        alike: paces of the runs seen that have most in common with it; none: all runs seen count.
    """

    rounds: float
    alike: Sequence[Pace] = ()


def time_left(
    now_s: float, running: Sequence[Pace], waiting: Sequence[WaitingRun], paces: Sequence[Pace], workers: int
) -> float | None:
    """Return the seconds until all runs have ended; None until the first round has ended.

    A run in progress is assumed to keep its own speed. A waiting run is assumed to have the mean speed of similar runs,
    and begins when the first worker is free.

    Args:
        now_s: the current time, seconds.
        running: the runs in progress.
        waiting: the runs that have not begun.
        paces: all runs that have begun, including ended ones.
        workers: number of runs at the same time.
    """
    round_s = _mean_round_s(paces)
    if round_s is None:
        return None
    preparations = [pace.preparation_s for pace in paces if pace.preparation_s is not None]
    preparation_s = sum(preparations) / len(preparations)
    left = [pace.left_s(now_s, pace.round_s or _mean_round_s(pace.alike) or round_s, preparation_s) for pace in running]
    to_come = [preparation_s + run.rounds * (_mean_round_s(run.alike) or round_s) for run in waiting]
    return in_lanes(left, to_come, workers)


def _mean_round_s(paces: Sequence[Pace]) -> float | None:
    speeds = [pace.round_s for pace in paces if pace.round_s is not None]
    return sum(speeds) / len(speeds) if speeds else None


def in_lanes(running_s: Sequence[float], waiting_s: Sequence[float], workers: int) -> float:
    """Return the seconds until all runs have ended, if each waiting run begins as soon as a worker is free.

    Args:
        running_s: remaining seconds of each run in progress.
        waiting_s: seconds of each waiting run, in their order.
        workers: number of runs at the same time, at least one.

    Example:
        >>> in_lanes([10.0], [5.0, 5.0], workers=2)
        10.0
    """
    # List scheduling: the next waiting run takes the worker that is free first.
    free = [*running_s, *([0.0] * (max(1, workers) - len(running_s)))]
    heapq.heapify(free)
    for seconds in waiting_s:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)
