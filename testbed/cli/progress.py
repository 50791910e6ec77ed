"""Progress of `testbed run`: bars on a terminal, a line per round elsewhere, or nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from testbed.cli.terminal import Console, shortened
from testbed.cli.watching import ALL, Display, Watched
from testbed.display import visible
from testbed.durations import clock_time, duration
from testbed.engine.federation import RunProgress as Standing
from testbed.records.reader import format_crashes, format_delay
from testbed.running import PlannedRun

OUTCOMES = ("completed", "skipped", "aborted")
COLOURS = {"completed": "green", "skipped": "yellow", "aborted": "red"}
_FIRST_ESTIMATE_S = 10.0  # after the start; shorter runs need no estimate
_ESTIMATE_EVERY_S = 30.0
WIDEST_LABEL = 28  # characters; leaves room for the bar


def finished_before(run: PlannedRun) -> str:
    """Return a line that says why nothing is left to run."""
    if not run.stopped:
        return "finished before"
    return f"stopped before, after round {run.rounds_done} of {run.point.experiment.rounds}: {run.stopped}"


def summarised(summary: Mapping[str, Any]) -> str:
    """Return the end of a run in one line."""
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
    """Return warnings about a finished run, a line each: reasons, refusals, crashes, a slow machine."""
    lines = [summary["reasons"]] if summary["reasons"] else []
    if summary.get("unexpected_refusals"):
        lines.append(f"{summary['unexpected_refusals']}, although all parties are honest (see events.parquet)")
    if summary.get("diverged"):
        lines.append(f"training diverged: {summary['diverged']}")
    if summary["crashes"]:
        lines.append(f"{format_crashes(summary['crashes'])}, counted as dropouts (see log.jsonl and events.parquet)")
    if summary["behind_rounds"]:
        lines.append(
            f"{format_delay(summary['behind_rounds'], summary['behind_factor'])} (docs/explanation/time.md, Live)"
        )
    return lines


class Lines(Display):
    """Progress for logs: a line for every round, and now and then one for the whole experiment."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, clock)
        self._say_again_s = self.began_s + _FIRST_ESTIMATE_S

    def progressed(self, run: PlannedRun, progress: Standing) -> None:
        super().progressed(run, progress)
        if self.clock() >= self._say_again_s and self.left_s is not None:
            self._say_again_s = self.clock() + _ESTIMATE_EVERY_S
            self.console.print(f"{ALL if len(self.runs) > 1 else visible(run.label)}: {self.whole}")

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        super().planned(runs)
        if len(runs) > 1 and self.rounds_planned:
            self.console.print(f"{ALL}: {len(runs)} points, {self.rounds_planned} rounds to run")
        for run in runs:
            if run.complete:
                self._line(run, finished_before(run))

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        super().started(run, outcomes)
        if outcomes:
            self._line(run, f"resuming after round {len(outcomes)}")

    def round_ended(self, watched: Watched, progress: Standing) -> None:
        accuracy = "" if progress.accuracy is None else f", accuracy {100 * progress.accuracy:.1f}%"
        self._line(
            watched.run,
            f"round {progress.round_number}/{progress.rounds} {progress.outcome}, "
            f"{watched.clock} time {duration(progress.now_s)}{accuracy}",
        )

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        super().ended(run, summary)
        for text in (summarised(summary), *remarks(summary)):
            self._line(run, text)

    def _line(self, run: PlannedRun, text: str) -> None:
        self.console.print(f"{visible(run.label)}: {text}")


_WIDEST = 120
_ROOMY = 96  # least columns for a description of each run's activity
_NOW = 38
_OTHER_LINES = 8  # lines of the terminal that are not for the bars of runs


class Bars(Display):
    """Bars at the bottom of the terminal, and above them a line for each run that has ended."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._spinner = Spinner("dots", style="cyan")
        self._what = "starting"
        self._live = Live(console=console, get_renderable=self.picture, transient=True, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        super().planned(runs)
        for run in runs:
            if run.complete:
                self._above(run, finished_before(run), "dim")

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        super().doing(what, run)
        if run is None:
            self._what = what

    def warned(self, run: PlannedRun, line: str) -> None:
        self._above(run, f"warning: {line}", "yellow", "!")

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        super().ended(run, summary)
        failed = summary["rounds_skipped"] + summary["rounds_aborted"]
        failed += summary["crashes"] + summary["behind_rounds"]
        self._above(run, summarised(summary), "yellow" if failed else "green")
        for text in remarks(summary):
            self._above(run, text, "yellow", "!")

    def _above(self, run: PlannedRun, text: str, style: str, mark: str = "") -> None:
        mark = mark or ("·" if style == "dim" else "✓")
        self.console.print(
            Text.assemble((f"{mark} {shortened(run.label, WIDEST_LABEL):{self._width}}", style), "  ", text)
        )

    @property
    def _width(self) -> int:
        """Width of the longest label, so that the bars keep their place from point to point."""
        return max([len(ALL), *(len(shortened(run.label, WIDEST_LABEL)) for run in self.runs)])

    # -- the picture ------------------------------------------------------------------------------------------------

    def picture(self) -> RenderableType:
        """Return all bars in their present state."""
        watched = list(self.watched.values())  # one atomic step: the display's thread draws while runs begin and end
        lines: list[RenderableType] = []
        if len(self.runs) > 1:
            lines.append(self._sweep(watched))
        elif watched:
            lines.append(self._alone(watched[0]))
        if len(watched) > self._room:
            lines.append(Text(f"and {len(watched) - self._room} more", style="dim"))
        if len(self.runs) > 1 and self.console.width < _ROOMY:
            lines.append(_joined([self._points(), self._spent()]))
        if not watched:
            lines.append(self._spinning(Text(self._what, style="dim")))
        elif len(self.runs) == 1:
            lines.append(self._spinning(_whole(watched[0])))
        return Constrain(Group(*lines), _WIDEST)

    def _sweep(self, watched: Sequence[Watched]) -> Table:
        """Return the whole sweep in the first line, then a line for each running point."""
        grid = _grid(self._width)
        if roomy := self.console.width >= _ROOMY:
            grid.add_column(no_wrap=True, overflow="ellipsis", min_width=_NOW, max_width=_NOW)
        points = _joined([self._points(), self._spent()])
        row: list[RenderableType] = [Text(ALL, style="bold"), _bar(self.rounds_done, self.rounds_planned)]
        row += [_count(self.rounds_done, self.rounds_planned), _left(self.left_s)]
        grid.add_row(*row, *([points] if roomy else []))
        for run in watched[: self._room]:
            round_s = run.pace.round_s
            left_s = None if round_s is None or run.doing else run.pace.left_s(self.clock(), round_s)
            row = [Text(shortened(run.run.label, WIDEST_LABEL)), _bar(run.rounds_done, run.rounds)]
            row += [_count(run.rounds_done, run.rounds), _left(left_s)]
            grid.add_row(*row, *([_now(run)] if roomy else []))
        return grid

    def _alone(self, watched: Watched) -> Table:
        grid = _grid(self._width)
        grid.add_column(no_wrap=True)
        label = Text(shortened(watched.run.label, WIDEST_LABEL), style="bold")
        bar = _bar(watched.rounds_done, watched.rounds)
        grid.add_row(label, bar, _count(watched.rounds_done, watched.rounds), _left(self.left_s), self._spent())
        return grid

    def _spinning(self, text: Text) -> Table:
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_column()
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(self._spinner, text)
        return line

    @property
    def _room(self) -> int:
        return max(1, self.console.height - _OTHER_LINES)

    def _points(self) -> Text:
        return Text.assemble((str(self.runs_ended), "bold"), f"/{len(self.runs)} points")

    def _spent(self) -> Text:
        return Text(clock_time(self.clock() - self.began_s), style="yellow")


def _grid(label_width: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True, min_width=label_width, max_width=label_width)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, justify="right", min_width=9)
    return grid


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=max(total, 1), completed=done if total else 1)


def _count(done: int, total: int) -> Text:
    return Text.assemble((str(done), "bold"), (f"/{total}", "dim"))


def _left(seconds: float | None) -> Text:
    return Text() if seconds is None else Text(f"{clock_time(seconds)} left", style="cyan")


def _now(watched: Watched) -> Text:
    """Return the run's present activity in a few words."""
    standing = watched.standing
    if watched.doing or standing is None:
        return Text(watched.doing, style="dim")
    parts = [Text(standing.stage or standing.outcome, style="cyan"), Text(duration(standing.now_s))]
    parts += [Text(f"{100 * watched.accuracy:.1f}%")] if watched.accuracy is not None else []
    return _joined(parts)


def _whole(watched: Watched) -> Text:
    """Return the run's present activity in a line."""
    standing, parts = watched.standing, [Text(watched.doing, style="dim")]
    if standing is not None and not watched.doing:
        parts = [Text(f"round {standing.round_number}"), Text(standing.stage or standing.outcome, style="cyan")]
        parts += [Text(f"{watched.clock} {duration(standing.now_s)}")]
    parts += [Text(f"accuracy {100 * watched.accuracy:.1f}%")] if watched.accuracy is not None else []
    outcomes = watched.outcomes
    parts += [Text(f"{outcomes[name]} {name}", style=COLOURS[name]) for name in OUTCOMES if outcomes[name]]
    return _joined(parts)


def _joined(parts: Sequence[Text]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        if text:
            text.append(" · ", style="dim")
        text.append_text(part)
    return text


def display_for(console: Console, quiet: bool) -> Display:
    """Return the display that suits `console`; a context manager.

    Args:
        console: the console.
        quiet: whether to show no progress.
    """
    if quiet:
        return Display(console)
    return Bars(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)
