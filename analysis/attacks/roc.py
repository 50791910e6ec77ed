"""How well scores tell members from others: the area under the ROC curve, and how many members are found while almost
nobody else is taken for one.

Membership inference is to be judged by its true positives at few false ones (Carlini, Chien, Nasr, Song, Terzis,
Tramer, Membership Inference Attacks From First Principles, S&P 2022, arXiv 2112.03570, section III); the area stands
beside. Intervals are those of samples drawn anew for the same run.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

import numpy as np
from scipy.stats import norm, rankdata

from analysis.statistics import Proportion
from testbed.arrays import Floats

_DRAWN: Final = 4000  # samples of the bootstrap


@dataclass(frozen=True)
class Discrimination:
    """What scores tell.

    Attributes:
        members, others: how many samples of each.
        auc: the chance that a member's score is above that of another, ties half.
        auc_low, auc_high: its interval, by the variance of DeLong, DeLong, Clarke-Pearson 1988; see `_interval`.
        level: the rate of false positives that is allowed.
        false_positives: others above the threshold, the lowest that keeps the level among these.
        found: members above it; the interval counts that other samples have another threshold, see `_found`.
    """

    members: int
    others: int
    auc: float
    auc_low: float
    auc_high: float
    level: float
    false_positives: int
    true_positives: Proportion


def discrimination(members: Floats, others: Floats, level: float = 0.01, confidence: float = 0.95) -> Discrimination:
    """Of the scores of both, at least one each; raises `ValueError` for none, or for scores that are no numbers.

    Args:
        members, others: `(m,)` and `(n,)`; larger says member.
        level: see `Discrimination`.
        confidence: of the intervals.
    """
    if not len(members) or not len(others) or not np.isfinite(members).all() or not np.isfinite(others).all():
        raise ValueError(f"scores of {len(members)} members and {len(others)} others, finite ones of each are needed")
    auc, deviation = _area(members, others)
    low, high = _interval(auc, deviation, min(len(members), len(others)), confidence)
    thresholds = np.append(np.sort(others)[::-1], -np.inf)
    allowed = _rank(level * len(others))
    return Discrimination(
        members=len(members),
        others=len(others),
        auc=auc,
        auc_low=low,
        auc_high=high,
        level=level,
        false_positives=int((others > thresholds[allowed]).sum()),
        true_positives=_true_positives(members, thresholds, level, confidence),
    )


def _rank(expected: float) -> int:
    """The whole part; 0.29 of 100 are 29, whatever rounding makes of the product."""
    return int(expected + 1e-9)


def _interval(auc: float, deviation: float, pairs: int, confidence: float) -> tuple[float, float]:
    """Of the area. Where all pairs of a member and another compare alike, DeLong's variance is 0, and says nothing.

    Then the independent ones of them, as many as there are of the fewer, compare alike: their share is bounded by
    Clopper and Pearson, and what the others of all pairs would be is left open.

    Args:
        pairs: members or others, which are fewer; of one sample there is no variance.
    """
    if deviation > 0 and pairs > 1:
        half = float(norm.ppf((1 + confidence) / 2)) * deviation
        return max(0.0, auc - half), min(1.0, auc + half)
    alike = Proportion.of(pairs, pairs, confidence).low if pairs > 1 else 0.0
    return auc * alike, 1 - (1 - auc) * alike


def _true_positives(members: Floats, thresholds: Floats, level: float, confidence: float) -> Proportion:
    """How many members are above the threshold of `level`, with an interval of both samples drawn anew.

    That of Clopper and Pearson takes the threshold as given: at 1 % of 288 others it holds the true rate 56 to 76 times
    in a hundred instead of 95. It is joined with the bootstrap's (percentiles), whose threshold is drawn, too. Where
    level times (n + 1) is below 2, the threshold is hardly known, and the lower end is 0.

    Args:
        thresholds: `(n + 1,)` scores of the others, falling, then one below all.
    """
    rest, rng = len(thresholds) - 1, np.random.default_rng(0)

    def resampled_rate(place: int) -> Floats:
        """The rate above the `place`-th score of others drawn anew; a uniform sample's such place is of a Beta law."""
        if place >= rest:
            return np.ones(_DRAWN)
        places = (rest * rng.beta(place + 1, rest - place, _DRAWN)).astype(np.int64)
        above = len(members) - np.searchsorted(np.sort(members), thresholds[places], side="right")
        return rng.binomial(len(members), above / len(members)) / len(members)

    allowed, strict = _rank(level * rest), _rank(level * (rest + 1)) - 1
    fixed_threshold = Proportion.of(int((members > thresholds[allowed]).sum()), len(members), confidence)
    tail = (1 - confidence) / 2
    low = float(np.quantile(resampled_rate(strict), tail)) if strict > 0 else 0.0
    high = float(np.quantile(resampled_rate(allowed), 1 - tail))
    return Proportion(
        fixed_threshold.count, fixed_threshold.trials, min(fixed_threshold.low, low), max(fixed_threshold.high, high)
    )


def _area(members: Floats, others: Floats) -> tuple[float, float]:
    """The area, and its standard error by DeLong's placements; from midranks (Sun and Xu 2014)."""
    count, rest = len(members), len(others)
    together = rankdata(np.concatenate((members, others)))
    above = (together[:count] - rankdata(members)) / rest  # of the others, those below each member
    below = 1 - (together[count:] - rankdata(others)) / count  # of the members, those above each other
    auc = float(above.mean())
    variance = sum(part.var(ddof=1) / len(part) for part in (above, below) if len(part) > 1)
    return auc, sqrt(variance)


def most_found(epsilon: float, delta: float, level: float) -> float:
    """The largest rate of true positives that any attack on one sample has, of a client that is hidden.

    A sample is in or another one in its place: between the two lies a data set with neither, since a unit of
    (epsilon, delta)-privacy is there or is null. So the region of one step (Kairouz, Oh, Viswanath, The Composition
    Theorem for Differential Privacy, ICML 2015, arXiv 1311.0776, section 2) is gone through twice.

    Args:
        epsilon, delta: of what the attacker sees.
        level: the rate of false positives.
    """

    def step(rate: float) -> float:
        if epsilon > 700:
            return 1.0
        return max(0.0, min(1.0, exp(epsilon) * rate + delta, 1 - exp(-epsilon) * (1 - delta - rate)))

    return step(step(level))
