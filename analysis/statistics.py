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
    """Relative frequency of an event, with the exact interval of Clopper and Pearson (1934).

    Attributes:
        count: number of trials with the event.
        trials: number of independent trials, e.g. rounds.
        low, high: ends of the interval, 0 to 1.
    """

    count: int
    trials: int
    low: float
    high: float

    @classmethod
    def of(cls, count: int, trials: int, confidence: float = 0.95) -> "Proportion":
        """Return the proportion of `count` in `trials`; without trials the interval is [0, 1].

        Args:
            count: number of trials with the event.
            trials: number of trials.
            confidence: probability that the interval covers the true probability, at least.

        Example:
            >>> proportion = Proportion.of(0, 10)
            >>> round(proportion.high, 4)  # 1 - 0.025 ** (1 / 10)
            0.3085
        """
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
        mean: the mean; None without observations.
        half_width: half-width of the interval; None with fewer than two observations.
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
    """Return the mean and the Student t half-width (n - 1 degrees of freedom); NaN values are left out.

    Args:
        values: `(n,)` observations.

    Example:
        >>> interval = mean_interval([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])  # Student 1908: hours of sleep
        >>> round(interval.mean, 2), round(interval.half_width, 2)
        (1.58, 0.88)
    """
    present = np.asarray(values, np.float64)
    present = present[~np.isnan(present)]
    return ratio_interval(present, np.ones(len(present)))


def ratio_interval(values: Values, others: Values) -> Interval:
    """Return the ratio of two sums over pairs, and the half-width of its 95% interval.

    The interval is that of the ratio estimator: Student t with n - 1 degrees of freedom on the residuals ``value -
    ratio * other``. If all others are 1, the result is the ordinary interval of a mean.

    Args:
        values, others: `(n,)`, aligned.

    Source:
        Cochran, Sampling Techniques, sections 2.11 and 6.4.

    Example:
        >>> ratio_interval([10.0, 30.0], [1.0, 3.0])  # bytes of each round over its updates
        Interval(mean=10.0, half_width=0.0)
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
        mean, other: the means, with 95% intervals by Student's t.
        count, others: sizes of the samples.

    Example:
        >>> faster, slower = mean_interval([9.0, 10.0, 11.0]), mean_interval([20.0, 20.0, 20.0])
        >>> ratio = ratio_of_means(faster, slower, 3, 3)
        >>> ratio.mean, round(ratio.half_width, 3)
        (0.5, 0.124)
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
    """Difference of paired values, the first minus the second.

    Attributes:
        pairs: number of pairs.
        mean: mean of the differences; None without pairs.
        half_width: half-width of the mean's 95% interval; None with fewer than two pairs.
        p: p-value of the paired t-test, two-sided; None with fewer than two pairs, or if all differences are zero.
    """

    pairs: int
    mean: float | None
    half_width: float | None
    p: float | None


def paired_difference(values: Values, others: Values) -> PairedDifference:
    """Return the paired t-test (Student, 1908): t with n - 1 degrees of freedom on ``value - other``.

    If all differences are the same, and not zero, p is 0.

    Args:
        values, others: `(n,)`, aligned.

    Example:
        >>> first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]  # Student 1908: hours of sleep, two drugs
        >>> second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
        >>> difference = paired_difference(second, first)
        >>> round(difference.mean, 2), round(difference.p, 4)
        (1.58, 0.0028)
    """
    differences = np.asarray(values, np.float64) - np.asarray(others, np.float64)
    estimate = mean_interval(differences)
    p = None
    if len(differences) >= 2 and differences.any():
        error = differences.std(ddof=1) / np.sqrt(len(differences))
        p = float(2 * stdtr(len(differences) - 1, -abs(differences.mean()) / error)) if error > 0 else 0.0
    return PairedDifference(len(differences), estimate.mean, estimate.half_width, p)


def per_update_interval(costs: Values, completed: Values) -> Interval:
    """Return the cost per completed round, a ratio of two sums: failed rounds count as cost.

    Args:
        costs: `(r,)` cost of each round, failed or not.
        completed: `(r,)` bool.

    Example:
        >>> per_update_interval(costs=[2.0, 4.0, 6.0], completed=[True, False, True]).mean  # 12 over 2
        6.0
    """
    estimate = ratio_interval(costs, completed)
    # One completed round shows no variance.
    return estimate if np.sum(completed) >= 2 else Interval(estimate.mean, None)
