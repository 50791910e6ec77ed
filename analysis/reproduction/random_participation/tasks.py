"""Learning tasks of Figures 6 and 7 at each scale (Hasircioglu and Gunduz, arXiv 2205.01556, section 6)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.bounds.random_participation import Participation
from analysis.reproduction.contract import Scale
from analysis.reproduction.random_participation.published import PublishedScenario
from testbed.errors import ExperimentError


@dataclass(frozen=True)
class TrainingTask:
    """Learning task, its clients and its duration.

    Attributes:
        workload: keys of the experiment's workload.
        population: N of the runs.
        participation: p, q and d of the runs.
        rounds: number of iterations.
        rates: learning rates that every scheme is tried with.
        seeds: number of repetitions.
        evaluations: number of evaluations of the model, evenly over the rounds.
        notes: differences from the paper, as text.
    """

    workload: Mapping[str, Any]
    population: int
    participation: Participation
    rounds: int
    rates: tuple[float, ...]
    seeds: int
    evaluations: int
    notes: tuple[str, ...] = ()


DIGITS = TrainingTask(
    {"dataset": "digits", "model": "mlp"},
    24,
    Participation(59, 0.5, 0.1),
    rounds=150,
    rates=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    seeds=4,
    evaluations=30,
    notes=(
        "Instead of EMNIST, the 8x8 digits: 24 clients with 59 samples, p = 0.5 and q = 0.1. The batch of about 70, "
        "by which the noise is divided, is the paper's. sigma and its cost are for the paper's p, q and d.",
        "Instead of the paper's network (156,526 parameters), two hidden layers of 64 units (8,970). Noise is added "
        "to every parameter, so a larger model needs more than the 150 iterations here.",
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
            f"{scenario.name}: --scale {scale} learns from files; give the folder of EMNIST's ByClass files"
            f"{' or of MNIST' if scale == 'real' else ''} with --data DIR"
        )
    if scale == "real":
        return real_task(scenario, data)
    paper = TrainingTask(
        {"dataset": "emnist", "path": str(data), "model": "emnist-cnn"},
        scenario.population,
        scenario.participation,
        rounds=10_000,
        rates=(0.0001, 0.0005, 0.002, 0.01),
        seeds=5,
        evaluations=100,
        notes=("10,000 iterations: the paper's text does not say how many.",),
    )
    if scale == "paper":
        return paper
    few = (
        "100 iterations at ten times the learning rates of the paper's scale: too few for the schemes with much noise.",
    )
    return replace(
        paper, rounds=100, rates=tuple(10 * rate for rate in paper.rates), seeds=3, evaluations=20, notes=few
    )


def real_task(scenario: PublishedScenario, data: Path) -> TrainingTask:
    """Return the paper's population, sampling and network, for fewer rounds, on EMNIST or on the MNIST of the folder.

    Each client draws its own d of MNIST's 60,000 images, as 23,264 times 30, or 697 times 1,000, exceed the number of
    images.

    Args:
        scenario: the paper's scenario.
        data: folder with the data.
    """
    rounds, samples = 1000, scenario.participation.local_samples
    notes = [
        f"{scenario.population:,} clients with {scenario.participation.local_samples:,} samples each, p and q as in "
        f"the paper; {rounds:,} iterations, where the paper's text does not say how many.",
    ]
    if any(data.rglob("emnist-byclass-train-images-idx3-ubyte*")):
        workload: dict[str, Any] = {"dataset": "emnist", "path": str(data), "model": "emnist-cnn"}
    else:
        overlapping = {"scheme": "overlapping"}
        workload = {"dataset": "mnist", "path": str(data), "model": "emnist-cnn", "partition": overlapping}
        notes.append(
            "Images: MNIST's, ten classes instead of EMNIST's 62, read by the paper's network with ten outputs "
            "(143,162 parameters). Each client draws its own from all of them, so that an image is with about "
            f"{scenario.population * samples / 60_000:.0f} clients. The accounting is for one sample of one client."
        )
    rates = (0.0001, 0.0005, 0.002, 0.01, 0.05)
    return TrainingTask(
        workload, scenario.population, scenario.participation, rounds, rates, 3, evaluations=20, notes=tuple(notes)
    )
