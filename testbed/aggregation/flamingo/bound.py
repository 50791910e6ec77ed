"""How dense the graphs of `flamingo` are: the probability of an edge for so many participants.

Ma et al., IEEE S&P 2023, arXiv 2308.09883, Lemma 1 and section 4.4: of n participants c = floor(dishonest n) are
dishonest and d = floor(dropouts n) drop out, whoever they are, as long as they were chosen without regard to the graph.
Each pair is an edge with probability epsilon, independently of the others (Gilbert, Erdos, Renyi).

- *disconnected*: the n - c - d honest survivors fall apart, and the sum shows the sums of the parts: the sum over k of
  C(m, k) (1 - epsilon)**(k (m - k)), at most 2**-security.
- *too few*: a survivor has fewer than k neighbours among the survivors, where k is the least number with
  dishonest**k < 2**-security, so that not all of them are dishonest; decryptors then refuse. At most 2**-correctness.

The paper leaves the formula for epsilon to its appendix; these are union bounds over exact tails, summed in logarithms.
Epsilon is a multiple of 2**-10. Where none below 1 does, the graph is complete: all honest survivors are neighbours of
each other, and neither can happen.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, log2

STEPS = 1 << 10
"""Epsilon is a multiple of one over this."""

_LN2 = log(2)


@dataclass(frozen=True)
class Requirements:
    """What must hold, but for these probabilities.

    Attributes:
        dishonest: largest fraction of dishonest participants (the paper's eta).
        dropouts: largest fraction that drops out (the paper's delta).
        security: the server learns more than the sum with at most 2**-security (the paper's kappa).
        correctness: decryptors refuse an honest server's graph with at most 2**-correctness.
    """

    dishonest: float
    dropouts: float
    security: float
    correctness: float

    def counts(self, participants: int) -> tuple[int, int]:
        """(c, d): so many dishonest and so many that drop out, of n participants."""
        dishonest, dropouts = (Fraction(str(part)) for part in (self.dishonest, self.dropouts))
        return int(dishonest * participants), int(dropouts * participants)

    @property
    def fewest_neighbours(self) -> int:
        """k: so many neighbours are not all dishonest."""
        if self.dishonest == 0:
            return 1
        return int(self.security / -log2(self.dishonest)) + 1


@dataclass(frozen=True)
class Density:
    """How the participants of a round are connected.

    Attributes:
        participants: n.
        steps: epsilon, in units of 1 / `STEPS`; `STEPS`: the graph is complete.
        survivors: how many must not drop out.
        neighbours: k, how many of these must be a survivor's neighbours; 0 where the graph is complete.
    """

    participants: int
    steps: int
    survivors: int
    neighbours: int

    @property
    def epsilon(self) -> float:
        """The probability of an edge."""
        return self.steps / STEPS

    @property
    def mean_neighbours(self) -> float:
        """Of a participant."""
        return self.epsilon * (self.participants - 1)


@lru_cache(maxsize=64)
def density(participants: int, requirements: Requirements) -> Density:
    """The least epsilon that meets the requirements, for n participants."""
    dishonest, dropouts = requirements.counts(participants)
    survivors = participants - dropouts
    low, high = 0, STEPS  # the first does not do, the second does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _does(middle / STEPS, survivors, dishonest, requirements) else (middle, high)
    least = 0 if high == STEPS else requirements.fewest_neighbours
    return Density(participants, high, survivors, least)


def _does(epsilon: float, survivors: int, dishonest: int, requirements: Requirements) -> bool:
    apart = disconnected_bits(survivors - dishonest, epsilon)
    few = too_few_bits(survivors, requirements.fewest_neighbours, epsilon)
    return apart >= requirements.security and few >= requirements.correctness


def disconnected_bits(clients: int, epsilon: float) -> float:
    """x, where so many clients fall apart with probability 2**-x at most; 0: nothing is said."""
    stays_away = log1p(-epsilon)
    logarithms = [_log_choose(clients, k) + k * (clients - k) * stays_away for k in range(1, clients // 2 + 1)]
    return _bits(logarithms)


def too_few_bits(survivors: int, neighbours: int, epsilon: float) -> float:
    """x, where a survivor has fewer than so many neighbours among the survivors with probability 2**-x at most."""
    others = survivors - 1
    if others < neighbours:
        return 0.0
    logarithms = [
        log(survivors) + _log_choose(others, k) + k * log(epsilon) + (others - k) * log1p(-epsilon)
        for k in range(neighbours)
    ]
    return _bits(logarithms)


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _bits(logarithms: list[float]) -> float:
    if not logarithms:
        return inf
    largest = max(logarithms)
    return max(0.0, -(largest + log(sum(exp(one - largest) for one in logarithms))) / _LN2)
