"""How likely a round finds enough clients; used for a warning before a run starts."""

import math
from dataclasses import dataclass

_FEW_TRIALS = 5_000  # summed term by term; scipy computes larger cases


@dataclass(frozen=True)
class Supply:
    """The clients or batches that a round needs, and the probability that each is available.

    Attributes:
        noun: the needed items, in the plural, e.g. ``candidates``.
        required: number of items that a round needs.
        trials: number of items in the population.
        chance: probability that an item is available, independently of the others.
        keys: keys of the experiment that change the result, the most useful first.
    """

    noun: str
    required: int
    trials: int
    chance: float
    keys: tuple[str, ...]

    @property
    def expected(self) -> float:
        """Mean number of available items."""
        return self.trials * self.chance

    @property
    def enough(self) -> float:
        """Probability that enough items are available (binomial).

        Example:
            >>> round(Supply("candidates", 10, 200, 0.02, ()).enough, 3)
            0.007
        """
        return at_least(self.required, self.trials, self.chance)


def at_least(count: int, trials: int, chance: float) -> float:
    """Return the probability of at least `count` successes in independent trials (binomial survival function).

    Args:
        count: number of successes.
        trials: number of trials.
        chance: probability of success in each trial.

    Example:
        >>> round(at_least(1, 2, 0.5), 3)
        0.75
    """
    if count <= 0:
        return 1.0
    if count > trials:
        return 0.0
    if chance <= 0.0 or chance >= 1.0:
        return float(chance >= 1.0)
    if trials > _FEW_TRIALS:
        from scipy.special import bdtrc  # slow to import, and `validate` should answer at once

        return float(bdtrc(count - 1, trials, chance))
    # In logarithms, because binomial coefficients exceed the range of doubles.
    log_success, log_failure = math.log(chance), math.log1p(-chance)
    log_ways = math.lgamma(trials + 1)
    terms = (
        log_ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_success + (trials - k) * log_failure
        for k in range(count, trials + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))  # rounding may exceed 1
