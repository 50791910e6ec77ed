"""``testbed report``: one page with all results of runs, as a file or, while the runs go on, on loopback."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analysis.cli.results import Directories, runs_in
from testbed.cli.invocation import Debug, check_file, examples, flag, option, verb
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError
from testbed.files.names import is_uri

REPORT_EPILOG = examples(
    "testbed report runs/quickstart",
    "testbed report runs/quickstart --out report.html --baseline random",
    "testbed report runs/monday runs/tuesday --out comparison.html",
    "testbed report runs/quickstart --serve",
    then="The page is one file and loads nothing from the network.",
)
NAME = "report.html"


@verb(REPORT_EPILOG)
def report(
    context: typer.Context,
    directories: Directories,
    out: Annotated[
        Path | None, option("FILE", f"File of the page; default: {NAME} in the first directory (URI: here).", "--out")
    ] = None,
    baseline: Annotated[str | None, option("NAME", "Baseline of all ratios; default: the first run.")] = None,
    target: Annotated[
        list[str] | None,
        option("TARGET", "Time to 80%, accuracy>=0.8, loss<0.5, perplexity<90, or best; may be repeated."),
    ] = None,
    serve: Annotated[
        bool, flag("Serve the page on this machine during the runs, at a secret address.", "--serve")
    ] = False,
    port: Annotated[int, option("N", "With --serve: the port; default: any that is free.", min=0, max=65535)] = 0,
    debug: Debug = False,
) -> None:
    """Write one HTML page on runs: costs, curves, every round client by client, privacy, and sources of the numbers."""
    if target:
        from analysis.comparison.targets import parse_targets

        parse_targets(target)  # report a typing error before anything is read
    if serve:
        _serve(directories, out, target or (), baseline, port)
        return
    runs = runs_in(directories)
    beside = Path() if is_uri(directories[0]) else Path(directories[0])
    page = out or beside / NAME
    check_file("--out", page)
    from analysis.report import write

    echo(write(runs, page, target or (), baseline, command=context.obj.command_line))


def _serve(directories: list[str], out: Path | None, targets: Sequence[str], baseline: str | None, port: int) -> None:
    if out is not None:
        raise ExperimentError("--serve, --out: the first shows the page, the second writes it; give one of them")
    if uris := [directory for directory in directories if is_uri(directory)]:
        raise ExperimentError(f"{uris[0]}: --serve reads directories of this machine; `testbed report` reads URIs once")
    from analysis.live.server import ReportServer

    server = ReportServer(directories, targets, baseline, port)
    echo(server.address)
    messages().print("anyone with this address can read the page; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()
