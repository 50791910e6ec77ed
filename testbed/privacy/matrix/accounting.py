"""Privacy cost of correlated noise: one Gaussian mechanism that releases C x + z; the rest is post-processing.

Its epsilon depends on mu alone, the norm of a client's change of C x over the standard deviation of z: delta(epsilon)
is Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), exactly (Balle, Wang, Improving the Gaussian Mechanism
for Differential Privacy, ICML 2018, arXiv 1805.06530, Theorem 8). It makes no difference that the server adds z only as
rounds come, and that clients learn from earlier releases (Denisov et al., arXiv 2202.08312, Theorem 2.1).

Neighbours differ in one client, whose updates are present or are 0 in every round. The participants of each round are
taken to be known, and not to depend on the data: there is no amplification by sampling.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, log, sqrt
from typing import ClassVar, Literal

import numpy as np

from testbed.arrays import Floats
from testbed.privacy.matrix.strategy import Strategy
from testbed.privacy.matrix.toeplitz import sensitivity

_HALVINGS = 60  # more than the 53 bits of a double


def gaussian_delta(epsilon: Floats, mu: Floats) -> Floats:
    """Return the least delta of the Gaussian mechanism.

    Args:
        epsilon: any shape.
        mu: of the same shape, above 0.

    Returns:
        The delta at each epsilon and mu.

    Source:
        Balle, Wang, arXiv 1805.06530, Theorem 8.

    Example:
        >>> gaussian_delta(np.array([0.0, 1.0]), np.array([1.0, 1.0])).round(4).tolist()  # 2 Phi(1/2) - 1 at epsilon 0
        [0.3829, 0.1269]
    """
    from scipy.special import log_ndtr  # slow to import

    above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    # exp(above) - exp(below), without cancellation.
    delta: Floats = -np.exp(above) * np.expm1(np.minimum(below - above, 0.0))
    return delta


def gaussian_epsilon(mu: Floats, delta: float) -> Floats:
    """Return epsilon of the Gaussian mechanism with each mu, never too small.

    Args:
        mu: `(m,)` at least 0; a mu of 0 gives 0, an infinite one inf.
        delta: in (0, 1).

    Returns:
        `(m,)` epsilon.

    Raises:
        ValueError: if delta is out of range.

    Example:
        >>> gaussian_epsilon(np.array([0.0, 1.0]), delta=1e-5).round(2).tolist()
        [0.0, 4.38]
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta}; must be above 0 and below 1")
    epsilons = np.zeros(len(mu))
    nonzero = (mu > 0) & np.isfinite(mu)
    epsilons[~np.isfinite(mu)] = inf
    own = mu[nonzero]
    # The upper end is always enough: the tail bound of the Gaussian mechanism.
    low, high = np.zeros(len(own)), own * own / 2 + own * sqrt(2 * log(1 / delta))
    enough = gaussian_delta(low, own) <= delta
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = gaussian_delta(middle, own) <= delta
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    # The upper end of the last interval, so that epsilon is never too small.
    epsilons[nonzero] = np.where(enough, 0.0, high)
    return epsilons


@dataclass(frozen=True)
class CorrelatedAccountant:
    """The `Accountant` of correlated noise, which can also account for given rounds of a client.

    Attributes:
        noise_multiplier: standard deviation of z, over the largest change of C x by a client with rounds as planned.
        strategy: C.
        separation: b, least distance between two rounds of a client as planned.
        participations: k, most rounds of a client as planned.
    """

    noise_multiplier: float
    strategy: Strategy
    separation: int
    participations: int
    unit: ClassVar[Literal["client", "sample"]] = "client"
    mechanism: ClassVar[str] = "correlated"

    @cached_property
    def sensitivity(self) -> float:
        """The sensitivity of the plan, for contributions of norm 1."""
        return sensitivity(self.strategy.coefficients, self.separation, self.participations)

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """Return the epsilon of the costliest rounds of this number that are as planned (`Accountant.epsilon`).

        If there are more rounds than the plan has room for, each counts by itself and their norms add up.
        """
        count, least = sum(rounds.values()), min((share for share, times in rounds.items() if times), default=1.0)
        if count == 0 or least == 0:
            return inf if count else 0.0
        coefficients = self.strategy.coefficients
        if count <= self.participations and (count - 1) * self.separation < len(coefficients):
            changed = sensitivity(coefficients, self.separation, count)
        else:
            changed = count * sqrt(float((coefficients * coefficients).sum()))
        return float(self.epsilon_of(np.array([changed * changed / least]), delta)[0])

    def epsilon_of(self, squared: Floats, delta: float) -> Floats:
        """Return the epsilon of clients with given rounds.

        Args:
            squared: `(m,)` squared sensitivities of the clients' rounds, for contributions of norm 1.
            delta: in (0, 1).

        Returns:
            `(m,)` epsilon.
        """
        return gaussian_epsilon(np.sqrt(squared) / (self.noise_multiplier * self.sensitivity), delta)
