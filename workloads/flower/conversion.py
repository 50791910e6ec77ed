"""An experiment for an existing Flower app: its clients, rounds and participants, with selection and aggregation as it
has them (random, plain), for people to go on from.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import ExperimentError
from testbed.workload.flower import FlowerSection
from workloads.flower.app import FlowerAppError, FlowerProcess
from workloads.flower.reports import counted_clients, evaluation_notes, recorded_names


def experiment_of(section: FlowerSection, population: int | None) -> tuple[dict[str, Any], list[str]]:
    """The experiment's keys, and lines about what the app is and what is not carried over.

    Args:
        section: the app.
        population: number of clients; None: what the app's simulation has, or 10.

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
        lines.append(
            f"Its strategy, {description['strategy']}, is not run: who is selected, and how updates are summed, is said here."
        )
    return experiment, lines


def _samples_line(counts: Mapping[int, int], population: int) -> str:
    """How many samples the clients train on, and how many of the clients were asked."""
    least, most = min(counts.values()), max(counts.values())
    sizes = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    suffix = "" if len(counts) == population else f" ({len(counts):,} of {population:,} clients were asked)"
    return f"Training samples of a client: {sizes}{suffix}; samples_per_client is the most that one has."


def written(section: FlowerSection, population: int | None) -> str:
    """The experiment as a file; raises as `experiment_of` does."""
    import yaml

    experiment, lines = experiment_of(section, population)
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + yaml.safe_dump(experiment, sort_keys=False, default_flow_style=False, allow_unicode=True)


def folder_or_name(app: str, python: str | None, discard_state: bool = False) -> FlowerSection:
    """What a person writes: a folder, or ``module:app``; raises `ExperimentError` if there is no such folder."""
    key = "app" if Path(app).is_dir() or ":" not in app else "client"
    if key == "app" and not Path(app).is_dir():
        what = "not a folder" if Path(app).exists() else "no such folder"
        raise ExperimentError(f"{app}: {what}; name the folder of a Flower app, or module:attribute of its ClientApp")
    return FlowerSection.model_validate({key: app, "python": python, "discard_state": discard_state})
