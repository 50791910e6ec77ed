"""What the Skellam mechanism costs in privacy: Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private
Federated Learning, NeurIPS 2021, arXiv 2110.04995, Theorem 3.5 and section 4.

Each of s participants scales its clipped update to integer steps, rounds it at random, and adds Skellam noise; SecAgg
shows the sum only. Skellam noise adds up, so the sum carries the noise of everybody who added some: when k of s add
none, (s - k)/s of the variance is left. Renyi divergences of a round add up over rounds; dp_accounting converts.
"""

from functools import cached_property
from math import inf
from typing import ClassVar

import numpy as np

from testbed.privacy.accounting.renyi import ORDERS, Divergences, amplified, epsilon
from testbed.privacy.mechanisms.rounded import RoundedAccountant, RoundedMechanism


class Skellam(RoundedMechanism):
    """The mechanism."""

    def divergences(self, share: float = 1.0, sampling: float = 1.0) -> Divergences:
        """The Renyi divergence of one round, at most, for each of `ORDERS`.

        Args:
            share: part of the variance that is really in the sum; 0 gives infinite divergences.
            sampling: chance of a client to be in the round; below 1 counts only against observers who cannot see who
                takes part (`amplified`).
        """
        variance = self.variance(share)
        if variance == 0:
            return np.full(len(ORDERS), inf)
        l1, l2 = self.sensitivities
        orders = np.array(ORDERS, np.float64)
        beyond_gaussian = np.minimum(((2 * orders - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        whole = orders * l2**2 / (2 * variance) + beyond_gaussian
        return whole if sampling == 1 else amplified(whole, sampling)

    def epsilon(self, rounds: int, delta: float, share: float = 1.0, sampling: float = 1.0) -> float:
        """The epsilon of so many rounds at `delta`; inf where there is no noise at all."""
        return epsilon(self.divergences(share, sampling), rounds, delta)


class SkellamAccountant(RoundedAccountant):
    """Of `Skellam`; the number of participants makes no difference, since Skellam noise adds up."""

    mechanism: ClassVar[str] = "skellam"

    @cached_property
    def of_round(self) -> Skellam:
        """The mechanism of one round."""
        return Skellam(self.noise_multiplier, self.dimension, self.scale, self.bias)
