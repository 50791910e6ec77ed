"""Estimates with their confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr, stdtrit

Values = Sequence[float] | npt.NDArray[np.float64] | pd.Series


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
        from scipy.stats import binomtest  # slow to import, and most tables have no proportions

        interval = binomtest(count, trials).proportion_ci(confidence, method="exact")
        return cls(count, trials, float(interval.low), float(interval.high))

    @property
    def rate(self) -> float:
        """count / trials; NaN without trials."""
        return self.count / self.trials if self.trials else float("nan")


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95% confidence interval.

    Attributes:
        mean: None when there is nothing to average.
        half_width: None when there are fewer than two observations.
    """

    mean: float | None
    half_width: float | None

    def named(self, name: str) -> dict[str, float | None]:
        """Return the mean under this name, and the half-width under the name with ``_half_width`` added."""
        return {name: self.mean, f"{name}_half_width": self.half_width}


def interval_of(mean: float | None, half_width: float | None) -> Interval:
    """Return the interval of two cells of a table.

    Args:
        mean, half_width: numbers; an empty cell is None or NaN.

    Example:
        >>> interval_of(0.8, float("nan"))
        Interval(mean=0.8, half_width=None)
    """
    return Interval(*(None if number is None or np.isnan(number) else float(number) for number in (mean, half_width)))


def mean_interval(values: Values) -> Interval:
    """Mean and Student t half-width (n - 1 degrees of freedom) of the values that are there (NaN: not there)."""
    present = np.asarray(values, np.float64)
    present = present[~np.isnan(present)]
    return ratio_interval(present, np.ones(len(present)))


def ratio_interval(values: Values, others: Values) -> Interval:
    """Return the ratio of two sums over pairs, and the half-width of its 95% interval.

    That of the ratio estimator (Cochran, Sampling Techniques, sections 2.11 and 6.4): Student t with n - 1 degrees of
    freedom on the residuals ``value - ratio * other``. Where all others are 1 it is the ordinary interval of a mean.

    Args:
        values, others: `(n,)`, aligned.
    """
    above, below = np.asarray(values, np.float64), np.asarray(others, np.float64)
    count, total = len(above), below.sum()
    if total == 0:
        return Interval(None, None)
    ratio = float(above.sum() / total)
    if count < 2:
        return Interval(ratio, None)
    variance = float(np.sum((above - ratio * below) ** 2)) / (count - 1)
    # Residuals, not values: numerator and denominator of a pair vary together.
    standard_error = np.sqrt(variance / count) / (total / count)
    return Interval(ratio, float(stdtrit(count - 1, 0.975) * standard_error))


def ratio_of_means(mean: Interval, other: Interval, count: int, others: int) -> Interval:
    """Return the ratio of two means of independent samples, and half of its 95% interval (the delta method).

    Student's t with the degrees of freedom of the smaller sample.

    Args:
        mean, other: with their 95% intervals by Student's t.
        count, others: the sizes of the samples.
    """
    if mean.mean is None or not other.mean:
        return Interval(None, None)
    ratio = mean.mean / other.mean
    if mean.half_width is None or other.half_width is None:
        return Interval(ratio, None)
    errors = [
        each.half_width / stdtrit(size - 1, 0.975)
        for each, size in ((mean, count), (other, others))
        if each.half_width is not None
    ]
    # Delta method: d(a/b) = (da - (a/b) db) / b, with independent da and db.
    error = np.hypot(errors[0], ratio * errors[1]) / other.mean
    return Interval(ratio, float(stdtrit(min(count, others) - 1, 0.975) * error))


@dataclass(frozen=True)
class PairedDifference:
    """How much larger the first of two paired values is.

    Attributes:
        pairs: how many there are.
        mean: of the differences; None without pairs.
        half_width: of the mean's 95% interval; None with fewer than two pairs.
        p: of the paired t-test, two-sided; None with fewer than two pairs, and where all differences are zero.
    """

    pairs: int
    mean: float | None
    half_width: float | None
    p: float | None


def paired_difference(values: Values, others: Values) -> PairedDifference:
    """Return the paired t-test (Student, 1908): t with n - 1 degrees of freedom on ``value - other``.

    Differences that are all the same, and not zero, have p = 0: there is no chance in them.

    Args:
        values, others: `(n,)`, aligned.
    """
    differences = np.asarray(values, np.float64) - np.asarray(others, np.float64)
    estimate = mean_interval(differences)
    p = None
    if len(differences) >= 2 and differences.any():
        error = differences.std(ddof=1) / np.sqrt(len(differences))
        p = float(2 * stdtr(len(differences) - 1, -abs(differences.mean()) / error)) if error > 0 else 0.0
    return PairedDifference(len(differences), estimate.mean, estimate.half_width, p)


def per_update_interval(costs: Values, completed: Values) -> Interval:
    """Cost per completed round with the failed rounds' costs included: the ratio of two sums.

    Args:
        costs: `(r,)` cost of each round, failed or not.
        completed: `(r,)` bool.
    """
    estimate = ratio_interval(costs, completed)
    # One completed round shows no variance.
    return estimate if np.sum(completed) >= 2 else Interval(estimate.mean, None)
