"""Learning tasks of Figures 6 and 7 at each scale (Hasircioglu and Gunduz, arXiv 2205.01556, section 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.bounds.random_participation import Participation
from analysis.reproduction.contract import DataKind, Scale
from analysis.reproduction.experiments import declared
from analysis.reproduction.random_participation.published import (
    FEW_CLIENTS,
    MANY_CLIENTS,
    NONE,
    OLS,
    PROPOSED,
    SCHEMES,
    WCS,
    PublishedScenario,
)
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment


@dataclass(frozen=True)
class TrainingTask:
    """Learning task, its clients and its duration.

    Attributes:
        workload: keys of the experiment's workload.
        population: N of the runs.
        participation: p, q and d of the runs.
        rounds: number of iterations.
        rates: learning rates that each scheme is tried with, by scheme.
        seeds: number of repetitions.
        evaluations: number of evaluations of the model, evenly over the rounds.
        data_kind: kind of the data; the paper's is EMNIST ByClass.
        differs: differences from the paper in scale, data and rounds, one line each.
    """

    workload: Mapping[str, Any]
    population: int
    participation: Participation
    rounds: int
    rates: Mapping[str, tuple[float, ...]]
    seeds: int
    evaluations: int
    data_kind: DataKind
    differs: tuple[str, ...] = ()


DIGITS = TrainingTask(
    {"dataset": "digits", "model": "mlp"},
    24,
    Participation(59, 0.5, 0.1),
    rounds=150,
    rates=dict.fromkeys(SCHEMES, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)),
    seeds=4,
    evaluations=30,
    data_kind="stand-in",
    differs=(
        "Scale: 24 clients with 59 samples, p = 0.5 and q = 0.1. The batch of about 70, by which the noise is divided, "
        "is the paper's; sigma and its cost are for the paper's p, q and d. Two hidden layers of 64 units (8,970 "
        "parameters) instead of the paper's network (156,526): noise is added to every parameter, so a larger model "
        "needs more iterations.",
        "Data: the 8x8 digits instead of EMNIST.",
        "Rounds: 150 iterations; the paper's text does not state its number.",
    ),
)
"""Task in place of both figures' federations on one core; the figures then differ in the noise alone."""


def task_of(scenario: PublishedScenario, scale: Scale, data: Path | None) -> TrainingTask:
    """Return the task of a figure.

    Args:
        scenario: the paper's scenario.
        scale: scale of the runs.
        data: folder with the data; None: built-in data.

    Raises:
        ExperimentError: the scale needs data.
    """
    if data is None:
        if scale == "small":
            return DIGITS
        raise ExperimentError(
            f"{scenario.figure}: --scale {scale} learns from files; give the folder of EMNIST's ByClass files"
            f"{' or of MNIST' if scale == 'real' else ''} with --data DIR"
        )
    if scale == "real":
        return real_task(scenario, data)
    paper = TrainingTask(
        {"dataset": "emnist", "path": str(data), "model": "emnist-cnn"},
        scenario.population,
        scenario.participation,
        rounds=10_000,
        rates=dict.fromkeys(SCHEMES, (0.0001, 0.0005, 0.002, 0.01)),
        seeds=5,
        evaluations=100,
        data_kind="paper",
        differs=("Rounds: 10,000 iterations; the paper's text does not state its number.",),
    )
    if scale == "paper":
        return paper
    few = (
        "Rounds: 100 iterations, at ten times the learning rates of the paper's scale; too few for the schemes with "
        "much noise.",
    )
    larger = {scheme: tuple(10 * rate for rate in rates) for scheme, rates in paper.rates.items()}
    return replace(paper, rounds=100, rates=larger, seeds=3, evaluations=20, differs=few)


REAL_ROUNDS = 100
"""Iterations at scale `real`.

An iteration takes about 0.2 s (Figure 6) or 0.35 s (Figure 7) of one core, so that the search for learning rates and
three seeds of both figures take less than half an hour of one core. The accuracy without privacy levels off within
them. Schemes with much noise still improve: the claims show how far schemes are apart in the middle of the runs, too.
"""

_SMALL_NOISE, _LARGE_NOISE, _LARGEST_NOISE = (0.01, 0.03, 0.1), (0.001, 0.003, 0.01), (0.0003, 0.001, 0.003)

REAL_RATES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    MANY_CLIENTS.name: {NONE: _SMALL_NOISE, PROPOSED: _SMALL_NOISE, WCS: _LARGE_NOISE, OLS: _LARGEST_NOISE},
    FEW_CLIENTS.name: dict.fromkeys(SCHEMES, _SMALL_NOISE),
}
"""Learning rates at scale `real`, larger than the paper's, since there are fewer iterations. As in the paper, WCS and
OLS have smaller ones in Figure 6: their noise is 7 and 21 times that of the proposed scheme there."""


def real_task(scenario: PublishedScenario, data: Path) -> TrainingTask:
    """Return the paper's population, sampling and network, for fewer rounds, on EMNIST or on the MNIST of the folder.

    Each client draws its own d of MNIST's 60,000 images, as 23,264 times 30, or 697 times 1,000, exceed the number of
    images.

    Args:
        scenario: the paper's scenario.
        data: folder with the data.
    """
    samples = scenario.participation.local_samples
    is_emnist = any(data.rglob("emnist-byclass-train-images-idx3-ubyte*"))
    workload: dict[str, Any] = {"dataset": "emnist" if is_emnist else "mnist", "path": str(data), "model": "emnist-cnn"}
    differs = [
        f"Rounds: {REAL_ROUNDS} iterations; the paper's text does not state its number. The learning rates are larger "
        "than the paper's."
    ]
    if not is_emnist:
        workload["partition"] = {"scheme": "overlapping"}
        differs.insert(
            0,
            "Data: MNIST's ten digits instead of EMNIST's 62 classes, read by the paper's network with ten outputs "
            "(143,162 parameters instead of 156,526). Each client draws its own images from all 60,000, so that an "
            f"image is with about {scenario.population * samples / 60_000:.0f} clients; the accounting is for one "
            "sample of one client.",
        )
    return TrainingTask(
        workload,
        scenario.population,
        scenario.participation,
        rounds=REAL_ROUNDS,
        rates=REAL_RATES[scenario.name],
        seeds=3,
        evaluations=20,
        data_kind="paper" if is_emnist else "stand-in",
        differs=tuple(differs),
    )


def training_experiment(
    name: str, task: TrainingTask, aggregation: Mapping[str, Any], points: Sequence[Mapping[str, Any]], seed: int
) -> Experiment:
    """Return one seed's sweep over settings of DP-SGD with random participation.

    Args:
        name: name of the experiment.
        task: the learning task.
        aggregation: keys of `aggregation` that all points have.
        points: keys of `aggregation` of each point.
        seed: seed of data, first model, participants, samples and noise.
    """
    return declared(
        name,
        """
        selection: {protocol: bernoulli}
        aggregation: {protocol: dp-sgd-random-participation}
        time: {deadline_s: 86400.0}
        """,
        {
            "seed": seed,
            "rounds": task.rounds,
            "population": task.population,
            "workload": {
                **task.workload,
                "samples_per_client": task.participation.local_samples,
                "evaluate_every": max(1, task.rounds // task.evaluations),
            },
            "selection.client_rate": task.participation.client_rate,
            "aggregation": {"sample_rate": task.participation.sample_rate, **aggregation},
            "sweep": {"aggregation": [dict(point) for point in points]},
        },
    )
