"""Times until something happens, where for some it had not happened when watching ended (they are censored).

E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", JASA 53 (1958); the restricted mean:
P. Royston and M. Parmar, BMC Medical Research Methodology 13:152 (2013), section 2.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from analysis.statistics import Interval

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The Kaplan-Meier estimate of the share for which it has not happened yet.

    Attributes:
        times: `(k,)` ascending, when it happened to somebody.
        events: `(k,)` to how many.
        at_risk: `(k,)` how many were watched then, and it had not happened to them before.
        remaining: `(k,)` the share that is left after each.
        horizon: the last time at which anybody was watched.
    """

    times: Floats
    events: Floats
    at_risk: Floats
    remaining: Floats
    horizon: float

    @property
    def median(self) -> float | None:
        """The first time by which it has happened to at least half; None: it never has."""
        by_then = self.times[self.remaining <= 0.5 + 1e-12]
        return float(by_then[0]) if len(by_then) else None


def kaplan_meier(values: npt.ArrayLike, happened: npt.ArrayLike) -> Curve:
    """The curve of `(n,)` times.

    Args:
        values: when it happened, or when watching ended.
        happened: bool. Who is censored at the time of an event counts as watched then.
    """
    at, did = np.asarray(values, np.float64), np.asarray(happened, np.bool_)
    times, events = np.unique(at[did], return_counts=True)
    at_risk = len(at) - np.searchsorted(np.sort(at), times)
    remaining = np.cumprod(1 - events / at_risk, dtype=np.float64)
    return Curve(times, events.astype(np.float64), at_risk.astype(np.float64), remaining, float(at.max()))


def restricted_mean(values: npt.ArrayLike, happened: npt.ArrayLike, horizon: float | None = None) -> Interval:
    """The mean of min(time, horizon), and half of its 95% interval: the area below the Kaplan-Meier curve.

    Where it happened to all it is their mean with Student's interval. The variance is Greenwood's for an area, times
    n / (n - 1) as Kaplan and Meier have it (section 6.1), which makes it that of a mean where nobody is censored;
    with it goes Student's t with n - 1 degrees of freedom.

    Args:
        values, happened: see `kaplan_meier`.
        horizon: at most the curve's, which is the default.

    Returns:
        No half-width for fewer than two, or where it happened to nobody before the horizon: then the mean is the
        horizon, which is all that is known.
    """
    curve, count = kaplan_meier(values, happened), int(np.size(values))
    end = curve.horizon if horizon is None else horizon
    before = curve.times < end
    edges = np.concatenate([[0.0], curve.times[before], [end]])
    areas = np.diff(edges) * np.concatenate([[1.0], curve.remaining[before]])
    mean = float(areas.sum())
    if count < 2 or not (curve.times <= end).any():
        return Interval(mean, None)
    later = np.cumsum(areas[::-1])[::-1][1:]  # the area from each event on
    at_risk, events = curve.at_risk[before], curve.events[before]
    survivors = at_risk > events  # after the others there is no area
    terms = later[survivors] ** 2 * events[survivors] / (at_risk[survivors] * (at_risk[survivors] - events[survivors]))
    variance = terms.sum() * count / (count - 1)
    return Interval(mean, float(stats.t.ppf(0.975, count - 1) * np.sqrt(variance)))


def ratio_of_means(mean: Interval, other: Interval, count: int, others: int) -> Interval:
    """The ratio of two means of independent samples, and half of its 95% interval (the delta method).

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
        each.half_width / stats.t.ppf(0.975, size - 1)
        for each, size in ((mean, count), (other, others))
        if each.half_width is not None
    ]
    error = np.hypot(errors[0], ratio * errors[1]) / other.mean
    return Interval(ratio, float(stats.t.ppf(0.975, min(count, others) - 1) * error))
