"""Guarantee for DP-SGD with random participation where nobody sees the participants, below that of Theorem 5.2.

An oracle tosses the coins of the client's other samples in every round, also in one without the client, and reveals
them. An observer can ignore the oracle, so a guarantee against the oracle's observer holds for everybody that does not
see participation. Let k of the others have a coin that says yes. In units of the noise, with s = C / sigma, their sum
is a known X with a norm of at most k s, and the gradient of x' is a g with a norm of at most s:

    without x'    (1 - p) N(0) + p N(X)
    with x'       (1 - p) N(0) + p ((1 - q) N(X) + q N(X + g))

Two steps give the worst X and g (docs/papers/random-participation-worst-pair.md has the proofs). Longer vectors with
the same inner product lose more, so |X| = k s and |g| = s. Then the divergence of the second line from the first rises
with the inner product of X and g, and the divergence of the first from the second falls. So g is parallel to X for one
direction and antiparallel for the other, and each divergence is that of three Gaussians on a line.
"""

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import ndtr

from analysis.bounds.random_participation import (
    REACH,
    Participation,
    gaussian_delta,
    weak_client_sampling,
)
from testbed.arrays import Floats

_PER_DEVIATION = 512  # thresholds of the likelihood ratio per standard deviation
_VISIBLE = 80.0  # standard deviations: a sum of that norm reveals participation, so that longer ones lose as much
_MOST_COUNTS = 200  # distinct numbers of samples; more are rounded up, which loses more
_HALVINGS = 80
_LARGEST = 30.0  # losses beyond count as infinite
_NEGLIGIBLE = 1e-20  # divergences at which the distribution of losses ends, if that is earlier
_ENDS = np.arange(0.5, _LARGEST, 0.5).tolist()


def revealed_samples(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of one round for observers that do not see the participants.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    p, q, s = participation.client_rate, participation.sample_rate, participation.clip / sigma
    counts, weights = _counts(participation, s)
    alpha, moved = np.exp(epsilon), np.expm1(epsilon)
    shift = counts * s

    def excess(z: Floats) -> Floats:
        """Logarithm of the positive over the negative terms, divided by the density at X."""
        along = z - shift
        with np.errstate(divide="ignore", over="ignore"):
            absent = np.log((1 - p) * moved) - shift * along - shift**2 / 2
            return np.asarray(np.log(p * q) + s * along - s * s / 2 - np.logaddexp(np.log(p * (moved + q)), absent))

    # The ratio rises with z: one change of sign, between any z with a smaller and any with a larger ratio than 1.
    low, high = shift.copy(), shift + s + 1.0
    while (excess(high) < 0).any():
        high = np.where(excess(high) < 0, high + (high - shift), high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = excess(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    terms = p * q * ndtr(shift + s - high) - p * (alpha - 1 + q) * ndtr(shift - high) - (1 - p) * moved * ndtr(-high)
    return float(weights @ np.maximum(terms, 0.0))


def composed(participation: Participation, sigma: float, interval: float = 1e-4) -> PrivacyLossDistribution:
    """Return the loss of a pair of distributions that dominates every pair of a round, in both directions.

    Args:
        participation, sigma: as of `Delta`.
        interval: distance of the losses.
    """
    # A pair with the largest divergence at every e^epsilon dominates (Zhu, Dong, Wang 2022, arXiv 2106.08567). Chords
    # of a divergence, which is convex in e^epsilon, lie above it: no step here makes a divergence smaller.
    s = participation.clip / sigma
    largest = next((end for end in _ENDS if weak_client_sampling(participation, sigma, end) < _NEGLIGIBLE), _LARGEST)
    smallest = next((end for end in _ENDS if gaussian_delta(end, s) < _NEGLIGIBLE), _LARGEST)
    if participation.sample_rate < 1:  # no loss is below log(1 - q)
        smallest = min(smallest, -np.log1p(-participation.sample_rate))
    first, last = -int(np.ceil(smallest / interval)), int(largest / interval)
    losses = np.arange(first, last + 1) * interval
    below, above = losses < 0, losses >= 0
    alphas = np.exp(losses)
    of_with, of_without = _divergences(participation, sigma, alphas[above], 1 / alphas[below])
    # A divergence at 1 / alpha is that of the other direction at alpha, times alpha, up to 1 - alpha.
    remove = np.concatenate([alphas[below] * of_without - np.expm1(losses[below]), of_with])
    add = np.concatenate([of_without, of_with / alphas[above] - np.expm1(-losses[above])])
    return PrivacyLossDistribution(_connected(remove, first, interval), _connected(add[::-1], -last, interval))


def _connected(deltas: Floats, first: int, interval: float) -> pld_pmf.DensePLDPmf:
    """Return the losses, `interval` apart, that have given divergences (arXiv 2207.04380, Algorithm 1)."""
    steps = np.diff(np.maximum.accumulate(deltas[::-1])[::-1])
    masses = np.zeros_like(deltas)
    masses[0] = 1 - deltas[0]
    masses[1:] += steps / np.expm1(-interval)
    masses[:-1] += steps / np.expm1(interval)
    return pld_pmf.DensePLDPmf(interval, first, np.maximum(masses, 0.0), float(deltas[-1]), True)


def _divergences(participation: Participation, sigma: float, alphas: Floats, reverse: Floats) -> tuple[Floats, Floats]:
    """Return the largest divergences of with x' from without, at `alphas`, and of without from with, at `reverse`."""
    s = participation.clip / sigma
    above, below = np.zeros_like(alphas), np.zeros_like(reverse)
    for count, weight in zip(*(array.tolist() for array in _counts(participation, s)), strict=True):
        of_count = _of_count(count * s, s, participation, alphas, reverse)
        above += weight * of_count[0]
        below += weight * of_count[1]
    return above, below


def _of_count(
    shift: float, s: float, participation: Participation, alphas: Floats, reverse: Floats
) -> tuple[Floats, Floats]:
    """Return the divergences of `_divergences` for a revealed sum of norm `shift`."""
    p, q = participation.client_rate, participation.sample_rate
    z = shift + np.arange(s / 2, max(s, 1.0) + REACH, 1 / _PER_DEVIATION)
    above = _chords(alphas, *_parallel(z, shift, s, p, q))
    z = shift + np.arange(-s / 2, REACH, 1 / _PER_DEVIATION)
    return above, _chords(reverse, *_antiparallel(z, shift, s, p, q))


def _parallel(z: Floats, shift: float, s: float, p: float, q: float) -> tuple[Floats, Floats]:
    """Return the likelihood ratio of with x' over without, at thresholds z, and the divergence at that ratio."""
    x, absent, moved = _relative(z, shift, s)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio_less_1 = p * q * (moved - x) / (p * x + (1 - p) * absent)
    alpha = 1 + ratio_less_1
    lost = p * q * ndtr(shift + s - z) - p * (ratio_less_1 + q) * ndtr(shift - z) - (1 - p) * ratio_less_1 * ndtr(-z)
    return alpha, lost


def _antiparallel(z: Floats, shift: float, s: float, p: float, q: float) -> tuple[Floats, Floats]:
    """Return the likelihood ratio of without x' over with, at thresholds z, and the divergence at that ratio."""
    x, absent, moved = _relative(z, shift, -s)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio_less_1 = p * q * (x - moved) / (p * (1 - q) * x + p * q * moved + (1 - p) * absent)
    alpha = 1 + ratio_less_1
    lost = (
        p * (q * alpha - ratio_less_1) * ndtr(shift - z)
        - alpha * p * q * ndtr(shift - s - z)
        - (1 - p) * ratio_less_1 * ndtr(-z)
    )
    return alpha, lost


def _relative(z: Floats, shift: float, s: float) -> tuple[Floats, Floats, Floats]:
    """Return the densities at z of N(shift), N(0) and N(shift + s), divided by the largest of the three."""
    logs = np.stack([-((z - mean) ** 2) / 2 for mean in (shift, 0.0, shift + s)])
    x, absent, moved = np.exp(logs - logs.max(axis=0))
    return x, absent, moved


def _chords(alphas: Floats, ratios: Floats, divergences: Floats) -> Floats:
    """Interpolate a decreasing convex function linearly; beyond the last point its last value holds."""
    used = np.isfinite(ratios) & np.isfinite(divergences)
    ratios, divergences = np.maximum.accumulate(ratios[used]), np.maximum(divergences[used], 0.0)
    return np.asarray(np.interp(alphas, ratios, divergences))


def _counts(participation: Participation, s: float) -> tuple[Floats, Floats]:
    """Return `(k,)` numbers of used samples and probabilities; numbers are rounded up where there are too many."""
    counts, weights = participation.others
    counts = np.minimum(counts, np.ceil(_VISIBLE / s))
    step = np.ceil((counts.max() - counts.min() + 1) / _MOST_COUNTS)
    rounded = np.where(counts > 0, np.ceil(counts / step) * step, 0.0)
    distinct, places = np.unique(rounded, return_inverse=True)
    summed: Floats = np.bincount(places, weights).astype(np.float64)
    summed[-1] += max(0.0, 1.0 - summed.sum())  # the negligible ones, too
    return distinct, summed
