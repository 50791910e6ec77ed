"""The six schemes of Multi-RoundSecAgg's section 6, simulated: who takes part in each round, and the metrics of that.

So et al., Securing Secure Aggregation, arXiv 2106.03328: N = 120, K = 12, each user's dropout probability p_i from
{0.1, ..., 0.5}. The paper does not say how p_i is drawn: here uniformly, anew for each seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.multi_round import OverRounds, over_rounds
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.multi_round_secagg.published import PARTICIPANTS, PARTITION, POPULATION, RANDOM, WEIGHTED
from analysis.statistics import Interval, mean_interval
from testbed.selection.batch_partition import BatchPartitionParameters, PartitionParameters
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomParameters, WeightedRandomParameters

SEED_TIME_S = 20.0
"""For the searches for T of one scheme and seed; what is not settled then has its bound."""

SCHEMES: Mapping[str, SelectionParameters] = {
    RANDOM: RandomParameters(participants=PARTICIPANTS),
    WEIGHTED: WeightedRandomParameters(participants=PARTICIPANTS),
    PARTITION: PartitionParameters(participants=PARTICIPANTS),
    **{
        f"batch-partition, T = {privacy}": BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy)
        for privacy in (6, 4, 3)
    },
}
PRIVACY = {RANDOM: 1, WEIGHTED: 1, PARTITION: 12} | {
    f"batch-partition, T = {privacy}": privacy for privacy in (6, 4, 3)
}
"""The T that each keeps for ever."""

REMARK_DROPOUTS = (
    "The paper draws each user's dropout probability from {0.1, 0.2, 0.3, 0.4, 0.5} and does not say how: here "
    "uniformly, anew for each seed. Selection is the federation's own code, without training."
)


@dataclass(frozen=True)
class SimulationScale:
    """How much is simulated."""

    rounds: int
    seeds: int


SCALES: dict[str, SimulationScale] = {"small": SimulationScale(1500, 5), "paper": SimulationScale(1500, 20)}


def measured(scale: SimulationScale, note: Callable[[str], None]) -> dict[str, list[OverRounds]]:
    """The metrics over the rounds of each scheme, one for each seed."""
    found: dict[str, list[OverRounds]] = {name: [] for name in SCHEMES}
    for seed in range(1, scale.seeds + 1):
        note(f"seed {seed} of {scale.seeds}: {scale.rounds} rounds of {len(SCHEMES)} schemes")
        unavailable = dropout_probabilities(POPULATION, seed)
        for name, parameters in SCHEMES.items():
            found[name].append(over_rounds(simulate(parameters, unavailable, scale.rounds, seed), SEED_TIME_S))
    return found


def last(metrics: list[OverRounds], attribute: str) -> npt.NDArray[np.float64]:
    """`(seeds,)` the metric after the last round."""
    return np.array([getattr(one, attribute)[-1] for one in metrics], np.float64)


def first_round_with_one(metrics: OverRounds) -> float:
    """The round (from 1) after which T is 1; NaN if there is none."""
    ones = np.flatnonzero(metrics.weak == 1)
    return float(ones[0] + 1) if len(ones) else float("nan")


def shown(interval: Interval, digits: int = 3) -> str:
    """A mean and its half-width as text."""
    if interval.mean is None:
        return "–"
    half = "" if not interval.half_width else f" ± {interval.half_width:.{max(1, digits - 1)}g}"
    return f"{interval.mean:.{digits}g}{half}"


def over_seeds(values: npt.NDArray[np.float64], digits: int = 3) -> str:
    """The mean over the seeds with its 95% interval, as text."""
    return shown(mean_interval(values), digits)
