"""``testbed plot``: figures of runs, as PNG and PDF, and their data as CSV."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.invocation import Debug, check_folder, examples, option
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import echo, messages

PLOT_EPILOG = examples(
    "testbed plot runs/quickstart",
    "testbed plot runs/monday runs/tuesday --out figures",
    "testbed plot runs/quickstart --only accuracy,traffic-by-stage --columns 2 --format pdf,svg",
    then="Beside each figure is its data as CSV.",
)


def plot(
    directories: Directories,
    out: Annotated[
        Path | None, option("DIR", "Where figures go; default: figures/ in the first directory (URI: here).")
    ] = None,
    only: Annotated[str | None, option("NAME,...", "These figures alone; a wrong name lists all.")] = None,
    columns: Annotated[
        int | None,
        typer.Option(metavar="1|2", min=1, max=2, help="Columns of a paper (3.5 or 7.16 inches); default: by content."),
    ] = None,
    format: Annotated[str, option("png,pdf,svg", "Which of these to write.")] = "png,pdf",
    debug: Debug = False,
) -> None:
    """Draw round time, traffic and dropouts by stage, accuracy and availability, as PNG and PDF; data as CSV."""
    runs = runs_in(directories)
    from analysis.figures import comparison as figures
    from testbed.files.names import is_uri

    console = messages()
    beside = Path() if is_uri(directories[0]) else Path(directories[0])
    folder = out or beside / "figures"
    check_folder("--out", folder)
    formats = figures.formats_of(_listed(format))
    for path in figures.plot(runs, folder, console.print, only=_listed(only), columns=columns, formats=formats):
        echo(path)


def _listed(text: str | None) -> list[str]:
    """The parts between commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]
