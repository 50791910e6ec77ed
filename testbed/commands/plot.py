"""``testbed plot``: figures of runs, as PNG and PDF."""

from pathlib import Path
from typing import Annotated

from testbed.commands.invocation import Debug, examples, option
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import echo, messages

PLOT_EPILOG = examples("testbed plot runs/quickstart", "testbed plot runs/monday runs/tuesday --out figures")


def plot(
    directories: Directories,
    out: Annotated[
        Path | None, option("DIR", "Where figures go; default: figures/ in the first directory (URI: here).")
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw round time, traffic and dropouts by stage, accuracy and availability, as PNG and PDF."""
    runs = runs_in(directories)
    from analysis.figures import comparison as figures
    from testbed.files.names import is_uri

    console = messages()
    beside = Path() if is_uri(directories[0]) else Path(directories[0])
    for path in figures.plot(runs, out or beside / "figures", note=console.print):
        echo(path)
