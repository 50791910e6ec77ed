"""What an experiment with canaries (`testbed.privacy.canaries`) goes without, and how long its canaries are."""

from typing import TYPE_CHECKING

from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.aggregation.ring_elements import compression_of, noise_of
from testbed.privacy.canaries import CanarySection

if TYPE_CHECKING:
    from testbed.experiment.schema import Experiment


def canary_section(experiment: "Experiment") -> CanarySection | None:
    """The section; None: nobody is a canary."""
    return None if experiment.privacy is None else experiment.privacy.canaries


def canary_norm(experiment: "Experiment") -> float:
    """L2 norm of a canary."""
    section = canary_section(experiment)
    if section is not None and section.norm is not None:
        return section.norm
    noise = noise_of(experiment.aggregation)
    return 1.0 if noise is None else noise.clip


def check_canaries(experiment: "Experiment") -> None:
    """Raise `ValueError` (one line) where what canaries send would not count as whole updates do."""
    section = canary_section(experiment)
    if section is None:
        return
    adversary, population = experiment.adversary, experiment.population
    section.check(population, 0 if adversary is None else adversary.number_of(population))
    others = {
        f"aggregation.protocol: {experiment.aggregation.protocol}, which protects samples": isinstance(
            experiment.aggregation, RandomParticipationParameters
        ),
        "asynchronous, whose updates count less the older they are": experiment.asynchronous is not None,
        "aggregation.compression": compression_of(experiment.aggregation) is not None,
        "workload.drift_correction": experiment.workload.drift_correction is not None,
        "workload.local_layers": experiment.workload.local_layers is not None,
    }
    if found := [what for what, there in others.items() if there]:
        raise ValueError(f"canaries: not with {found[0]}; leave one of the two out")
