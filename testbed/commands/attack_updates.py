"""``testbed attack reconstruct`` and ``invert``: what the server's sums over many rounds tell of single clients."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, ImportClasses, examples
from testbed.commands.results import runs_in
from testbed.commands.terminal import echo, messages
from testbed.commands.writable import check_folder
from testbed.errors import ExperimentError

RECONSTRUCT_EPILOG = examples(
    "testbed attack reconstruct runs/multi-round/random --from 301 --to 340",
    "testbed attack reconstruct runs/multi-round/random --from 301 --to 340 --out figures --format json",
    then="The run must have recorded what its server saw: `records: {aggregates: [301, 340]}` in the experiment.",
)

INVERT_EPILOG = examples(
    "testbed attack invert runs/pictures/random --round 1 --client 3 --out figures",
    "testbed attack invert runs/pictures/batch-partition,privacy=4 --round 1 --client 3 --alone",
    then="Best where clients take one step on few images (FedSGD): then an update is a gradient.",
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
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Solve a run's sums for single updates (least squares), and say how close to the true ones they are.

    So et al., Multi-RoundSecAgg, appendix H.2. The truth is each client's update from the model of the first round,
    trained again.
    """
    from analysis.attacks import reconstruction as report
    from analysis.tables import to_json

    if out is not None:
        check_folder("--out", out)
    made = report.reconstruct(one_run(directory), first, last)
    echo(to_json(report.row(made), ascii=True) if format == "json" else report.text(made), nl=False)
    if out is not None:
        console = messages()
        for path in report.files(made, out):
            console.print(f"written: {path}")


def invert(
    directory: Run,
    first: Annotated[int, typer.Option("--round", metavar="R", min=1, help="Round of the model.", show_default=False)],
    client: Annotated[int, typer.Option(metavar="I", min=0, help="The victim.", show_default=False)],
    last: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="R",
            min=1,
            help="Sums up to this round are used.  \\[default: the last]",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, help="Steps of a search.")] = 1000,
    starts: Annotated[int, typer.Option(metavar="N", min=1, help="Searches; the best one counts.")] = 2,
    smoothness: Annotated[float, typer.Option(metavar="L", min=0, help="Weight of the total variation.")] = 1e-3,
    alone: Annotated[
        bool,
        typer.Option("--alone", metavar="", help="Take a batch's mean update for the victim's own, as the paper does."),
    ] = False,
    out: Out = None,
    format: Format = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Recover a client's update from a run's sums (least squares), and seek the images whose gradient it is.

    Geiping et al., Inverting Gradients, arXiv 2003.14053. What is found is compared with the client's images.
    """
    from analysis.attacks import inversion as report
    from analysis.tables import to_json

    run = one_run(directory)
    if out is not None:
        check_folder("--out", out)
    population = int(run.experiment["population"])
    if client >= population:
        raise ExperimentError(f"--client: {client} of {population} clients, which are numbered from 0")
    inverter = report.Inverter(run, first, len(run.rounds) if last is None else last)
    made = inverter.invert(client, report.Search(iterations, starts, smoothness=smoothness), alone=alone)
    echo(to_json(report.row(made), ascii=True) if format == "json" else report.text(made), nl=False)
    if out is not None:
        console = messages()
        for path in report.pictures([(f"client {client}", made)], out / f"client-{client}"):
            console.print(f"written: {path}")


def one_run(directory: str) -> Any:
    """The run in a directory; raises `ExperimentError` unless there is exactly one."""
    runs = runs_in([directory])
    if len(runs) > 1:
        names = ", ".join(run.path.name for run in runs[:4])
        raise ExperimentError(f"{directory}: holds {len(runs)} runs; give the directory of one of them ({names})")
    return runs[0]
