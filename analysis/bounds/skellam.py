"""What the Skellam mechanism costs in privacy: Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private
Federated Learning, NeurIPS 2021, arXiv 2110.04995, Theorem 3.5 and section 4.

Each of s participants scales its clipped update to integer steps, rounds it at random, and adds Skellam noise; SecAgg
shows the sum only. Skellam noise adds up, so the sum carries the noise of everybody who added some: when k of s add
none, (s - k)/s of the variance is left. Renyi divergences of a round add up over rounds; dp_accounting converts.
"""

from dataclasses import dataclass
from math import exp, inf, log, log1p, sqrt

import numpy as np
import numpy.typing as npt
from dp_accounting.rdp import compute_epsilon
from scipy.special import gammaln, logsumexp

# The theorem holds for integer orders. The published implementations end with 128 and 256; more orders only tighten.
ORDERS: tuple[int, ...] = (*range(2, 257), 288, 320, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 4096)

_WITHOUT_GAP = 256
# What a mechanism may be made of: within it the variance and its square are normal doubles, whatever share is left.
_RANGES = {"noise_multiplier": (1e-9, 1e9), "dimension": (1, 10**12), "scale": (1e-9, 1e18)}

Divergences = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Skellam:
    """The mechanism for updates of one clipping norm, whatever that is.

    Attributes:
        noise_multiplier: standard deviation of the noise in the sum when everybody adds theirs, over the clipping norm;
            from 1e-9 to 1e9.
        dimension: d, the coordinates of an update, padded to a power of two for the rotation; from 1 to 1e12.
        scale: the clipping norm in integer steps, from 1e-9 to 1e18. Coarser steps (fewer bits) cost privacy: rounding
            makes updates longer, and Skellam noise of small variance is further from Gaussian.
        bias: the paper's beta, how much conditional rounding may favour short vectors; 0 rounds unconditionally.
    """

    noise_multiplier: float
    dimension: int
    scale: float = 2.0**15
    bias: float = exp(-0.5)

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

        Kairouz, Liu, Steinke 2021, arXiv 2102.06387, Theorem 1. Integer vectors have an L1 norm of at most their
        squared L2 norm.
        """
        root = sqrt(self.dimension)
        l2 = self.scale + root
        if self.bias > 0:
            slack = sqrt(2 * log(1 / self.bias)) * (self.scale + root / 2)
            l2 = min(l2, sqrt(self.scale**2 + self.dimension / 4 + slack))
        return l2 * min(root, l2), l2

    def divergences(self, share: float = 1.0, sampling: float = 1.0) -> Divergences:
        """The Renyi divergence of one round, at most, for each of `ORDERS`.

        Args:
            share: part of the variance that is really in the sum; 0 gives infinite divergences.
            sampling: chance of a client to be in the round; below 1 counts only against observers who cannot see who
                takes part (`amplified`).
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share: {share}; must be from 0 to 1")
        if share == 0:
            return np.full(len(ORDERS), inf)
        l1, l2 = self.sensitivities
        variance = share * (self.noise_multiplier * self.scale) ** 2
        orders = np.array(ORDERS, np.float64)
        beyond_gaussian = np.minimum(((2 * orders - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        whole = orders * l2**2 / (2 * variance) + beyond_gaussian
        return whole if sampling == 1 else amplified(whole, sampling)

    def epsilon(self, rounds: int, delta: float, share: float = 1.0, sampling: float = 1.0) -> float:
        """The epsilon of so many rounds at `delta`; inf where there is no noise at all."""
        return epsilon(self.divergences(share, sampling), rounds, delta)


def epsilon(divergences: Divergences, rounds: int, delta: float) -> float:
    """The epsilon of `rounds` rounds of these Renyi divergences at `delta`; 0 of no rounds."""
    if rounds == 0:
        return 0.0
    return float(compute_epsilon(ORDERS, rounds * divergences, delta)[0])


def amplified(divergences: Divergences, sampling: float) -> Divergences:
    """What is left of the divergences when a client takes part with probability `sampling`, unseen.

    Zhu and Wang, Poisson Subsampled Renyi Differential Privacy, ICML 2019, Theorem 6 (for any mechanism): a sum over
    how often the client is taken, here in logarithms. It needs all orders from 2 up to the one in question; those
    beyond the first gap in `ORDERS` keep their divergence.
    """
    if not 0 < sampling < 1:
        raise ValueError(f"sampling: {sampling}; must be above 0 and below 1")
    if not np.isfinite(divergences).all():
        return divergences
    orders, taken = np.arange(2, _WITHOUT_GAP + 1)[:, None], np.arange(2, _WITHOUT_GAP + 1)
    ways = gammaln(orders + 1) - gammaln(taken + 1) - gammaln(orders - taken + 1)  # -inf for more than there are
    chances = taken * log(sampling) + (orders - taken) * log1p(-sampling)
    terms = ways + chances + (taken - 1) * divergences[: len(taken)] + np.where(taken > 2, log(3), 0.0)
    never_or_once = (taken - 1) * log1p(-sampling) + np.log1p((taken - 1) * sampling)
    found = np.logaddexp(never_or_once, logsumexp(terms, axis=1)) / (taken - 1)
    return np.append(np.minimum(divergences[: len(taken)], found), divergences[len(taken) :])
