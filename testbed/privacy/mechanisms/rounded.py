"""What the mechanisms have in common whose updates are clipped, scaled to integer steps and rounded at random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from typing import ClassVar, Literal

from testbed.privacy.accounting.renyi import ORDERS, Divergences, epsilon_of_rounds

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


@dataclass(frozen=True)
class RoundedAccountant:
    """`testbed.privacy.accounting.accountant.Accountant` of such a mechanism.

    Attributes:
        noise_multiplier, dimension, scale, bias: of the mechanism (`RoundedMechanism`).
        participants: s, among whom the noise is shared.
        orders: of the mechanism's divergences.
    """

    noise_multiplier: float
    dimension: int
    scale: float
    bias: float
    participants: int
    unit: ClassVar[Literal["client", "sample"]] = "client"
    mechanism: ClassVar[str]
    orders: ClassVar[Sequence[float]] = ORDERS

    def __post_init__(self) -> None:
        _ = self.of_round

    @cached_property
    def of_round(self) -> RoundedMechanism:
        """The mechanism of one round."""
        raise NotImplementedError

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """The epsilon of a client that was in these rounds (`Accountant.epsilon`)."""
        return epsilon_of_rounds(self.of_round.divergences, rounds, delta, self.orders)
