"""How likely a committee is to be of no use: so many dishonest members that they, or the server with their help, learn
what they must not; or so few honest members that answer that the round ends.

Drawn from what everybody knows (`public-seed`), the dishonest members are hypergeometric. By sortition (`lotto-*`) the
server keeps all its clients that are drawn and hides honest ones (Jiang et al., arXiv 2401.02880, section 3.4), so they
are Binomial(c, p) with p = floor(a s m / n) / m; with weights, a sum of different coins, whose worst case are the c
heaviest clients: the more likely each of them is, the more there are.

Of a committee of s with a threshold t, t dishonest members know all secrets by themselves. A malicious server that
tells the honest members two things, and gets both from every dishonest one, has t answers to each with x of them as
soon as 2 t <= s + x. That t of them have signed what they were told, before they answer, changes nothing in this count:
dishonest members sign both.

A service begins with a fixed round, so a training of R rounds has ceil(R / r) draws, which are independent; the
dishonest clients are what they are before keys and seed are made. Who can try k seeds (names of the experiment, where
nothing is drawn from a beacon) has k times as many.
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
_OUTPUT_BITS = {"lotto-client-centric": 512, "lotto-server-centric": 256}


@dataclass(frozen=True)
class Draw:
    """How members are drawn, and from whom; the committee's size is what is asked about.

    Attributes:
        population: n.
        dishonest: c.
        selection: of the committee.
        over_selection: a, by sortition.
        dropout: chance that a client does not answer in a round; each time anew, and of each by itself.
        weights: `(n,)` by which clients are drawn, none negative; None: all alike.
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
            raise ValueError("weights: go with --selection lotto-client-centric or lotto-server-centric")
        if len(self.weights) != self.population or min(self.weights) < 0 or not sum(self.weights):
            raise ValueError(
                f"weights: {len(self.weights)} for a population of {self.population}; one for each client, none "
                "negative, and not all 0"
            )

    @property
    def by_sortition(self) -> bool:
        """Whether the server may hide honest candidates."""
        return self.selection != "public-seed"

    @cached_property
    def presence(self) -> Fraction:
        """Chance that a client answers."""
        return 1 - lotto.decimal("dropout", self.dropout)

    def of(self, size: int) -> "Members":
        """The members of a committee of so many; `ValueError` where the population does not have them."""
        if self.population < size or (self.by_sortition and self._factor * size >= self.population):
            most = ceil(self.population / self._factor) - 1 if self.by_sortition else self.population
            raise ValueError(f"size: {size} members of a population of {self.population}; at most {most}")
        return Members(self, size)

    @cached_property
    def _factor(self) -> Fraction:
        return lotto.decimal("over_selection", self.over_selection)

    @cached_property
    def by_weight(self) -> npt.NDArray[np.float64]:
        """`(n,)` share of the weights, the heaviest first."""
        assert self.weights is not None
        return np.sort(np.array(self.weights, np.float64))[::-1] / float(sum(self.weights))


@dataclass(frozen=True)
class Members:
    """The members of a committee of `size`: how many of them are dishonest, at worst."""

    draw: Draw
    size: int

    @cached_property
    def p(self) -> Fraction:
        """A client's chance to be drawn, where all have the same."""
        n, a = self.draw.population, self.draw.over_selection
        if not self.draw.by_sortition:
            return Fraction(self.size, n)
        return lotto.selection_probability(self.size, a, n, _OUTPUT_BITS[self.draw.selection])

    @cached_property
    def _chances(self) -> npt.NDArray[np.float64]:
        """`(n,)` of each client to be drawn, by weight."""
        return np.minimum(1.0, float(self.draw._factor) * self.size * self.draw.by_weight)

    @cached_property
    def _weighted(self) -> npt.NDArray[np.float64]:
        """`(size + 1,)` Pr[X = x] of dishonest candidates, the last: or more; where clients have weights."""
        return sum_of_coins(self._chances[: self.draw.dishonest], self.size)

    @property
    def expected(self) -> float:
        """Dishonest clients that are drawn, in expectation; the server can do without an excess over `size`."""
        if self.draw.weights is not None:
            return float(self._chances[: self.draw.dishonest].sum())
        return float(self.draw.dishonest * self.p)

    def at_least(self, dishonest: int) -> float:
        """Pr[so many members are dishonest], at most; exactly for the server that does its worst."""
        if dishonest > self.size:
            return 0.0
        draw = self.draw
        if draw.weights is not None:
            return float(self._weighted[max(0, dishonest) :].sum())
        if draw.by_sortition:
            return tails.survival(dishonest - 1, draw.dishonest, self.p)
        return tails.hypergeometric_survival(dishonest - 1, draw.population, draw.dishonest, self.size)

    def log10_at_least(self, dishonest: int) -> float:
        """Its decimal logarithm, also where there is no double (but not with weights)."""
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
        """Pr[x members are dishonest] for x = 0, ..., `last` < size, in the same worst case."""
        draw = self.draw
        if draw.weights is not None:
            return [float(mass) for mass in self._weighted[: last + 1]]
        if draw.by_sortition:
            return tails.masses(0, last, draw.dishonest, self.p)
        return tails.hypergeometric_masses(0, last, draw.population, draw.dishonest, self.size)

    def too_few_answer(self, threshold: int) -> float:
        """Pr[fewer than `threshold` honest members answer in a round], at most: dishonest ones keep silent."""
        bearable = self.size - threshold
        within = tails.cdfs_over_trials(threshold - 1, threshold, self.size, self.draw.presence)[::-1]
        failing = sum(mass * few for mass, few in zip(self.masses(bearable), within, strict=True))
        return min(1.0, self.at_least(bearable + 1) + failing)

    def not_drawn(self) -> float:
        """Pr[fewer than `size` honest clients are drawn and answer], so that there is no committee to begin with."""
        draw = self.draw
        if not draw.by_sortition:
            return 0.0
        if draw.weights is not None:
            masses = sum_of_coins(self._chances[draw.dishonest :] * float(draw.presence), self.size)
            return float(masses[:-1].sum())
        return tails.cdf(self.size - 1, draw.population - draw.dishonest, self.p * draw.presence)


def sum_of_coins(chances: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """`(most + 1,)` Pr[X = x] for x < most and Pr[X >= most], of a sum of coins with these chances (Poisson-binomial).

    Coin by coin; all terms are positive, so nothing cancels.
    """
    masses = np.zeros(most + 1)
    masses[0] = 1.0
    for chance in chances:
        up = masses[:-1] * chance
        masses[:-1] *= 1 - chance
        masses[1:] += up
    return masses


# -- a committee with a threshold --------------------------------------------------------------------------------------


def threshold_of(size: int, threshold: int | float | None = None) -> int:
    """t, a number or a fraction of the size, two thirds where there is none; `ValueError` unless s/2 < t <= s."""
    section = CommitteeSection(size=size, threshold=threshold)
    try:
        section.check(size)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("committee.")) from None
    return section.threshold_for(size)


def enough_to_break(size: int, threshold: int, server: Server) -> int:
    """How many dishonest members learn what they must not: t, or 2 t - s with a server that tells two things."""
    return 2 * threshold - size if server == "malicious" else threshold


def services(rounds: int, serves_rounds: int | None) -> int:
    """Draws in a training of so many rounds."""
    return 1 if serves_rounds is None else -(-rounds // serves_rounds)


def broken_ever(chance: float, draws: int, tries: int) -> float:
    """Pr[one of independent draws breaks], with `tries` seeds to choose from."""
    return at_least_one(draws * tries, chance)


def round_fails(members: Members, threshold: int) -> float:
    """Pr[a round ends for the committee's sake], at most: none is drawn, or too few answer."""
    return min(1.0, members.not_drawn() + members.too_few_answer(threshold))


@dataclass(frozen=True)
class Targets:
    """What a committee is to keep.

    Attributes:
        broken: Pr[some service of the training is broken], at most.
        failed: Pr[a round ends for the committee's sake], at most.
        draws: services of the training.
        tries: seeds to choose from.
        server: what it does.
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
    """The smallest committee that keeps both targets, and its smallest threshold that does; None: none up to `largest`.

    For each size, the smallest threshold that keeps the first target is the one that bears the most drop-outs. What a
    size keeps is not quite monotone: with one member more the threshold may have to grow, too. So all sizes up to 100
    are looked at, and beyond those from two steps of a twentieth below the first step that keeps the targets.
    """
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
    """The smallest threshold that keeps both targets; None: there is none."""
    try:
        members = draw.of(size)
    except ValueError:
        return None
    if targets.broken < 0.5 and targets.failed < 0.5 and _hopeless(members, targets):
        return None
    threshold = smallest_threshold(members, targets)
    if threshold is None or (targets.failed < 0.5 and threshold > size * draw.presence + 2):
        return None
    return threshold if round_fails(members, threshold) <= targets.failed else None


def _hopeless(members: Members, targets: Targets) -> bool:
    """Whether one of the targets is missed more often than not: these sums of coins have their median next to the mean.

    With enough honest clients drawn, and t above what the dishonest ones need, t is to be below who answers.
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
    """The same draw with the a, in tenths from 1.1 to 4, of the smallest committee; of equals the smallest a.

    A larger one finds enough honest clients more surely, and lets as many more dishonest ones through.
    """
    best = None
    for tenths in range(11, 41):
        tried = replace(draw, over_selection=Fraction(tenths, 10))
        plan = smallest_size(tried, targets, largest)
        if plan is not None:
            best, largest = tried, plan[0] - 1
    return best


def smallest_threshold(members: Members, targets: Targets) -> int | None:
    """The smallest t, above s/2 and at most s, that keeps the first target; None: not even t = s does."""

    def keeps(threshold: int) -> bool:
        broken = members.at_least(enough_to_break(members.size, threshold, targets.server))
        return broken_ever(broken, targets.draws, targets.tries) <= targets.broken

    if not keeps(members.size):
        return None
    return lotto.smallest(keeps, members.size // 2 + 1, members.size)
