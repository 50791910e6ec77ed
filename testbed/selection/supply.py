"""How many clients a round is likely to find, for a warning before anything runs."""

from dataclasses import dataclass


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
    from scipy.special import bdtrc  # slow to import

    return float(bdtrc(count - 1, trials, min(1.0, max(0.0, chance))))
