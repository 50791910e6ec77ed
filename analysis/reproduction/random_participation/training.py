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

from analysis.bounds.random_participation import (
    Delta,
    Participation,
    only_local_sampling,
    recentred,
    sigma_at,
    weak_client_sampling,
)
from analysis.reproduction.contract import ReproductionContext, Scale
from analysis.reproduction.random_participation.published import DELTA, EPSILON, NONE, OLS, PROPOSED, WCS, Scenario
from analysis.reproduction.training_runs import AccuracyCurves, best_of, describe_data
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

ANALYSES: Mapping[str, Delta] = {PROPOSED: recentred, WCS: weak_client_sampling, OLS: only_local_sampling}
"""How each scheme's sigma is found; the paper evaluates Theorem 4.1 centred on x'."""

_SEARCH_SEED = 0
"""The seed on which learning rates are tried; those that are compared count from 1."""


@dataclass(frozen=True)
class TrainingTask:
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


DIGITS = TrainingTask(
    {"dataset": "digits", "model": "mlp"},
    24,
    Participation(59, 0.5, 0.1),
    rounds=150,
    rates=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    seeds=4,
    evaluations=30,
    notes=(
        "Instead of EMNIST, the 8x8 digits: 24 clients with 59 samples, p = 0.5 and q = 0.1. That is the paper's "
        "batch of about 70, which the noise is divided by. sigma and what it costs are for the paper's p, q and d.",
        "Instead of the paper's network (156,526 parameters), two hidden layers of 64 units (8,970). Noise is added to "
        "every parameter, so a larger model needs more iterations to be learned under it; here there are 150.",
    ),
)
"""What stands in for both figures' federations on one core: their figures differ in the noise alone."""


def task_of(scenario: Scenario, scale: Scale, data: Path | None) -> TrainingTask:
    """What a figure runs; raises `ExperimentError` where the paper's scale lacks the paper's data."""
    if data is None:
        if scale == "small":
            return DIGITS
        raise ExperimentError(
            f"{scenario.name}: --scale paper learns EMNIST itself; give the folder of its ByClass files with --data DIR"
        )
    paper = TrainingTask(
        {"dataset": "emnist", "path": str(data), "model": "emnist-cnn"},
        scenario.population,
        scenario.who,
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


@dataclass(frozen=True)
class RateSearch:
    """What a scheme reached at each learning rate of the grid.

    Attributes:
        rates: of the grid.
        reached: accuracy in percent at each, as `AccuracyCurves.late`.
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


def required_noise(scenario: Scenario) -> dict[str, float]:
    """The noise that each analysis asks for in a round, and none."""
    required = {scheme: sigma_at(delta, scenario.who, EPSILON, DELTA) for scheme, delta in ANALYSES.items()}
    return {NONE: 0.0, **required}


def experiment(title: str, task: TrainingTask, schemes: Sequence[tuple[float, float]], seed: int) -> Experiment:
    """One seed's sweep.

    Args:
        title: of the scenario.
        task: what is learned.
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
            "rounds": task.rounds,
            "population": task.population,
            "workload": {
                **task.workload,
                "samples_per_client": task.who.local_samples,
                "evaluate_every": max(1, task.rounds // task.evaluations),
            },
            "selection": {"protocol": "bernoulli", "client_rate": task.who.client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation",
                "sample_rate": task.who.sample_rate,
                "momentum": 0.9,
                "sigma": 0.0,
            },
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
            "sweep": {"aggregation": points},
        }
    )


def search_rates(
    context: ReproductionContext, title: str, task: TrainingTask, noise: Mapping[str, float]
) -> dict[str, RateSearch]:
    """Every scheme at every learning rate of the grid, on a seed that is not compared."""
    context.progress(f"learning rates: {len(noise)} schemes at {len(task.rates)} each, {task.rounds} rounds each")
    grid = [(sigma, rate) for sigma in noise.values() for rate in task.rates]
    runs = iter(context.run_experiment(experiment(title, task, grid, _SEARCH_SEED), context.out / "runs" / "rates"))
    return {
        scheme: RateSearch(task.rates, tuple(float(AccuracyCurves.of([next(runs)]).late[0]) for _ in task.rates))
        for scheme in noise
    }


def train(
    context: ReproductionContext, title: str, task: TrainingTask, noise: Mapping[str, float], rates: Mapping[str, float]
) -> dict[str, AccuracyCurves]:
    """Every scheme at its noise and its learning rate, on every seed."""
    runs: dict[str, list[RunRecords]] = {scheme: [] for scheme in noise}
    compared = [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    for seed in range(1, task.seeds + 1):
        context.progress(f"seed {seed} of {task.seeds}: {len(noise)} schemes, {task.rounds} rounds each")
        points = context.run_experiment(experiment(title, task, compared, seed), context.out / "runs" / f"seed-{seed}")
        for scheme, run in zip(noise, points, strict=True):
            runs[scheme].append(run)
    return {scheme: AccuracyCurves.of(of_scheme) for scheme, of_scheme in runs.items()}


def description(task: TrainingTask) -> str:
    """The data, in a line."""
    return describe_data({**task.workload, "samples_per_client": task.who.local_samples}, task.population)
