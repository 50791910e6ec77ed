"""Separation of members from others by scores: the ROC area, and the true positives at few false positives.

Membership inference should be judged by its true positives at few false ones (Carlini, Chien, Nasr, Song, Terzis,
Tramer, Membership Inference Attacks From First Principles, S&P 2022, arXiv 2112.03570, section III); the area is
reported beside. Intervals are those of samples drawn anew for the same run.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

import numpy as np
from scipy.stats import norm, rankdata

from analysis.statistics import Proportion
from testbed.arrays import Floats

_RESAMPLES: Final = 4000  # samples of the bootstrap


@dataclass(frozen=True)
class Discrimination:
    """Separation of members from others by scores.

    Attributes:
        members, others: number of samples of each kind.
        auc: chance that a member's score is above that of another sample, ties half.
        auc_low, auc_high: interval of the AUC, by the variance of DeLong, DeLong, Clarke-Pearson 1988; see `_interval`.
        level: allowed rate of false positives.
        false_positives: others above the threshold, which is the lowest that keeps the level on these samples.
        true_positives: members above the threshold; the interval accounts for the choice of the threshold, see
            `_true_positives`.
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
    """Evaluate the scores of members and others.

    Args:
        members, others: `(m,)` and `(n,)` scores, at least one each; larger scores indicate members.
        level: allowed rate of false positives.
        confidence: of the intervals.

    Raises:
        ValueError: if a kind has no scores, or a score is not finite.
    """
    if not len(members) or not len(others) or not np.isfinite(members).all() or not np.isfinite(others).all():
        raise ValueError(f"scores of {len(members)} members and {len(others)} others: finite scores of both are needed")
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
    """Return the whole part of a product; 0.29 of 100 are 29, in spite of rounding."""
    return int(expected + 1e-9)


def _interval(auc: float, deviation: float, pairs: int, confidence: float) -> tuple[float, float]:
    """Return the interval of the area.

    Args:
        auc: area.
        deviation: its standard error, by DeLong.
        pairs: number of members or of others, whichever is smaller.
        confidence: of the interval.
    """
    if deviation > 0 and pairs > 1:
        half = float(norm.ppf((1 + confidence) / 2)) * deviation
        return max(0.0, auc - half), min(1.0, auc + half)
    # If all pairs of a member and another compare alike, DeLong's variance is 0 and says nothing. Then the independent
    # ones of them, as many as `pairs`, compare alike: their share is bounded by Clopper and Pearson, and the outcome of
    # the remaining pairs is left open. One sample has no variance.
    alike = Proportion.of(pairs, pairs, confidence).low if pairs > 1 else 0.0
    return auc * alike, 1 - (1 - auc) * alike


def _true_positives(members: Floats, thresholds: Floats, level: float, confidence: float) -> Proportion:
    """Return the rate of members above the threshold of `level`, with an interval for both samples drawn anew.

    Args:
        members: scores.
        thresholds: `(n + 1,)` scores of the others, falling, then one below all.
        level: allowed rate of false positives.
        confidence: of the interval.
    """
    # Clopper and Pearson's interval takes the threshold as fixed: at 1 % of 288 others it contains the true rate 56 to
    # 76 times in a hundred instead of 95. It is joined with the bootstrap's (percentiles), in which the threshold
    # varies. Where level times (n + 1) is below 2, the threshold is hardly determined, and the lower end is 0.
    rest, rng = len(thresholds) - 1, np.random.default_rng(0)

    def resampled_rate(place: int) -> Floats:
        """Draw rates above the `place`-th score of others drawn anew; that place in a uniform sample has a Beta law."""
        if place >= rest:
            return np.ones(_RESAMPLES)
        places = (rest * rng.beta(place + 1, rest - place, _RESAMPLES)).astype(np.int64)
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
    """Return the area, and its standard error by DeLong's placements; from midranks (Sun and Xu 2014)."""
    count, rest = len(members), len(others)
    together = rankdata(np.concatenate((members, others)))
    above = (together[:count] - rankdata(members)) / rest  # of the others, those below each member
    below = 1 - (together[count:] - rankdata(others)) / count  # of the members, those above each other
    auc = float(above.mean())
    variance = sum(part.var(ddof=1) / len(part) for part in (above, below) if len(part) > 1)  # one sample has none
    return auc, sqrt(variance)


def most_found(epsilon: float, delta: float, level: float) -> float:
    """Return the largest true-positive rate of any attack on one sample of a protected client.

    Args:
        epsilon, delta: guarantee for the attacker's observations.
        level: rate of false positives.

    Source:
        Kairouz, Oh, Viswanath, The Composition Theorem for Differential Privacy, ICML 2015, arXiv 1311.0776, section 2
        (the privacy region of one step).

    Example:
        >>> round(most_found(epsilon=0.0, delta=0.0, level=0.01), 12)
        0.01
    """

    def step(rate: float) -> float:
        if epsilon > 700:  # e^epsilon overflows above 709
            return 1.0
        return max(0.0, min(1.0, exp(epsilon) * rate + delta, 1 - exp(-epsilon) * (1 - delta - rate)))

    # Two steps: the sample is in the data or another one in its place, and between the two lies a data set with
    # neither, since a unit of (epsilon, delta)-privacy is present or null.
    return step(step(level))
