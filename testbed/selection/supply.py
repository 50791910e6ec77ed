"""How many clients a round is likely to find, for a warning before anything runs."""

import math
from dataclasses import dataclass

_FEW_TRIALS = 5_000  # a term each; more go to scipy


@dataclass(frozen=True)
class Supply:
    """What a round of a selection protocol needs, and how likely each of it is to be there.

    Attributes:
        noun: what is needed, in the plural, e.g. ``candidates``.
        wanted: how many of them a round needs.
        trials: how many there are in the population.
        chance: probability that one of them is there, independently of the others.
        keys: keys of the experiment that change it, the most useful first.
    """

    noun: str
    wanted: int
    trials: int
    chance: float
    keys: tuple[str, ...]

    @property
    def expected(self) -> float:
        """How many are there on average."""
        return self.trials * self.chance

    @property
    def enough(self) -> float:
        """Probability that as many are there as are needed (binomial).

        Example:
            >>> round(Supply("candidates", 10, 200, 0.02, ()).enough, 3)
            0.007
        """
        return at_least(self.wanted, self.trials, self.chance)


def at_least(count: int, trials: int, chance: float) -> float:
    """Probability of `count` successes or more in so many independent trials."""
    if count <= 0:
        return 1.0
    if count > trials:
        return 0.0
    if chance <= 0.0 or chance >= 1.0:
        return float(chance >= 1.0)
    if trials > _FEW_TRIALS:
        from scipy.special import bdtrc  # slow to import, and `validate` should answer at once

        return float(bdtrc(count - 1, trials, chance))
    log_success, log_failure = math.log(chance), math.log1p(-chance)
    log_ways = math.lgamma(trials + 1)
    terms = (
        log_ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_success + (trials - k) * log_failure
        for k in range(count, trials + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))
