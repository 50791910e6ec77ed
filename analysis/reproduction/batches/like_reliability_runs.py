"""Simulations and training runs of `like_reliability`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

import workloads
from analysis.bounds.batch_partition import average_cardinality, unavailable_round
from analysis.multi_round import fairness_gap, strong_privacy, weak_privacy
from analysis.multi_round.participation import checked
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.contract import (
    Measurements,
    ReproductionContext,
    Setting,
)
from analysis.reproduction.experiments import declared
from testbed.arrays import Floats
from testbed.emulation.availability.models import Availability, RoundwiseAvailability
from testbed.emulation.traces.schedule import Schedule
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.randomness import Randomness
from testbed.selection.batch_partition import BatchPartitionParameters
from testbed.selection.check_in import STAGE
from testbed.selection.reliability import read_lost_rounds

POPULATION, PARTICIPANTS = 120, 12
PRIVACIES = (12, 6, 4, 3)
MODES: tuple[Literal["fair", "least-total"], ...] = ("fair", "least-total")
RECORDED = 100
"""Rounds of the record from which the server knows the users' reliability."""

BY_INDEX, BY_PROBABILITY, BY_RECORD = "client number", "true probabilities", f"record of {RECORDED} rounds"
PARTITIONS = (BY_INDEX, BY_PROBABILITY, BY_RECORD)

ACCURACY_PRIVACIES = (12, 6)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "IID": {
        "workload.partition": {"scheme": "iid"},
        "availability": {"model": "bernoulli", "unavailable": [0.1, 0.2, 0.3, 0.4, 0.5], "drawn": True},
    },
    "one label each, unreliable by label": {
        "workload.partition": {"scheme": "label-shards", "shards_per_client": 1},
        "availability": {"model": "label-dependent", "lowest": 0.1, "highest": 0.5},
    },
}
"""Settings of the training runs. In the second, the users of a batch of like reliability have the same label."""


@dataclass(frozen=True)
class ReliabilityScale:
    """Repetitions and lengths.

    Attributes:
        seeds: simulations without training.
        rounds: rounds of a simulation.
        trained_seeds: training runs of each kind.
        trained_rounds: rounds of a training run.
    """

    seeds: int
    rounds: int
    trained_seeds: int
    trained_rounds: int


SCALES = {"small": ReliabilityScale(10, 1500, 3, 200), "paper": ReliabilityScale(20, 12_000, 10, 1000)}


def measure_like_reliability(context: ReproductionContext) -> Measurements:
    """Simulate selection, then train."""
    size = SCALES[context.scale]
    rows = []
    for seed in range(1, size.seeds + 1):
        context.progress(f"seed {seed} of {size.seeds}: {size.rounds} rounds of {len(PARTITIONS)} partitions")
        rows += simulated_rows(seed, size.rounds, context.out)
    accuracies = []
    for setting in SETTINGS:
        for seed in range(1, size.trained_seeds + 1):
            context.progress(f"{setting}, seed {seed} of {size.trained_seeds}: {size.trained_rounds} rounds")
            accuracies += trained_rows(setting, seed, size.trained_rounds, context)
    sizes = {
        "population": POPULATION,
        "participants": PARTICIPANTS,
        "rounds": size.rounds,
        "recorded rounds": RECORDED,
        "rounds of training": size.trained_rounds,
        "seeds of training": size.trained_seeds,
    }
    return Measurements(
        Setting("stand-in", "UCI digits, 1,437 samples", list(range(1, size.seeds + 1)), sizes),
        {"simulated": pd.DataFrame(rows), "accuracy": pd.DataFrame(accuracies)},
    )


# -- selection alone ---------------------------------------------------------------------------------------------------


def simulated_rows(seed: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Return one row for each batch size, partition and mode, all with the same dropout probabilities.

    Args:
        seed: seed of probabilities, availability and selection.
        rounds: rounds of a simulation.
        folder: place for the record.
    """
    away = dropout_probabilities(POPULATION, seed)
    # Other random numbers than those of the simulation: the record is of other rounds.
    record = write_record(RoundwiseAvailability(away, Randomness(seed + 1_000_000)), 1, folder / f"record-{seed}.csv")
    rows = []
    for privacy in PRIVACIES:
        for partition in PARTITIONS:
            # `simulate` has client numbers; batches of consecutive numbers are those of the order.
            order = _order(partition, away, record)
            exact = average_cardinality(POPULATION, PARTICIPANTS, privacy, away[order].tolist())
            skipped = unavailable_round(POPULATION, PARTICIPANTS, privacy, away[order].tolist())
            for mode in MODES:
                matrix = checked(_simulated(partition, privacy, mode, away, rounds, seed, record))
                weak = weak_privacy(matrix)
                rows.append(
                    {
                        "T": privacy,
                        "partition": partition,
                        "mode": mode,
                        "seed": seed,
                        "rounds": rounds,
                        "C exact": exact,
                        "skipped exact": skipped,
                        "C": float(matrix.sum(axis=1).mean()),
                        "skipped": float(1 - matrix.any(axis=1).mean()),
                        "F": fairness_gap(matrix, completed_only=True),
                        "never selected": int(POPULATION - matrix.any(axis=0).sum()),
                        "T strong": strong_privacy(matrix),
                        "T weak": weak.value,
                        "T weak certified": weak.certified,
                    }
                )
    return rows


def write_record(availability: Availability, first: int, path: Path) -> Path:
    """Write a record of 100 rounds of check-in as a schedule, and return its path.

    Args:
        availability: the clients' availability.
        first: first round.
        path: file to write.
    """
    everyone = np.arange(POPULATION)
    rows = [
        (number, client, "", "offline")
        for number in range(1, RECORDED + 1)
        for client in everyone[~availability.presence(first + number - 1, STAGE, 0.0, everyone).reachable].tolist()
    ]
    Schedule.from_rows(rows).write(path)
    return path


def _order(partition: str, away: Floats, record: Path) -> npt.NDArray[np.int64]:
    """Return the clients in the order in which consecutive ones form the batches."""
    if partition == BY_INDEX:
        return np.arange(POPULATION)
    lost = read_lost_rounds(record, POPULATION) if partition == BY_RECORD else away
    return np.argsort(lost, kind="stable")


def _simulated(
    partition: str, privacy: int, mode: Any, away: Floats, rounds: int, seed: int, record: Path
) -> npt.NDArray[Any]:
    """Simulate the federation's own selection."""
    file = record if partition == BY_RECORD else None
    parameters = BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy, mode=mode, reliability_from=file)
    # Clients in the order of their probabilities form batches of like reliability by their numbers.
    return simulate(parameters, np.sort(away) if partition == BY_PROBABILITY else away, rounds, seed)


# -- training ----------------------------------------------------------------------------------------------------------


def experiment(setting: str, seed: int, rounds: int, selections: list[dict[str, Any]]) -> Experiment:
    """Return the training runs of one setting and seed, one for each selection.

    Args:
        setting: key of `SETTINGS`.
        seed: seed of the runs.
        rounds: rounds of a run.
        selections: sections `selection`.
    """
    return declared(
        f"like-reliability, {setting}",
        "{aggregation: {protocol: plain}, cluster: {network: in-process}}",
        {
            "rounds": rounds,
            "seed": seed,
            "population": POPULATION,
            "workload": {"dataset": "digits", "model": "mlp", "momentum": 0.0, "evaluate_every": rounds},
            "selection": {"protocol": "batch-partition", "participants": PARTICIPANTS},
            **SETTINGS[setting],
            "sweep": {"selection": selections},
        },
    )


def trained_rows(setting: str, seed: int, rounds: int, context: ReproductionContext) -> list[dict[str, Any]]:
    """Train with each selection, and return the last accuracies.

    Args:
        setting: key of `SETTINGS`.
        seed: seed of the runs.
        rounds: rounds of a run.
        context: inputs of the reproduction.
    """
    folder = context.out / f"trained-{list(SETTINGS).index(setting)}-{seed}"
    folder.mkdir(exist_ok=True)
    plain = experiment(setting, seed, rounds, [{"protocol": "random", "participants": PARTICIPANTS}])
    plan = RunPlan(plain.model_copy(update={"sweep": None}), seed)
    availability = plan.availability(workloads.build(plain.workload, POPULATION, seed))
    # Rounds after those of the run, so that the record is of other rounds with the same probabilities.
    record = write_record(availability, rounds + 1, folder / "record.csv")
    named: dict[tuple[str, int | None], dict[str, Any]] = {("random", None): {"protocol": "random"}}
    for privacy in ACCURACY_PRIVACIES:
        batches = {"protocol": "batch-partition", "privacy": privacy}
        named[BY_INDEX, privacy] = batches
        named[BY_RECORD, privacy] = {**batches, "reliability_from": str(record)}
    selections = [{**selection, "participants": PARTICIPANTS} for selection in named.values()]
    runs = context.run_experiment(experiment(setting, seed, rounds, selections), folder / "runs")
    return [
        {
            "setting": setting,
            "partition": partition,
            "T": privacy,
            "seed": seed,
            "accuracy": 100 * float(run.rounds["accuracy"].dropna().iloc[-1]),
            "completed": int((run.rounds["outcome"] == "completed").sum()),
        }
        for (partition, privacy), run in zip(named, runs, strict=True)
    ]
