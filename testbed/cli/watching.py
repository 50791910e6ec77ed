"""State of an experiment's runs while they go on, and estimates of their ends."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from testbed.cli.terminal import Console
from testbed.display import visible
from testbed.durations import clock_time
from testbed.engine.federation import RunProgress as Standing
from testbed.running import Observer, PlannedRun
from testbed.running.observers import Pace, WaitingRun, time_left

ALL = "all points"


class Watched:
    """State of one run that goes on.

    Args:
        run: the run.
        outcomes: outcomes of the rounds that were recorded before.
        now_s: present time of a clock, in seconds.
        alike: see `Pace`.

    Attributes:
        doing: activity outside of the rounds, e.g. "summarising"; empty during rounds.
        standing: latest progress.
        accuracy: latest accuracy.
        outcomes: number of rounds so far, by outcome.
        pace: speed of the run.
        clock: virtual or wall.
        rounds: number of rounds planned.
    """

    def __init__(self, run: PlannedRun, outcomes: Sequence[str], now_s: float, alike: Sequence[Pace] = ()) -> None:
        self.run = run
        self.outcomes = Counter(outcomes)
        self.doing = "preparing the clients"
        self.standing: Standing | None = None
        self.accuracy: float | None = None
        experiment = run.point.experiment
        self.clock, self.rounds = experiment.time.clock, experiment.rounds
        self.pace = Pace(now_s, self.rounds - len(outcomes), alike)

    @property
    def rounds_done(self) -> int:
        """Finished rounds."""
        return self.outcomes.total()

    @property
    def _after_rounds(self) -> str:
        """Activity outside of rounds: none, and after the last round a merge, which takes minutes for a long run."""
        return "merging the records of all rounds" if self.rounds_done >= self.rounds else ""

    def hear(self, standing: Standing, now_s: float) -> bool:
        """Record progress, and return whether a round has just ended; each round counts once.

        Args:
            standing: the progress.
            now_s: present time of the clock, in seconds.
        """
        self.doing, self.standing = self._after_rounds, standing
        self.pace.under_way(now_s)
        # Ray may report the same progress several times.
        if not standing.outcome or standing.round_number != self.rounds_done + 1:
            return False
        self.outcomes[standing.outcome] += 1
        self.doing = self._after_rounds
        self.accuracy = standing.accuracy
        self.pace.round_ended(now_s)
        return True


class Display(Observer):
    """Observer that shows warnings only (``--quiet``) but tracks all runs; base of the displays of progress.

    Args:
        console: console for the output.
        clock: returns seconds, for estimates.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.runs: list[PlannedRun] = []
        self.watched: dict[Path, Watched] = {}  # runs that go on, in the order of their start
        self.summaries: dict[Path, Mapping[str, Any]] = {}  # summaries of the runs that have ended
        self.paces: dict[Path, Pace] = {}  # paces of the runs that have begun, also of ended ones
        self.began_s = clock()
        self.most_at_once = 1
        self.runs_ended = 0
        self.rounds_ended = 0  # rounds of the runs that have ended since the start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self.runs = list(runs)
        self.runs_ended = sum(run.complete for run in runs)

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        if run is not None and run.path in self.watched:
            self.watched[run.path].doing = what

    def warned(self, run: PlannedRun, line: str) -> None:
        self.console.print(f"{visible(run.label)}: warning: {visible(line)}")

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        self.watched[run.path] = watched = Watched(run, outcomes, self.clock(), self._alike(run))
        self.paces[run.path] = watched.pace
        running = sum(
            run_under_way.rounds_done < run_under_way.rounds for run_under_way in self.watched.values()
        )  # others are being summarised
        self.most_at_once = max(self.most_at_once, running)

    def progressed(self, run: PlannedRun, progress: Standing) -> None:
        if self.watched[run.path].hear(progress, self.clock()):
            self.round_ended(self.watched[run.path], progress)

    def round_ended(self, watched: Watched, progress: Standing) -> None:
        """Show that a round has just ended."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        self.watched.pop(run.path, None)
        self.summaries[run.path] = summary
        self.runs_ended += 1
        self.rounds_ended += run.point.experiment.rounds

    @property
    def rounds_done(self) -> int:
        """Finished rounds of all runs that were not complete at the beginning."""
        return self.rounds_ended + sum(watched.rounds_done for watched in self.watched.values())

    @property
    def rounds_planned(self) -> int:
        """Rounds of all runs that were not complete at the beginning."""
        return sum(run.point.experiment.rounds for run in self.runs if not run.complete)

    @property
    def left_s(self) -> float | None:
        """Seconds until all runs have ended; None before the first round has ended."""
        going = [watched.pace for watched in self.watched.values()]
        waiting = [
            WaitingRun(run.point.experiment.rounds - run.rounds_done, self._alike(run))
            for run in self.runs
            if not run.complete and run.path not in self.paces
        ]
        return time_left(self.clock(), going, waiting, list(self.paces.values()), self.most_at_once)

    def _alike(self, waiting: PlannedRun) -> list[Pace]:
        """Return the paces of the runs that share most of the sweep's values, without the seed, with a waiting run."""
        common: dict[int, list[Pace]] = {}
        for run in self.runs:
            pace = self.paces.get(run.path)
            if pace is not None and pace.round_s is not None:
                mine, other = waiting.point.values, run.point.values
                # Runs that differ only by their seed take the same time.
                shared = sum(key != "seed" and mine[key] == other.get(key) for key in mine)
                common.setdefault(shared, []).append(pace)
        return common[max(common)] if common else []

    @property
    def whole(self) -> str:
        """State of all runs together, in a few words."""
        parts = [f"{self.runs_ended}/{len(self.runs)} points"] if len(self.runs) > 1 else []
        parts.append(f"{self.rounds_done}/{self.rounds_planned} rounds")
        parts.append(f"{clock_time(self.clock() - self.began_s)} elapsed")
        left_s = self.left_s
        parts += [] if left_s is None else [f"about {clock_time(left_s)} left"]
        return ", ".join(parts)
