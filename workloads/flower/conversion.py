"""Conversion of a Flower app to an experiment with random selection and plain sums."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import ExperimentError
from testbed.workload.flower import FlowerSection
from workloads.flower.app import FlowerAppError, FlowerProcess
from workloads.flower.reports import counted_clients, evaluation_notes, recorded_names


def experiment_of(section: FlowerSection, population: int | None) -> tuple[dict[str, Any], list[str]]:
    """Return the experiment's keys, and comments on the app and on its unsupported parts.

    Args:
        section: the app.
        population: number of clients; None: that of the app's simulation, or 10.

    Raises:
        ExperimentError: as `FlowerProcess`.
    """
    process = FlowerProcess(section, population, seed=1, python_option="--python")
    try:
        description, clients = process.description, process.description["population"]
        counts = process.count(counted_clients(clients), seed=1)
        evaluation = process.evaluate(0, process.initial, seed=1)
    except FlowerAppError as error:
        raise ExperimentError(f"workload.flower: {section.named}: {error}") from None
    finally:
        process.close()
    name = section.app.absolute().name if section.app is not None else str(section.client).partition(":")[0]
    flower = section.model_dump(mode="json", exclude_defaults=True)
    experiment = {
        "name": name,
        "seed": 1,
        "rounds": max(1, description["rounds"]),
        "population": clients,
        "workload": {"samples_per_client": max(1, *counts.values()), "flower": flower},
        "selection": {"protocol": "random", "participants": min(clients, description["participants"] or clients)},
        "aggregation": {"protocol": "plain"},
    }
    lines = [
        f"From the Flower app {section.named} (flwr {description['flwr']}): {len(process.initial):,} parameters in "
        f"{len(description['shapes'])} arrays.",
        _samples_line(counts, clients),
        *description["notes"],
        *recorded_names(evaluation),
        *evaluation_notes(evaluation),
    ]
    if description["strategy"]:
        lines.append(f"Its strategy {description['strategy']} does not run: selection and aggregation are set here.")
    return experiment, lines


def _samples_line(counts: Mapping[int, int], population: int) -> str:
    """Return a line with the training samples of the clients, and the number of clients that were asked."""
    least, most = min(counts.values()), max(counts.values())
    sizes = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    suffix = "" if len(counts) == population else f" ({len(counts):,} of {population:,} clients were asked)"
    return f"Training samples of a client: {sizes}{suffix}; samples_per_client is the largest number."


def written(section: FlowerSection, population: int | None) -> str:
    """Return the experiment as the text of a file; raises as `experiment_of`.

    Args:
        section: the app.
        population: number of clients; None: that of the app's simulation, or 10.
    """
    import yaml

    experiment, lines = experiment_of(section, population)
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + yaml.safe_dump(experiment, sort_keys=False, default_flow_style=False, allow_unicode=True)


def folder_or_name(app: str, python: str | None, discard_state: bool = False) -> FlowerSection:
    """Return the app that a command's argument names: a folder, or ``module:app``.

    Args:
        app: the argument.
        python: the interpreter of the app's environment.
        discard_state: whether to run clients that keep data in context.state.

    Raises:
        ExperimentError: there is no such folder.
    """
    key = "app" if Path(app).is_dir() or ":" not in app else "client"
    if key == "app" and not Path(app).is_dir():
        problem = "not a folder" if Path(app).exists() else "no such folder"
        raise ExperimentError(
            f"{app}: {problem}; name the folder of a Flower app, or module:attribute of its ClientApp"
        )
    return FlowerSection.model_validate({key: app, "python": python, "discard_state": discard_state})
