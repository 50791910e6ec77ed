"""``testbed dropouts`` and ``testbed metrics``, and the arguments of commands that read runs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli.invocation import (
    Debug,
    Quiet,
    argument,
    check_folder,
    examples,
    option,
    verb,
)
from testbed.cli.terminal import Console, echo, messages
from testbed.errors import ExperimentError

if TYPE_CHECKING:
    from analysis.multi_round.report import Measured

DROPOUTS_EPILOG = examples(
    "testbed dropouts runs/quickstart",
    "testbed dropouts runs/quickstart --format csv > dropouts.csv",
    then="A lost client counts once per round, even if the server asks it again; asked counts every question.",
)

Directories = Annotated[list[str], argument("DIR|URI", "Directories of runs or of sweeps, also s3://, gs://.")]
TableFormat = Annotated[
    Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
]


@verb(DROPOUTS_EPILOG)
def dropouts(
    directories: Directories,
    format: TableFormat = "text",
    debug: Debug = False,
) -> None:
    """Print the clients lost by stage: offline, dropped out, too late or refusing, participants and all asked."""
    runs = runs_in(directories)
    from analysis.comparison import losses

    echo(losses.render(losses.dropouts(runs), format), nl=False)


def runs_in(directories: list[str]) -> list[Any]:
    """Return the runs in or below directories or URIs; raise `ExperimentError` if there are none."""
    from testbed.records.mirror import local_copy_for_reading, runs_below

    paths = [local_copy_for_reading(directory) for directory in directories]
    for path in paths:
        if not path.is_dir():
            raise ExperimentError(f"{path}: no such directory")
        if next(path.rglob("experiment.yaml"), None) is None:
            raise ExperimentError(f"{path}: no runs here; create some with `testbed run EXPERIMENT.yaml`")

    runs = runs_below(paths)
    if undigested := [run for run in runs if not run.verifiable]:
        messages().print(
            f"note: {len(undigested)} of {len(runs)} runs ({undigested[0].path}) have tables without digests, as "
            "written by earlier versions: flipped bits in them may go unnoticed",
            markup=False,
        )
    return runs


_LONG_S = 5.0  # then a note says how long the search may take

METRICS_EPILOG = examples(
    "testbed metrics runs/multi-round",
    "testbed metrics runs/multi-round --every 10",
    "testbed metrics runs/multi-round --format json > metrics.json",
    "testbed metrics runs/random runs/batches --out figures",
    then="T strong, F and C are exact. T weak is exact where it is certified; elsewhere the best value found is "
    "printed, with its proven bound. JSON has every round, and the combination of sums for the last T.",
)


@verb(METRICS_EPILOG)
def metrics(
    directories: Directories,
    format: TableFormat = "text",
    every: Annotated[
        int | None, option("K", "Every K-th round and the last; default: the last (json: all).", min=1)
    ] = None,
    out: Annotated[Path | None, option("DIR", "Also draw T, F and C over the rounds, as PNG and PDF.")] = None,
    time_limit: Annotated[float, option("SECONDS", "Processor time for each run's searches for T weak.", min=0)] = 60.0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Print the multi-round privacy T (strong and weak), the fairness gap F and the cardinality C of runs.

    Multi-RoundSecAgg (arXiv 2106.03328), sections 3.2 and 6: equation (5), Remark 1, F(t) and C(t).
    """
    runs = runs_in(directories)
    if out is not None:
        check_folder("--out", out)
    from analysis.multi_round import report

    console = messages()
    with_sums = [run for run in runs if report.has_sums(run)]
    for run in runs if with_sums else ():
        if run not in with_sums:
            console.print(f"note: {run.path}: no round of this run has a sum; the run is left out", markup=False)
    measurements = [_measured(run, time_limit, console, quiet) for run in with_sums or runs]
    echo(report.render(measurements, format, every), nl=False)
    if out is not None:
        from analysis.multi_round.figures import Line, draw

        lines = [Line(run.label, run.protocol, [run.metrics]) for run in measurements]
        console.print(f"written: {', '.join(map(str, draw(lines, out)))}")


def _measured(run: Any, time_limit_s: float, console: "Console", quiet: bool) -> "Measured":
    """Measure a run; a terminal shows every step, other outputs get one line if it takes long."""
    from analysis.multi_round import report

    if quiet:
        return report.measured(run, time_limit_s)
    if not console.is_terminal:
        began_s, is_noted = time.monotonic(), False

        def note(line: str) -> None:
            nonlocal is_noted
            if not is_noted and time.monotonic() - began_s > _LONG_S:
                is_noted = True
                limit = f"the searches take at most {time_limit_s:g} s of processor time (--time-limit)"
                console.print(f"{run.label}: {line}; {limit}", markup=False)

        return report.measured(run, time_limit_s, note)
    with console.status("") as status:

        def progress(line: str) -> None:
            status.update(f"{run.label}: {line}")

        progress("rank of each round")
        return report.measured(run, time_limit_s, progress)
