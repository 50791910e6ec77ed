"""``testbed metrics``: what a curious server learns over all rounds of a run, and how fair and large the sums are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, examples
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import Console, echo, messages
from testbed.commands.writable import check_folder

if TYPE_CHECKING:
    from analysis.multi_round.report import Measured

METRICS_EPILOG = examples(
    "testbed metrics runs/multi-round",
    "testbed metrics runs/multi-round --every 10",
    "testbed metrics runs/multi-round --format json > metrics.json",
    "testbed metrics runs/random runs/batches --out figures",
    then="T strong, F and C are exact. T weak is exact where it is certified; elsewhere it is what was found, with "
    "what is proved. JSON holds every round, and the combination of rounds that attains the last T.",
)


def metrics(
    directories: Directories,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
    ] = "text",
    every: Annotated[
        int | None,
        typer.Option(
            metavar="K", min=1, help="Every K-th round and the last; default: the last (json: all).", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also draw T, F and C over the rounds, as PNG and PDF.", show_default=False),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Processor time for each run's searches for T weak.")
    ] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="No progress.")] = False,
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
    found = [_measured(run, time_limit, console, quiet) for run in runs]
    echo(report.render(found, format, every), nl=False)
    if out is not None:
        from analysis.multi_round.figures import Line, draw

        lines = [Line(run.label, run.protocol, [run.metrics]) for run in found]
        console.print(f"written: {', '.join(map(str, draw(lines, out)))}")


def _measured(run: Any, time_limit_s: float, console: "Console", quiet: bool) -> "Measured":
    """On a terminal, a line that says what is being done; elsewhere nothing."""
    from analysis.multi_round import report

    if quiet or not console.is_terminal:
        return report.measured(run, time_limit_s)
    with console.status("") as status:

        def progress(line: str) -> None:
            status.update(f"{run.label}: {line}")

        progress("rank of each round")
        return report.measured(run, time_limit_s, progress)
