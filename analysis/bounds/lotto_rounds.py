"""Lotto over many rounds: Corollaries 2 and 3, and Corollary 1 when the server chooses which rounds happen.

Jiang, Ye, Chen, et al., USENIX Security 2024, arXiv 2401.02880 (section 3.6, Appendices A and B). Corollaries 2 and 3
bound the cost of distributed differential privacy.

Dishonest participants add no noise, and a server that may choose keeps asking the same victim. Lotto bounds both: with
probability at least 1 - p_k no round has more than k dishonest candidates, and with probability at least 1 - q_r no
client takes part in more than r of the R rounds. Given both, the victim's epsilon is that of r rounds with (s - k)/s of
the noise, at the rest of delta after p_k and q_r. Every pair (k, r) gives a valid epsilon; the corollaries take the
least. docs/papers/lotto-guarantees.md derives the bounds for a server that chooses round numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from math import expm1, inf, log1p, log10
from typing import Literal

import numpy as np

from analysis.bounds.checks import require_at_least, require_inside
from analysis.bounds.lotto import selection_probability, smallest, threshold_of, tolerated
from analysis.bounds.tails import log10_survival, survival, survivals, survivals_over_trials
from testbed.privacy.accounting import Skellam, epsilon

Variant = Literal["client-centric", "server-centric"]


@dataclass(frozen=True)
class Training:
    """A training under distributed differential privacy.

    Attributes:
        dishonest: c.
        participants: s.
        over_selection: a.
        min_population: n_min.
        threshold: t of SecAgg, a number or a fraction of s.
        rounds: R.
        delta: in (0, 1).
        mechanism: of the noise; its noise multiplier is that of the shares of all s participants.
        maximum_population: n_max, most clients that could exist, at least those that do; counts in the server-centric
            variant only, in which the server can look for the client with the most participations before it begins.
    """

    dishonest: int
    participants: int
    over_selection: float | Fraction
    min_population: int
    threshold: int | float
    rounds: int
    delta: float
    mechanism: Skellam
    maximum_population: int = 10**9

    def __post_init__(self) -> None:
        require_at_least(0, dishonest=self.dishonest)
        require_at_least(
            1, participants=self.participants, rounds=self.rounds, maximum_population=self.maximum_population
        )
        require_inside(delta=self.delta)
        _ = self.p, self.tolerated  # both check their arguments

    @cached_property
    def p(self) -> Fraction:
        """Bound on a client's probability to be a candidate."""
        return selection_probability(self.participants, self.over_selection, self.min_population)

    @cached_property
    def tolerated(self) -> int:
        """Most dishonest participants with which SecAgg is secure."""
        return tolerated(self.participants, self.threshold)


@dataclass(frozen=True)
class PrivacyCost:
    """An epsilon, with its assumptions.

    Attributes:
        epsilon: inf if nothing is guaranteed.
        dishonest: k, the dishonest participants of a round that it allows for.
        rounds: r, the rounds of one client that it allows for.
        p_k: bound on the chance that some round has more than k dishonest candidates.
        q_r: bound on the chance that some client is in more than r rounds.
        reason: why epsilon is inf; empty otherwise.
    """

    epsilon: float
    dishonest: int | None
    rounds: int | None
    p_k: float = 0.0
    q_r: float = 0.0
    reason: str = field(default="", compare=False)


def cost_with_lotto(
    training: Training,
    variant: Variant,
    again: Callable[[int], float] | None = None,
    *,
    claimed_dropouts: bool = False,
) -> PrivacyCost:
    """Return the least epsilon over all k and r, with these (Corollary 2 or 3).

    Args:
        training: its parameters.
        variant: selects the corollary.
        again: other q_r than the variant's, as a function of r.
        claimed_dropouts: whether the server claims that as many participants as SecAgg tolerates, all of them honest,
            have dropped out: the sum has (t - k)/s of the noise, where the corollaries have (s - k)/s.
    """
    p = too_many_dishonest(training)
    if p[-1] >= training.delta:
        return PrivacyCost(inf, None, None, reason=_too_many(training, p[-1]))
    s = training.participants
    left = threshold_of(s, training.threshold) if claimed_dropouts else s
    # Divergences take long, and depend on k alone: r rounds multiply them.
    divergences = lru_cache(maxsize=None)(lambda k: training.mechanism.divergences((left - k) / s))
    return least_epsilon(
        training.delta,
        dishonest=p,
        repeated=again or (lambda r: repeated(training, variant, r)),
        rounds=training.rounds,
        cost=lambda k, r, delta: epsilon(divergences(k), r, delta),
    )


def least_epsilon(
    delta: float,
    dishonest: Sequence[float],
    repeated: Callable[[int], float],
    rounds: int,
    cost: Callable[[int, int, float], float],
) -> PrivacyCost:
    """Return the least epsilon over all k and r, for any mechanism; inf if no bounds are below delta.

    Args:
        delta: in (0, 1).
        dishonest: p_k for k = 0, 1, ...: bounds on Pr[some round has more than k dishonest participants].
        repeated: q_r: bound on Pr[the client is in more than r rounds]; falls with r, and is 0 at `rounds`.
        rounds: R.
        cost: epsilon of a client in r rounds, each with k dishonest participants, at a delta; from (k, r, delta). It
            grows with k and r, and falls with delta.
    """
    # Pairs are left out only where they cannot win: the epsilon at the whole delta bounds that of every larger pair
    # from below.
    p, q = dishonest, lru_cache(maxsize=None)(repeated)
    if not p or p[-1] >= delta:
        return PrivacyCost(inf, None, None, reason="more dishonest participants than allowed for are too likely")
    first = smallest(lambda r: q(r) < delta, 0, rounds)
    best = PrivacyCost(inf, None, None, reason="without noise nothing is private")
    for k in range(smallest(lambda k: p[k] < delta, 0, len(p) - 1), len(p)):
        if cost(k, first, delta) >= best.epsilon:
            break
        for r in range(first, rounds + 1):
            left = delta - p[k] - q(r)
            if left <= 0:
                continue
            if cost(k, r, delta) >= best.epsilon:
                break
            # delta = p_k + q_r + (1 - p_k - q_r) delta', solved for the delta' of the rounds that are as assumed.
            candidate = cost(k, r, left / (1 - p[k] - q(r)))
            if candidate < best.epsilon:
                best = PrivacyCost(candidate, k, r, p[k], q(r))
    return best


def cost_without_lotto(training: Training) -> PrivacyCost:
    """Return epsilon when a malicious server chooses the victim and dishonest clients in every round."""
    # With 2t - s dishonest participants the server sees the victim's own update (Corollary 1), with the victim's share
    # of the noise alone, 1/s of the variance; else the sum with the shares of all honest participants.
    s, chosen = training.participants, min(training.dishonest, training.participants - 1)
    share = 1 / s if chosen > training.tolerated else (s - chosen) / s
    spent = training.mechanism.epsilon(training.rounds, training.delta, share)
    return PrivacyCost(spent, chosen, training.rounds)


def too_many_dishonest(training: Training) -> list[float]:
    """Return bounds p_k on Pr[a round of R has more than k dishonest candidates], k = 0, 1, ..., min(c, 2t - s - 1)."""
    last = min(training.dishonest, training.tolerated)
    return [at_least_one(training.rounds, tail) for tail in survivals(last, training.dishonest, training.p)]


def repeated(training: Training, variant: Variant, r: int) -> float:
    """Return a bound q_r on Pr[some client is in more than r of the R rounds].

    Args:
        training: its parameters.
        variant: client-centric or server-centric.
        r: number of rounds.
    """
    # Server-centric: any of n_max clients is a candidate in more than r rounds. Client-centric: the recursion
    # phi_j = 1 - g_j + g_j phi_{j-1} is a product for 1 - phi: of g_j, the chance that none of the s clients of the
    # (R - j + 1)-th round is a candidate in r or more of the j - 1 rounds that follow, over j = r + 1, ..., R.
    if variant == "server-centric":
        return repeated_by_any(training.maximum_population, r, training.rounds, training.p)
    return repeated_by_participants(training.participants, r, training.rounds, training.p)


def repeated_by_any(parties: int, r: int, rounds: int, p: Fraction) -> float:
    """Return Pr[any of several parties, known beforehand, is a candidate in more than r rounds].

    Args:
        parties: number of parties.
        r: number of rounds.
        rounds: R.
        p: probability to be a candidate in a round.
    """
    return at_least_one(parties, survival(r, rounds, p))


def repeated_by_participants(participants: int, r: int, rounds: int, p: Fraction) -> float:
    """Return phi of Corollary 2: Pr[any client that was a participant once is one in more than r rounds].

    Args:
        participants: s.
        r: number of rounds.
        rounds: R.
        p: probability to be a candidate in a round.
    """
    if r >= rounds:
        return 0.0
    if r == 0:
        return 1.0
    # Row m = j - 1 is the number of rounds that follow, for j = r + 1, ..., R.
    repeated_chances = np.array(survivals_over_trials(r - 1, rounds - 1, p)[r:])
    with np.errstate(divide="ignore"):  # a certain candidate: log1p(-1) is -inf, and q_r is 1
        # One minus a product of s-th powers, by logarithms: chances of 1e-30 would vanish beside 1.
        return float(-np.expm1(participants * np.log1p(-repeated_chances).sum()))


def at_least_one(times: int, chance: float) -> float:
    """Return 1 - (1 - chance)**times: Pr[an event in one of several independent trials], also where that is tiny.

    Args:
        times: number of trials.
        chance: of one trial.

    Example:
        >>> at_least_one(2, 0.5)
        0.75
    """
    return 1.0 if chance == 1 else -expm1(times * log1p(-chance))


def _too_many(training: Training, chance: float) -> str:
    k = min(training.dishonest, training.tolerated)
    return (
        f"no k has p_k < delta: more than the {k} dishonest participants that SecAgg withstands come in some round "
        f"with probability {chance:.3g}, and delta is {training.delta:.3g}"
    )


# -- a server that chooses the round numbers, or makes several lists --------------------------------------------------
# Corollary 1 bounds by q the chance that a round *number* is broken. VRF and PRF are independent from number to number,
# and the dishonest clients are fixed before the keys are made, so broken numbers are independent.


_SPARED = 1000  # 1/1000 of delta is left for rounds with more candidates than counted


class BrokenRounds:
    """Frequency of broken round numbers, with more dishonest candidates than secure aggregation withstands.

    Args:
        dishonest: c.
        participants: s.
        over_selection: a.
        min_population: n_min.
        threshold: t of SecAgg, a number or a fraction of s.
        rounds: R, at least 1; no client accepts a higher number.
        gap: G, at least 1; None: clients accept any later number.

    Raises:
        ValueError: if a number is out of range.
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
        """Return Pr[one of several numbers is broken]."""
        # With a beacon, a number's lots are unknown until it is opened: numbers = G bounds the next announced round.
        return at_least_one(numbers, self.chance)

    def log10_some_of(self, numbers: int) -> float:
        """Return the decimal logarithm of `some_of`, also below the smallest double; -inf if it cannot happen."""
        value = self.some_of(numbers)
        if value > 1e-290:  # smaller doubles lose digits
            return log10(value)
        single = log10_survival(*self._of)
        # The union bound, which is exact to all digits for chances this small.
        return single if single == -inf else single + log10(numbers)

    def reached(self, announced: int) -> int:
        """Return the highest number that can have been announced after a number of announcements."""
        # Clients accept a number at most G above the last one that they have heard of, and none above R.
        return self.rounds if self.gap is None else min(announced * self.gap, self.rounds)

    @property
    def expected(self) -> float:
        """Bound on the expected number of broken rounds among all R."""
        # A number serves a client once, so a server that knows its clients' lots ahead gains no further broken rounds.
        return self.rounds * self.chance

    @property
    def share(self) -> float:
        """Bound on the expected share of broken rounds among the announced ones."""
        # Without a bound on the gap, the server may let broken rounds happen only.
        return 1.0 if self.gap is None else min(1.0, self.gap * self.chance)


def cost_with_parallel_lists(training: Training, population: int) -> PrivacyCost:
    """Return epsilon of Corollary 2 when the server makes several lists of a round's candidates, instead of one of s.

    Args:
        training: its parameters; the variant is the client-centric one.
        population: n, number of clients.
    """
    # Lists of one number have the same dishonest clients, so p_k does not change; but all candidates may take part.
    # In Corollary 2 the server picks its victim among the s clients of a round, R times; here among all candidates. No
    # round has more than m of these but with the chance of a binomial tail over the n clients, which is added. As all
    # clients that the server can pick are among the n, q_r is also at most that of n parties known beforehand.
    most, beyond = candidates_at_most(training, population)

    @cache
    def repeated(r: int) -> float:
        if r >= training.rounds:
            return 0.0
        picked = repeated_by_participants(most, r, training.rounds, training.p) + beyond
        return min(1.0, picked, repeated_by_any(population, r, training.rounds, training.p))

    return cost_with_lotto(training, "client-centric", repeated)


def candidates_at_most(training: Training, population: int) -> tuple[int, float]:
    """Return m, at least s, and the chance that a round of R has more candidates: at most a thousandth of delta.

    Args:
        training: its parameters.
        population: n, number of clients.
    """

    def more(m: int) -> float:
        return at_least_one(training.rounds, survival(m, population, training.p))

    fewest = min(training.participants, population)
    # A thousandth of delta costs hardly any epsilon, and keeps m near its expectation.
    most = smallest(lambda m: more(m) <= training.delta / _SPARED, fewest, population)
    return most, more(most)
