"""``testbed data``: the data, devices and links of an experiment's clients, without a run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from testbed.cli.invocation import (
    Debug,
    ExperimentFile,
    ImportClasses,
    Overrides,
    check_folder,
    examples,
    group,
    option,
)
from testbed.cli.terminal import echo, messages

_INSPECT_EPILOG = examples(
    "testbed data inspect examples/quickstart.yaml",
    "testbed data inspect experiment.yaml --out figures/data",
    "testbed data inspect experiment.yaml --set workload.partition.scheme=dirichlet --set workload.partition.alpha=0.1",
    "testbed data inspect experiment.yaml --format json",
    then="With --out: labels.png and .pdf (labels of each client), clients.png and .pdf (samples, skew, devices, "
    "links), and the data of both as CSV.",
)

data = group(name="data", help="Show the data, devices and links of an experiment's clients.")


@data.command(epilog=_INSPECT_EPILOG)
def inspect(
    file: ExperimentFile,
    out: Annotated[Path | None, option("DIR", "Also write figures and their data to this directory.")] = None,
    overrides: Overrides = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option(help="Output format; csv and json have a row for each client."),
    ] = "text",
    columns: Annotated[
        int, typer.Option(metavar="1|2", min=1, max=2, help="Width in columns of a paper: 3.5 or 7.16 inches.")
    ] = 1,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Show the number of samples of each label that each client of an experiment would hold, its device and its link.

    Data are read, or made, as `testbed run` does; nothing is trained. User-defined classes are imported, and a Flower
    app is started, only with --import-classes.
    """
    from testbed.experiment import load
    from testbed.experiment.schema import points

    if out is not None:
        check_folder("--out", out)
    all_points = list(points(load(file, overrides or []), str(file)))
    first = all_points[0].experiment
    if len(all_points) > 1:
        note_on_sweep = (
            f"note: the first of {len(all_points)} points of the sweep ({all_points[0].label}); --set selects another"
        )
        messages().print(note_on_sweep, markup=False)
    if first.seed is None:
        messages().print("note: the experiment has no seed; seed 0 is used here", markup=False)
    from analysis.clients.profile import profile, report

    client_profile = profile(first, first.seed or 0)
    echo(report(client_profile, format), nl=False)
    for note in client_profile.notes:
        messages().print(f"note: {note}", markup=False)
    if out is not None:
        from analysis.figures import client_data

        for path in client_data.draw(client_profile, out, columns):
            messages().print(str(path))
