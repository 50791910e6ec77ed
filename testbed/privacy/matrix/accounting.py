"""What correlated noise costs: one Gaussian mechanism, which says C x + z, and everything else follows from that.

Its epsilon depends on mu alone, what a client changes in C x over the standard deviation of z: delta(epsilon) is
Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), exactly (Balle, Wang, Improving the Gaussian Mechanism for
Differential Privacy, ICML 2018, arXiv 1805.06530, Theorem 8). That the server adds z only as rounds come, and clients
learn from what was released before, changes nothing (Denisov et al., arXiv 2202.08312, Theorem 2.1).

Neighbours differ in one client, whose updates are there or are 0 in every round. Who takes part in which round is taken
to be known, and not to depend on the data. Nothing is gained here from who was *not* chosen ("amplification").
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

_HALVINGS = 60


def gaussian_delta(epsilon: Floats, mu: Floats) -> Floats:
    """The least delta at each epsilon, for each mu above 0; alike shapes."""
    from scipy.special import log_ndtr  # slow to import

    above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    delta: Floats = -np.exp(above) * np.expm1(np.minimum(below - above, 0.0))
    return delta


def gaussian_epsilon(mu: Floats, delta: float) -> Floats:
    """`(m,)` epsilon at `delta` of the Gaussian mechanism with each `(m,)` mu, never below it; 0 for a mu of 0."""
    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta}; must be above 0 and below 1")
    epsilons = np.zeros(len(mu))
    nonzero = (mu > 0) & np.isfinite(mu)
    epsilons[~np.isfinite(mu)] = inf
    own = mu[nonzero]
    low, high = np.zeros(len(own)), own * own / 2 + own * sqrt(2 * log(1 / delta))
    enough = gaussian_delta(low, own) <= delta
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = gaussian_delta(middle, own) <= delta
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    epsilons[nonzero] = np.where(enough, 0.0, high)
    return epsilons


@dataclass(frozen=True)
class CorrelatedAccountant:
    """`testbed.privacy.noise_plan.Accountant` of correlated noise, which also takes which rounds they were.

    Attributes:
        noise_multiplier: standard deviation of z, over what a client changes in C x at most whose rounds are such as
            were planned for.
        strategy: C.
        separation: b, between two rounds of a client as planned.
        participations: k, the rounds of a client as planned.
    """

    noise_multiplier: float
    strategy: Strategy
    separation: int
    participations: int
    unit: ClassVar[Literal["client", "sample"]] = "client"
    mechanism: ClassVar[str] = "correlated"

    @cached_property
    def sensitivity(self) -> float:
        """That of the plan, for contributions of 1."""
        return sensitivity(self.strategy.coefficients, self.separation, self.participations)

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """See `Accountant.epsilon`: of the costliest rounds of this number that are as planned.

        Of more than the plan has room for, each counts by itself and they add up, whichever they are.
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
        """`(m,)` epsilon of clients whose rounds have these `(m,)` squared sensitivities, for contributions of 1."""
        return gaussian_epsilon(np.sqrt(squared) / (self.noise_multiplier * self.sensitivity), delta)
