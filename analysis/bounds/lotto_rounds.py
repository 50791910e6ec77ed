"""Lotto's Corollary 1 over rounds, when the server chooses which round numbers happen; Corollary 2 with several lists.

Corollary 1 (arXiv 2401.02880) bounds by q the chance that a round *number* is broken: that more dishonest clients stand
in it than secure aggregation withstands. The functions are independent from number to number, and the dishonest clients
are what they are before the keys are made, so broken numbers are independent, each with chance q at most.

A server that knows its own clients' lots ahead chooses among numbers. Each serves a client once and none is above R, so
of all that ever happens at most Binomial(R, q) rounds are broken. Clients that accept a number at most G above the last
one that they have heard of have, after N announcements, heard of none above N G: of these N rounds at most
Binomial(min(N G, R), q) are broken, whatever the server knew, and a share of G q in expectation. Without a bound on
the gap there is none for the share: the server lets broken rounds alone happen. Where a beacon opens the rounds a
number's lots are unknown until it is opened, and then there are at most G to choose from: given all that went before,
the next announced round is broken with at most 1 - (1 - q)**G.

Several participant lists of one round hold the same dishonest clients and different honest ones. They are lists of one
number, so q and p_k do not change; but instead of s clients all of the number's candidates may take part in it.
"""

from fractions import Fraction
from functools import cache
from math import inf, log10

from analysis.bounds.lotto import selection_probability, tolerated
from analysis.bounds.lotto_dp import (
    PrivacyCost,
    Training,
    at_least_one,
    cost_with_lotto,
    repeated_by_any,
    repeated_by_participants,
)
from analysis.bounds.tails import log10_survival, survival
from analysis.bounds.validation import require_at_least

_SPARED = 1000  # of delta, what is left for rounds with more candidates than counted with


class BrokenRounds:
    """How often more dishonest clients stand in a round number than secure aggregation withstands.

    Args:
        dishonest: c.
        participants: s.
        over_selection: a.
        min_population: n_min.
        threshold: t of SecAgg, a number or a fraction of s.
        rounds: R, at least 1; no client accepts a higher number.
        gap: G, at least 1; None: clients accept any later number.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(
        self,
        dishonest: int,
        participants: int,
        over_selection: float | Fraction,
        min_population: int,
        threshold: int | float | Fraction,
        rounds: int,
        gap: int | None,
    ) -> None:
        require_at_least(1, rounds=rounds, round_gap=rounds if gap is None else gap)
        p = selection_probability(participants, over_selection, min_population)
        self._of = tolerated(participants, threshold), dishonest, p
        self.rounds, self.gap = rounds, gap
        self.chance = survival(*self._of)

    def some_of(self, numbers: int) -> float:
        """Pr[one of so many numbers is broken]."""
        return at_least_one(numbers, self.chance)

    def log10_some_of(self, numbers: int) -> float:
        """Its decimal logarithm, also where there is no double; -inf where it cannot happen."""
        value = self.some_of(numbers)
        if value > 1e-290:
            return log10(value)
        one = log10_survival(*self._of)
        return one if one == -inf else one + log10(numbers)

    def reached(self, announced: int) -> int:
        """The highest number that can have been announced in so many announcements."""
        return self.rounds if self.gap is None else min(announced * self.gap, self.rounds)

    def among(self, announced: int) -> float:
        """Pr[one of the first so many announced rounds is broken], at most, for any server."""
        return self.some_of(self.reached(announced))

    @property
    def expected(self) -> float:
        """How many of all R rounds are broken, in expectation, at most."""
        return self.rounds * self.chance

    @property
    def share(self) -> float:
        """The share of broken rounds among the announced ones, in expectation, at most."""
        return 1.0 if self.gap is None else min(1.0, self.gap * self.chance)


def cost_with_parallel_lists(training: Training, population: int) -> PrivacyCost:
    """Corollary 2 when the server makes several lists of a round's candidates, instead of one of s.

    In Corollary 2 the server picks its victim among the s clients of a round, R times; here among all candidates.
    No round has more than m of these but with the chance of a binomial tail over the n clients, which is added. As all
    clients that the server can pick are among the n, q_r is also at most that of n parties known beforehand.

    Args:
        training: see `Training`; its variant is the client-centric one.
        population: n, clients that there are.
    """
    most, beyond = candidates_at_most(training, population)

    @cache
    def repeated(r: int) -> float:
        if r >= training.rounds:
            return 0.0
        picked = repeated_by_participants(most, r, training.rounds, training.p) + beyond
        return min(1.0, picked, repeated_by_any(population, r, training.rounds, training.p))

    return cost_with_lotto(training, "client-centric", repeated)


def candidates_at_most(training: Training, population: int) -> tuple[int, float]:
    """m, at least s, and the chance that a round of R has more candidates: a thousandth of delta at most."""
    low, high = min(training.participants, population), population
    while low < high:
        middle = (low + high) // 2
        enough = at_least_one(training.rounds, survival(middle, population, training.p)) <= training.delta / _SPARED
        low, high = (low, middle) if enough else (middle + 1, high)
    return low, at_least_one(training.rounds, survival(low, population, training.p))


def lists_at_once(candidates: int, dishonest: int, participants: int) -> int:
    """L: how many lists of s so many candidates make, with the dishonest among them in each and no other twice."""
    ours = min(dishonest, participants - 1)
    return (candidates - dishonest) // (participants - ours)
