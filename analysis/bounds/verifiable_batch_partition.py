"""Guarantees of verifiable batch partition as numbers. Derived in docs/explanation/verifiable-batch-bounds.md.

A batch is a candidate with probability at most p = floor(a K m / n_min) / m, independently of the others, and a server
that removes honest batches keeps the candidates of its choice, K/T at most. So the dishonest participants x of one
round are the sum over K/T candidate batches of their dishonest members, which depends on the placement of the c
dishonest clients. Two numbers enclose the worst placement: the probability that a placement of equal shares attains
(exact binomial tails), and a bound for all placements, even if they are chosen batch by batch after seeing the batches
before.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, log, log10

import numpy as np
import numpy.typing as npt

from analysis.bounds.lotto import allowed, check_counts, decimal, selection_probability, threshold_of
from analysis.bounds.tails import hypergeometric_survival, masses, survival, survival_of_sum

Chances = npt.NDArray[np.float64]

WORK = 4 * 10**8  # elementary steps of the two exact sums: a few seconds; beyond, they are not attempted
_SMALLEST = 1e-290  # smaller doubles lose digits, which a bound must not
_MOST_DISHONEST = 100_000
_MOST_WORK = 100_000_000


@dataclass(frozen=True)
class BatchSetting:
    """A federation with verifiable batch partition.

    Args:
        population: n.
        participants: K.
        privacy: T, which divides K.
        over_selection: a, at least 1, with a K at most n.
        dishonest: c.
        min_population: n_min; None: n.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> setting = BatchSetting(population=1000, participants=100, privacy=10, over_selection=1.3, dishonest=50)
        >>> setting.batches, setting.batches_of_round, setting.sizes, round(float(setting.p), 3)
        (100, 10, {10: 100}, 0.13)
    """

    population: int
    participants: int
    privacy: int
    over_selection: float | Fraction
    dishonest: int = 0
    min_population: int | None = None

    def __post_init__(self) -> None:
        check_counts(self.population, self.dishonest, self.participants, self.least)
        if self.privacy < 1 or self.participants % self.privacy:
            raise ValueError(f"privacy: T = {self.privacy} does not divide K = {self.participants}")
        if decimal("over_selection", self.over_selection) * self.participants > self.population:
            most = self.population / self.participants
            raise ValueError(f"over_selection: {self.over_selection}; a K/n exceeds 1, at most {most:g}")

    @property
    def least(self) -> int:
        """n_min."""
        return self.population if self.min_population is None else self.min_population

    @property
    def batches_of_round(self) -> int:
        """K/T, the number of batches of a round."""
        return self.participants // self.privacy

    @property
    def batches(self) -> int:
        """B = floor(n/T), the number of batches of the population."""
        return self.population // self.privacy

    @property
    def sizes(self) -> dict[int, int]:
        """Number of batches by size: B - n mod B of floor(n/B) members, n mod B of one more."""
        size, larger = divmod(self.population, self.batches)
        return {size: self.batches - larger} | ({size + 1: larger} if larger else {})

    @property
    def largest_round(self) -> int:
        """The most participants that a round may have."""
        larger = min(self.batches_of_round, self.sizes.get(max(self.sizes), 0))
        return larger * max(self.sizes) + (self.batches_of_round - larger) * min(self.sizes)

    @property
    def p(self) -> Fraction:
        """Bound on a batch's probability to be a candidate."""
        return selection_probability(self.participants, self.over_selection, self.least)


def check_work(setting: BatchSetting) -> None:
    """Raise `ValueError` for numbers with which the bounds take minutes."""
    if setting.dishonest > _MOST_DISHONEST:
        raise ValueError(f"dishonest: {setting.dishonest}; at most {_MOST_DISHONEST}, beyond which this takes minutes")
    if setting.dishonest * setting.participants > _MOST_WORK:
        raise ValueError(
            f"participants: {setting.participants} with {setting.dishonest} dishonest; a product up to {_MOST_WORK}, "
            "beyond which this takes minutes"
        )


def candidates_suffice(setting: BatchSetting, dropout: float | Fraction = 0.0, withheld: int = 0) -> float:
    """Return Pr[at least K/T candidate batches], if n is announced truly.

    Args:
        setting: the federation.
        dropout: a client's chance not to answer, in [0, 1].
        withheld: number of batches, smallest first, in which a dishonest member never answers.

    Raises:
        ValueError: if `dropout` is not a probability.

    Example:
        >>> candidates_suffice(BatchSetting(population=1000, participants=100, privacy=10, over_selection=2)) > 0.99
        True
    """
    lost = decimal("dropout", dropout)
    if not 0 <= lost <= 1:
        raise ValueError(f"dropout: {dropout}; must be from 0 to 1")
    p = selection_probability(setting.participants, setting.over_selection, setting.population)
    groups = []
    for size, count in sorted(setting.sizes.items()):
        answering = max(0, count - withheld)
        withheld -= count - answering
        groups.append((answering, p * (1 - lost) ** size))
    first, second = groups if len(groups) == 2 else (groups[0], (0, Fraction(0)))
    return survival_of_sum(setting.batches_of_round - 1, first, second)


# -- dishonest participants of a round --------------------------------------------------------------------------------


def exceeding_shares(setting: BatchSetting, above: int) -> tuple[float, int]:
    """Return Pr[x > above] for the worst equal shares: every batch with dishonest members has j of them.

    Args:
        setting: the federation.
        above: number of dishonest participants.

    Returns:
        The probability, and j. At j = T the placement is "concentrated", at j = 1 "spread".
    """
    worst = (0.0, max(setting.sizes))
    for j in range(max(setting.sizes), 0, -1):
        room = setting.batches if j <= min(setting.sizes) else setting.sizes[max(setting.sizes)]
        needed = max(0, above) // j + 1
        if above < 0:
            return 1.0, j
        if needed <= setting.batches_of_round:
            worst = max(worst, (survival(needed - 1, min(room, setting.dishonest // j), setting.p), j))
    return worst


def exceeds(setting: BatchSetting, above: int) -> float | None:
    """Bound Pr[x > above] for all placements of the dishonest clients.

    Args:
        setting: the federation.
        above: number of dishonest participants.

    Returns:
        The bound, right to about 10 digits; None if it takes too long or is below 1e-290, in which case `log_chernoff`
        is left.
    """
    # An adversary that places its clients batch by batch, and sees whether a batch is a candidate before it fills the
    # next one, does at least as well as with any placement fixed beforehand (take that placement's batches by falling
    # number of dishonest members: the server's best K/T candidates are the first ones). Its chance, with c clients and
    # w places left and k more dishonest participants needed, is
    #
    #     V(c, k, w) = max over j of  p V(c - j, k - j, w - 1) + (1 - p) V(c - j, k, w),   V(c, k <= 0, w) = 1,
    #
    # and 0 where k > 0 and no client or no place is left. All terms are positive.
    size, batches_of_round, c = max(setting.sizes), setting.batches_of_round, setting.dishonest
    needed = above + 1
    if needed <= 0:
        return 1.0
    if needed > min(c, size * batches_of_round):
        return 0.0
    if c * size * needed * batches_of_round > WORK:
        return None
    p = float(setting.p)
    start: Chances = np.zeros((needed + 1, batches_of_round + 1))  # V(0); the rows are those of V(c - 1), V(c - 2), ...
    start[0] = 1.0
    rows = [start]
    for _ in range(c):
        best = start.copy()
        for j, row in enumerate(rows, 1):
            moved = np.zeros_like(row)  # V(c - j, k - j, w - 1)
            moved[:, 1:] = row[np.maximum(np.arange(needed + 1) - j, 0), :-1]
            np.maximum(best, p * moved + (1 - p) * row, out=best)
        best[0] = 1.0
        rows = [best, *rows[: size - 1]]
    value = float(rows[0][needed, batches_of_round])
    return min(1.0, value) if value > _SMALLEST else None


def log_chernoff(setting: BatchSetting, above: int) -> float:
    """Return the natural logarithm of another upper bound on Pr[x > above] for all placements, for any size; at most 0.

    Args:
        setting: the federation.
        above: number of dishonest participants.
    """
    # With phi(j) = log(1 - p + p e^(theta j)), convex and 0 at 0, a placement's sum of phi over its batches is at most
    # (c/T) phi(T). So Chernoff's bound for c/T wholly dishonest batches, -(c/T) KL(k/c || p), holds for all placements.
    needed, c, size = above + 1, setting.dishonest, max(setting.sizes)
    p, share = float(setting.p), needed / c if c else inf
    if share <= p:
        return 0.0
    if needed > min(c, size * setting.batches_of_round):
        return -inf
    rest = (1 - share) * log((1 - share) / (1 - p)) if share < 1 else 0.0
    return min(0.0, -c / size * (share * log(share / p) + rest))


def bound(setting: BatchSetting, above: int) -> tuple[float, float, str]:
    """Return the better of the two upper bounds on Pr[x > above] for all placements.

    Args:
        setting: the federation.
        above: number of dishonest participants.

    Returns:
        The probability, its decimal logarithm (-inf if it cannot happen), and "placements" or "chernoff".

    Example:
        >>> setting = BatchSetting(population=100, participants=20, privacy=10, over_selection=1, dishonest=10)
        >>> bound(setting, above=9)  # all ten dishonest clients are in one of ten batches; each is a candidate with 1/5
        (0.2, -0.6989700043360187, 'placements')
    """
    summed, simple = exceeds(setting, above), log_chernoff(setting, above)
    if summed is not None and (summed == 0.0 or log(summed) <= simple):
        return summed, log10(summed) if summed else -inf, "placements"
    return exp(simple), simple / log(10), "chernoff"


def exceeds_at_random(setting: BatchSetting, above: int) -> float:
    """Bound Pr[x > above] when the beacon assigns clients to batches, dishonest ones like all others.

    Args:
        setting: the federation.
        above: number of dishonest participants.
    """
    # Of M ~ Binomial(B, p) candidate batches the members are uniformly random clients, so that the number of dishonest
    # ones is hypergeometric. The server cannot have more than all of them (it takes K/T, so this is not tight).
    size = max(setting.sizes)  # uneven: as if all candidate batches were of the larger size
    total, begin, step = 0.0, 0, 64
    while begin <= setting.batches:
        last = min(begin + step, setting.batches + 1) - 1
        for m, mass in enumerate(masses(begin, last, setting.batches, setting.p), begin):
            sample = min(m * size, setting.population)
            total += mass * hypergeometric_survival(above, setting.population, setting.dishonest, sample)
        rest = survival(last, setting.batches, setting.p)
        if rest <= total * 2**-40:  # also when the rest is below all doubles
            total += rest
            break
        begin = last + 1
    return min(1.0, total)


def share_allowed(setting: BatchSetting, eta: float | Fraction) -> int:
    """Return floor(eta c K / n), the most dishonest participants that are at most eta times the expected number.

    Args:
        setting: the federation.
        eta: above 0.
    """
    return allowed(setting.population, setting.dishonest, setting.participants, eta)


def tolerated(setting: BatchSetting, threshold: int | float | Fraction) -> int:
    """Return 2t - s - 1 at the worst s: the most dishonest participants with which SecAgg is secure.

    Args:
        setting: the federation.
        threshold: t, a number or a fraction of the participants; survivor lists are signed.

    Example:
        >>> tolerated(BatchSetting(population=1000, participants=100, privacy=10, over_selection=1.3), threshold=0.7)
        39
    """
    sizes = range(setting.participants, setting.largest_round + 1)
    return min(2 * threshold_of(s, threshold) - s - 1 for s in sizes)
