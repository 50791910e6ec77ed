"""What finished (or unfinished) runs have measured: ``testbed compare``, ``dropouts``, ``plot``, ``metrics``,
``privacy``.

``testbed bound privacy`` says what the selection of an experiment that was never run guarantees.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.commands.invocation import (
    Debug,
    ImportClasses,
    Overrides,
    Quiet,
    argument,
    check_folder,
    examples,
    flag,
    option,
)
from testbed.commands.terminal import Console, echo, messages
from testbed.errors import ExperimentError
from testbed.plugins.classes import IMPORT_CLASSES

if TYPE_CHECKING:
    from analysis.multi_round.report import Measured

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

Directories = Annotated[list[str], argument("DIR|URI", "Directories of runs or of sweeps, also s3://, gs://.")]
TableFormat = Annotated[
    Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
]


def compare(
    directories: Directories,
    baseline: Annotated[
        str | None, option("NAME", "The run that the others are compared with; default: selection random.")
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "latex", "json"],
        typer.Option(help="csv and json hold every column, in seconds and bytes."),
    ] = "text",
    paired: Annotated[bool, flag("Match rounds by number: the same drop-outs, round by round.", "--paired")] = False,
    debug: Debug = False,
) -> None:
    """Print the overhead table: what each protocol costs, as means, 95% intervals and ratios to a baseline."""
    runs = runs_in(directories)
    from analysis.comparison import overhead, report

    frame = (overhead.compare_paired if paired else overhead.compare)(runs, baseline)
    echo(report.render(frame, format), nl=False)


def dropouts(
    directories: Directories,
    format: TableFormat = "text",
    debug: Debug = False,
) -> None:
    """Print who was lost at which stage: offline, dropped out, too late or refusing, participants and all asked."""
    runs = runs_in(directories)
    from analysis.comparison import losses

    echo(losses.render(losses.dropouts(runs), format), nl=False)


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


PRIVACY_EPILOG = examples(
    "testbed privacy runs/privacy-budget",
    "testbed privacy runs/privacy-budget --every 10",
    "testbed privacy runs/privacy-budget --format json > privacy.json",
    "testbed privacy runs/plain runs/lotto --figures figures",
    then="Planned: had every round had all of its noise. Achieved: with the noise that was really added. With "
    "accomplices: less the noise that dishonest participants know; for all but the last, whoever sees the sums.",
)
BOUND_PRIVACY_EPILOG = examples(
    "testbed bound privacy examples/privacy-budget.yaml",
    "testbed bound privacy examples/privacy-budget.yaml --set selection.protocol=lotto-client-centric",
    then="Fewest survive: the sum has only as many participants as it must, and their noise. k: dishonest participants "
    "of a round, r: rounds of one client, that epsilon allows for; more of either are in delta.",
)


def privacy(
    directories: Directories,
    format: Annotated[
        Literal["text", "markdown", "json"], typer.Option(help="json holds every round, and all of the rest.")
    ] = "text",
    every: Annotated[int | None, option("K", "Also every K-th round and the last (json: all).", min=1)] = None,
    figures: Annotated[
        Path | None, option("DIR", "Also draw planned and achieved epsilon over the rounds, as PNG and PDF.")
    ] = None,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Print what the clients of runs have spent, planned and achieved, and what their selection guarantees."""
    runs = runs_in(directories)
    if figures is not None:
        check_folder("--figures", figures)
    from analysis.privacy import report
    from analysis.privacy.spent import spending

    noisy = [run for run in runs if report.adds_noise(run)]
    if not noisy:
        raise ExperimentError(
            f"{directories[0]}: no run here adds noise, so there is no privacy ledger; see aggregation.noise"
        )
    spent = [spending(run) for run in noisy]
    others = [run.label for run in runs if run not in noisy]
    told = [(one, report.of_run(one.run, one)) for one in spent]
    if unknown := [one.label for one, plan in told if plan is None]:
        messages().print(
            f"note: {', '.join(unknown)}: name user-defined classes, whose modules are not imported: what the "
            f"selection guarantees is not said; give {IMPORT_CLASSES} if you trust them"
        )
    echo(report.render(told, format, every, others), nl=False)
    if figures is not None:
        from analysis.privacy.figures import draw

        messages().print(f"written: {', '.join(map(str, draw(spent, figures)))}")


def bound_privacy(
    file: Annotated[Path, argument("FILE", "An experiment file.")],
    overrides: Overrides = None,
    format: Annotated[
        Literal["text", "json"], typer.Option(help="json is a list with an object for each point of the sweep.")
    ] = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """What the selection of an experiment guarantees for its clients' privacy, over all of its planned rounds."""
    from analysis.privacy.report import planned
    from analysis.tables import to_json
    from testbed.experiment import load
    from testbed.experiment.inputs import refuse_unless_imported
    from testbed.experiment.schema import points

    found = []
    all_points = list(points(load(file, overrides or []), str(file)))
    refuse_unless_imported([point.experiment for point in all_points], str(file), import_classes)
    for point in all_points:
        label = point.where(str(file))
        found.append(planned(point.experiment, label, 0))
        if found[-1].warning:
            echo(f"warning: {label}: {found[-1].warning}", err=True)
    if format == "json":
        rows = [{"experiment": one.label, **one.facts(), "guarantees": one.rows()} for one in found]
        echo(to_json(rows, indent=1, ascii=True), nl=False)
        return
    echo("\n".join(one.text() for one in found), nl=False)
