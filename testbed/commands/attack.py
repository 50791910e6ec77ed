"""``testbed attack``: what malicious servers and dishonest clients have attained."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from testbed.commands.invocation import Debug, ImportClasses, Overrides, examples, group, reads_records
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import echo
from testbed.errors import ExperimentError

attack = group(name="attack", help="What malicious servers and dishonest clients have attained.")

_SUMMARY_EPILOG = examples(
    "testbed attack summary runs/adversary",
    "testbed attack summary runs/adversary --eta 3 --format json",
    then="An attack is on record where an experiment has an `adversary:` section.",
)

_MODELS_EPILOG = examples(
    "testbed attack models runs/crafted-models",
    "testbed attack models runs/crafted-models --format markdown",
    then="Of adversary.server: send-different-models or send-crafted-model, and records: {aggregates: all}.",
)

_REGISTRATIONS_EPILOG = examples("testbed attack registrations examples/adversary.yaml")


@attack.command(epilog=_SUMMARY_EPILOG)
@reads_records
def summary(
    directories: Directories,
    eta: Annotated[
        float, typer.Option(help="How often x/s > eta c/n: x of s participants and c of n clients are dishonest.")
    ] = 2.0,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
    ] = "text",
    debug: Debug = False,
) -> None:
    """Print which attacks honest parties refused, by which check, and how far the others biased the selection."""
    runs = runs_in(directories)
    from analysis.attacks import outcomes

    echo(outcomes.render(outcomes.adversaries(runs, eta), format), nl=False)


@attack.command(epilog=_MODELS_EPILOG)
def models(
    directories: Directories,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="json holds every column.")] = "text",
    debug: Debug = False,
) -> None:
    """Print what a server has learned that sent other models: the victim's update, or single training samples.

    Both are compared with the ground truth: the update trained again, and the clients' data.
    """
    runs = runs_in(directories)
    from analysis.attacks import other_models

    echo(other_models.render(other_models.other_models(runs), format), nl=False)


@attack.command(epilog=_REGISTRATIONS_EPILOG)
def registrations(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file.", show_default=False)],
    overrides: Overrides = None,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Let the dishonest clients of an experiment try to register more than once, or with a more favourable key.

    They ask a real PKI. In a sweep, this is its first point.
    """
    from analysis.tables import Table, render
    from testbed.adversary.registration import attempts
    from testbed.engine.plan import Plan
    from testbed.experiment import load
    from testbed.experiment.inputs import refuse_unless_imported
    from testbed.experiment.sweep import points

    experiment = next(points(load(file, overrides or []), str(file))).experiment
    refuse_unless_imported([experiment], str(file), import_classes)
    plan = Plan(experiment, 0)
    population = plan.experiment.population
    if not 0 < len(plan.dishonest) < population:
        raise ExperimentError(f"{file}: adversary.dishonest: {len(plan.dishonest)} of {population}; some, and not all")
    rows = [
        [one.name, str(one.tried), str(one.refused), ", ".join(one.checks) or "–", one.gained]
        for one in attempts(population, plan.dishonest, plan.randomness)
    ]
    echo(render(Table(["Attempt", "Tried", "Refused", "By", "Gained"], rows, ruled=False), "text"), nl=False)
