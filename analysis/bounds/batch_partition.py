"""Batch partition's guarantees as numbers (Multi-RoundSecAgg).

So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in Federated
Learning, AAAI 2023, arXiv 2106.03328, sections 4 and 5.

N users form batches of T or more (`testbed.batches.Batches`). A round takes K/T whole batches of available members, and
is skipped when there are fewer. User j drops out with probability p_j, independently of the others and of the other
rounds. Batches share no users, so they are available independently of each other, too: the number of available batches
is a sum of independent coins (Poisson-binomial), also where users and batches differ. Hence the numbers here are exact,
to about 12 digits; a sum of positive terms loses none of them, however small it is (down to 5e-324).

Theorem 3 (appendix H) gives the rounds after which *random* selection has revealed every update to the server: then the
participation matrix P has full rank N. `independent_bound` is no proven bound; `rounds_until_full_rank` simulates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, sqrt

import numpy as np
import numpy.typing as npt

from analysis.bounds.checks import require_at_least
from analysis.bounds.tails import cdf, survival
from analysis.multi_round.row_spaces import reduced
from analysis.statistics import Proportion
from testbed.arrays import Floats
from testbed.batches import Batches
from testbed.errors import RoundSkipped
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection

Dropout = float | Sequence[float]


def family_size(users: int, selected: int, privacy: int) -> int:
    """Return R, the number of sets of users that a round may take: C(batches, K/T), exactly (section 4).

    Args:
        users: N.
        selected: K, a multiple of T, at most N.
        privacy: T. When it does not divide N there are floor(N/T) batches, some of them larger.

    Raises:
        ValueError: if K is not a multiple of T, or there are fewer than K users.

    Example:
        >>> family_size(users=12, selected=4, privacy=2)
        15
    """
    return comb(len(batches_of(users, selected, privacy)), selected // privacy)


def average_cardinality(users: int, selected: int, privacy: int, dropout: Dropout) -> float:
    """Return C, the average number of users that a round sums, skipped rounds included (Theorem 1).

    If T divides N this is K (1 - `unavailable_round`), for every choice among the available batches. If it does not,
    rounds may have more than K users, and the choice is assumed to be uniform.

    Args:
        users: N.
        selected: K, a multiple of T.
        privacy: T.
        dropout: p, in [0, 1], of every user, or N numbers p_1, ..., p_N.

    Raises:
        ValueError: for sizes as in `family_size`, or if there are not N probabilities.

    Example:
        >>> average_cardinality(users=4, selected=2, privacy=2, dropout=0.5)  # 2 users, if a batch is whole
        0.875
    """
    batches = batches_of(users, selected, privacy)
    batches_of_round, smallest = selected // privacy, int(batches.sizes.min())
    complete = _available_round(batches, batches_of_round, dropout)
    larger = batches.sizes > smallest
    if not larger.any():
        return batches_of_round * smallest * complete
    # A round then has K users and one more for each of its larger batches.
    available = batches_available(batches, dropout)
    return batches_of_round * (
        smallest * complete + _larger_share(available[~larger], available[larger], batches_of_round)
    )


def unavailable_round(users: int, selected: int, privacy: int, dropout: Dropout) -> float:
    """Return the probability that fewer than K/T batches are available: no row of B, the round is skipped (Theorem 1).

    Args:
        users, selected, privacy, dropout: see `average_cardinality`.

    Example:
        >>> unavailable_round(users=4, selected=2, privacy=2, dropout=0.5)  # neither of two batches is whole
        0.5625
    """
    batches = batches_of(users, selected, privacy)
    batches_of_round = selected // privacy
    if isinstance(dropout, float | int) and np.ptp(batches.sizes) == 0:
        # Equal coins: a binomial tail, right to the last digit; the convolution below has about 12 digits.
        return cdf(batches_of_round - 1, len(batches), _whole_batch(batches, dropout))
    first, counts = _counts(batches_available(batches, dropout))
    return float(counts[: max(0, batches_of_round - first)].sum())


def _available_round(batches: Batches, batches_of_round: int, dropout: Dropout) -> float:
    """Return 1 - `unavailable_round`, also where that is tiny."""
    if isinstance(dropout, float | int) and np.ptp(batches.sizes) == 0:
        return survival(batches_of_round - 1, len(batches), _whole_batch(batches, dropout))
    first, counts = _counts(batches_available(batches, dropout))
    return float(counts[max(0, batches_of_round - first) :].sum())


def _whole_batch(batches: Batches, dropout: float) -> Fraction:
    """Return the chance that all members of a batch are available, for batches of one size; exactly."""
    return (1 - _exact(dropout)) ** int(batches.sizes[0])


def batches_of(users: int, selected: int, privacy: int) -> Batches:
    """Return the batches that the selection uses.

    Args:
        users, selected, privacy: see `family_size`.

    Raises:
        ValueError: as `family_size`.
    """
    require_at_least(1, users=users, selected=selected, privacy=privacy)
    if selected > users:
        raise ValueError(f"selected: K = {selected} of {users} users")
    if selected % privacy:
        raise ValueError(f"privacy: T = {privacy} does not divide K = {selected}")
    return Batches.consecutive(users, privacy)


def batches_available(batches: Batches, dropout: Dropout) -> Floats:
    """Return the probability that all members of each batch are available.

    Args:
        batches: B batches.
        dropout: see `average_cardinality`.

    Returns:
        `(B,)`.

    Raises:
        ValueError: as `average_cardinality`.
    """
    chances = np.asarray(dropout, np.float64)
    if chances.ndim and chances.shape != batches.of.shape:
        raise ValueError(f"dropout: {chances.size} probabilities for {batches.of.size} users")
    outside = ~((chances >= 0) & (chances <= 1))
    if outside.any():
        raise ValueError(f"dropout: {chances[outside].flat[0]:g} is not a probability")
    starts = np.concatenate(([0], np.cumsum(batches.sizes)[:-1]))  # batches are of consecutive users
    return np.multiply.reduceat(np.broadcast_to(1 - chances, batches.of.shape), starts)


def like_reliability(dropout: Sequence[float]) -> list[float]:
    """Return the probabilities in an order in which batches of consecutive users have like reliability.

    That is the partition of `testbed.selection.reliability`, with a record that orders the users without error. If T
    divides N, no partition has a larger C (docs/papers/multi-round-like-reliability.md).

    Args:
        dropout: N numbers p_1, ..., p_N.

    Example:
        >>> mixed = [0.1, 0.5, 0.1, 0.5]
        >>> like = like_reliability(mixed)
        >>> [round(average_cardinality(4, 2, 2, chances), 4) for chances in (mixed, like)]
        [1.395, 1.715]
    """
    return sorted(dropout)


def _exact(p: float) -> Fraction:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: {p:g} is not a probability")
    return Fraction(str(p))  # 0.1 is one tenth, not the double next to it


def _counts(chances: Floats) -> tuple[int, Floats]:
    """Return the distribution of the number of successes among independent coins.

    Returns:
        The first count with positive probability, and the probabilities from it on.
    """
    # Halves are convolved. Probabilities below the smallest double are dropped, so that few of 10^6 counts remain.
    if len(chances) <= 1:
        chance = float(chances[0]) if len(chances) else 0.0
        return _trimmed(0, np.array([1 - chance, chance]))
    middle = len(chances) // 2
    (first, masses), (second, other_masses) = _counts(chances[:middle]), _counts(chances[middle:])
    # No FFT: its error is relative to the largest term, and would drown the small ones.
    return _trimmed(first + second, np.convolve(masses, other_masses))


def _trimmed(first: int, masses: Floats) -> tuple[int, Floats]:
    positive = np.flatnonzero(masses)
    return first + int(positive[0]), masses[positive[0] : positive[-1] + 1]


def _larger_share(small: Floats, large: Floats, batches_of_round: int) -> float:
    """Return E[b / (a + b); a + b >= K/T]: the share of the larger batches in a uniform choice of a small, b large."""
    (first, few), (second, many) = _counts(small), _counts(large)
    a = first + np.arange(len(few))
    share = 0.0
    for large_count, mass in enumerate(many, second):
        if large_count:
            share += mass * float((few * (a + large_count >= batches_of_round) / (a + large_count)).sum()) * large_count
    return share


# -- Theorem 1 by simulation ------------------------------------------------------------------------------------------
# Checks the sums, and gives the value where they do not apply: fair selection among batches of unequal size takes the
# larger ones less often, as they are available less often.


_BLOCKS = 50  # rounds depend on earlier ones, while the means of long blocks are nearly independent


@dataclass(frozen=True)
class Simulated:
    """The results of a simulation.

    Attributes:
        cardinality: mean users in a round, skipped rounds included.
        error: standard error of `cardinality`, from the means of 50 blocks of rounds (batch means).
        unavailable: rate of skipped rounds.
        fairness_gap: F, largest difference between two users' shares of the rounds that were not skipped; 0 if all
            were skipped.
    """

    cardinality: float
    error: float
    unavailable: Proportion
    fairness_gap: float


def simulated(
    users: int, selected: int, privacy: int, dropout: Dropout, rounds: int, seed: int, fair: bool = True
) -> Simulated:
    """Simulate the selection.

    Args:
        users, selected, privacy, dropout: see `average_cardinality`.
        rounds: a multiple of 50.
        seed: of the generator.
        fair: Algorithm 2 for unequal dropout, else a uniform choice.

    Raises:
        ValueError: as `average_cardinality`, or if `rounds` is not such a multiple.
    """
    if rounds < _BLOCKS or rounds % _BLOCKS:
        raise ValueError(f"simulate: {rounds} rounds; must be a positive multiple of {_BLOCKS}")
    batches_available(batches_of(users, selected, privacy), dropout)  # checks the arguments
    parameters = BatchPartitionParameters(participants=selected, privacy=privacy, mode="fair" if fair else "uniform")
    selection = BatchPartitionSelection(parameters, users)
    rng, chances = np.random.default_rng(seed), np.asarray(dropout, np.float64)
    participations, sizes = np.zeros(users, np.int64), np.zeros(rounds, np.int64)
    for number in range(rounds):
        present = np.flatnonzero(rng.random(users) >= chances)
        try:
            members = selection.batches.members(selection.choose(present, participations, rng))
        except RoundSkipped:  # a sum of 0 users, as in Theorem 1
            continue
        # Algorithm 2 begins with the available user that has the fewest rounds so far.
        participations[members] += 1
        sizes[number] = len(members)
    means = sizes.reshape(_BLOCKS, -1).mean(axis=1)
    error = float(means.std(ddof=1)) / sqrt(_BLOCKS)
    skipped = int((sizes == 0).sum())
    gap = float(np.ptp(participations)) / max(1, rounds - skipped)
    return Simulated(float(sizes.mean()), error, Proportion.of(skipped, rounds), gap)


# -- Theorem 3 --------------------------------------------------------------------------------------------------------


Integers = npt.NDArray[np.int64]
_PRIME = 2**31 - 1  # a product of two residues fits into 64 bits


def independent_bound(users: int, selected: int) -> float:
    """Return (30) without o(1): 1 - 2N(1-t)^N - N(N-1)(t^2 + (1-t)^2)^N at t = K/N, for P of N rounds.

    The value is at most 0 from about K = ln(2N) downwards, where it says nothing: some user is then likely to be in no
    round.

    Args:
        users: N.
        selected: K.

    Raises:
        ValueError: if K/N is not in (0, 1/2), for which the theorem is stated.

    Example:
        >>> round(independent_bound(users=100, selected=10), 4)  # 1 - 200 * 0.9**100 - 9900 * 0.82**100
        0.9947
    """
    if not 0 < 2 * selected < users:
        raise ValueError(f"selected: K = {selected} of {users} users; Theorem 3 is stated for K below N/2")
    # The o(1) of (30) is not stated in the paper: without it the value holds for N large enough, and proves nothing for
    # a given N. For K users chosen uniformly there is no number at all, as the constant c' is not stated.
    t = selected / users
    nobody, twins = 2 * users * (1 - t) ** users, users * (users - 1) * (t * t + (1 - t) ** 2) ** users
    return 1 - nobody - twins


def uniform_round(users: int, selected: int) -> Callable[[np.random.Generator], Integers]:
    """Return a function that draws a round of K users uniformly.

    `random` does so if enough users are available and all drop out equally often.

    Args:
        users: N.
        selected: K.
    """
    return lambda rng: np.isin(np.arange(users), rng.choice(users, selected, replace=False)).astype(np.int64)


def independent_round(users: int, selected: int) -> Callable[[np.random.Generator], Integers]:
    """Return a function that draws a round with each user with probability K/N.

    `bernoulli` does so with probability K/(N(1-p)) for each available user, if 1-p of all users are available.

    Args:
        users: N.
        selected: K.
    """
    return lambda rng: (rng.random(users) < selected / users).astype(np.int64)


def rounds_until_full_rank(
    draw: Callable[[np.random.Generator], Integers], users: int, trials: int, most: int, seed: int
) -> Integers:
    """Simulate the number of rounds after which P has rank N.

    Args:
        draw: returns a round, `(users,)` 0 or 1.
        users: N.
        trials: number of simulations.
        most: most rounds of a simulation.
        seed: of the generator.

    Returns:
        `(trials,)` rounds, counted from 1; `most` + 1 if `most` rounds were not enough.
    """
    rng = np.random.default_rng(seed)
    return np.array([_full_at(np.array([draw(rng) for _ in range(most)]), users) for _ in range(trials)], np.int64)


def _full_at(rounds: Integers, users: int) -> int:
    """Return the first round after which the rank is full: the last pivot of the elimination."""
    # A rank modulo a prime is never above the rank over the rationals, so no rank counts as full that is not.
    _, pivots, _ = reduced(np.ascontiguousarray(rounds.T), _PRIME)
    return int(pivots[-1]) + 1 if len(pivots) == users else len(rounds) + 1
