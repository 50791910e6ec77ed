"""How `testbed run` shows where it stands: bars on a terminal, a line per round elsewhere, or nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from testbed.federation import Progress as Standing
from testbed.running import Observer, PlannedRun

_OUTCOMES = ("completed", "skipped", "aborted")
_COLOURS = {"completed": "green", "skipped": "yellow", "aborted": "red"}
_ALL = "all points"
_WIDEST = 100
_WIDEST_LABEL = 28


class Display(Observer):
    """Shows nothing (``--quiet``), but keeps count: the start of the other displays."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.outcomes: Counter[str] = Counter()
        self.accuracy: float | None = None
        self.clock = "virtual"
        self.runs: list[PlannedRun] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def rounds_done(self) -> int:
        """Finished rounds of the run that goes on."""
        return self.outcomes.total()

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        self.runs = list(runs)

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        self.outcomes = Counter(outcomes)
        self.accuracy = None
        self.clock = run.point.experiment.time.clock

    def count(self, progress: Standing) -> bool:
        """Whether a round has just ended; each round is counted once, however often its progress comes."""
        if not progress.outcome or progress.round_number != self.rounds_done + 1:
            return False
        self.outcomes[progress.outcome] += 1
        self.accuracy = progress.accuracy
        return True


class Lines(Display):
    """A line for every round, for logs."""

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        super().planned(runs)
        for run in runs:
            if run.complete:
                self._line(f"{run.label}: finished before")

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        super().started(run, outcomes)
        self._label = run.label
        if outcomes:
            self._line(f"{run.label}: going on after round {len(outcomes)}")

    def progressed(self, progress: Standing) -> None:
        """See `Observer`."""
        if self.count(progress):
            accuracy = "" if progress.accuracy is None else f", accuracy {100 * progress.accuracy:.1f}%"
            self._line(
                f"{self._label}: round {progress.round_number}/{progress.rounds} {progress.outcome}, "
                f"{self.clock} time {duration(progress.now_s)}{accuracy}"
            )

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """See `Observer`."""
        self._line(f"{run.label}: {summarised(summary)}")

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False)


class Bars(Display):
    """One bar for the sweep, one for the run that goes on, and a line that says what it is doing."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.fields[count]}", justify="right", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            TextColumn("left", style="dim"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._status = Text("starting", style="dim", no_wrap=True, overflow="ellipsis")
        self._live = Live(console=console, get_renderable=self._picture, transient=True, refresh_per_second=8)
        self._sweep: TaskID | None = None
        self._bar: TaskID | None = None
        self._ended = 0
        self._earlier_rounds = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _picture(self) -> Constrain:
        return Constrain(Group(self._bars, self._status), _WIDEST)

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        super().planned(runs)
        if len(runs) > 1:
            total = sum(run.point.experiment.rounds for run in runs if not run.complete)
            self._sweep = self._bars.add_task(f"{_ALL:{self._width}}", total=total, count="")
        for run in runs:
            if run.complete:
                self._ended += 1
                self._above(run, "finished before", "dim")
        self._move()

    def doing(self, what: str) -> None:
        """See `Observer`."""
        self._say(what)

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        super().started(run, outcomes)
        self._bar = self._bars.add_task(
            f"{shortened(run.label):{self._width}}",
            total=run.point.experiment.rounds,
            completed=self.rounds_done,
            count="",
        )
        self._say("preparing the clients")
        self._move()

    def progressed(self, progress: Standing) -> None:
        """See `Observer`."""
        if self.count(progress):
            self._move()
        self._say(f"round {progress.round_number}", progress.stage or progress.outcome, progress.now_s)

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """See `Observer`."""
        if self._bar is not None:
            self._bars.remove_task(self._bar)
            self._bar = None
        self._earlier_rounds += run.point.experiment.rounds
        self._ended += 1
        self.outcomes.clear()
        self._move()
        failed = summary["rounds_skipped"] + summary["rounds_aborted"]
        self._above(run, summarised(summary), "yellow" if failed else "green")

    def _move(self) -> None:
        if self._bar is not None:
            rounds = self._bars.tasks[-1].total or 0
            self._bars.update(self._bar, completed=self.rounds_done, count=f"{self.rounds_done}/{rounds:.0f}")
        if self._sweep is not None:
            self._bars.update(
                self._sweep,
                completed=self._earlier_rounds + self.rounds_done,
                count=f"{self._ended}/{len(self.runs)}",
            )

    def _say(self, what: str, stage: str = "", now_s: float | None = None) -> None:
        parts = [Text(what)]
        parts += [Text(stage, style="cyan")] if stage else []
        parts += [Text(f"{self.clock} {duration(now_s)}")] if now_s is not None else []
        parts += [Text(f"accuracy {100 * self.accuracy:.1f}%")] if self.accuracy is not None else []
        for outcome in _OUTCOMES:
            count = self.outcomes[outcome]
            parts += [Text(f"{count} {outcome}", style=_COLOURS[outcome])] if count else []
        self._status = Text("  ", no_wrap=True, overflow="ellipsis") + Text(" · ", style="dim").join(parts)

    def _above(self, run: PlannedRun, text: str, style: str) -> None:
        self.console.print(Text.assemble((f"{shortened(run.label):{self._width}}", style), "  ", text))

    @property
    def _width(self) -> int:
        """Of the longest label, so that the bars stay where they are from point to point."""
        return max(len(_ALL), *(len(shortened(run.label)) for run in self.runs))


def display(console: Console, quiet: bool) -> Display:
    """The display that suits `console`; a context manager."""
    if quiet:
        return Display(console)
    return Bars(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)


def summarised(summary: Mapping[str, Any]) -> str:
    """A run's end in one line."""
    counts = [f"{summary[f'rounds_{outcome}']} {outcome}" for outcome in _OUTCOMES if summary[f"rounds_{outcome}"]]
    parts = [*counts, f"{summary['clock']} {duration(summary['virtual_s'])}"]
    if summary["final_accuracy"] is not None:
        parts.append(f"accuracy {100 * summary['final_accuracy']:.1f}%")
    return ", ".join([*parts, f"took {duration(summary['wall_s'])}"])


def duration(seconds: float) -> str:
    """Seconds as a person would say them: 22.3 s, 14:05 min, 3:20:00 h."""
    if seconds < 600:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def shortened(label: str) -> str:
    """A label that leaves room for the bar."""
    return label if len(label) <= _WIDEST_LABEL else f"{label[: _WIDEST_LABEL - 1]}…"
