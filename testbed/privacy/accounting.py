"""What integer noise costs in privacy: Rényi divergences of the Skellam and the discrete Gaussian mechanism.

Divergences of rounds add up (Mironov 2017, arXiv 1702.07476); dp_accounting converts the sum (Canonne, Kamath, Steinke
2020, arXiv 2004.00010). In both mechanisms each of s participants clips its update, scales it to integer steps, rounds
it at random and adds its share of the noise; SecAgg shows the sum only.

Skellam: Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private Federated Learning, NeurIPS 2021, arXiv
2110.04995, Theorem 3.5 and section 4. Skellam noise adds up, so the sum carries the noise of everybody who added some:
when k of s add none, (s - k)/s of the variance is left.

Discrete Gaussian: Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation, ICML 2021, arXiv 2102.06387, Theorem 1 and Proposition 14. A sum of discrete Gaussians is not one, but
nearly: tau bounds what that adds to the privacy loss of a coordinate, and vanishes quickly as the variance of one share
grows. With fewer shares than planned both the variance and tau are those of the shares that are left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, inf, log, log1p, pi, sqrt
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

# What is proven for Skellam noise holds for integer orders. The published implementations end with 128 and 256; more
# orders only tighten.
ORDERS: tuple[int, ...] = (*range(2, 257), 288, 320, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 4096)
REAL_ORDERS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100) if tenth % 10), *map(float, ORDERS))
"""For what is proven for all orders above 1; those near 1 count where there is little noise."""

_WITHOUT_GAP = 256

Divergences = npt.NDArray[np.float64]


def epsilon(divergences: Divergences, rounds: int, delta: float, orders: Sequence[float] = ORDERS) -> float:
    """The epsilon of `rounds` rounds of these Rényi divergences at `delta`; 0 of no rounds."""
    from dp_accounting.rdp import compute_epsilon  # slow to import

    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta}; must be above 0 and below 1")
    if rounds == 0:
        return 0.0
    return float(compute_epsilon(orders, rounds * divergences, delta)[0])


def amplified(divergences: Divergences, sampling: float) -> Divergences:
    """What is left of the divergences when a client takes part with probability `sampling`, unseen.

    Zhu and Wang, Poisson Subsampled Renyi Differential Privacy, ICML 2019, Theorem 6 (for any mechanism): a sum over
    how often the client is taken, here in logarithms. It needs all orders from 2 up to the one in question; those
    beyond the first gap in `ORDERS` keep their divergence.
    """
    from scipy.special import gammaln, logsumexp  # slow to import

    if not 0 < sampling < 1:
        raise ValueError(f"sampling: {sampling}; must be above 0 and below 1")
    if not np.isfinite(divergences).all():
        return divergences
    orders, taken = np.arange(2, _WITHOUT_GAP + 1)[:, None], np.arange(2, _WITHOUT_GAP + 1)
    ways = gammaln(orders + 1) - gammaln(taken + 1) - gammaln(orders - taken + 1)  # -inf for more than there are
    chances = taken * log(sampling) + (orders - taken) * log1p(-sampling)
    terms = ways + chances + (taken - 1) * divergences[: len(taken)] + np.where(taken > 2, log(3), 0.0)
    never_or_once = (taken - 1) * log1p(-sampling) + np.log1p((taken - 1) * sampling)
    amplified_divergences = np.logaddexp(never_or_once, logsumexp(terms, axis=1)) / (taken - 1)
    return np.append(np.minimum(divergences[: len(taken)], amplified_divergences), divergences[len(taken) :])


# What a mechanism may be made of: within it the variance and its square are normal doubles, whatever share is left.
_RANGES = {"noise_multiplier": (1e-9, 1e9), "dimension": (1, 10**12), "scale": (1e-9, 1e18)}


def squared_norm_bound(scale: float, length: int, bias: float) -> float:
    """The squared L2 norm, in steps, that a rounded update of norm at most `scale` and `length` coordinates may have.

    With `bias` (beta) above 0, a rounding is within it with a probability of at least 1 - beta; for 0, always. Clients
    round until it holds (`encoding`), and the accounting counts on it: Kairouz, Liu, Steinke 2021, arXiv 2102.06387,
    Theorem 1.
    """
    root = sqrt(length)
    always = (scale + root) ** 2
    if bias == 0:
        return always
    return min(always, scale**2 + length / 4 + sqrt(2 * log(1 / bias)) * (scale + root / 2))


@dataclass(frozen=True)
class RoundedMechanism:
    """Integer noise on integer vectors, for updates of one clipping norm, whatever that is.

    Neighbours differ in one client, whose update is there or is 0.

    Attributes:
        noise_multiplier: standard deviation of the noise in the sum when everybody adds theirs, over the clipping norm;
            from 1e-9 to 1e9.
        dimension: d, the coordinates of an update, padded to a power of two for the rotation; from 1 to 1e12.
        scale: the clipping norm in integer steps, from 1e-9 to 1e18. Coarser steps (fewer bits) cost privacy: rounding
            makes updates longer, and integer noise of small variance is further from Gaussian.
        bias: the papers' beta, how much conditional rounding may favour short vectors; 0 rounds unconditionally.
        name: of the mechanism, as experiments write it.
        orders: of its divergences.
    """

    noise_multiplier: float
    dimension: int
    scale: float = 2.0**15
    bias: float = exp(-0.5)
    name: ClassVar[str]
    orders: ClassVar[Sequence[float]] = ORDERS

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: {value}; must be a number from {least:g} to {most:g}")
        if not 0 <= self.bias < 1:
            raise ValueError(f"bias: {self.bias}; must be at least 0 and below 1")

    @property
    def sensitivities(self) -> tuple[float, float]:
        """How long a rounded update can be, in steps: its L1 norm and its L2 norm.

        Integer vectors have an L1 norm of at most their squared L2 norm.
        """
        l2 = sqrt(squared_norm_bound(self.scale, self.dimension, self.bias))
        return l2 * min(sqrt(self.dimension), l2), l2

    def variance(self, share: float) -> float:
        """Of the noise in a coordinate of the sum, in squared steps, when this share of what was planned is there."""
        if not 0 <= share <= 1:
            raise ValueError(f"share: {share}; must be from 0 to 1")
        return share * (self.noise_multiplier * self.scale) ** 2

    def divergences(self, share: float = 1.0) -> Divergences:
        """The Rényi divergence of one round with this share of the planned variance, at most, for each order."""
        raise NotImplementedError


class Skellam(RoundedMechanism):
    """Skellam noise, which adds up: the number of participants makes no difference."""

    name: ClassVar[str] = "skellam"

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


LEAST_DEVIATION = 0.5
"""Of one participant's noise, in steps: below it nothing is proven about sums of discrete Gaussians."""


@dataclass(frozen=True)
class DiscreteGaussian(RoundedMechanism):
    """A sum of discrete Gaussians.

    Attributes:
        participants: s, each of which adds noise of a variance of 1/s of the sum's.
    """

    participants: int = 1
    name: ClassVar[str] = "discrete-gaussian"
    orders: ClassVar[Sequence[float]] = REAL_ORDERS

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


@lru_cache(maxsize=1024)
def distance(parts: int, variance: float) -> float:
    """tau: what a sum of so many discrete Gaussians may add to the privacy loss of a coordinate (Theorem 1).

    Args:
        parts: n, how many there are; 0 for 1, which is a discrete Gaussian.
        variance: of each, in squared steps.
    """
    k = np.arange(1, parts)
    return 10 * float(np.exp(-2 * pi**2 * variance * k / (k + 1)).sum()) if parts > 1 else 0.0


@dataclass(frozen=True)
class RoundedAccountant:
    """The `testbed.privacy.noise_plan.Accountant` of integer noise.

    Attributes:
        of_round: the mechanism of one round.
    """

    of_round: RoundedMechanism
    unit: ClassVar[Literal["client", "sample"]] = "client"

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return self.of_round.name

    @property
    def noise_multiplier(self) -> float:
        """The mechanism's."""
        return self.of_round.noise_multiplier

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """The epsilon at `delta` of a client that was in these rounds (`Accountant.epsilon`)."""
        orders = self.of_round.orders
        total = np.zeros(len(orders))
        for share, count in rounds.items():
            if count:
                total += count * self.of_round.divergences(share)
        return epsilon(total, int(any(rounds.values())), delta, orders)
