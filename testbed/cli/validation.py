"""``testbed validate`` and ``testbed schema``: experiment files, without running them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.cli.invocation import Debug, ImportClasses, Overrides, argument, examples, verb
from testbed.cli.terminal import echo, messages
from testbed.display import visible
from testbed.plugins.classes import IMPORT_CLASSES

if TYPE_CHECKING:
    from testbed.experiment import Point
    from testbed.experiment.schema import Experiment

VALIDATE_EPILOG = examples(
    "testbed validate examples/quickstart.yaml",
    "testbed validate examples/quickstart.yaml --set selection.participants=20",
    "testbed validate experiment.yaml --set 'sweep={aggregation.protocol: [plain, secagg]}'",
    "testbed validate experiment.yaml --import-classes",
)

SCHEMA_EPILOG = examples(
    "testbed schema > experiment.schema.json",
    then="With this first line in an experiment file, editors complete and check it:\n"
    "# yaml-language-server: $schema=experiment.schema.json",
)


@verb(VALIDATE_EPILOG)
def validate(
    file: Annotated[Path, argument("FILE", "An experiment file.")],
    overrides: Overrides = None,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Check an experiment file, and every point of its sweep, without running it.

    Warnings report problems that the numbers show: too few clients online, a deadline that no client can meet. Training
    data and traces of links are read, and checked, only by `testbed run`. User-defined classes are imported, and
    checked, only with --import-classes; a Flower app is started only by `testbed run`.
    """
    from testbed.experiment import load
    from testbed.experiment.schema import points
    from testbed.running.validation import check

    experiment = load(file, overrides or [])
    all_points = list(points(experiment, str(file)))
    checked = check(all_points, str(file), import_classes=import_classes)
    _print_points(file, experiment, all_points)
    for (key, name), source in checked.imported.items():
        echo(f"  {key}: {name} from {source or 'no file'}")
    if checked.not_imported:
        names = ", ".join(f"{key} {name}" for key, name in checked.not_imported)
        echo(f"  not imported, so not checked: {names}; {IMPORT_CLASSES} imports them")
    if checked.not_started:
        names = ", ".join(f"{key} {name}" for key, name in checked.not_started)
        echo(f"  not started, so not checked: {names}; `testbed run` starts it")
    for line in checked.notes:
        messages().print(f"note: {line}")
    for line in checked.warnings:
        messages().print(f"warning: {line}")


def _print_points(file: Path, experiment: "Experiment", all_points: "list[Point]") -> None:
    first = all_points[0].experiment
    if not experiment.sweep:
        echo(f"{file}: valid: {first.rounds} rounds, {first.population} clients, {_protocols(first)}")
        return
    echo(f"{file}: valid: a sweep of {len(all_points)} {'points' if len(all_points) > 1 else 'point'}")
    width = max(len(visible(point.label)) for point in all_points)
    for point in all_points:
        each = point.experiment
        echo(f"  {visible(point.label):{width}}  {each.rounds} rounds, {each.population} clients, {_protocols(each)}")


def _protocols(experiment: "Experiment") -> str:
    return f"{experiment.selection.protocol} under {experiment.aggregation.protocol}"


@verb(SCHEMA_EPILOG)
def schema(debug: Debug = False) -> None:
    """Print the JSON schema of experiment files, for editors."""
    from testbed.experiment import Experiment

    description = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Experiment.model_json_schema()
    echo(json.dumps(description, indent=2))
