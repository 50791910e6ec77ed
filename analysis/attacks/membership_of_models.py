"""The membership attack of `membership` against what the testbed itself publishes: the models of a federation that runs
`dp-sgd-random-participation`.

Every client is a case of its own. It has two coordinates of the model for itself: along the first lie the gradients of
its d samples, along the second that of one sample more, x', all of norm C; in half of the clients that sample is null.
So everybody else is silent where a client's gradients are, and one round of N clients is N independent rounds of the
orthogonal pair. The observer sees the model after every round, and knows the step.
"""

import asyncio
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from analysis.attacks.membership import Advantage, Threshold
from analysis.bounds.random_participation import Participation
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.workload.contract import Evaluation, LocalUpdate


class OrthogonalGradients:
    """A workload of clients whose gradients are the orthogonal pair's, each in a plane of its own.

    Args:
        population: clients; those of even number hold x', the others a null sample in its place.
        local_samples: d, besides that one.
    """

    def __init__(self, population: int, local_samples: int) -> None:
        self.dimension = 2 * population
        self.sample_counts = np.full(population, local_samples + 1, np.int64)
        self._others = local_samples

    def initial_model(self) -> npt.NDArray[np.float32]:
        """All zero."""
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """There is nothing to train but by gradients."""
        raise NotImplementedError("this workload has gradients alone")

    def check_gradient_sum(self) -> None:
        """Every sample has a gradient."""

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """The samples' gradients, as long as they may be, whatever the model."""
        length = 1.0 if clip is None else clip
        total = np.zeros(self.dimension, np.float32)
        total[2 * client] = length * np.count_nonzero(samples < self._others)
        if client % 2 == 0:
            total[2 * client + 1] = length * np.count_nonzero(samples == self._others)
        return LocalUpdate(total, self._others + 1, 0.0, len(samples))

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Nothing is learned."""
        return None


def experiment_of(who: Participation, sigma: float, population: int, rounds: int, seed: int) -> Experiment:
    """The federation that is attacked; its server is trusted and adds the noise."""
    return Experiment.model_validate(
        {
            "name": "membership of models",
            "seed": seed,
            "rounds": rounds,
            "population": population,
            "workload": {"dataset": "analysis.attacks.membership_of_models:OrthogonalGradients"},
            "selection": {"protocol": "bernoulli", "client_rate": who.client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation",
                "sample_rate": who.sample_rate,
                "clip": who.clip,
                "sigma": sigma,
                "learning_rate": 1.0,
            },
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
        }
    )


def attack_models(
    who: Participation,
    sigma: float,
    epsilon: float,
    population: int,
    rounds: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Advantage:
    """Run the federation in this process, and test after every round in each client's plane whether x' is there.

    Args:
        who, sigma, epsilon: of the claim that is tested.
        population: clients, an even number: half of them hold x'.
        rounds: of the federation; trials are half of population times rounds, with x' and as many without.
        seed: of the federation.
        progress: told how many rounds are done.
    """
    if population % 2:
        raise ValueError(f"population: {population}; must be even, as half of the clients hold the sample")
    threshold = Threshold(who, sigma, epsilon)
    workload = OrthogonalGradients(population, who.local_samples)
    plan = Plan(experiment_of(who, sigma, population, rounds, seed), seed)
    federation = federation_in_process(plan, workload, None)
    batch = who.client_rate * who.sample_rate * float(workload.sample_counts.sum())
    yes = np.zeros(2, np.int64)

    async def run() -> None:
        before = workload.initial_model().astype(np.float64)
        for done in range(1, rounds + 1):
            after = (await federation.run_next_round()).model.astype(np.float64)
            seen = (before - after) * (batch / sigma)
            before = after
            found = seen[1::2] > threshold(seen[::2])
            yes[:] += (found[::2].sum(), found[1::2].sum())
            progress(done)

    asyncio.run(run())
    return Advantage(population // 2 * rounds, int(yes[0]), int(yes[1]), epsilon)
