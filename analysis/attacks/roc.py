"""How well scores tell members from others: the area under the ROC curve, and how many members are found while almost
nobody else is taken for one.

Membership inference is to be judged by its true positives at few false ones (Carlini, Chien, Nasr, Song, Terzis,
Tramer, Membership Inference Attacks From First Principles, S&P 2022, arXiv 2112.03570, section III); the area stands
beside. Intervals are those of samples drawn anew for the same run.
"""

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from scipy.stats import norm, rankdata

from analysis.statistics import Proportion
from testbed.arrays import Floats


@dataclass(frozen=True)
class Discrimination:
    """What scores tell.

    Attributes:
        members, others: how many samples of each.
        auc: the chance that a member's score is above that of another, ties half.
        auc_low, auc_high: its interval, by the variance of DeLong, DeLong, Clarke-Pearson 1988.
        level: the rate of false positives that is allowed.
        false_positives: others above the threshold, the lowest that keeps the level among these.
        found: members above it; the interval (Clopper and Pearson) takes the threshold as given.
    """

    members: int
    others: int
    auc: float
    auc_low: float
    auc_high: float
    level: float
    false_positives: int
    found: Proportion


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
    half = float(norm.ppf((1 + confidence) / 2)) * deviation
    allowed = int(level * len(others))
    threshold = np.sort(others)[::-1][allowed] if allowed < len(others) else -np.inf
    return Discrimination(
        members=len(members),
        others=len(others),
        auc=auc,
        auc_low=max(0.0, auc - half),
        auc_high=min(1.0, auc + half),
        level=level,
        false_positives=int((others > threshold).sum()),
        found=Proportion.of(int((members > threshold).sum()), len(members), confidence),
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
