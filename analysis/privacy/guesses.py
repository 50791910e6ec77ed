"""Epsilon proven by guesses of canaries.

Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023, arXiv 2305.08846.

Each of m canaries is inserted or left out by its own fair coin. If the observer's view is (epsilon, delta)-DP in each
coin, then of r guessed coins no more are right than under the binomial law of e^epsilon / (1 + e^epsilon), up to a term
for delta (Theorem 5.2).
"""

from math import exp, inf, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from testbed.arrays import Floats

_MOST = 60.0  # larger than any provable epsilon: 1 - e^-60 is one in doubles


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the chance of at least `right` right guesses under (epsilon, delta)-DP (Corollary 5.4, appendix D).

    Args:
        canaries: m.
        guesses: r, of m coins; the others are not guessed.
        right: v of the guesses.
        epsilon, delta: of the tested claim.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} right of {guesses} guesses of {canaries} canaries")
    chance = 1 / (1 + exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return tail
    missed = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))  # right - i to right - 1 of them
    most = float((missed / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2 * canaries * delta * most)


def epsilon_proven(canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest epsilon that the right guesses refute; 0 if they refute none.

    Args:
        canaries: m.
        guesses: r.
        right: v of the guesses.
        delta: of epsilon.
        confidence: of the refutation.
    """
    error = 1 - confidence

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, right, epsilon, delta) - error

    if excess(0.0) >= 0:
        return 0.0
    if excess(_MOST) < 0:
        return _MOST
    return max(0.0, float(brentq(excess, 0.0, _MOST, xtol=1e-9)) - 1e-9)  # below the root: a proof


def epsilon_of_separation(distance: float, delta: float) -> float:
    """Return the epsilon of distinguishing two normal laws of variance 1, exactly.

    Args:
        distance: between their means.
        delta: of epsilon.

    Source:
        Balle and Wang 2018, arXiv 1805.06530, Theorem 8 (epsilon of the Gaussian mechanism).
    """
    if distance <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        beyond = norm.logcdf(-distance / 2 - epsilon / distance)
        # e^epsilon times the tail is at most 1. In logarithms, neither factor overflows or vanishes.
        return float(norm.cdf(distance / 2 - epsilon / distance) - exp(min(epsilon + beyond, 0.0)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    most = distance * (distance / 2 + sqrt(-2 * np.log(delta))) if delta else inf
    return inf if most == inf else float(brentq(excess, 0.0, most + 1.0, xtol=1e-9))


def separation(scores: Floats, inserted: np.ndarray) -> float:
    """Return the distance of the mean scores of inserted and other canaries, in standard deviations within the groups.

    Args:
        scores: `(m,)`.
        inserted: `(m,)` bool.

    Raises:
        ValueError: if a group has fewer than two canaries.
    """
    inserted_scores, absent = scores[inserted], scores[~inserted]
    if min(len(inserted_scores), len(absent)) < 2:
        raise ValueError(f"{len(inserted_scores)} canaries are in and {len(absent)} out; two of each are needed")
    squares = ((inserted_scores - inserted_scores.mean()) ** 2).sum() + ((absent - absent.mean()) ** 2).sum()
    deviation = sqrt(squares / (len(scores) - 2))
    return float((inserted_scores.mean() - absent.mean()) / deviation) if deviation else inf
