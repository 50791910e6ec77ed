"""Privacy cost of one round of DP-SGD with random participation.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556, sections
4 and 5.

In a round a client takes part with probability p, and then each of its samples with probability q. Gradients are
clipped to norm C and summed; the server adds Gaussian noise of standard deviation sigma. Neighbouring data sets differ
in one sample x' of one client, which has d others. The delta of a round, for a given epsilon, is a hockey-stick
divergence.

- `only_local_sampling` (Theorem 5.1), `weak_client_sampling` (Theorem 5.2), `centralized_shuffling` (Corollary 5.3).
  The second is **the guarantee that this project reports**: it holds when everybody sees the participants, hence also
  when nobody does.
- `as_printed` (Theorem 4.1, equations (6) and (7)) and `recentred` (the same with every sampling of the client's other
  samples shifted so that x' moves the mean from 0, which reproduces the paper's numbers). **Neither is a guarantee.**
  The step from (25) to (27) replaces the means of the mixtures, which are bounded in norm, by parallel vectors of that
  norm, and takes this for the worst case.
- `orthogonal_pair` refutes that step. It is the exact divergence for one pair of neighbouring data sets that can occur,
  in which the client's other gradients are parallel to one another and orthogonal to that of x'. Any true guarantee
  lies above.

`as_printed` is exact for a pair that can occur, too (all gradients parallel), so it is another lower bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import pi, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import binom, norm

from testbed.arrays import Floats

Mixture = tuple[Floats, Floats]
"""Weights and means, in standard deviations of the noise, of Gaussians with variance 1."""

NEGLIGIBLE = 1e-30  # binomial weights below it are left out
REACH = 39.0  # standard deviations; beyond, a density is 0 in double precision
_PER_DEVIATION = 256  # points per standard deviation in an integral over the other samples' direction
_TOGETHER = 10_000  # most points for one matrix product
_PER_SIGN = 16  # points per deviation in the search for changes of sign
_HALVINGS = 40  # of a step, to locate a change of sign
_LEAST_SIGMA = 1 / 64  # of the clipping norm: noise that hides nothing


@dataclass(frozen=True)
class Participation:
    """Parameters of random participation.

    Attributes:
        local_samples: d, of each client; a neighbouring data set has one more at one client.
        client_rate: p in (0, 1], the probability that a client takes part in a round.
        sample_rate: q in (0, 1], the probability that a participant uses a sample.
        clip: C, the largest norm of a sample's gradient.

    Raises:
        ValueError: for a value out of range, with its name and the allowed range.
    """

    local_samples: int
    client_rate: float
    sample_rate: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        if self.local_samples < 0:
            raise ValueError(f"local_samples: {self.local_samples}; must be 0 or more")
        for name, rate in (("client_rate", self.client_rate), ("sample_rate", self.sample_rate)):
            if not 0 < rate <= 1:
                raise ValueError(f"{name}: {rate}; must be above 0 and at most 1")
        if not 0 < self.clip < np.inf:
            raise ValueError(f"clip: {self.clip}; must be above 0 and finite")

    @cached_property
    def others(self) -> tuple[Floats, Floats]:
        """`(k,)` numbers of samples that a participant may use, and their probabilities; negligible ones left out."""
        count = np.arange(self.local_samples + 1)
        weight = binom.pmf(count, self.local_samples, self.sample_rate)
        relevant = weight > NEGLIGIBLE
        return count[relevant].astype(np.float64), weight[relevant]


Delta = Callable[[Participation, float, float], float]
"""Computes delta from participation, sigma and epsilon."""


def gaussian_delta(epsilon: float | Floats, sensitivity: float) -> Floats:
    """Return the delta of the Gaussian mechanism, exactly (Balle and Wang 2018, arXiv 1805.06530, Theorem 8).

    Args:
        epsilon: scalar or array.
        sensitivity: in standard deviations of the noise, C / sigma.
    """
    epsilon = np.asarray(epsilon, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        above = norm.logcdf(sensitivity / 2 - epsilon / sensitivity)
        below = epsilon + norm.logcdf(-sensitivity / 2 - epsilon / sensitivity)
        # Both terms are nearly equal for small sensitivities: no difference of probabilities keeps their digits.
        delta = np.exp(above) * -np.expm1(below - above)
    return np.where(np.isfinite(delta), np.maximum(delta, 0.0), 0.0)  # not finite where both are exp(-inf)


def sampled_delta(epsilon: float, rate: float | Floats, sensitivity: float) -> Floats:
    """Return the delta of the Poisson-subsampled Gaussian mechanism, for removal: the larger of both directions.

    Balle, Barthe, Gaboardi 2018, arXiv 1807.01647, Theorem 8, which is tight here.

    Args:
        epsilon: above or equal to 0.
        rate: scalar or array, in [0, 1].
        sensitivity: C / sigma.
    """
    rate = np.asarray(rate, np.float64)
    return rate * gaussian_delta(inner_epsilon(epsilon, rate), sensitivity)


def inner_epsilon(epsilon: float, rate: Floats) -> Floats:
    """Return log(1 + (e^epsilon - 1) / rate): the epsilon that subsampling amplifies to `epsilon`; inf at rate 0.

    Args:
        epsilon: at least 0.
        rate: sampling rates, in [0, 1].
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # With e^epsilon taken out of the logarithm: it overflows above 709.
        inner = epsilon + np.log(rate - (1 - rate) * np.expm1(-epsilon)) - np.log(rate)
    return np.where(rate > 0, inner, np.inf)


def only_local_sampling(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of OLS: all clients take part (Theorem 5.1).

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    return float(sampled_delta(epsilon, participation.sample_rate, participation.clip / sigma))


def weak_client_sampling(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of WCS: everybody sees the participants (Theorem 5.2). Sound for Algorithm 1, for all observers.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    # The theorem's epsilon'' is log(1 + (e^epsilon - 1) / q): with probability p the mechanism of Theorem 5.1, else
    # nothing that depends on the sample.
    return participation.client_rate * only_local_sampling(participation, sigma, epsilon)


def centralized_shuffling(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of CS: every sample is used with probability p q, independently of all others (Corollary 5.3).

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    return float(
        sampled_delta(epsilon, participation.client_rate * participation.sample_rate, participation.clip / sigma)
    )


def as_printed(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of Theorem 4.1 as published: no guarantee, but exact when all gradients are parallel.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    return hockey_stick(*parallel_pair(participation, sigma), epsilon)


def recentred(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the delta of Theorem 4.1 with the mixtures centred on x', as in the paper's numbers: no guarantee.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    return hockey_stick(*recentred_pair(participation, sigma), epsilon)


def orthogonal_pair(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return the exact divergence when the client's other gradients are parallel and orthogonal to that of x'.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    # Along the others' direction only participation shows: given the observation u, it has probability w(u), and the
    # rest is the subsampled Gaussian mechanism of rate q w(u). The distribution of u does not depend on x'. The
    # integral over u is a sum over equal steps, which for such densities is exact to rounding.
    _, observed, rate = rates_across(participation, sigma, _PER_DEVIATION)
    return float((observed * sampled_delta(epsilon, rate, participation.clip / sigma)).sum() / _PER_DEVIATION)


def lower_bound(participation: Participation, sigma: float, epsilon: float) -> float:
    """Return a lower bound on delta: the worse of two pairs of data sets that can occur.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    return max(orthogonal_pair(participation, sigma, epsilon), as_printed(participation, sigma, epsilon))


def rates_across(participation: Participation, sigma: float, per_deviation: int) -> tuple[Floats, Floats, Floats]:
    """Return the information in the others' direction of `orthogonal_pair`.

    Args:
        participation: rates, samples, clipping norm.
        sigma: of the noise; places are in units of it.
        per_deviation: points per standard deviation, from far below 0 to far above the furthest mean.

    Returns:
        `(points,)` places u, their density, and the rate q w(u).
    """
    means = participation.others[0] * participation.clip / sigma
    points = np.arange(-REACH, means.max() + REACH, 1 / per_deviation)
    present = participation.client_rate * density((participation.others[1], means), points)
    observed = present + (1 - participation.client_rate) * density((np.ones(1), np.zeros(1)), points)
    return (
        points,
        observed,
        participation.sample_rate * np.divide(present, observed, out=np.zeros_like(observed), where=observed > 0),
    )


def parallel_pair(participation: Participation, sigma: float) -> tuple[Mixture, Mixture]:
    """Return the server's view with and without x' when all gradients are parallel: equations (14) and (15).

    Args:
        participation: its parameters.
        sigma: of the noise.
    """
    p, q, unit = participation.client_rate, participation.sample_rate, participation.clip / sigma
    count, weight = participation.others
    means = unit * np.concatenate(([0.0], count, count + 1))
    with_x = np.concatenate(([1 - p], p * (1 - q) * weight, p * q * weight))
    without = np.concatenate(([1 - p], p * weight, np.zeros_like(weight)))
    return (with_x, means), (without, means)


def recentred_pair(participation: Participation, sigma: float) -> tuple[Mixture, Mixture]:
    """Return `parallel_pair` with every sampling of the other samples shifted to mean 0 if the client takes part.

    Args:
        participation: its parameters.
        sigma: of the noise.
    """
    p, q, unit = participation.client_rate, participation.sample_rate, participation.clip / sigma
    count, weight = participation.others
    means = unit * np.concatenate((-count, [0.0, 1.0]))
    with_x = np.concatenate(((1 - p) * weight, [p * (1 - q), p * q]))
    without = np.concatenate(((1 - p) * weight, [p, 0.0]))
    return (with_x, means), (without, means)


def density(mixture: Mixture, points: Floats) -> Floats:
    """Return the density of a mixture of normal distributions of variance 1.

    Args:
        mixture: weights and means.
        points: `(p,)` arguments.

    Returns:
        `(p,)` densities.
    """
    weights, means = mixture
    if len(points) <= _TOGETHER:
        total: Floats = np.exp(-0.5 * np.square(points[:, None] - means)) @ weights
    else:  # no matrix of all points and means
        total = np.zeros_like(points)
        for weight, mean in zip(weights.tolist(), means.tolist(), strict=True):
            total += weight * np.exp(-0.5 * np.square(points - mean))
    return total / sqrt(2 * pi)


def hockey_stick(upper: Mixture, lower: Mixture, epsilon: float) -> float:
    """Return the integral of [upper - e^epsilon lower]+ (equation (26)).

    Args:
        upper, lower: the mixtures.
        epsilon: at least 0.
    """
    # Equation (7)'s z* is the last change of sign; if the difference is positive in several places, all of them count.
    used = (upper[0] > 0) | (lower[0] > 0)
    means = upper[1][used]
    grid = np.arange(means.min() - REACH, means.max() + REACH, 1 / _PER_SIGN)

    def is_positive(points: Floats) -> npt.NDArray[np.bool_]:
        positive: npt.NDArray[np.bool_] = density(upper, points) > np.exp(epsilon) * density(lower, points)
        return positive

    positive = is_positive(grid)
    changes = np.flatnonzero(positive[1:] != positive[:-1])
    low, high, before = grid[changes], grid[changes + 1], positive[changes]
    # Bisection of all intervals at once: one evaluation of the mixtures for each halving.
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        same = is_positive(middle) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = low.tolist()
    if positive[0]:
        ends.insert(0, -np.inf)
    if positive[-1]:
        ends.append(np.inf)
    total = 0.0
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        total += _mass(upper, begin, end) - float(np.exp(epsilon)) * _mass(lower, begin, end)
    return max(total, 0.0)


def _mass(mixture: Mixture, begin: float, end: float) -> float:
    """Return the probability of an interval, computed from the side on which it does not cancel."""
    weights, means = mixture
    low, high = begin - means, end - means
    mass = np.where(low > 0, norm.sf(low) - norm.sf(high), norm.cdf(high) - norm.cdf(low))
    return float(weights @ mass)


def epsilon_of(delta: Callable[[float], float], target: float, most: float = 700.0) -> float:
    """Return the least epsilon with ``delta(epsilon) <= target``.

    Args:
        delta: decreasing function of epsilon.
        target: in (0, 1).
        most: largest epsilon.

    Returns:
        epsilon; inf if `most` does not suffice.
    """
    if delta(0.0) <= target:
        return 0.0
    high = 1e-3
    while delta(high) > target:
        high *= 2
        if high > most:  # e^epsilon overflows above 709
            return float("inf")
    return float(brentq(lambda epsilon: delta(epsilon) - target, 0.0, high, xtol=1e-14, rtol=1e-12))


def epsilon_at(analysis: Delta, participation: Participation, sigma: float, delta: float) -> float:
    """Return the least epsilon of a round by one analysis; inf if there is none up to 700.

    Args:
        analysis: computes delta.
        participation, sigma: as of `Delta`.
        delta: in (0, 1).
    """
    return epsilon_of(partial(analysis, participation, sigma), delta)


def sigma_at(analysis: Delta, participation: Participation, epsilon: float, delta: float) -> float:
    """Return the least noise of a round by one analysis; 0 and inf as `sigma_of`.

    Args:
        analysis: computes delta.
        participation, epsilon: as of `Delta`.
        delta: in (0, 1).
    """
    return sigma_of(lambda sigma: analysis(participation, sigma, epsilon), delta, participation.clip)


def sigma_of(delta: Callable[[float], float], target: float, clip: float = 1.0) -> float:
    """Return the least sigma with ``delta(sigma) <= target``, to a relative 1e-9.

    Args:
        delta: decreasing function of sigma.
        target: in (0, 1).
        clip: C.

    Returns:
        sigma; 0 if noise of C / 64, which hides nothing, suffices; inf if a million times C does not.
    """
    least, most, high = _LEAST_SIGMA * clip, 1e6 * clip, clip
    while delta(high) > target:
        high *= 2
        if high > most:
            return float("inf")
    low = high / 2
    while delta(low) <= target:
        low, high = low / 2, low
        if high <= least:
            return 0.0
    while high / low - 1 > 1e-9:
        middle = float(np.sqrt(low * high))  # sigma spans orders of magnitude
        low, high = (low, middle) if delta(middle) <= target else (middle, high)
    return high  # `high` keeps the target, `low` does not
