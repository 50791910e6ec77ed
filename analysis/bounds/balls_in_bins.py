"""Privacy cost of a client's rounds in one of b secret bins, with independent or correlated noise.

Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, Near Exact Privacy Amplification for Matrix Mechanisms, ICLR 2025,
arXiv 2410.06266: Lemma 3.2 (the dominating pair) and section 2 (Monte Carlo accounting); for independent noise also
Chua et al., Balls-and-Bins Sampling for DP-SGD, AISTATS 2025, arXiv 2412.16802.

The mechanism releases C x + z, where row r of x is the sum of round r (each client's part clipped to 1), z is normal
with standard deviation sigma in each element, and C is lower triangular with no negative entry: the identity for
independent noise. A client of bin i is in rounds i, i + b, ...; let m_i be the sum of those columns of C. Its presence
or absence (its updates replaced by zeros) is distinguished no better than

    P = (1/b) sum_i N(m_i, sigma^2 I)    from    Q = N(0, sigma^2 I),

for any dependence of its updates on earlier releases. Only the inner products of the m_i matter, so the cost of
computing does not grow with the rounds. If the client stays away from some rounds it is no easier: zeros are updates,
too.

**The bound holds against observers that do not know the bins.** A server sees the participants of each round, and so do
observers of a client's traffic: for them there is one component, N(m_i, sigma^2 I), and no amplification
(`seen_epsilon`).

delta(epsilon) is the greater of E_P[(1 - e^(epsilon - L))+] and E_Q[(1 - e^(epsilon + L))+], L = log P/Q. Both are
estimated from samples that are drawn where they are not zero. Chernoff's bound then bounds delta from above, at a
stated confidence.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log, log1p, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from analysis.bounds.checks import require_at_least, require_inside, require_positive
from testbed.arrays import Floats

_TRIES = 10
_PARTS = 5
_SEARCH = (0x5EA2C4, 1)  # differs from every seed that verifies
_AT_ONCE = 1 << 22  # numbers in memory
_MOST_EPSILON = 1e4
_MOST_RATIO = 1e100  # its square is in the covariance and must not overflow


@dataclass(frozen=True)
class Estimate:
    """An estimate of delta.

    Attributes:
        mean: unbiased estimate.
        at_most: upper bound on delta, at the requested confidence.
    """

    mean: float
    at_most: float


@dataclass(frozen=True)
class _Part:
    """Part of a mean: `total` times the mean of `samples` drawn values within [0, 1]."""

    total: float
    mean: float
    samples: int


@dataclass(frozen=True)
class _Range:
    """A range of the greatest a_k, and by bin and k `(b, b)` the probabilities that a_k is above and within it."""

    low: float
    high: float
    above: Floats
    within: Floats

    @property
    def total(self) -> float:
        """S: at least the probability under P that some a_k is within the range."""
        return float(self.within.sum()) / len(self.within)


class BallsInBins:
    """The pair of distributions to be distinguished.

    Args:
        means: `(b, n)` the m_i, none negative and not all 0.
        noise_multiplier: sigma, in units of the clip.

    Raises:
        ValueError: if a number is out of range.
    """

    def __init__(self, means: npt.NDArray[np.floating], noise_multiplier: float) -> None:
        require_positive(noise_multiplier=noise_multiplier)
        if means.ndim != 2 or not np.isfinite(means).all() or (means < 0).any() or not means.any():
            raise ValueError("means: an array (bins, rounds) of numbers, none negative and not all 0")
        if float(np.max(means, initial=0)) / _MOST_RATIO > noise_multiplier:
            raise ValueError(f"noise_multiplier: {noise_multiplier}; must be above 1e-100 of a client's contribution")
        scaled = np.asarray(means, np.float64) / noise_multiplier
        self.covariance: Floats = scaled @ scaled.T
        self.bins = len(means)
        self._drift = np.diag(self.covariance) / 2  # a_k = <m_k, z> / sigma^2 - drift_k

    @cached_property
    def _root(self) -> Floats:
        """`(b,)` or `(b, b)`: standard normal numbers times this have the covariance."""
        diagonal: Floats = np.diag(self.covariance)
        # Bins without a common column, as with independent noise: the a_k are independent, and no matrix is needed.
        if not np.any(self.covariance - np.diag(diagonal)):
            return np.sqrt(diagonal)
        # No Cholesky factor: the covariance is singular if the m_i are dependent.
        values, vectors = np.linalg.eigh(self.covariance)
        root: Floats = (vectors * np.sqrt(np.maximum(values, 0))).T
        return root

    def seen_epsilon(self, delta: float) -> float:
        """Return epsilon against observers of the bins: the Gaussian mechanism, at the worst bin."""
        return gaussian_epsilon(sqrt(2 * float(self._drift.max())), delta)

    def least_epsilon(self, delta: float) -> float:
        """Return a lower bound on every epsilon that holds at `delta` against observers that do not know the bins."""
        # P is at least N(m_i, sigma^2 I) / b, so delta(epsilon) is at least 1/b of delta(epsilon + log b) for observers
        # of the bins.
        require_inside(delta=delta)
        if delta * self.bins >= 1:
            return 0.0
        return max(0.0, self.seen_epsilon(delta * self.bins) - log(self.bins))

    def delta(self, epsilon: float, samples: int, confidence: float, rng: np.random.Generator) -> Estimate:
        """Estimate delta(epsilon), from as many samples for each direction.

        Args:
            epsilon: above 0.
            samples: at least 1.
            confidence: of `Estimate.at_most`, for both directions together; in (0, 1).
            rng: source of the samples.
        """
        require_positive(epsilon=epsilon)
        require_at_least(1, samples=samples)
        require_inside(confidence=confidence)
        parts = [self._there(epsilon, samples, rng), [self._not_there(epsilon, samples, rng)]]
        failing = (1 - confidence) / sum(map(len, parts))
        return Estimate(
            max(sum(part.total * part.mean for part in of) for of in parts),
            max(sum(part.total * mean_at_most(part.mean, part.samples, failing) for part in of) for of in parts),
        )

    def _there(self, epsilon: float, samples: int, rng: np.random.Generator) -> list["_Part"]:
        """Estimate E_P[(1 - e^(epsilon - L))+], in parts by the greatest a_k."""
        # The low parts hardly count, and need many samples to know it: rarer parts get fewer samples.
        # With the other a_k near 0, one a_k of log(b (e^epsilon - 1)) lifts L to epsilon by itself; 0.5 is a margin.
        # The division into parts changes the variance of the estimate, not its mean.
        enough = log(self.bins) + epsilon + log(-np.expm1(-epsilon)) - 0.5
        ends = [epsilon, inf] if enough <= epsilon else [*np.linspace(epsilon, enough, _PARTS).tolist(), inf]
        ranges = [self._range(low, high) for low, high in itertools.pairwise(ends)]
        shares = np.sqrt([range_.total for range_ in ranges])
        # A tenth of the samples is spread evenly: the bound of a part with hardly any samples is its whole total.
        shares = 0.9 * shares / shares.sum() + 0.1 / len(ranges) if shares.any() else np.full(len(ranges), 1.0)
        return [
            self._in_range(epsilon, range_, int(share * samples) + 1, rng)
            for range_, share in zip(ranges, shares, strict=True)
        ]

    def _range(self, low: float, high: float) -> "_Range":
        """Return the probability of each a_k to lie between `low` and `high`, in each bin."""
        deviation = np.sqrt(2 * self._drift)
        divisor = np.where(deviation > 0, deviation, 1.0)
        centres = self.covariance - self._drift  # (bin, k)
        above = np.where(deviation > 0, ndtr((centres - high) / divisor), 0.0)
        return _Range(low, high, above, np.where(deviation > 0, ndtr((centres - low) / divisor), 0.0) - above)

    def _in_range(self, epsilon: float, range_: "_Range", samples: int, rng: np.random.Generator) -> "_Part":
        """Estimate the part of E_P[(1 - e^(epsilon - L))+] in which the greatest a_k is in the range."""
        # L > epsilon needs some a_k = log N(m_k)/N(0) above epsilon, as L is at most their maximum. So a bin and a k
        # are drawn first, by the probabilities that sum to S, then a_k within the range, then the rest given a_k.
        if range_.total <= 0:
            return _Part(0.0, 0.0, samples)
        low, high, ends = range_.low, range_.high, np.cumsum(range_.within.ravel())
        drift, deviation = self._drift, np.sqrt(2 * self._drift)

        def values(count: int) -> Floats:
            at = np.searchsorted(ends, rng.random(count) * ends[-1], side="right").clip(0, len(ends) - 1)
            bins, k = np.divmod(at, self.bins)
            # Inverse of the survival function: far out in the upper tail, 1 - cdf would have no digits left.
            beyond = range_.above[bins, k] + rng.random(count) * range_.within[bins, k]
            greatest = self.covariance[bins, k] - drift[k] - ndtri(beyond) * deviation[k]
            # Rounding may move a_k out of the range. Then no a_k would be counted below, and the division would fail.
            greatest = np.clip(greatest, low, np.nextafter(high, low))
            logs, rows = self._normal(count, rng) + (self.covariance[bins] - drift), np.arange(count)
            # The other a_k, given this one: a free draw, shifted along its covariances with a_k (2 drift_k is its
            # variance).
            logs += self.covariance[k] * ((greatest - logs[rows, k]) / (2 * drift[k]))[:, None]
            logs[rows, k] = greatest
            loss = logsumexp(logs, axis=1) - log(self.bins)
            # A sample with j such k can be drawn in j ways, so that it counts 1/j in each.
            counted = -np.expm1(np.minimum(epsilon - loss, 0.0)) / (logs >= low).sum(axis=1)
            # A sample with a greater a_k belongs to the next part.
            values_in_range: Floats = np.where((logs < high).all(axis=1), counted, 0.0)
            return values_in_range

        return _Part(range_.total, self._mean(values, samples), samples)

    def _not_there(self, epsilon: float, samples: int, rng: np.random.Generator) -> "_Part":
        """Estimate E_Q[(1 - e^(epsilon + L))+]."""
        with_mean = self.covariance.mean(axis=1)  # covariances of each a_k and their mean
        variance, centre = float(with_mean.mean()), -float(self._drift.mean())
        # L is at least the mean of the a_k (Jensen), so only samples whose mean is below -epsilon can count.
        total = float(ndtr((-epsilon - centre) / sqrt(variance)))
        if total == 0:
            return _Part(0.0, 0.0, samples)

        def values(count: int) -> Floats:
            low = ndtri(rng.random(count) * total) * sqrt(variance) + centre
            logs = self._normal(count, rng) - self._drift
            logs += with_mean * ((low - logs.mean(axis=1)) / variance)[:, None]
            loss = logsumexp(logs, axis=1) - log(self.bins)
            counted: Floats = -np.expm1(np.minimum(epsilon + loss, 0.0))
            return counted

        return _Part(total, self._mean(values, samples), samples)

    def _normal(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw `(count, b)` normal vectors with mean 0 and the covariance."""
        standard = rng.standard_normal((count, self.bins))
        normal: Floats = standard * self._root if self._root.ndim == 1 else standard @ self._root
        return normal

    def _mean(self, values: Callable[[int], Floats], samples: int) -> float:
        at_once, total = max(1, _AT_ONCE // self.bins), 0.0
        for first in range(0, samples, at_once):
            total += float(values(min(at_once, samples - first)).sum())
        return total / samples

    def drawn_epsilon(self, delta: float, samples: int) -> float:
        """Return the epsilon at which the estimate of delta equals `delta`: near the truth, and no bound.

        Args:
            delta: in (0, 1).
            samples: number of samples of each estimate.

        Returns:
            At least `least_epsilon`, which counts where too few samples miss a small delta.
        """
        require_inside(delta=delta)

        def excess(epsilon: float) -> float:
            rng = np.random.default_rng(_SEARCH)  # equal samples for all epsilons: the estimate falls smoothly
            estimate = self.delta(epsilon, samples, 0.5, rng).mean
            return (log(estimate) if estimate > 0 else -1e3) - log(delta)

        least, most = max(1e-6, self.least_epsilon(delta)), self.seen_epsilon(delta)
        if most == inf or self.bins == 1 or most <= least:
            return most
        # 1 %: by chance the estimate at `most` may still be above delta.
        return least if excess(least) <= 0 else float(brentq(excess, least, most * 1.01, xtol=1e-4, rtol=1e-4))

    def epsilon(
        self, candidate: float, delta: float, samples: int, confidence: float, rng: np.random.Generator
    ) -> float:
        """Return an epsilon that holds at `delta`, with a given confidence.

        Args:
            candidate: epsilon to start from, see `drawn_epsilon`.
            delta: in (0, 1).
            samples: number of samples of each verification.
            confidence: in (0, 1), shared among the verifications.
            rng: source of the samples, which must be fresh.
        """
        require_inside(delta=delta, confidence=confidence)
        # After ten failures, the epsilon against observers of the bins, which needs no verification.
        most = self.seen_epsilon(delta)
        for step in range(_TRIES):
            # Steps double, from 0 to 102 %: a good candidate costs little, a bad one ends all the same.
            tried = candidate * (1 + 0.002 * float(2**step - 1))
            if tried >= most:
                return most
            # Union bound: each verification may fail with a tenth of the error. Fresh samples keep the tries
            # independent of the candidate.
            if self.delta(tried, samples, 1 - (1 - confidence) / _TRIES, rng).at_most <= delta:
                return tried
        return most


# -- the means --------------------------------------------------------------------------------------------------------


def toeplitz_means(coefficients: Sequence[float], rounds: int, bins: int) -> Floats:
    """Return the means m_i of a lower triangular Toeplitz matrix C.

    Args:
        coefficients: first column of C (padded with zeros): c_0 above 0, and none negative; ``[1.0]`` is independent
            noise.
        rounds: n.
        bins: b, at most n.

    Returns:
        `(b, n)`.

    Raises:
        ValueError: if an argument is out of range.
    """
    _check_bins(bins, rounds)
    if not len(coefficients) or not np.isfinite(coefficients).all() or coefficients[0] <= 0 or min(coefficients) < 0:
        raise ValueError("coefficients: the first must be above 0, and none negative or infinite")
    column = np.asarray(coefficients[:rounds], np.float64)
    means = np.zeros((bins, rounds))
    for first in range(bins):
        for begin in range(first, rounds, bins):
            length = min(len(column), rounds - begin)
            means[first, begin : begin + length] += column[:length]
    return means


def square_root_coefficients(bands: int) -> list[float]:
    """Return the first Taylor coefficients of (1 - x)^(-1/2), by which prefix sums factor into two equal matrices.

    Args:
        bands: number of coefficients.

    Source:
        Fichtenberger, Henzinger, Upadhyay, Constant Matters, ICML 2023, arXiv 2202.11205, Theorem 1; cut off as in
        Kalinin, Lampert, Banded Square Root Matrix Factorization, NeurIPS 2024, arXiv 2405.13763.

    Example:
        >>> square_root_coefficients(3)
        [1.0, 0.5, 0.375]
    """
    coefficients = [1.0]
    for place in range(1, bands):
        coefficients.append(coefficients[-1] * (2 * place - 1) / (2 * place))
    return coefficients


def _check_bins(bins: int, rounds: int) -> None:
    require_at_least(1, bins=bins, rounds=rounds)
    if bins > rounds:
        raise ValueError(f"separation: {bins} of {rounds} rounds: some bins would have none; at most {rounds}")


# -- exact formulas ---------------------------------------------------------------------------------------------------


def gaussian_delta(sensitivity: float, epsilon: float) -> float:
    """Return delta of the Gaussian mechanism.

    Args:
        sensitivity: in standard deviations of the noise.
        epsilon: at least 0.

    Source:
        Balle and Wang 2018, arXiv 1805.06530, Theorem 8.
    """
    if sensitivity == 0:
        return 0.0
    first = float(ndtr(sensitivity / 2 - epsilon / sensitivity))
    # In logarithms: e^epsilon overflows above 709, and its factor is 0 in doubles there.
    return first - exp(epsilon + float(log_ndtr(-sensitivity / 2 - epsilon / sensitivity)))


def gaussian_epsilon(sensitivity: float, delta: float) -> float:
    """Return epsilon of the Gaussian mechanism; inf above 10,000.

    Args:
        sensitivity: in standard deviations of the noise.
        delta: in (0, 1).

    Example:
        >>> round(gaussian_epsilon(sensitivity=1.0, delta=1e-5), 2)
        4.38
    """
    require_inside(delta=delta)
    if gaussian_delta(sensitivity, 0.0) <= delta:
        return 0.0
    if gaussian_delta(sensitivity, _MOST_EPSILON) > delta:
        return inf
    root = brentq(lambda epsilon: gaussian_delta(sensitivity, epsilon) - delta, 0.0, _MOST_EPSILON, xtol=1e-12)
    return float(root) * (1 + 1e-9)  # a guarantee must not be below the root


def mean_at_most(mean: float, samples: int, failing: float) -> float:
    """Bound the expectation of independent values within [0, 1] from their sample mean.

    Args:
        mean: sample mean.
        samples: number of values.
        failing: probability with which the bound may be wrong.

    Source:
        Hoeffding 1963, Theorem 1, in the form of Chernoff.
    """
    allowed = -log(failing) / samples

    def over(expected: float) -> float:
        divergence = (1 - mean) * (log1p(-mean) - log1p(-expected)) if mean < 1 else 0.0
        return divergence + (mean * log(mean / expected) if mean > 0 else 0.0) - allowed

    # Logarithms of the expectation and of its complement: the bracket ends just inside (0, 1).
    if mean >= 1 or over(1 - 1e-15) <= 0:
        return 1.0
    return float(brentq(over, max(mean, 1e-300), 1 - 1e-15, xtol=1e-300, rtol=1e-12))
