"""``testbed privacy``: privacy spent by the clients of runs; ``testbed bound privacy``: guarantees of a selection."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from analysis.cli.results import Directories, runs_in
from testbed.cli.invocation import (
    Debug,
    ImportClasses,
    Overrides,
    argument,
    check_folder,
    examples,
    option,
    verb,
)
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError
from testbed.plugins.classes import IMPORT_CLASSES

PRIVACY_EPILOG = examples(
    "testbed privacy runs/privacy-budget",
    "testbed privacy runs/privacy-budget --every 10",
    "testbed privacy runs/privacy-budget --format json > privacy.json",
    "testbed privacy runs/plain runs/lotto --figures figures",
    then="Planned: every round has all of its noise. Achieved: with the noise that was added. Both hold for any "
    "observer of the sums. With dishonest clients: the server subtracts the noise that dishonest participants know.",
)
BOUND_PRIVACY_EPILOG = examples(
    "testbed bound privacy examples/privacy-budget.yaml",
    "testbed bound privacy examples/privacy-budget.yaml --set selection.protocol=lotto-client-centric",
    then="Fewest survivors: the sum has the smallest allowed number of participants. k: dishonest participants of a "
    "round, r: rounds of one client, in the guarantee; the probability of more is part of delta.",
)


@verb(PRIVACY_EPILOG)
def privacy(
    directories: Directories,
    format: Annotated[
        Literal["text", "markdown", "json"], typer.Option(help="json holds every round and every column.")
    ] = "text",
    every: Annotated[int | None, option("K", "Also print every K-th round and the last (json: all).", min=1)] = None,
    figures: Annotated[
        Path | None, option("DIR", "Also draw planned and achieved epsilon over the rounds, as PNG and PDF.")
    ] = None,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Print the epsilon of a run's clients, planned and achieved, and the guarantee of the selection."""
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
    spendings_and_plans = [(run_spending, report.of_run(run_spending.run, run_spending)) for run_spending in spent]
    if unknown := [run_spending.label for run_spending, plan in spendings_and_plans if plan is None]:
        messages().print(
            f"note: {', '.join(unknown)}: user-defined classes, which are not imported: the guarantees of the "
            f"selection are not computed; give {IMPORT_CLASSES} if you trust the classes"
        )
    echo(report.render(spendings_and_plans, format, every, others), nl=False)
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
    """Print the guarantees of an experiment's selection for its clients' privacy, over all planned rounds."""
    from analysis.privacy.report import planned
    from analysis.tables import to_json
    from testbed.experiment import load
    from testbed.experiment.inputs import refuse_unless_imported
    from testbed.experiment.schema import points

    plans = []
    all_points = list(points(load(file, overrides or []), str(file)))
    refuse_unless_imported([point.experiment for point in all_points], str(file), import_classes)
    for point in all_points:
        label = point.where(str(file))
        plans.append(planned(point.experiment, label, 0))
        if plans[-1].warning:
            echo(f"warning: {label}: {plans[-1].warning}", err=True)
    if format == "json":
        rows = [{"experiment": plan.label, **plan.facts(), "guarantees": plan.rows()} for plan in plans]
        echo(to_json(rows, indent=1, ascii=True), nl=False)
        return
    echo("\n".join(plan.text() for plan in plans), nl=False)
