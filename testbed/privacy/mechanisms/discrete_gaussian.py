"""What the distributed discrete Gaussian costs in privacy: Kairouz, Liu, Steinke, The Distributed Discrete Gaussian
Mechanism for Federated Learning with Secure Aggregation, ICML 2021, arXiv 2102.06387, Theorem 1 and Proposition 14.

Each of s participants adds discrete Gaussian noise. Their sum is not a discrete Gaussian, but nearly: tau bounds what
that adds to the privacy loss of a coordinate, and vanishes quickly as the variance of one share grows. With fewer
shares than planned both the variance and tau are those of the shares that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, inf, pi, sqrt
from typing import ClassVar

import numpy as np

from testbed.privacy.accounting.renyi import REAL_ORDERS, Divergences
from testbed.privacy.mechanisms.rounded import RoundedAccountant, RoundedMechanism

LEAST_DEVIATION = 0.5
"""Of one participant's noise, in steps: below it nothing is proven about sums of discrete Gaussians."""


@dataclass(frozen=True)
class DiscreteGaussian(RoundedMechanism):
    """The mechanism.

    Attributes:
        participants: s, each of which adds noise of a variance of 1/s of the sum's.
    """

    participants: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.participants < 1:
            raise ValueError(f"participants: {self.participants}; must be at least 1")

    def concentration(self, share: float = 1.0) -> float:
        """rho of zero-concentrated differential privacy of one round; inf without noise, or with too little (below).

        Theorem 1 needs a standard deviation of `LEAST_DEVIATION` in each participant's noise.

        A share that is no whole number of participants' noise counts as its variance in so many parts as make it up.
        """
        variance = self.variance(share)
        parts = ceil(share * self.participants - 1e-9)
        of_one = self.variance(1.0) / self.participants
        if variance == 0 or (parts > 1 and of_one < LEAST_DEVIATION**2):
            return inf
        tau, (_, l2) = distance(parts, of_one), self.sensitivities
        in_deviations = l2 / sqrt(variance)
        loss = min(
            sqrt(in_deviations**2 + tau * self.dimension / 2),
            in_deviations + tau * sqrt(self.dimension),
        )
        return loss**2 / 2

    def divergences(self, share: float = 1.0) -> Divergences:
        """The Rényi divergence of one round, at most, for each of `REAL_ORDERS`."""
        return np.array(REAL_ORDERS) * self.concentration(share)


class DiscreteGaussianAccountant(RoundedAccountant):
    """Of `DiscreteGaussian`."""

    mechanism: ClassVar[str] = "discrete-gaussian"
    orders: ClassVar[Sequence[float]] = REAL_ORDERS

    @cached_property
    def of_round(self) -> DiscreteGaussian:
        """The mechanism of one round."""
        return DiscreteGaussian(self.noise_multiplier, self.dimension, self.scale, self.bias, self.participants)


@lru_cache(maxsize=1024)
def distance(parts: int, variance: float) -> float:
    """tau: what a sum of so many discrete Gaussians may add to the privacy loss of a coordinate (Theorem 1).

    Args:
        parts: n, how many there are; 0 for 1, which is a discrete Gaussian.
        variance: of each, in squared steps.
    """
    k = np.arange(1, parts)
    return 10 * float(np.exp(-2 * pi**2 * variance * k / (k + 1)).sum()) if parts > 1 else 0.0
