"""The client side of canaries (`testbed.privacy.canaries`): a client that sends a known vector for what it learns."""

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
    """Trains as all do, so that it takes as long and says as much; what it then sends is its canary, or zeros.

    Attributes:
        parameters: L2 norm of a canary.
    """

    parameters: float

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """See `Trainer.learn`."""
        update, randomness, client = super().learn(workload, message), self.environment.randomness, self.client.number
        if is_inserted(randomness, client):
            return replace(update, delta=canary(randomness, client, len(update.delta), self.parameters))
        return replace(update, delta=np.zeros(len(update.delta), np.float32))


def canary_norm(section: CanarySection, aggregation: AggregationParameters) -> float:
    """Return the L2 norm of a canary."""
    noise = noise_of(aggregation)
    return section.norm or (1.0 if noise is None else noise.clip)


def canary_section(experiment: Experiment) -> CanarySection | None:
    """The experiment's canaries; None: it has none."""
    return None if experiment.privacy is None else experiment.privacy.canaries


def canary_roles(experiment: Experiment, dishonest: Set[int], randomness: Randomness) -> list[RoleSpec]:
    """What canaries play instead of `Trainer`; empty where the experiment has none."""
    section = canary_section(experiment)
    if section is None:
        return []
    clients = section.drawn(experiment.population, dishonest, randomness)
    return [RoleSpec(CanaryTrainer, canary_norm(section, experiment.aggregation), frozenset(clients.tolist()))]
