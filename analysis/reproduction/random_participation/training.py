"""The training of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556), section 6.

DP-SGD with random participation at the noise that each analysis asks for: the same algorithm four times. Noise wants
smaller steps, so each scheme gets the learning rate that is best for it, of a grid that is the same for all and on a
seed that is not compared. For each further seed there is one sweep over the schemes. Its points have data, first model,
participants and samples in common, so that schemes are compared seed by seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import workloads
from analysis.bounds.random_participation import (
    Delta,
    Participation,
    only_local_sampling,
    recentred,
    sigma_of,
    weak_client_sampling,
)
from analysis.reproduction.contract import ReproductionContext, Scale
from analysis.reproduction.late_accuracy import best_of, late_accuracy
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.experiment.workload import WorkloadSection
from testbed.records import RunRecords

EPSILON, DELTA = 0.015, 1e-6
"""What the paper wants of every round (section 6.1)."""

NONE, PROPOSED, WCS, OLS = "no privacy", "proposed (Theorem 4.1)", "WCS (Theorem 5.2)", "OLS (Theorem 5.1)"
ANALYSES: Mapping[str, Delta] = {PROPOSED: recentred, WCS: weak_client_sampling, OLS: only_local_sampling}
"""How each scheme's sigma is found; the paper evaluates Theorem 4.1 centred on x'."""

_TRIED_ON = 0
"""The seed on which learning rates are tried; those that are compared count from 1."""


@dataclass(frozen=True)
class Size:
    """What is learned, by whom, and for how long.

    Attributes:
        workload: keys of the experiment's workload.
        population: N of the runs.
        who: p, q and d of the runs.
        rounds: iterations.
        rates: the learning rates that every scheme is tried with.
        seeds: repetitions.
        evaluations: of the model, evenly over the rounds.
        notes: what differs from the paper, for people.
    """

    workload: Mapping[str, Any]
    population: int
    who: Participation
    rounds: int
    rates: tuple[float, ...]
    seeds: int
    evaluations: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A figure of the paper.

    Attributes:
        name: of the reproduction.
        title: of the scenario.
        population: N.
        who: the paper's p, q and d, for which sigma is found.
        published: the paper's sigma by scheme.
        rates: the paper's learning rates by scheme (Appendix B.2).
    """

    name: str
    title: str
    population: int
    who: Participation
    published: Mapping[str, float]
    rates: Mapping[str, float]


FIG6 = Setting(
    "random-participation-fig6",
    "many clients, small data sets",
    23_264,
    Participation(30, 0.001, 0.1),
    {PROPOSED: 1.065, WCS: 7.65, OLS: 22.4},
    {NONE: 0.002, PROPOSED: 0.002, WCS: 0.0001, OLS: 0.0001},
)
FIG7 = Setting(
    "random-participation-fig7",
    "few clients, large data sets",
    697,
    Participation(1000, 0.1, 0.001),
    {PROPOSED: 0.646, WCS: 0.873, OLS: 1.103},
    {NONE: 0.002, PROPOSED: 0.002, WCS: 0.002, OLS: 0.002},
)

DIGITS = Size(
    {"dataset": "digits", "model": "mlp"},
    24, Participation(59, 0.5, 0.1), rounds=150, rates=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3), seeds=4, evaluations=30,
    notes=(
        "Instead of EMNIST, the 8x8 digits: 24 clients with 59 samples, p = 0.5 and q = 0.1. That is the paper's "
        "batch of about 70, which the noise is divided by. sigma and what it costs are for the paper's p, q and d.",
        "Instead of the paper's network (156,526 parameters), two hidden layers of 64 units (8,970). Noise is added to "
        "every parameter, so a larger model needs more iterations to be learned under it; here there are 150.",
    ),
)  # fmt: skip
"""What stands in for both figures' federations on one core: their figures differ in the noise alone."""


def size_of(setting: Setting, scale: Scale, data: Path | None) -> Size:
    """What a figure runs; raises `ExperimentError` where the paper's scale lacks the paper's data."""
    if data is None:
        if scale == "small":
            return DIGITS
        raise ExperimentError(
            f"{setting.name}: --scale paper learns EMNIST itself; give the folder of its ByClass files with --data DIR"
        )
    paper = Size(
        {"dataset": "emnist", "path": str(data), "model": "emnist-cnn"},
        setting.population, setting.who, rounds=10_000, rates=(0.0001, 0.0005, 0.002, 0.01), seeds=5, evaluations=100,
        notes=("10,000 iterations: the paper's text does not say how many.",),
    )  # fmt: skip
    if scale == "paper":
        return paper
    few = (
        "100 iterations at ten times the learning rates of the paper's scale: too few for the schemes with much noise.",
    )
    return replace(
        paper, rounds=100, rates=tuple(10 * rate for rate in paper.rates), seeds=3, evaluations=20, notes=few
    )


@dataclass(frozen=True)
class Learned:
    """One scheme's runs.

    Attributes:
        rounds: `(e,)` int64, after which the model was evaluated.
        accuracy: `(seeds, e)` in percent.
        total: rounds of each run.
    """

    rounds: npt.NDArray[np.int64]
    accuracy: Floats
    total: int

    @property
    def late(self) -> Floats:
        """`(seeds,)` accuracy in percent: the mean over the evaluations of the last tenth of the rounds."""
        return late_accuracy(self.rounds, self.accuracy, self.total)


@dataclass(frozen=True)
class Tried:
    """What a scheme reached at each learning rate of the grid.

    Attributes:
        rates: of the grid.
        reached: accuracy in percent at each, as `Learned.late`.
    """

    rates: tuple[float, ...]
    reached: tuple[float, ...]

    @property
    def best(self) -> float:
        """The rate that the scheme is compared at."""
        return best_of(self.rates, self.reached)

    def __str__(self) -> str:
        """For people, in a line."""
        reached = ", ".join(
            f"{rate:g}: {accuracy:.0f}%" for rate, accuracy in zip(self.rates, self.reached, strict=True)
        )
        at_end = self.best in (min(self.rates), max(self.rates)) and len(self.rates) > 1
        return f"{self.best:g} ({reached}{'; at the end of the grid, so there may be a better one' if at_end else ''})"


def sigmas(setting: Setting) -> dict[str, float]:
    """The noise that each analysis asks for in a round, and none."""
    found = {
        scheme: sigma_of(lambda sigma, delta=delta: delta(setting.who, sigma, EPSILON), DELTA)  # type: ignore[misc]
        for scheme, delta in ANALYSES.items()
    }
    return {NONE: 0.0, **found}


def experiment(title: str, size: Size, schemes: Sequence[tuple[float, float]], seed: int) -> Experiment:
    """One seed's sweep.

    Args:
        title: of the scenario.
        size: what is learned.
        schemes: sigma and learning rate of each point; without noise gradients are not clipped.
        seed: of data, first model, participants, samples and noise.
    """
    points = [
        {"clip": 1.0 if sigma else "none", "sigma": sigma, "learning_rate": learning_rate}
        for sigma, learning_rate in schemes
    ]
    return Experiment.model_validate(
        {
            "name": f"{title}, seed {seed}",
            "seed": seed,
            "rounds": size.rounds,
            "population": size.population,
            "workload": {
                **size.workload,
                "samples_per_client": size.who.local_samples,
                "evaluate_every": max(1, size.rounds // size.evaluations),
            },
            "selection": {"protocol": "bernoulli", "client_rate": size.who.client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation", "sample_rate": size.who.sample_rate, "momentum": 0.9,
                "sigma": 0.0,
            },
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
            "sweep": {"aggregation": points},
        }
    )  # fmt: skip


def tried_rates(context: ReproductionContext, title: str, size: Size, noise: Mapping[str, float]) -> dict[str, Tried]:
    """Every scheme at every learning rate of the grid, on a seed that is not compared."""
    context.progress(f"learning rates: {len(noise)} schemes at {len(size.rates)} each, {size.rounds} rounds each")
    grid = [(sigma, rate) for sigma in noise.values() for rate in size.rates]
    runs = iter(context.run_experiment(experiment(title, size, grid, _TRIED_ON), context.out / "runs" / "rates"))
    return {
        scheme: Tried(size.rates, tuple(float(learned([next(runs)]).late[0]) for _ in size.rates)) for scheme in noise
    }


def train(
    context: ReproductionContext, title: str, size: Size, noise: Mapping[str, float], rates: Mapping[str, float]
) -> dict[str, Learned]:
    """Every scheme at its noise and its learning rate, on every seed."""
    runs: dict[str, list[RunRecords]] = {scheme: [] for scheme in noise}
    compared = [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    for seed in range(1, size.seeds + 1):
        context.progress(f"seed {seed} of {size.seeds}: {len(noise)} schemes, {size.rounds} rounds each")
        points = context.run_experiment(experiment(title, size, compared, seed), context.out / "runs" / f"seed-{seed}")
        for scheme, run in zip(noise, points, strict=True):
            runs[scheme].append(run)
    return {scheme: learned(of_scheme) for scheme, of_scheme in runs.items()}


def learned(runs: Sequence[RunRecords]) -> Learned:
    """What one scheme's runs of different seeds came to."""
    measured = [run.rounds.dropna(subset=["accuracy"]) for run in runs]
    return Learned(
        measured[0]["round"].to_numpy(np.int64),
        100 * np.array([rows["accuracy"].to_numpy(np.float64) for rows in measured]),
        len(runs[0].rounds),
    )


def description(size: Size) -> str:
    """The data, in a line."""
    section = WorkloadSection.model_validate({**size.workload, "samples_per_client": size.who.local_samples})
    return workloads.build(section, size.population, 1).description
