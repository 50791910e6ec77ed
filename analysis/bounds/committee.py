"""Probabilities that a committee fails: too many dishonest members, or too few honest members that answer.

With too many dishonest members, these, or the server with their help, learn secrets; with too few answers the round
ends. Dishonest clients are fixed before keys and seed are made, so the draws of a training are independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, inf, log10
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.bounds import lotto, tails
from analysis.bounds.checks import require_at_least, require_inside
from analysis.bounds.lotto_rounds import at_least_one
from testbed.committee.parameters import MOST_MEMBERS, OVER_SELECTION, CommitteeSection

Selection = Literal["public-seed", "lotto-client-centric", "lotto-server-centric"]
Server = Literal["malicious", "semi-honest"]
_ALL_UP_TO = 100
_OUTPUT_BITS = {"lotto-client-centric": 512, "lotto-server-centric": 256}  # of VRF and PRF


@dataclass(frozen=True)
class Draw:
    """The selection of committee members from a population; the size is an argument of `of`.

    Attributes:
        population: n.
        dishonest: c.
        selection: of the committee.
        over_selection: a, by sortition.
        dropout: chance that a client does not answer in a round; independent of other clients and rounds.
        weights: `(n,)` weights by which clients are drawn, none negative; None: all alike.
    """

    population: int
    dishonest: int
    selection: Selection = "public-seed"
    over_selection: float | Fraction = OVER_SELECTION
    dropout: float = 0.0
    weights: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(2, population=self.population)
        require_at_least(0, dishonest=self.dishonest)
        if self.dishonest > self.population:
            raise ValueError(f"dishonest: {self.dishonest} of a population of {self.population}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: {self.dropout}; must be at least 0 and below 1")
        lotto.selection_probability(1, self.over_selection, self.population)
        if self.weights is None:
            return
        if not self.by_sortition:
            raise ValueError("weights: allowed only with --selection lotto-client-centric or lotto-server-centric")
        if len(self.weights) != self.population or min(self.weights) < 0 or not sum(self.weights):
            raise ValueError(
                f"weights: {len(self.weights)} for a population of {self.population}; give one for each client, none "
                "negative, and not all 0"
            )

    @property
    def by_sortition(self) -> bool:
        """Whether the server may hide honest candidates."""
        return self.selection != "public-seed"

    @cached_property
    def presence(self) -> Fraction:
        """Probability that a client answers."""
        return 1 - lotto.decimal("dropout", self.dropout)

    def of(self, size: int) -> "Members":
        """Return the members of a committee of a size; raise `ValueError` if the population is too small for it."""
        if self.population < size or (self.by_sortition and self._factor * size >= self.population):
            most = ceil(self.population / self._factor) - 1 if self.by_sortition else self.population
            raise ValueError(f"size: {size} members of a population of {self.population}; at most {most}")
        return Members(self, size)

    @cached_property
    def _factor(self) -> Fraction:
        return lotto.decimal("over_selection", self.over_selection)

    @cached_property
    def by_weight(self) -> npt.NDArray[np.float64]:
        """`(n,)` shares of the weights, the heaviest first."""
        assert self.weights is not None
        # In the worst case the c heaviest clients are dishonest: they are drawn most often.
        return np.sort(np.array(self.weights, np.float64))[::-1] / float(sum(self.weights))


@dataclass(frozen=True)
class Members:
    """The members of a committee of `size`: the distribution of the dishonest ones in the worst case."""

    draw: Draw
    size: int

    @cached_property
    def p(self) -> Fraction:
        """A client's probability to be drawn, where it is the same for all."""
        n, a = self.draw.population, self.draw.over_selection
        if not self.draw.by_sortition:
            return Fraction(self.size, n)
        return lotto.selection_probability(self.size, a, n, _OUTPUT_BITS[self.draw.selection])

    @cached_property
    def _chances(self) -> npt.NDArray[np.float64]:
        """`(n,)` probability of each client to be drawn, by weight."""
        return np.minimum(1.0, float(self.draw._factor) * self.size * self.draw.by_weight)

    @cached_property
    def _weighted(self) -> npt.NDArray[np.float64]:
        """`(size + 1,)` Pr[X = x] for x dishonest candidates, the last Pr[X >= size]; with weights."""
        return sum_of_coins(self._chances[: self.draw.dishonest], self.size)

    @property
    def expected(self) -> float:
        """Expected number of dishonest clients that are drawn; more than `size` of them do not help the server."""
        if self.draw.weights is not None:
            return float(self._chances[: self.draw.dishonest].sum())
        return float(self.draw.dishonest * self.p)

    def at_least(self, dishonest: int) -> float:
        """Return a bound on Pr[at least `dishonest` dishonest members], exact for the worst server."""
        if dishonest > self.size:
            return 0.0
        draw = self.draw
        if draw.weights is not None:
            return float(self._weighted[max(0, dishonest) :].sum())
        # By sortition the server keeps all dishonest clients that are drawn, and hides honest ones (Lotto, 3.4).
        if draw.by_sortition:
            return tails.survival(dishonest - 1, draw.dishonest, self.p)
        return tails.hypergeometric_survival(dishonest - 1, draw.population, draw.dishonest, self.size)

    def log10_at_least(self, dishonest: int) -> float:
        """Return the decimal logarithm of `at_least`, also below the smallest double (but not with weights)."""
        draw = self.draw
        if dishonest > self.size:
            return -inf
        if draw.weights is not None:
            chance = self.at_least(dishonest)
            return log10(chance) if chance else -inf
        if draw.by_sortition:
            return tails.log10_survival(dishonest - 1, draw.dishonest, self.p)
        return tails.log10_hypergeometric_survival(dishonest - 1, draw.population, draw.dishonest, self.size)

    def masses(self, last: int) -> Sequence[float]:
        """Return Pr[x dishonest members] for x = 0, ..., `last` < size, in the same worst case."""
        draw = self.draw
        if draw.weights is not None:
            return [float(mass) for mass in self._weighted[: last + 1]]
        if draw.by_sortition:
            return tails.masses(0, last, draw.dishonest, self.p)
        return tails.hypergeometric_masses(0, last, draw.population, draw.dishonest, self.size)

    def too_few_answer(self, threshold: int) -> float:
        """Return a bound on Pr[fewer than `threshold` honest members answer in a round]; dishonest ones are silent."""
        bearable = self.size - threshold
        # By the honest members m = s - x, from s down.
        within = tails.cdfs_over_trials(threshold - 1, threshold, self.size, self.draw.presence)[::-1]
        failing = sum(mass * few for mass, few in zip(self.masses(bearable), within, strict=True))
        return min(1.0, self.at_least(bearable + 1) + failing)

    def not_drawn(self) -> float:
        """Return Pr[fewer than `size` honest clients are drawn and answer], in which case there is no committee."""
        draw = self.draw
        if not draw.by_sortition:
            return 0.0
        if draw.weights is not None:
            masses = sum_of_coins(self._chances[draw.dishonest :] * float(draw.presence), self.size)
            return float(masses[:-1].sum())
        return tails.cdf(self.size - 1, draw.population - draw.dishonest, self.p * draw.presence)


def sum_of_coins(chances: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """Return the distribution of a sum of coins (Poisson-binomial), cut off.

    Args:
        chances: probabilities of the coins.
        most: first value that is not counted by itself.

    Returns:
        `(most + 1,)` Pr[X = x] for x < most, and Pr[X >= most].

    Example:
        >>> sum_of_coins(np.array([0.5, 0.5]), 2).tolist()
        [0.25, 0.5, 0.25]
    """
    # Coin by coin; all terms are positive, so nothing cancels.
    masses = np.zeros(most + 1)
    masses[0] = 1.0
    for chance in chances:
        up = masses[:-1] * chance
        masses[:-1] *= 1 - chance
        masses[1:] += up  # the last entry only grows: it is X >= most
    return masses


# -- a committee with a threshold --------------------------------------------------------------------------------------


def threshold_of(size: int, threshold: int | float | None = None) -> int:
    """Return t, given as a number or a fraction of the size; by default two thirds.

    Args:
        size: s.
        threshold: number or fraction.

    Raises:
        ValueError: unless s/2 < t <= s.
    """
    section = CommitteeSection(size=size, threshold=threshold)
    try:
        section.check(size)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("committee.")) from None
    return section.threshold_for(size)


def enough_to_break(size: int, threshold: int, server: Server) -> int:
    """Return the number of dishonest members that learn secrets: t, or 2 t - s with a malicious server.

    Args:
        size: s.
        threshold: t.
        server: a malicious one tells members different things.

    Example:
        >>> enough_to_break(size=60, threshold=40, server="malicious")
        20
    """
    # A malicious server that tells honest members two things, with answers to both from all x dishonest ones, has t of
    # each as soon as 2 t <= s + x. Signatures before the answers do not help: dishonest members sign both.
    return 2 * threshold - size if server == "malicious" else threshold


def services(rounds: int, serves_rounds: int | None) -> int:
    """Return the number of draws in a training.

    Args:
        rounds: of the training.
        serves_rounds: rounds that a committee serves; None: all.
    """
    return 1 if serves_rounds is None else -(-rounds // serves_rounds)


def broken_ever(chance: float, draws: int, tries: int) -> float:
    """Return Pr[one of several independent draws breaks].

    Args:
        chance: of one draw.
        draws: number of draws.
        tries: seeds that an attacker can choose from.
    """
    # Each seed that an attacker may try (names of the experiment, without a beacon) is one draw more.
    return at_least_one(draws * tries, chance)


def round_fails(members: Members, threshold: int) -> float:
    """Return a bound on Pr[a round ends because of the committee]: none is drawn, or too few members answer.

    Args:
        members: of the committee.
        threshold: t.
    """
    return min(1.0, members.not_drawn() + members.too_few_answer(threshold))


@dataclass(frozen=True)
class Targets:
    """The targets of a committee.

    Attributes:
        broken: largest allowed Pr[some service of the training is broken].
        failed: largest allowed Pr[a round ends because of the committee].
        draws: number of services of the training.
        tries: seeds that an attacker can choose from.
        server: behaviour of the server.
    """

    broken: float
    failed: float
    draws: int = 1
    tries: int = 1
    server: Server = "malicious"

    def __post_init__(self) -> None:
        require_inside(target=self.broken, failure_target=self.failed)
        require_at_least(1, draws=self.draws, tries=self.tries)


def smallest_size(draw: Draw, targets: Targets, largest: int = MOST_MEMBERS) -> tuple[int, int] | None:
    """Find the smallest committee that keeps both targets, and its smallest threshold that does.

    Args:
        draw: the selection.
        targets: of the committee.
        largest: largest size to try.

    Returns:
        Size and threshold; None if no size keeps the targets.
    """
    # For each size, the smallest threshold that keeps the first target tolerates the most dropouts. The targets are not
    # quite monotone in the size: with one member more the threshold may have to grow, too. So all sizes up to 100 are
    # tried, and beyond them those from two steps of a twentieth below the first step that keeps the targets.
    last = 2
    steps = [2]
    while last < largest:
        last = min(largest, last + max(1, (last - _ALL_UP_TO) // 20))
        steps.append(last)
    for place, step in enumerate(steps):
        if _threshold_kept(draw, step, targets) is not None:
            for size in range(steps[max(0, place - 2)], step + 1):
                threshold = _threshold_kept(draw, size, targets)
                if threshold is not None:
                    return size, threshold
    return None


def _threshold_kept(draw: Draw, size: int, targets: Targets) -> int | None:
    """Return the smallest threshold that keeps both targets; None if there is none."""
    try:
        members = draw.of(size)
    except ValueError:
        return None
    if targets.broken < 0.5 and targets.failed < 0.5 and _hopeless(members, targets):  # spares most sizes their tails
        return None
    threshold = smallest_threshold(members, targets)
    if threshold is None or (targets.failed < 0.5 and threshold > size * draw.presence + 2):
        return None
    return threshold if round_fails(members, threshold) <= targets.failed else None


def _hopeless(members: Members, targets: Targets) -> bool:
    """Return whether one of the targets is missed more often than not.

    The median of these sums of coins is next to the mean. With enough honest clients drawn, t must be above the number
    of dishonest ones that break it, and below the number of members that answer.
    """
    size, draw = members.size, members.draw
    if draw.weights is not None:
        return False
    dishonest = min(members.expected, size)
    if draw.by_sortition and (draw.population - draw.dishonest) * members.p * draw.presence < size - 2:
        return True
    least = (size + dishonest) / 2 if targets.server == "malicious" else dishonest
    return least - 2 > size * draw.presence


def best_over_selection(draw: Draw, targets: Targets, largest: int = MOST_MEMBERS) -> Draw | None:
    """Return the selection with the a of the smallest committee, in tenths from 1.1 to 4.

    Args:
        draw: the selection; its a is ignored.
        targets: of the committee.
        largest: largest size to try.

    Returns:
        The selection with the smallest such a; None if no a keeps the targets.
    """
    # A larger a finds enough honest clients more surely, and admits more dishonest ones.
    best = None
    for tenths in range(11, 41):
        tried = replace(draw, over_selection=Fraction(tenths, 10))
        plan = smallest_size(tried, targets, largest)
        if plan is not None:
            best, largest = tried, plan[0] - 1  # ties go to the smaller a
    return best


def smallest_threshold(members: Members, targets: Targets) -> int | None:
    """Return the smallest t, above s/2 and at most s, that keeps the first target; None if t = s does not.

    Args:
        members: of the committee.
        targets: of the committee.
    """

    def keeps(threshold: int) -> bool:
        broken = members.at_least(enough_to_break(members.size, threshold, targets.server))
        return broken_ever(broken, targets.draws, targets.tries) <= targets.broken

    if not keeps(members.size):
        return None
    return lotto.smallest(keeps, members.size // 2 + 1, members.size)
