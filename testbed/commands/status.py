"""``testbed status``: how runs stand, while they are under way and after."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import Console

if TYPE_CHECKING:
    from testbed.running.status import RunsAt

STATUS_EPILOG = examples(
    "testbed status runs/quickstart",
    "testbed status runs/quickstart --follow",
    "testbed status runs/monday runs/tuesday --format json",
    "testbed status s3://bucket/runs/long",
    then="Reads what is in the directories, and asks no process: works while a run is under way, and after a crash.",
)

_EVERY_S = 1.0


def status(
    directories: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Directories (or URIs) of runs or of sweeps.", show_default=False)
    ],
    format: Annotated[
        Literal["text", "json"], typer.Option(help="json holds everything, in seconds; one list for all runs.")
    ] = "text",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", metavar="", help="Keep showing it until no run is under way.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show how runs stand: rounds done and left, outcomes, accuracy, restarts, last events, and how to resume."""
    from testbed.commands.status_text import render
    from testbed.running.status import runs_at

    console = Console(soft_wrap=True)
    if follow and format == "text" and console.is_terminal:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            for found in _looks(directories):
                live.update(render(found), refresh=True)
        return
    shown = ""
    for found in _looks(directories) if follow else [runs_at(directories)]:
        text = _json(found) if format == "json" else render(found)
        if str(text) != shown:
            console.print(text, end="")
            shown = str(text)


def _looks(directories: Sequence[str]) -> "Iterator[list[RunsAt]]":
    """Look every second, until twice nothing runs: a sweep may just be between two points."""
    from testbed.running.status import runs_at

    still = 0
    while still < 2:
        found = runs_at(directories)
        still = 0 if any(one.may_be_running for one in found) else still + 1
        yield found
        if still < 2:
            time.sleep(_EVERY_S)


def _json(found: "Sequence[RunsAt]") -> str:
    from testbed.running.status import plain

    return json.dumps(plain(found), indent=2, ensure_ascii=False) + "\n"
