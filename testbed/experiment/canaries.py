"""The number and the length of an experiment's canaries (`testbed.privacy.canaries`)."""

from testbed.adversary.section import AdversarySection
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.privacy.canaries import CanarySection


def canary_norm(section: CanarySection, aggregation: AggregationParameters) -> float:
    """L2 norm of a canary."""
    noise = noise_of(aggregation)
    return section.norm or (1.0 if noise is None else noise.clip)


def check_canaries(
    section: CanarySection | None,
    population: int,
    adversary: AdversarySection | None,
) -> None:
    """Raise `ValueError` (one line) where there are not so many honest clients."""
    if section is not None:
        section.check(population, population - (0 if adversary is None else adversary.number_of(population)))
