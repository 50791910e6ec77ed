"""Privacy cost of integer noise: Rényi divergences of the Skellam and the discrete Gaussian mechanism.

Divergences of rounds add up (Mironov 2017, arXiv 1702.07476); dp_accounting converts the sum to epsilon (Canonne,
Kamath, Steinke 2020, arXiv 2004.00010). In both mechanisms each of s participants clips its update, scales it to
integer steps, rounds it at random and adds its share of the noise. SecAgg reveals only the sum.

Skellam: Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private Federated Learning, NeurIPS 2021, arXiv
2110.04995, Theorem 3.5 and section 4. A sum of Skellam variables is a Skellam variable with the summed variance. If k
of s participants add no noise, (s - k)/s of the variance is left.

Discrete Gaussian: Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation, ICML 2021, arXiv 2102.06387, Theorem 1 and Proposition 14. A sum of discrete Gaussians is only nearly a
discrete Gaussian. tau bounds the additional privacy loss of a coordinate and vanishes quickly as the variance of one
share grows. With fewer shares than planned, the variance and tau are those of the remaining shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, inf, log, log1p, pi, sqrt
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

# Theorem 3.5 on Skellam noise holds for integer orders. The published implementations end with 128 and 256; more orders
# only tighten the bound.
ORDERS: tuple[int, ...] = (*range(2, 257), 288, 320, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 4096)
REAL_ORDERS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100) if tenth % 10), *map(float, ORDERS))
"""Orders for results that hold for all orders above 1; orders near 1 matter where there is little noise."""

_WITHOUT_GAP = 256  # `ORDERS` has all integers from 2 up to here

Divergences = npt.NDArray[np.float64]


def epsilon(divergences: Divergences, rounds: int, delta: float, orders: Sequence[float] = ORDERS) -> float:
    """Return the epsilon of several rounds with equal Rényi divergences.

    Args:
        divergences: `(m,)` Rényi divergence of one round at each order.
        rounds: number of composed rounds; 0 gives an epsilon of 0.
        delta: in (0, 1).
        orders: the m orders of `divergences`.

    Raises:
        ValueError: if delta is out of range.

    Source:
        Canonne, Kamath, Steinke 2020, arXiv 2004.00010 (conversion to epsilon).

    Example:
        >>> gaussian = np.array(ORDERS) / 2  # sensitivity 1, noise of deviation 1
        >>> round(epsilon(gaussian, rounds=10, delta=1e-5), 2)
        19.8
    """
    from dp_accounting.rdp import compute_epsilon  # slow to import

    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta}; must be above 0 and below 1")
    if rounds == 0:
        return 0.0
    return float(compute_epsilon(orders, rounds * divergences, delta)[0])


def amplified(divergences: Divergences, sampling: float) -> Divergences:
    """Return the divergences of a mechanism that a client joins with probability `sampling`, unseen by the observer.

    Args:
        divergences: `(len(ORDERS),)` Rényi divergence of the mechanism without sampling, at each of `ORDERS`.
        sampling: probability that the client takes part, in (0, 1).

    Raises:
        ValueError: if `sampling` is out of range.

    Source:
        Zhu and Wang, Poisson Subsampled Renyi Differential Privacy, ICML 2019, Theorem 6 (for any mechanism): a sum
        over the number of times that the client is sampled, here in logarithms. The sum needs all orders from 2 up to
        the order in question, so orders beyond the first gap in `ORDERS` keep their divergence.

    Example:
        >>> gaussian = np.array(ORDERS) / 2
        >>> round(epsilon(amplified(gaussian, sampling=0.01), rounds=10, delta=1e-5), 2)
        1.09
    """
    from scipy.special import gammaln, logsumexp  # slow to import

    if not 0 < sampling < 1:
        raise ValueError(f"sampling: {sampling}; must be above 0 and below 1")
    if not np.isfinite(divergences).all():
        return divergences
    orders, taken = np.arange(2, _WITHOUT_GAP + 1)[:, None], np.arange(2, _WITHOUT_GAP + 1)
    ways = gammaln(orders + 1) - gammaln(taken + 1) - gammaln(orders - taken + 1)  # -inf for more than there are
    chances = taken * log(sampling) + (orders - taken) * log1p(-sampling)
    # Factor 3 from the third term on (Theorem 6).
    terms = ways + chances + (taken - 1) * divergences[: len(taken)] + np.where(taken > 2, log(3), 0.0)
    never_or_once = (taken - 1) * log1p(-sampling) + np.log1p((taken - 1) * sampling)
    amplified_divergences = np.logaddexp(never_or_once, logsumexp(terms, axis=1)) / (taken - 1)
    # Sampling never costs more, but the bound may be loose.
    return np.append(np.minimum(divergences[: len(taken)], amplified_divergences), divergences[len(taken) :])


# Allowed parameters: within these ranges the variance and its square are normal doubles for every share of the noise.
_RANGES = {"noise_multiplier": (1e-9, 1e9), "dimension": (1, 10**12), "scale": (1e-9, 1e18)}


def squared_norm_bound(scale: float, length: int, bias: float) -> float:
    """Return the bound on the squared L2 norm, in squared steps, of a rounded update.

    Clients round again until the bound holds (`encoding`), and the accounting relies on it.

    Args:
        scale: the clipping norm in integer steps.
        length: number of coordinates of the rotated update.
        bias: beta, in [0, 1). Above 0, a rounding meets the bound with a probability of at least 1 - beta; with 0 the
            bound holds always.

    Returns:
        The bound for an update of norm at most `scale`.

    Source:
        Kairouz, Liu, Steinke 2021, arXiv 2102.06387, Theorem 1.

    Example:
        >>> squared_norm_bound(scale=10.0, length=4, bias=0.0)
        144.0
    """
    root = sqrt(length)
    always = (scale + root) ** 2
    if bias == 0:
        return always
    return min(always, scale**2 + length / 4 + sqrt(2 * log(1 / bias)) * (scale + root / 2))


@dataclass(frozen=True)
class RoundedMechanism:
    """Integer noise on integer vectors, for updates of any clipping norm.

    Neighbours differ in one client, whose update is present or is 0.

    Attributes:
        noise_multiplier: standard deviation of the noise in the sum over the clipping norm, if all participants add
            their shares; from 1e-9 to 1e9.
        dimension: d, the coordinates of an update, padded to a power of two for the rotation; from 1 to 1e12.
        scale: the clipping norm in integer steps, from 1e-9 to 1e18. Coarser steps (fewer bits) cost privacy: rounding
            makes updates longer, and integer noise of small variance is further from Gaussian.
        bias: the papers' beta, the bias of conditional rounding towards short vectors; 0 rounds unconditionally.
        name: name of the mechanism in experiments.
        orders: orders of the divergences.
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
        """Largest L1 norm and largest L2 norm of a rounded update, in steps."""
        l2 = sqrt(squared_norm_bound(self.scale, self.dimension, self.bias))
        # An integer vector has an L1 norm of at most its squared L2 norm.
        return l2 * min(sqrt(self.dimension), l2), l2

    def variance(self, share: float) -> float:
        """Return the variance of the noise in a coordinate of the sum, in squared steps.

        Args:
            share: fraction of the planned variance that is in the sum, in [0, 1].
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share: {share}; must be from 0 to 1")
        return share * (self.noise_multiplier * self.scale) ** 2

    def divergences(self, share: float = 1.0) -> Divergences:
        """Return an upper bound on the Rényi divergence of one round, `(len(orders),)`.

        Args:
            share: fraction of the planned variance that is in the sum, in [0, 1].
        """
        raise NotImplementedError


class Skellam(RoundedMechanism):
    """Skellam noise: variances add up, so the number of participants makes no difference.

    Example:
        >>> mechanism = Skellam(noise_multiplier=1.0, dimension=1000)
        >>> round(mechanism.epsilon(rounds=1, delta=1e-5), 2)  # 4.38 for a Gaussian
        4.75
    """

    name: ClassVar[str] = "skellam"

    def divergences(self, share: float = 1.0, sampling: float = 1.0) -> Divergences:
        """Return an upper bound on the Rényi divergence of one round, for each of `ORDERS`.

        Args:
            share: fraction of the planned variance that is in the sum; 0 gives infinite divergences.
            sampling: probability that a client is in the round. A value below 1 is valid only against observers that
                cannot see the participants (`amplified`).
        """
        variance = self.variance(share)
        if variance == 0:
            return np.full(len(ORDERS), inf)
        l1, l2 = self.sensitivities
        orders = np.array(ORDERS, np.float64)
        # Theorem 3.5: beyond the Gaussian's divergence, a term that vanishes as the variance grows.
        beyond_gaussian = np.minimum(((2 * orders - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        whole = orders * l2**2 / (2 * variance) + beyond_gaussian
        return whole if sampling == 1 else amplified(whole, sampling)

    def epsilon(self, rounds: int, delta: float, share: float = 1.0, sampling: float = 1.0) -> float:
        """Return the epsilon of `rounds` rounds at `delta`; inf if there is no noise at all."""
        return epsilon(self.divergences(share, sampling), rounds, delta)


LEAST_DEVIATION = 0.5
"""Least standard deviation of one participant's noise, in steps: the theorem on sums does not cover less."""


@dataclass(frozen=True)
class DiscreteGaussian(RoundedMechanism):
    """A sum of discrete Gaussians.

    Attributes:
        participants: s; each adds noise with 1/s of the variance of the sum.

    Example:
        >>> mechanism = DiscreteGaussian(noise_multiplier=1.0, dimension=1000, participants=100)
        >>> round(mechanism.concentration(), 3)  # 1 / 2 for a Gaussian
        0.5
    """

    participants: int = 1
    name: ClassVar[str] = "discrete-gaussian"
    orders: ClassVar[Sequence[float]] = REAL_ORDERS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.participants < 1:
            raise ValueError(f"participants: {self.participants}; must be at least 1")

    def concentration(self, share: float = 1.0) -> float:
        """Return rho of zero-concentrated differential privacy of one round.

        A share that is no multiple of 1/s counts as its own variance, split over the next larger number of parts.

        Returns:
            rho; inf without noise, or if each participant's standard deviation is below `LEAST_DEVIATION`.

        Source:
            Kairouz, Liu, Steinke 2021, arXiv 2102.06387, Theorem 1.
        """
        variance = self.variance(share)
        # Rounding may put a multiple of 1/s just above an integer.
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
        """Return an upper bound on the Rényi divergence of one round, for each of `REAL_ORDERS`."""
        return np.array(REAL_ORDERS) * self.concentration(share)


@lru_cache(maxsize=1024)
def distance(parts: int, variance: float) -> float:
    """Return tau, a bound on the privacy loss per coordinate that a sum of discrete Gaussians adds to a Gaussian's.

    Args:
        parts: n, the number of discrete Gaussians; tau is 0 for a single one.
        variance: variance of each, in squared steps.

    Source:
        Kairouz, Liu, Steinke 2021, arXiv 2102.06387, Theorem 1.
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
        """Standard deviation of the noise in the sum over the clipping norm."""
        return self.of_round.noise_multiplier

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """Return the epsilon at `delta` of a client that was in these rounds (`Accountant.epsilon`)."""
        orders = self.of_round.orders
        total = np.zeros(len(orders))
        for share, count in rounds.items():
            if count:
                total += count * self.of_round.divergences(share)
        return epsilon(total, int(any(rounds.values())), delta, orders)
