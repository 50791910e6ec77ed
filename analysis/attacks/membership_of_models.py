"""The attack of `membership` on the testbed itself: on the models of a federation with `dp-sgd-random-participation`.

Every client is a separate trial. It has two coordinates of the model to itself: the gradients of its d samples lie
along the first, that of the additional sample x' along the second, all of norm C. No other client has a gradient there,
and one round of N clients is N independent rounds of the orthogonal pair. The observer sees the model after every
round, and knows the step.

Two federations run side by side, with x' and with a null sample in its place at every client. They have the same seed,
so that they share every coin and all noise: all differences come from x', and few rounds suffice to count them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, sqrt

import numpy as np
import numpy.typing as npt

from analysis.attacks.membership import Threshold
from analysis.bounds.random_participation import Participation
from analysis.statistics import Interval
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.workload.contract import Evaluation, LocalUpdate


@dataclass(frozen=True)
class PairedAdvantage:
    """Success of the test in telling the data sets apart, in pairs of rounds that share their coins.

    Attributes:
        trials: pairs of rounds.
        gained: pairs in which the observer says that x' is present in the round with x' alone.
        lost: pairs in which the observer says so in the round without x' alone.
        yes_without: pairs in which the observer says so in the round without x'.
        epsilon: of the tested claim.
    """

    trials: int
    gained: int
    lost: int
    yes_without: int
    epsilon: float

    @property
    def delta(self) -> float:
        """Estimate of Pr[yes | with] - e^epsilon Pr[yes | without]."""
        return (self.gained - self.lost - expm1(self.epsilon) * self.yes_without) / self.trials

    def interval(self) -> Interval:
        """Return delta, and the half-width of its 95% interval.

        The interval is normal, from the pairs that differ and the answers of yes without x'.
        """
        differ, mean = (self.gained + self.lost) / self.trials, (self.gained - self.lost) / self.trials
        without = self.yes_without / self.trials
        variance = differ - mean**2 + expm1(self.epsilon) ** 2 * without * (1 - without)
        return Interval(self.delta, 1.959964 * sqrt(variance / self.trials))


class OrthogonalGradients:
    """A workload of clients with the gradients of the orthogonal pair, each in its own plane.

    Args:
        population: number of clients.
        local_samples: d, besides x'.
        holds: whether clients hold x', or a null sample in its place.
    """

    def __init__(self, population: int, local_samples: int, holds: bool) -> None:
        self.dimension = 2 * population
        self.sample_counts = np.full(population, local_samples + 1, np.int64)
        self._others, self._holds = local_samples, holds

    def initial_model(self) -> npt.NDArray[np.float32]:
        """Return the zero model."""
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Raise `NotImplementedError`: the workload supports gradients alone."""
        raise NotImplementedError("this workload has gradients alone")

    def check_gradient_sum(self) -> None:
        """Accept every experiment: every sample has a gradient."""

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """Return the sum of the samples' gradients, which have the norm of the clip and do not depend on the model."""
        length = 1.0 if clip is None else clip
        total = np.zeros(self.dimension, np.float32)
        # Sample d is x'. A client's other gradients share one direction, which x' does not touch.
        total[2 * client] = length * np.count_nonzero(samples < self._others)
        if self._holds:
            total[2 * client + 1] = length * np.count_nonzero(samples == self._others)
        return LocalUpdate(total, self._others + 1, 0.0, len(samples))

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Return None: there is nothing to evaluate."""
        return None


def experiment_of(participation: Participation, sigma: float, population: int, rounds: int, seed: int) -> Experiment:
    """Return the experiment of the attacked federation; its server is trusted and adds the noise.

    Args:
        participation: parameters of the mechanism.
        sigma: standard deviation of the noise.
        population: number of clients.
        rounds: number of rounds.
        seed: of all coins and noise.
    """
    return Experiment.model_validate(
        {
            "name": "membership of models",
            "seed": seed,
            "rounds": rounds,
            "population": population,
            "workload": {"dataset": "analysis.attacks.membership_of_models:OrthogonalGradients"},
            "selection": {"protocol": "bernoulli", "client_rate": participation.client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation",
                "sample_rate": participation.sample_rate,
                "clip": participation.clip,
                "sigma": sigma,
                "learning_rate": 1.0,
            },
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
        }
    )


def attack_models(
    participation: Participation,
    sigma: float,
    epsilon: float,
    population: int,
    rounds: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> PairedAdvantage:
    """Run both federations in this process, and test in each client's plane after every round whether x' is present.

    Args:
        participation, sigma, epsilon: of the tested claim.
        population: number of clients; trials are population times rounds.
        rounds: rounds of each federation.
        seed: of both.
        progress: called with the number of finished rounds.
    """
    threshold = Threshold(participation, sigma, epsilon)
    experiment = experiment_of(participation, sigma, population, rounds, seed)
    workloads = [OrthogonalGradients(population, participation.local_samples, holds) for holds in (True, False)]
    federations = [federation_in_process(RunPlan(experiment, seed), workload, None) for workload in workloads]
    # Undoes the server's step 1 / (p q D), and measures in standard deviations of the noise.
    per_deviation = (
        participation.client_rate * participation.sample_rate * float(workloads[0].sample_counts.sum()) / sigma
    )
    gained = lost = yes_without = 0

    async def run() -> None:
        nonlocal gained, lost, yes_without
        before = [workload.initial_model().astype(np.float64) for workload in workloads]
        for done in range(1, rounds + 1):
            after = [(await federation.run_next_round()).model.astype(np.float64) for federation in federations]
            differences = [(old - new) * per_deviation for old, new in zip(before, after, strict=True)]
            with_x, without = (difference[1::2] > threshold(difference[::2]) for difference in differences)
            gained += int((with_x & ~without).sum())
            lost += int((without & ~with_x).sum())
            yes_without += int(without.sum())
            before = after
            progress(done)

    asyncio.run(run())
    return PairedAdvantage(population * rounds, gained, lost, yes_without, epsilon)
