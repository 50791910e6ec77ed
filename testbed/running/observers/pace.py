"""How fast runs go, from what was seen of them, and so how long they will take."""

import heapq
from collections.abc import Sequence


class Pace:
    """One run's speed, from what was seen of it.

    Args:
        now_s: when it began.
        rounds_left: rounds to run.
    """

    def __init__(self, now_s: float, rounds_left: int) -> None:
        self.rounds_left = rounds_left
        self._began_s = now_s
        self._first_round_s: float | None = None
        self._last_end_s = now_s
        self._rounds = 0

    def under_way(self, now_s: float) -> None:
        """The rounds have begun; only the first call counts."""
        if self._first_round_s is None:
            self._first_round_s = self._last_end_s = now_s

    def round_ended(self, now_s: float) -> None:
        """A round has ended."""
        self.under_way(now_s)
        self._rounds += 1
        self.rounds_left -= 1
        self._last_end_s = now_s

    @property
    def preparation_s(self) -> float | None:
        """Seconds before the first round, once that has begun."""
        return None if self._first_round_s is None else self._first_round_s - self._began_s

    @property
    def round_s(self) -> float | None:
        """Mean seconds of a round, once one has ended."""
        if self._first_round_s is None or not self._rounds:
            return None
        return (self._last_end_s - self._first_round_s) / self._rounds

    def left_s(self, now_s: float, round_s: float, preparation_s: float = 0.0) -> float:
        """Seconds to the run's end, when a round takes `round_s`, and `preparation_s` what comes before the first."""
        spent = now_s - self._last_end_s
        if self._first_round_s is None:
            return max(0.0, preparation_s - spent) + self.rounds_left * round_s
        return max(0.0, self.rounds_left * round_s - min(spent, round_s))


def time_left(
    now_s: float, running: Sequence[Pace], waiting: Sequence[float], seen: Sequence[Pace], workers: int
) -> float | None:
    """Seconds until all runs have ended, or None as long as no round has.

    A run under way is taken to keep its own speed, one that waits to have the mean speed of those seen; each that waits
    begins when the first of the workers is free.

    Args:
        now_s: the time.
        running: the runs under way.
        waiting: rounds of each run that has not begun.
        seen: all runs that have begun, ended ones too.
        workers: how many run at the same time.
    """
    speeds = [pace.round_s for pace in seen if pace.round_s is not None]
    if not speeds:
        return None
    round_s = sum(speeds) / len(speeds)
    preparations = [pace.preparation_s for pace in seen if pace.preparation_s is not None]
    preparation_s = sum(preparations) / len(preparations)
    free = [pace.left_s(now_s, pace.round_s or round_s, preparation_s) for pace in running]
    free += [0.0] * (workers - len(free))
    heapq.heapify(free)
    for rounds in waiting:
        heapq.heappush(free, heapq.heappop(free) + preparation_s + rounds * round_s)
    return max(free)
