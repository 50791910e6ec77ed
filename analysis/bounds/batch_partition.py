"""Batch partition's guarantees as numbers: So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation: Mitigating
Multi-Round Privacy Leakage in Federated Learning (Multi-RoundSecAgg), AAAI 2023, arXiv 2106.03328, sections 4 and 5.

N users form batches of T or more (`testbed.batches.Batches`), a round takes K/T whole batches all of whose members
are available, and is skipped when there are fewer. User j drops out with probability p_j, independently of the others
and of the other rounds. Batches share no users, so they are available independently of each other, too: how many are
is a sum of independent coins (Poisson-binomial), also where users and batches differ. Hence the numbers here are exact,
to about 12 digits; a sum of positive terms loses none of them, however small it is (down to 5e-324).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import comb

import numpy as np

from analysis.bounds.tails import cdf, survival
from analysis.bounds.validation import require_at_least
from testbed.arrays import Floats
from testbed.batches import Batches

Dropout = float | Sequence[float]


def family_size(users: int, selected: int, privacy: int) -> int:
    """R: how many sets of users a round may take, C(batches, K/T), exactly (section 4).

    Args:
        users: N.
        selected: K, a multiple of T, at most N.
        privacy: T. When it does not divide N there are floor(N/T) batches, some of them larger.

    Raises:
        ValueError: K is no multiple of T, or there are fewer than K users.
    """
    return comb(len(batches_of(users, selected, privacy)), selected // privacy)


def average_cardinality(users: int, selected: int, privacy: int, dropout: Dropout) -> float:
    """C: how many users a round sums on average, skipped rounds included (Theorem 1).

    Where T divides N this is K (1 - `unavailable_round`), for every way to choose among the available batches. Where
    it does not, rounds may have more than K users, and the choice is taken to be uniform.

    Args:
        users: N.
        selected: K, a multiple of T.
        privacy: T.
        dropout: p, in [0, 1], of every user, or N numbers p_1, ..., p_N.

    Raises:
        ValueError: sizes as in `family_size`, or a number is no probability or there are not N of them.
    """
    batches = batches_of(users, selected, privacy)
    wanted, smallest = selected // privacy, int(batches.sizes.min())
    complete = _available_round(batches, wanted, dropout)
    larger = batches.sizes > smallest
    if not larger.any():
        return wanted * smallest * complete
    available = batches_available(batches, dropout)
    return wanted * (smallest * complete + _larger_share(available[~larger], available[larger], wanted))


def unavailable_round(users: int, selected: int, privacy: int, dropout: Dropout) -> float:
    """The probability that fewer than K/T batches are available: no row of B, the round is skipped (Theorem 1).

    The arguments are those of `average_cardinality`.
    """
    batches = batches_of(users, selected, privacy)
    wanted = selected // privacy
    if isinstance(dropout, float | int) and np.ptp(batches.sizes) == 0:
        return cdf(wanted - 1, len(batches), _whole_batch(batches, dropout))
    first, counts = _counts(batches_available(batches, dropout))
    return float(counts[: max(0, wanted - first)].sum())


def _available_round(batches: Batches, wanted: int, dropout: Dropout) -> float:
    """One less `unavailable_round`, also where that is tiny."""
    if isinstance(dropout, float | int) and np.ptp(batches.sizes) == 0:
        return survival(wanted - 1, len(batches), _whole_batch(batches, dropout))
    first, counts = _counts(batches_available(batches, dropout))
    return float(counts[max(0, wanted - first) :].sum())


def _whole_batch(batches: Batches, dropout: float) -> Fraction:
    """The chance that all members of a batch are there, where all batches are of one size; exactly."""
    return (1 - _exact(dropout)) ** int(batches.sizes[0])


def batches_of(users: int, selected: int, privacy: int) -> Batches:
    """The batches that the selection uses; raises as `family_size` does."""
    require_at_least(1, users=users, selected=selected, privacy=privacy)
    if selected > users:
        raise ValueError(f"selected: K = {selected} of {users} users")
    if selected % privacy:
        raise ValueError(f"privacy: T = {privacy} does not divide K = {selected}")
    return Batches.consecutive(users, privacy)


def batches_available(batches: Batches, dropout: Dropout) -> Floats:
    """`(batches,)` the probability that all members of each are there; raises as `average_cardinality` does."""
    chances = np.asarray(dropout, np.float64)
    if chances.ndim and chances.shape != batches.of.shape:
        raise ValueError(f"dropout: {chances.size} probabilities for {batches.of.size} users")
    outside = ~((chances >= 0) & (chances <= 1))
    if outside.any():
        raise ValueError(f"dropout: {chances[outside].flat[0]:g} is no probability")
    starts = np.concatenate(([0], np.cumsum(batches.sizes)[:-1]))  # batches are of consecutive users
    return np.multiply.reduceat(np.broadcast_to(1 - chances, batches.of.shape), starts)


def _exact(p: float) -> Fraction:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: {p:g} is no probability")
    return Fraction(str(p))


def _counts(chances: Floats) -> tuple[int, Floats]:
    """How many of independent coins succeed: the first count with positive probability, and the probabilities from it.

    Halves are convolved; what is below the smallest double is dropped, so that few of 10^6 counts remain.
    """
    if len(chances) <= 1:
        chance = float(chances[0]) if len(chances) else 0.0
        return _trimmed(0, np.array([1 - chance, chance]))
    middle = len(chances) // 2
    (first, one), (second, other) = _counts(chances[:middle]), _counts(chances[middle:])
    return _trimmed(first + second, np.convolve(one, other))


def _trimmed(first: int, masses: Floats) -> tuple[int, Floats]:
    there = np.flatnonzero(masses)
    return first + int(there[0]), masses[there[0] : there[-1] + 1]


def _larger_share(small: Floats, large: Floats, wanted: int) -> float:
    """E[b / (a + b); a + b >= `wanted`]: the larger batches' share of a uniform choice, a small and b large ones."""
    (first, few), (second, many) = _counts(small), _counts(large)
    a = first + np.arange(len(few))
    share = 0.0
    for b, mass in enumerate(many, second):
        if b:
            share += mass * float((few * (a + b >= wanted) / (a + b)).sum()) * b
    return share
