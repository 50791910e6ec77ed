"""``testbed compare``, ``testbed dropouts`` and ``testbed plot``: what finished (or unfinished) runs have measured."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import echo, messages
from testbed.errors import ExperimentError

COMPARE_EPILOG = examples(
    "testbed compare runs/quickstart",
    "testbed compare runs/quickstart --baseline random --format latex",
    "testbed compare runs/monday runs/tuesday --format csv > table.csv",
    "testbed compare runs/lotto runs/replayed --paired",
    then="Paired, rounds are matched by their number, and only those count that both runs completed: for a run and its "
    "replay under another protocol (`testbed trace record`).",
)

DROPOUTS_EPILOG = examples(
    "testbed dropouts runs/quickstart",
    "testbed dropouts runs/quickstart --format csv > dropouts.csv",
    then="A client that has gone and is asked again in the same round counts once; asked counts every question.",
)

PLOT_EPILOG = examples("testbed plot runs/quickstart", "testbed plot runs/monday runs/tuesday --out figures")

Directories = Annotated[
    list[str],
    typer.Argument(metavar="DIR|URI", help="Directories of runs or of sweeps, also s3://, gs://.", show_default=False),
]
Format = Literal["text", "markdown", "csv", "latex", "json"]


def compare(
    directories: Directories,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The run that the others are compared with; default: selection random."),
    ] = None,
    format: Annotated[Format, typer.Option(help="csv and json hold every column, in seconds and bytes.")] = "text",
    paired: Annotated[
        bool, typer.Option("--paired", metavar="", help="Match rounds by number: the same drop-outs, round by round.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Print the overhead table: what each protocol costs, as means, 95% intervals and ratios to a baseline."""
    runs = runs_in(directories)
    from analysis.comparison import overhead, pairs, report

    frame = (pairs.compare_paired if paired else overhead.compare)(runs, baseline)
    echo(report.render(frame, format), nl=False)


def dropouts(
    directories: Directories,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
    ] = "text",
    debug: Debug = False,
) -> None:
    """Print who was lost at which stage: offline, dropped out, too late or refusing, participants and all asked."""
    runs = runs_in(directories)
    from analysis.comparison import dropouts as losses

    echo(losses.render(losses.dropouts(runs), format), nl=False)


def plot(
    directories: Directories,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where figures go; default: figures/ in the first directory (URI: here)."),
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


def runs_in(directories: list[str]) -> list[Any]:
    """The runs in or below directories or URIs; raises `ExperimentError` where there are none."""
    from testbed.records.mirror import fetched

    paths = [fetched(directory) for directory in directories]
    for path in paths:
        if not path.is_dir():
            raise ExperimentError(f"{path}: no such directory")
        if next(path.rglob("experiment.yaml"), None) is None:
            raise ExperimentError(f"{path}: no runs here; `testbed run EXPERIMENT.yaml` makes some")
    from testbed.running import runs_below

    found = runs_below(paths)
    if old := [run for run in found if not run.verifiable]:
        messages().print(
            f"note: {len(old)} of {len(found)} runs ({old[0].path}) have tables without digests, as earlier versions "
            "wrote them: flipped bits in them may go unnoticed",
            markup=False,
        )
    return found
