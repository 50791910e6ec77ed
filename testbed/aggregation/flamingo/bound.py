"""Density of the graphs of `flamingo`: the probability of an edge, and the fewest neighbours that must be online.

Source: Ma et al., IEEE S&P 2023, arXiv 2308.09883, section 4.4 and Lemma 1. Of n participants, c = floor(dishonest n)
are dishonest, chosen without regard to the graph. The server labels up to d = floor(dropouts n) participants offline.
Each pair is an edge with probability epsilon, independently of the others (Gilbert, Erdos, Renyi).

With `labels: chosen` the server chooses the labels, with the graph in view (`cut_off_bits`). With `labels: random` they
do not depend on the graph, as in the paper's Lemma 1; a malicious server then has single updates
(docs/explanation/flamingo.md). In both cases the committee refuses the labels of an honest server with probability at
most 2**-correctness. The paper leaves the formula for epsilon to its appendix; these are union bounds over exact tails
or over upper bounds of tails. If no epsilon below 1 meets the requirements, the graph is complete.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, log2
from typing import Literal

import numpy as np
import numpy.typing as npt

STEPS = 1 << 10
"""Epsilon is a multiple of one over this."""

_LN2 = log(2)
_EXPONENTS = np.linspace(0.02, 6, 96)[:, None]  # of Chernoff's bound: any of them gives a bound, the least one is taken

Labels = Literal["chosen", "random"]
_Logs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CommitteeRequirements:
    """Properties that the graph of a round must have, and the probabilities with which it may lack them.

    Attributes:
        dishonest: largest fraction of dishonest participants (the paper's eta).
        dropouts: largest fraction that may be labelled offline (the paper's delta).
        security: the server learns more than the sum of a round with probability at most 2**-security (the paper's
            kappa).
        correctness: the committee refuses the labels of an honest server with probability at most 2**-correctness.
        labels: "chosen" if the server may label any clients offline, with the graph in view; "random" if labels do not
            depend on the graph.
        tries: the server can try 2**tries graphs before it takes one; counts with "chosen" labels.
    """

    dishonest: float
    dropouts: float
    security: float
    correctness: float
    labels: Labels = "chosen"
    tries: float = 40

    def counts(self, participants: int) -> tuple[int, int]:
        """Return (c, d) for n participants: the dishonest ones, and the most that may be labelled offline."""
        dishonest, dropouts = (Fraction(str(part)) for part in (self.dishonest, self.dropouts))
        return int(dishonest * participants), int(dropouts * participants)


@dataclass(frozen=True)
class Density:
    """Density of the graph of a round.

    Attributes:
        participants: n.
        steps: epsilon, in units of 1 / `STEPS`; `STEPS`: the graph is complete.
        survivors: fewest participants online; two of them are honest. More than n: no sum is possible.
        neighbours: k, fewest neighbours online of each client online; 0 where the graph is complete.
    """

    participants: int
    steps: int
    survivors: int
    neighbours: int

    @property
    def epsilon(self) -> float:
        """Probability of an edge."""
        return self.steps / STEPS

    @property
    def mean_neighbours(self) -> float:
        """Expected number of neighbours of a participant."""
        return self.epsilon * (self.participants - 1)


@lru_cache(maxsize=64)
def density(participants: int, requirements: CommitteeRequirements) -> Density:
    """Find an epsilon that meets the requirements for n participants, as small as bisection finds it.

    Args:
        participants: n.
        requirements: properties of the graph and their failure probabilities.
    """
    fewest = _fewest_if_chosen if requirements.labels == "chosen" else _fewest_if_random
    dishonest, dropouts = requirements.counts(participants)
    low, high, neighbours = 0, STEPS, 0  # `low` does not meet the requirements, `high` does
    while high - low > 1:
        middle = (low + high) // 2
        needed = fewest(middle / STEPS, participants, requirements)
        if needed is None:
            low = middle
        else:
            high, neighbours = middle, needed
    # Small rounds (`bernoulli` has them) could be left with one honest client although larger ones are not.
    return Density(participants, high, max(participants - dropouts, dishonest + 2), neighbours)


def _fewest_if_chosen(epsilon: float, participants: int, requirements: CommitteeRequirements) -> int | None:
    """Return the least k with which this epsilon meets the requirements against chosen labels, or None."""
    dishonest, dropouts = requirements.counts(participants)
    survivors = participants - dropouts
    if disconnected_bits(survivors, epsilon) < requirements.correctness:
        return None

    def is_correct(neighbours: int) -> bool:
        return too_few_bits(survivors, neighbours, epsilon) >= requirements.correctness

    def is_secure(neighbours: int) -> bool:
        bits = cut_off_bits(participants, dishonest, dropouts, neighbours, epsilon)
        # The server may try 2**tries round numbers and lists before the graph is fixed: all of these graphs have to
        # hold.
        return bits >= requirements.security + requirements.tries

    if not is_correct(1):
        return None
    largest = _last(is_correct, 1, survivors)
    if not is_secure(largest):
        return None
    return 1 if is_secure(1) else 1 + _last(lambda neighbours: not is_secure(neighbours), 1, largest)


def _fewest_if_random(epsilon: float, participants: int, requirements: CommitteeRequirements) -> int | None:
    """Return the paper's k if this epsilon meets the requirements for labels independent of the graph, else None."""
    dishonest, dropouts = requirements.counts(participants)
    survivors = participants - dropouts
    # The least k with dishonest**k < 2**-security: not all k neighbours of a client are dishonest.
    neighbours = 1 if requirements.dishonest == 0 else int(requirements.security / -log2(requirements.dishonest)) + 1
    if disconnected_bits(survivors - dishonest, epsilon) < requirements.security:
        return None
    return neighbours if too_few_bits(survivors, neighbours, epsilon) >= requirements.correctness else None


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number in [low, high) for which `holds` is true; it is true at `low`, then false up to `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def cut_off_bits(participants: int, dishonest: int, dropouts: int, neighbours: int, epsilon: float) -> float:
    """Bound the chance that labels exist which cut a set of honest clients off and which the committee accepts.

    Args:
        participants: n.
        dishonest: c, fixed before the graph is.
        dropouts: d, the most clients that may be labelled offline.
        neighbours: k, the fewest neighbours online that the committee accepts.
        epsilon: the probability of an edge, above 0 and below 1.

    Returns:
        x, where the probability is at most 2**-x; infinite without dishonest clients, as nothing then connects a set
        that is cut off with the rest.
    """
    # A server may label offline all honest clients outside a set A with a neighbour in A: then it knows the masks
    # between A and the rest, and has the sum over A. Its accomplices give A neighbours online and a connected graph.
    # Union bound over all A of at most half of the honest clients, of the product of two independent probabilities:
    # at most d honest clients outside A have a neighbour in A, and at least one has none (`few_outside`); and the
    # members of A have |A| k neighbours or more among A and the accomplices (`enough_inside`).
    honest = participants - dishonest
    if dishonest == 0 or honest < 2:
        return inf
    sizes = np.arange(1, honest // 2 + 1, dtype=np.float64)
    outside = honest - sizes
    log_apart = sizes * log1p(-epsilon)  # of one client outside, having no neighbour in A
    apart = np.maximum(outside - dropouts, 1)  # with nobody outside online, the sum over A is the sum of the round
    few_outside = _log_tail(outside, apart, log_apart, np.log1p(-np.exp(log_apart)))
    pairs = sizes * (sizes - 1) / 2  # in A; an edge among them counts for both of its ends
    chernoff = (
        pairs * np.log1p(epsilon * np.expm1(2 * _EXPONENTS))
        + sizes * dishonest * np.log1p(epsilon * np.expm1(_EXPONENTS))
        - _EXPONENTS * sizes * neighbours
    )
    enough_inside = np.minimum(chernoff.min(axis=0), 0.0)
    trials, log_epsilon = np.array([float(dishonest)]), np.array([log(epsilon)])
    # For a single client an exact tail is sharper than Chernoff's bound.
    enough_inside[0] = _log_tail(trials, np.array([float(neighbours)]), log_epsilon, np.log1p(-np.exp(log_epsilon)))[0]
    sets = _log_factorial(honest)[-1] - _log_factorial(honest)[sizes.astype(int)]
    sets = sets - _log_factorial(honest)[outside.astype(int)]
    return _bits((sets + few_outside + enough_inside).tolist())


def disconnected_bits(clients: int, epsilon: float) -> float:
    """Return x: the graph of this many clients is disconnected with probability at most 2**-x; 0: no bound.

    Args:
        clients: number of vertices.
        epsilon: the probability of an edge.
    """
    log_absent = log1p(-epsilon)
    # Union bound over the parts of at most half of the clients: no edge leads out of such a part.
    logarithms = [_log_choose(clients, k) + k * (clients - k) * log_absent for k in range(1, clients // 2 + 1)]
    return _bits(logarithms)


def too_few_bits(survivors: int, neighbours: int, epsilon: float) -> float:
    """Return x: with probability at most 2**-x, a survivor has fewer than `neighbours` neighbours among the survivors.

    Args:
        survivors: number of clients online.
        neighbours: required neighbours of each.
        epsilon: the probability of an edge.
    """
    others = survivors - 1
    if others < neighbours:
        return 0.0
    logarithms = [
        log(survivors) + _log_choose(others, k) + k * log(epsilon) + (others - k) * log1p(-epsilon)
        for k in range(neighbours)
    ]
    return _bits(logarithms)


def _log_tail(trials: _Logs, least: _Logs, log_p: _Logs, log_not_p: _Logs) -> _Logs:
    """Bound log Pr[Bin(trials, p) >= least] from above, elementwise.

    Above the mean the terms fall at least as fast as a geometric series with the ratio of the first two. Below it the
    bound is 0, the logarithm of 1.
    """
    factorial = _log_factorial(int(trials.max()))
    inside = np.clip(least, 0, trials)
    places = trials.astype(int), inside.astype(int), (trials - inside).astype(int)
    first = factorial[places[0]] - factorial[places[1]] - factorial[places[2]]
    first = first + inside * log_p + (trials - inside) * log_not_p
    log_ratio = np.log(np.maximum(trials - inside, 1e-300)) - np.log(inside + 1) + log_p - log_not_p
    ratio = np.exp(np.minimum(log_ratio, 0.0))
    with np.errstate(divide="ignore"):
        tail = np.where(ratio < 1, first - np.log1p(-ratio), 0.0)
    return np.where(least > trials, -inf, np.where(least <= 0, 0.0, np.minimum(tail, 0.0)))


@lru_cache(maxsize=8)
def _log_factorial(largest: int) -> _Logs:
    """Return `(largest + 1,)` log k! for k = 0 to `largest`."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _bits(logarithms: list[float]) -> float:
    """Return -log2 of the sum of the exponentials, at least 0."""
    # Subtract the largest first, or the exponentials would underflow.
    largest = max(logarithms, default=-inf)
    if largest == -inf:
        return inf
    return max(0.0, -(largest + log(sum(exp(value - largest) for value in logarithms))) / _LN2)
