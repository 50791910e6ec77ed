"""``testbed status``: the state of runs, while they are under way and afterwards."""

import json
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from testbed.cli.invocation import Debug, argument, examples, flag, verb
from testbed.cli.terminal import Console, shortened
from testbed.display import visible
from testbed.durations import clock_time, duration
from testbed.records.former_codes import current_detail

if TYPE_CHECKING:
    from testbed.running.status import RunsAt, RunStatus

STATUS_EPILOG = examples(
    "testbed status runs/quickstart",
    "testbed status runs/quickstart --follow",
    "testbed status runs/monday runs/tuesday --format json",
    "testbed status s3://bucket/runs/long",
    then="The command reads only the directories, so it works during a run and after a crash.",
)

_EVERY_S = 1.0


@verb(STATUS_EPILOG)
def status(
    directories: Annotated[list[str], argument("RUN", "Directories (or URIs) of runs or of sweeps.")],
    format: Annotated[
        Literal["text", "json"], typer.Option(help="json: all values, times in seconds; one list for all runs.")
    ] = "text",
    follow: Annotated[bool, flag("Update the output until all runs have ended.", "--follow", "-f")] = False,
    debug: Debug = False,
) -> None:
    """Show the state of runs: rounds, outcomes, accuracy, time left, restarts, last events, command to resume."""
    from testbed.running.status import runs_at

    console = Console(soft_wrap=True)
    if follow and format == "text" and console.is_terminal:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            for runs in _looks(directories):
                live.update(render(runs), refresh=True)
        return
    shown = ""
    for runs in _looks(directories) if follow else [runs_at(directories)]:
        text = _json(runs) if format == "json" else render(runs)
        if str(text) != shown:
            console.print(text, end="")
            shown = str(text)


def _looks(directories: Sequence[str]) -> "Iterator[list[RunsAt]]":
    """Yield the state every second until nothing runs twice in a row: a sweep may be between two points."""
    from testbed.running.status import runs_at

    still = 0
    while still < 2:
        runs = runs_at(directories)
        still = 0 if any(each.may_be_running for each in runs) else still + 1
        yield runs
        if still < 2:
            time.sleep(_EVERY_S)


def _json(runs: "Sequence[RunsAt]") -> str:
    from testbed.running.status import plain

    return json.dumps(plain(runs), indent=2, ensure_ascii=False) + "\n"


_COLOURS = {"finished": "green", "running": "cyan", "interrupted": "yellow", "unclear": "magenta", "not started": "dim"}
_ENDINGS = {"run-failed": "failed", "run-stopped": "stopped", "run-ended": "ended without its summary", "": "killed"}
_WIDEST_LABEL = 44


def render(places: "Sequence[RunsAt]") -> Text:
    """Return the state of runs as text: a block of lines for a run, a table for a sweep."""
    return Text("\n").join(
        [_single_run(place.runs[0], place.where) if place.is_run else _several(place) for place in places]
    )


def _single_run(run: "RunStatus", where: str) -> Text:
    rows: list[tuple[str, Text]] = [("state", _state(run))]
    rows.append(("rounds", Text.assemble((_bar(run), "cyan"), f"  {run.rounds_done}/{run.rounds}")))
    if run.outcomes:
        rows.append(("outcomes", Text(_outcomes(run.outcomes))))
    if run.accuracy is not None:
        rows.append(("accuracy", Text(f"{100 * run.accuracy:.1f}% after round {run.accuracy_round}")))
    if run.rounds_done:
        rows.append(("time", Text(f"{run.clock} {duration(run.now_s)}, real time {duration(run.wall_s)}")))
    if run.round_s is not None and run.left_s and run.state != "finished":
        rows.append(("pace", Text(f"{_short(run.round_s)} per round, about {clock_time(run.left_s)} left")))
    rows += _troubles(run)
    lines = Text.assemble((visible(run.label), "bold"), (f"  {run.selection} under {run.aggregation}, ", "dim"))
    lines.append(f"{run.population} clients, {where}\n", style="dim")
    for name, value in rows:
        lines.append(f"  {name:10}", style="dim").append_text(value).append("\n")
    for entry in run.events:
        lines.append(f"  {_moment(entry):10}", style="dim").append(_log_line(entry)).append("\n")
    if run.state == "interrupted":
        file = run.path / "experiment.yaml"  # equivalent to the original file
        lines.append("  resume with: ", style="dim")
        lines.append(f"{shlex.join(['testbed', 'run', str(file), '--out', where, '--resume'])}\n")
    return lines


def _several(place: "RunsAt") -> Text:
    runs, where = place.runs, place.where
    states = Counter[str](run.state for run in runs)
    states["not started"] = place.not_started
    lines = Text.assemble((where, "bold"), f"  {states.total()} points: ")
    lines.append_text(Text(", ").join(Text(f"{n} {state}", _COLOURS[state]) for state, n in states.items() if n))
    lines.append("\n")
    heads = ("point", "state", "rounds", "outcomes", "accuracy", "clock time", "time per round", "time left")
    rows = [heads, *(_cells(run) for run in runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, run in zip(rows, [None, *runs], strict=True):
        cells = [
            cell.ljust(width) if number in (0, 1, 3) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = Text("  " + "  ".join(cells).rstrip(), style="dim" if run is None else "")
        if run is not None:
            line.stylize(_COLOURS[run.state], 4 + widths[0], 4 + widths[0] + widths[1])
        lines.append_text(line).append("\n")
    done = sum(run.rounds_done for run in runs)
    rounds = sum(run.rounds for run in runs) + place.not_started * max(run.rounds for run in runs)
    if place.left_s is not None:
        lines.append(f"  {done}/{rounds} rounds, about {clock_time(place.left_s)} left\n", style="dim")
    for run in runs:
        for name, value in _troubles(run):
            lines.append(f"  {visible(run.label)}: {name}: ", style="dim").append_text(value).append("\n")
    if states["interrupted"] or (states["not started"] and not states["running"]):
        lines.append("  resume with: ", style="dim")
        lines.append(f"testbed run EXPERIMENT.yaml --out {shlex.quote(where)} --resume\n")
    return lines


def _cells(run: "RunStatus") -> tuple[str, ...]:
    label = shortened(run.label, _WIDEST_LABEL)
    accuracy = "" if run.accuracy is None else f"{100 * run.accuracy:.1f}%"
    pace = "" if run.round_s is None else _short(run.round_s)
    left = "" if run.state == "finished" or run.left_s is None else clock_time(run.left_s)
    now = duration(run.now_s) if run.rounds_done else ""
    return label, run.state, f"{run.rounds_done}/{run.rounds}", _outcomes(run.outcomes), accuracy, now, pace, left


def _state(run: "RunStatus") -> Text:
    text = Text(run.state, style=_COLOURS[run.state])
    last_sign = "" if run.seen_s is None else f"last activity {_ago(run.seen_s)}"
    if run.state == "interrupted":
        text.append(
            f" ({_ENDINGS[run.ending]}{f': {visible(run.error)}' if run.error else ''}; {last_sign})", style="default"
        )
    elif run.state == "unclear":
        text.append(f" (running on another machine, or killed; {last_sign})", style="default")
    elif run.state == "running" and last_sign:
        text.append(f" ({last_sign})", style="default")
    return text


def _troubles(run: "RunStatus") -> list[tuple[str, Text]]:
    from testbed.records.reader import format_crashes, format_delay

    rows = []
    died = [f"{run.host_restarts} of hosts"] if run.host_restarts else []
    died += [f"{run.coordinator_restarts} of the coordinator"] if run.coordinator_restarts else []
    if died:
        rows.append(("restarts", Text(", ".join(died), style="yellow")))
    for clients, that in ((run.poisoned, "that crashed their hosts"), (run.excluded, "for proven misbehaviour")):
        if clients:
            some = ", ".join(map(str, clients[:10])) + (", ..." if len(clients) > 10 else "")
            rows.append(("excluded", Text(f"{len(clients)} clients {that}: {some}", style="red")))
    if run.reasons:
        rows.append(("reasons", Text(run.reasons, style="yellow")))
    if run.crashes:
        rows.append(("crashes", Text(format_crashes(run.crashes), style="red")))
    if run.behind_rounds:
        rows.append(("behind", Text(format_delay(run.behind_rounds), style="yellow")))
    if run.refusals:
        rows.append(("refusals", Text(str(run.refusals))))
    rows += [("privacy", Text(line, style="yellow")) for line in run.privacy_caveats]
    if run.stopped:
        rows.append(("stopped", Text(visible(run.stopped), style="yellow")))
    return rows


def _bar(run: "RunStatus", width: int = 30) -> str:
    full = width * run.rounds_done // max(run.rounds, 1)
    return "━" * full + "─" * (width - full)


def _outcomes(outcomes: Any) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items(), key=lambda item: -item[1]))


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 600 else f"{duration(seconds)} ago"


def _moment(entry: Any) -> str:
    """Return the time of an entry of the log, HH:MM:SS in UTC."""
    return str(entry.get("time", ""))[11:19]


def _log_line(entry: Any) -> str:
    """Return an entry of the log as words."""
    words = [str(entry["event"]).replace("-", " ")]
    words += [str(entry[key]) for key in ("round", "outcome") if key in entry]
    for key in ("after_round", "host", "reason", "detail", "error"):
        if entry.get(key):
            words.append(f"· {key.replace('_', ' ')} {current_detail(str(entry[key]))}")
    return visible(" ".join(words))
