"""``testbed report``: one page with all that runs have measured, as a file or, while they go on, on loopback."""

from pathlib import Path
from typing import Annotated

from testbed.commands.invocation import Debug, check_file, examples, option
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import echo
from testbed.files.names import is_uri

REPORT_EPILOG = examples(
    "testbed report runs/quickstart",
    "testbed report runs/quickstart --out report.html --baseline random",
    "testbed report runs/monday runs/tuesday --out comparison.html",
    then="The file needs no network and loads nothing: send it as it is.",
)
NAME = "report.html"


def report(
    directories: Directories,
    out: Annotated[
        Path | None, option("FILE", f"The page; default: {NAME} in the first directory (URI: here).", "--out")
    ] = None,
    baseline: Annotated[
        str | None, option("NAME", "The run that the others are compared with; default: selection random.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write one HTML page of runs: costs, curves, every round client by client, privacy, where numbers come from."""
    runs = runs_in(directories)
    beside = Path() if is_uri(directories[0]) else Path(directories[0])
    page = out or beside / NAME
    check_file("--out", page)
    from analysis.report import write

    echo(write(runs, page, (), baseline))
