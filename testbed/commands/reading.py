"""``testbed validate`` and ``testbed schema``: experiment files, without running anything."""

import json
from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.invocation import Debug, Overrides, examples
from testbed.commands.terminal import echo
from testbed.display import visible
from testbed.errors import ExperimentError

VALIDATE_EPILOG = examples(
    "testbed validate examples/quickstart.yaml",
    "testbed validate examples/quickstart.yaml --set selection.participants=20",
)

SCHEMA_EPILOG = examples(
    "testbed schema > experiment.schema.json",
    then="Begin an experiment file with this line, and editors complete and check it:\n"
    "# yaml-language-server: $schema=experiment.schema.json",
)


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file.", show_default=False)],
    overrides: Overrides = None,
    debug: Debug = False,
) -> None:
    """Check an experiment file, and every point of its sweep, without running it.

    Data are read, and checked, only by `testbed run`.
    """
    from testbed.experiment import load
    from testbed.experiment.sweep import points
    from testbed.federation import Plan

    experiment = load(file, overrides or [])
    all_points = list(points(experiment, str(file)))
    for point in all_points:  # the protocols have to fit each other, and classes of the user's own to be there
        try:
            Plan(point.experiment, 0)
        except ExperimentError as error:
            raise ExperimentError(f"{file}: {error}") from error
    first = all_points[0].experiment
    if not experiment.sweep:
        echo(f"{file}: valid: {first.rounds} rounds, {first.population} clients, {_protocols(first)}")
        return
    echo(f"{file}: valid: a sweep of {len(all_points)} {'points' if len(all_points) > 1 else 'point'}")
    width = max(len(visible(point.label)) for point in all_points)
    for point in all_points:
        one = point.experiment
        echo(f"  {visible(point.label):{width}}  {one.rounds} rounds, {one.population} clients, {_protocols(one)}")


def _protocols(experiment: object) -> str:
    selection, aggregation = (getattr(experiment, section).protocol for section in ("selection", "aggregation"))
    return f"{selection} under {aggregation}"


def schema(debug: Debug = False) -> None:
    """Print the JSON schema of experiment files, for editors."""
    from testbed.experiment import Experiment

    description = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Experiment.model_json_schema()
    echo(json.dumps(description, indent=2))
