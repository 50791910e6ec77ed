"""The client side of canaries (`testbed.privacy.canaries`): a client that sends a known vector as its update."""

from collections.abc import Set
from dataclasses import replace

import numpy as np

from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.experiment.schema import Experiment
from testbed.parties.client import RoleSpec
from testbed.privacy.canaries import CanarySection, canary, is_inserted
from testbed.randomness import Randomness
from testbed.training import Train, Trainer
from testbed.workload.contract import LocalUpdate, Workload


class CanaryTrainer(Trainer):
    """A client that trains like all others, with the same duration and report, but sends its canary, or zeros.

    Attributes:
        parameters: L2 norm of a canary.
    """

    parameters: float

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """See `Trainer.learn`."""
        # Real training first: its duration and report must not tell canaries apart.
        update, randomness, client = super().learn(workload, message), self.environment.randomness, self.client.number
        if is_inserted(randomness, client):
            return replace(update, delta=canary(randomness, client, len(update.delta), self.parameters))
        return replace(update, delta=np.zeros(len(update.delta), np.float32))


def canary_norm(section: CanarySection, aggregation: AggregationParameters) -> float:
    """Return the L2 norm of a canary.

    Args:
        section: the experiment's canaries.
        aggregation: parameters of the aggregation.
    """
    noise = noise_of(aggregation)
    return section.norm or (1.0 if noise is None else noise.clip)


def canary_section(experiment: Experiment) -> CanarySection | None:
    """Return the experiment's canaries; None if it has none."""
    return None if experiment.privacy is None else experiment.privacy.canaries


def canary_roles(experiment: Experiment, dishonest: Set[int], randomness: Randomness) -> list[RoleSpec]:
    """Return the roles that canaries play instead of `Trainer`; empty if the experiment has none.

    Args:
        experiment: one point.
        dishonest: numbers of the dishonest clients.
        randomness: the experiment's randomness.
    """
    section = canary_section(experiment)
    if section is None:
        return []
    clients = section.draw(experiment.population, dishonest, randomness)
    return [RoleSpec(CanaryTrainer, canary_norm(section, experiment.aggregation), frozenset(clients.tolist()))]
