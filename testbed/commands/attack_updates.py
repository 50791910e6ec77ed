"""``testbed attack reconstruct`` and ``invert``: what the server's sums over many rounds tell of single clients."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, examples, messages
from testbed.commands.results import runs_in
from testbed.errors import ExperimentError

RECONSTRUCT_EPILOG = examples(
    "testbed attack reconstruct runs/multi-round/random --from 1461 --to 1500",
    "testbed attack reconstruct runs/multi-round/random --from 1461 --to 1500 --out figures --format json",
    then="The run must have recorded what its server saw: `records: {aggregates: [1461, 1500]}` in the experiment.",
)

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, also s3://, gs://.", show_default=False)]
First = Annotated[int, typer.Option("--from", metavar="R", min=1, help="First round.", show_default=False)]
Last = Annotated[int, typer.Option("--to", metavar="R", min=1, help="Last round.", show_default=False)]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write tables and figures.", show_default=False)]
Format = Annotated[Literal["text", "json"], typer.Option(help="json is one flat object at full precision.")]


def reconstruct(
    directory: Run,
    first: First,
    last: Last,
    out: Out = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Solve a run's sums for single updates (least squares), and say how close to the true ones they are.

    So et al., Multi-RoundSecAgg, appendix H.2. The truth is each client's update from the model of the first round,
    trained again.
    """
    from analysis.attacks import reconstruction_report as report

    made = report.reconstruct(one_run(directory), first, last)
    typer.echo(json.dumps(report.row(made), indent=2) if format == "json" else report.text(made))
    if out is not None:
        console = messages()
        for path in report.files(made, out):
            console.print(f"written: {path}", markup=False)


def one_run(directory: str) -> Any:
    """The run in a directory; raises `ExperimentError` unless there is exactly one."""
    runs = runs_in([directory])
    if len(runs) > 1:
        names = ", ".join(run.path.name for run in runs[:4])
        raise ExperimentError(f"{directory}: holds {len(runs)} runs; give the directory of one of them ({names})")
    return runs[0]
