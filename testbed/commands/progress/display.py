"""What the displays of progress have in common: what runs go on, how far they are, and their ends in words."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.commands.durations import duration
from testbed.commands.terminal import Console
from testbed.display import visible
from testbed.engine.federation import Progress as Standing
from testbed.records.reader import behind_told, crashes_told
from testbed.running import Observer, PlannedRun
from testbed.running.observers import Pace, time_left

OUTCOMES = ("completed", "skipped", "aborted")
COLOURS = {"completed": "green", "skipped": "yellow", "aborted": "red"}
WIDEST_LABEL = 28


class Watched:
    """One run that goes on.

    Args:
        run: which.
        outcomes: of the rounds that were recorded before.
        now_s: a clock's seconds.

    Attributes:
        doing: what it does outside of its rounds, e.g. "summarising"; empty during them.
        standing: the last that was heard of it.
        accuracy: last measured.
        outcomes: its rounds so far, by outcome.
        pace: how fast it goes.
    """

    def __init__(self, run: PlannedRun, outcomes: Sequence[str], now_s: float) -> None:
        self.run = run
        self.outcomes = Counter(outcomes)
        self.doing = "preparing the clients"
        self.standing: Standing | None = None
        self.accuracy: float | None = None
        self.pace = Pace(now_s, run.point.experiment.rounds - len(outcomes))

    @property
    def clock(self) -> str:
        """virtual or wall."""
        return self.run.point.experiment.time.clock

    @property
    def rounds(self) -> int:
        """How many there will be."""
        return self.run.point.experiment.rounds

    @property
    def rounds_done(self) -> int:
        """Finished rounds."""
        return self.outcomes.total()

    def hear(self, standing: Standing, now_s: float) -> bool:
        """Take in what comes; whether a round has just ended (each counts once, however often its progress comes)."""
        self.doing, self.standing = "", standing
        self.pace.under_way(now_s)
        if not standing.outcome or standing.round_number != self.rounds_done + 1:
            return False
        self.outcomes[standing.outcome] += 1
        self.accuracy = standing.accuracy
        self.pace.round_ended(now_s)
        return True


class Display(Observer):
    """Shows no progress (``--quiet``; warnings all the same), but knows how all runs stand: the start of the others.

    Args:
        console: where to show it.
        clock: seconds that pass; for estimates alone.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.runs: list[PlannedRun] = []
        self.watched: dict[Path, Watched] = {}  # those that go on, in the order of their beginning
        self.paces: list[Pace] = []  # of those that have begun, ended ones too
        self.most_at_once = 1
        self.runs_ended = 0
        self.rounds_ended = 0  # of runs that have ended while this looked on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        self.runs = list(runs)
        self.runs_ended = sum(run.complete for run in runs)

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """See `Observer`."""
        if run is not None and run.path in self.watched:
            self.watched[run.path].doing = what

    def warned(self, run: PlannedRun, line: str) -> None:
        """See `Observer`."""
        self.console.print(f"{visible(run.label)}: warning: {visible(line)}")

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        self.watched[run.path] = watched = Watched(run, outcomes, self.clock())
        self.paces.append(watched.pace)
        running = sum(one.rounds_done < one.rounds for one in self.watched.values())  # others are being summarised
        self.most_at_once = max(self.most_at_once, running)

    def progressed(self, run: PlannedRun, progress: Standing) -> None:
        """See `Observer`."""
        if self.watched[run.path].hear(progress, self.clock()):
            self.round_ended(self.watched[run.path], progress)

    def round_ended(self, watched: Watched, progress: Standing) -> None:
        """A round has just ended."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """See `Observer`."""
        self.watched.pop(run.path, None)
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
        """Seconds until all is done, or None before the first round has ended."""
        begun = self.rounds_ended + sum(watched.rounds for watched in self.watched.values())
        to_come = len(self.runs) - self.runs_ended - len(self.watched)
        waiting = [(self.rounds_planned - begun) / to_come] * to_come if to_come else []
        going = [watched.pace for watched in self.watched.values()]
        return time_left(self.clock(), going, waiting, self.paces, self.most_at_once)


def finished_before(run: PlannedRun) -> str:
    """That there is nothing to do for a run, in one line."""
    if not run.stopped:
        return "finished before"
    return f"stopped before, after round {run.rounds_done} of {run.point.experiment.rounds}: {run.stopped}"


def summarised(summary: Mapping[str, Any]) -> str:
    """A run's end in one line."""
    counts = [f"{summary[f'rounds_{outcome}']} {outcome}" for outcome in OUTCOMES if summary[f"rounds_{outcome}"]]
    parts = [*counts, f"{summary['clock']} {duration(summary['virtual_s'])}"]
    if summary["final_accuracy"] is not None:
        parts.append(f"accuracy {100 * summary['final_accuracy']:.1f}%")
    if summary["final_perplexity"] is not None:
        parts.append(f"perplexity {summary['final_perplexity']:.1f}")
    if summary["training"] == "simulated":
        parts.append("simulated training")
    if summary.get("stopped"):
        parts.append(f"stopped: {summary['stopped']}")
    return ", ".join([*parts, f"took {duration(summary['wall_s'])}"])


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What a run's end must not pass over, a line each: reasons, refusals, crashes, a slow machine."""
    lines = [summary["reasons"]] if summary["reasons"] else []
    if summary.get("unexpected_refusals"):
        lines.append(f"{summary['unexpected_refusals']}, though nobody was to be dishonest (see events.parquet)")
    if summary["crashes"]:
        lines.append(f"{crashes_told(summary['crashes'])}, counted as lost (see log.jsonl and events.parquet)")
    if summary["behind_rounds"]:
        lines.append(f"{behind_told(summary['behind_rounds'], summary['behind_factor'])} (docs/emulation.md, Live)")
    return lines


def shortened(label: str) -> str:
    """A label that leaves room for the bar."""
    label = visible(label)
    return label if len(label) <= WIDEST_LABEL else f"{label[: WIDEST_LABEL - 1]}…"
