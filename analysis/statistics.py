"""Estimates with their confidence intervals."""

from dataclasses import dataclass

from scipy.stats import binomtest


@dataclass(frozen=True)
class Proportion:
    """How often something happened, with the exact interval of Clopper and Pearson (1934).

    Attributes:
        count, trials: of independent rounds.
        low, high: ends of the interval.
    """

    count: int
    trials: int
    low: float
    high: float

    @classmethod
    def of(cls, count: int, trials: int, confidence: float = 0.95) -> "Proportion":
        """`count` times in `trials`; without trials nothing is known."""
        if trials == 0:
            return cls(0, 0, 0.0, 1.0)
        interval = binomtest(count, trials).proportion_ci(confidence, method="exact")
        return cls(count, trials, float(interval.low), float(interval.high))

    @property
    def rate(self) -> float:
        """count / trials; NaN without trials."""
        return self.count / self.trials if self.trials else float("nan")
