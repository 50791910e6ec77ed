"""What runs tell those who watch them (progress displays, notebooks, tests), and from it, how long they will take."""

import heapq
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.engine.federation import Progress
from testbed.running.preparation import PlannedRun


class Observer:
    """What runs tell those who watch them. Here every method does nothing: override what you want to hear.

    Points of a sweep may run at the same time, so what happens to one run comes with the run, and runs take turns.
    No two calls overlap, but they come from different threads. An exception that a method raises ends all runs.
    """

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """These will be run (or are finished already)."""

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """Something begins that may take seconds, e.g. "summarising"; `run` is None for what concerns all of them."""

    def warned(self, run: PlannedRun, line: str) -> None:
        """Something about a run is not as it should be, and it will run all the same; before it starts or goes on."""

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """A run starts or goes on; `outcomes` are those of its recorded rounds."""

    def progressed(self, run: PlannedRun, progress: Progress) -> None:
        """The run stands there now. On Ray the same progress may come several times."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """A run has ended, and this is its summary."""


class Serialised(Observer):
    """Hands on to another observer, one call at a time.

    Args:
        observer: who watches.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._turn = threading.RLock()


def _in_turn(name: str) -> Any:
    def tell(self: Serialised, *told: Any) -> None:
        with self._turn:
            getattr(self._observer, name)(*told)

    return tell


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Serialised, _name, _in_turn(_name))


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
