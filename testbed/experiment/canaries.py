"""What an experiment with canaries (`testbed.privacy.canaries`) goes without, and how long its canaries are."""

from testbed.adversary.section import AdversarySection
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import compression_of, noise_of
from testbed.privacy.canaries import CanarySection
from testbed.workload.section import WorkloadSection


def canary_norm(section: CanarySection, aggregation: AggregationParameters) -> float:
    """L2 norm of a canary."""
    noise = noise_of(aggregation)
    return section.norm or (1.0 if noise is None else noise.clip)


def check_canaries(
    section: CanarySection | None,
    population: int,
    adversary: AdversarySection | None,
    aggregation: AggregationParameters,
    workload: WorkloadSection,
) -> None:
    """Raise `ValueError` (one line) where there are not so many honest clients, or canaries are no whole updates."""
    if section is None:
        return
    section.check(population, population - (0 if adversary is None else adversary.number_of(population)))
    samples = f"aggregation.protocol: {aggregation.protocol}, which protects samples"
    others = {
        samples: aggregation.protects_samples,
        "aggregation.compression": compression_of(aggregation) is not None,
        "workload.drift_correction": workload.drift_correction is not None,
        "workload.local_layers": workload.local_layers is not None,
    }
    if found := [what for what, there in others.items() if there]:
        raise ValueError(f"canaries: not with {found[0]}; leave one of the two out")
