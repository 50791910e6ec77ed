"""Membership inference against one round of DP-SGD with random participation, carried out.

Algorithm 1 of Hasircioglu and Gunduz (arXiv 2205.01556) runs many times with and without the sample x', on the pair of
data sets of `analysis.bounds.random_participation.orthogonal_pair`. An observer of the noisy sum alone tests whether x'
is present. For every test, (epsilon, delta) holds only if Pr[yes | with] - e^epsilon Pr[yes | without] <= delta.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, expm1, hypot, sqrt

import numpy as np
from scipy.stats import beta

from analysis.bounds.random_participation import Participation, inner_epsilon, rates_across
from analysis.statistics import Interval
from testbed.arrays import Floats

_PER_DEVIATION = 1024  # table entries of the threshold per standard deviation
_AT_A_TIME = 2**22  # rounds simulated together


@dataclass(frozen=True)
class Advantage:
    """Success of the test in telling the data sets apart.

    Attributes:
        trials: rounds with x', and as many without.
        yes_with, yes_without: rounds of each kind in which the observer says that x' is present.
        epsilon: of the tested claim.
    """

    trials: int
    yes_with: int
    yes_without: int
    epsilon: float

    @property
    def delta(self) -> float:
        """Estimate of Pr[yes | with] - e^epsilon Pr[yes | without]."""
        return (self.yes_with - exp(self.epsilon) * self.yes_without) / self.trials

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return delta, and the half-width of its interval.

        Source:
            Newcombe 1998, Interval estimation for the difference between independent proportions, method 10, from both
            rates' intervals by Clopper and Pearson; of the two unequal sides the longer.
        """
        error = (1 - confidence) / 2
        low, high = _ends(self.yes_with, self.trials, error)
        least, most = _ends(self.yes_without, self.trials, error)
        with_x, without, factor = self.yes_with / self.trials, self.yes_without / self.trials, exp(self.epsilon)
        below, above = hypot(with_x - low, factor * (most - without)), hypot(high - with_x, factor * (without - least))
        return Interval(self.delta, max(below, above))


def _ends(yes: int, trials: int, error: float) -> tuple[float, float]:
    """Return the ends of a rate's interval, each missed with probability `error` at most."""
    low = float(beta.ppf(error, yes, trials - yes + 1)) if yes else 0.0
    return low, float(beta.ppf(1 - error, yes + 1, trials - yes)) if yes < trials else 1.0


def attack_membership(
    participation: Participation, sigma: float, epsilon: float, trials: int, random: np.random.Generator
) -> Advantage:
    """Run `trials` rounds with x' and as many without, and apply the best test for this epsilon to each.

    Each round is simulated completely: whether the client takes part, the number of its other samples in use, whether
    it uses x', and the noise in the two directions in which the data sets can differ.

    Args:
        participation: parameters of the mechanism.
        sigma: standard deviation of the noise.
        epsilon: of the tested claim.
        trials: number of rounds of each kind.
        random: source of all coins and noise.
    """
    threshold = Threshold(participation, sigma, epsilon)
    yes = [0, 0]
    for with_x in (0, 1):
        for rounds in _portions(trials):
            present = random.random(rounds) < participation.client_rate
            across, along = random.standard_normal(rounds), random.standard_normal(rounds)
            participating = np.flatnonzero(present)
            used = random.binomial(participation.local_samples, participation.sample_rate, len(participating))
            across[participating] += used * participation.clip / sigma
            if with_x:
                along[participating] += (
                    (random.random(len(participating)) < participation.sample_rate) * participation.clip / sigma
                )
            yes[with_x] += int((along > threshold(across)).sum())
    return Advantage(trials, yes[1], yes[0], epsilon)


@dataclass(frozen=True)
class CoupledAdvantage:
    """Success of the test in rounds with and without x' that share every other coin.

    Attributes:
        trials: rounds in which the client uses x', and as many rounds without x'.
        changed: rounds of the first kind in which x' changes the observer's answer to yes.
        yes_without: rounds of the second kind in which the observer says that x' is present.
        use_rate: probability pq that a round uses x'.
        epsilon: of the tested claim.
    """

    trials: int
    changed: int
    yes_without: int
    use_rate: float
    epsilon: float

    @property
    def delta(self) -> float:
        """Estimate of Pr[yes | with] - e^epsilon Pr[yes | without]."""
        # Pr[yes | with] - Pr[yes | without] is pq times the share in which x' changes the answer to yes. The rest,
        # (e^epsilon - 1) Pr[yes | without], is small.
        return self.use_rate * self.changed / self.trials - expm1(self.epsilon) * self.yes_without / self.trials

    def interval(self) -> Interval:
        """Return delta, and the half-width of its 95% interval, which is normal."""
        changed, without = self.changed / self.trials, self.yes_without / self.trials
        variance = self.use_rate**2 * changed * (1 - changed) + expm1(self.epsilon) ** 2 * without * (1 - without)
        return Interval(self.delta, 1.959964 * sqrt(variance / self.trials))


def attack_coupled_rounds(
    participation: Participation, sigma: float, epsilon: float, trials: int, random: np.random.Generator
) -> CoupledAdvantage:
    """Estimate the same delta from rounds with and without x' that share every other coin.

    Args:
        participation, sigma, epsilon, trials, random: see `attack_membership`.
    """
    threshold, unit = Threshold(participation, sigma, epsilon), participation.clip / sigma
    # Such rounds differ only when x' is used, so only those are run twice.
    changed = yes = 0
    for rounds in _portions(trials):
        across = random.standard_normal(rounds) + unit * random.binomial(
            participation.local_samples, participation.sample_rate, rounds
        )
        along, limit = random.standard_normal(rounds), threshold(across)
        changed += int(((along <= limit) & (along + unit > limit)).sum())
        across, along = random.standard_normal(rounds), random.standard_normal(rounds)
        participating = np.flatnonzero(random.random(rounds) < participation.client_rate)
        across[participating] += unit * random.binomial(
            participation.local_samples, participation.sample_rate, len(participating)
        )
        yes += int((along > threshold(across)).sum())
    return CoupledAdvantage(trials, changed, yes, participation.client_rate * participation.sample_rate, epsilon)


class Threshold:
    """The value of `along`, given `across`, above which the likelihood ratio exceeds e^epsilon (Neyman and Pearson).

    With unit = C / sigma the ratio is 1 - r + r exp(along unit - unit^2 / 2), r = q times the chance of participation.
    """

    def __init__(self, participation: Participation, sigma: float, epsilon: float) -> None:
        unit = participation.clip / sigma
        points, _, rate = rates_across(participation, sigma, _PER_DEVIATION)
        self._table = inner_epsilon(epsilon, rate) / unit + unit / 2
        self._first = points[0]

    def __call__(self, across: Floats) -> Floats:
        place = np.rint((across - self._first) * _PER_DEVIATION).astype(np.int64)
        values: Floats = self._table[np.clip(place, 0, len(self._table) - 1)]
        return values


def _portions(trials: int) -> Iterator[int]:
    while trials > 0:
        yield min(trials, _AT_A_TIME)
        trials -= _AT_A_TIME
