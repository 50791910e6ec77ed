"""Further pairs of neighbouring data sets under DP-SGD with random participation, and the privacy loss of each,
exactly.

Like `random_participation.orthogonal_pair`, each pair can occur, so that any guarantee for one round (Hasircioglu and
Gunduz, arXiv 2205.01556, Theorem 4.1) must allow for it. Gradients have norm C. The client's d other gradients are
parallel to a direction u. The pairs differ in the angle between u and the gradient of x', and in the gradients of the
*other clients* along u.
"""

from math import sqrt

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from analysis.bounds.random_participation import (
    NEGLIGIBLE,
    REACH,
    Participation,
    density,
    hockey_stick,
    orthogonal_pair,
    parallel_pair,
    sampled_delta,
)
from testbed.arrays import Floats

_PER_DEVIATION = 256  # points per standard deviation in an integral over u
_NEARLY_PARALLEL = 1e-6  # of the sine: below, the gradients count as parallel


def angled_pair(participation: Participation, sigma: float, epsilon: float, cosine: float) -> float:
    """Return the exact divergence for a given cosine between the gradient of x' and the client's other ones.

    At cosine 0 it is `orthogonal_pair`, at 1 `as_printed`.

    Args:
        participation, sigma, epsilon: as of `Delta`.
        cosine: in [-1, 1].
    """
    # With a = the observation along u and b = that across it, x' moves both. Given a, the difference of the densities,
    # with x' minus e^epsilon times without, is p q B_c(a) phi(b - s) - K(a) phi(b), which is positive above one b; so
    # one integral over a is left.
    unit = participation.clip / sigma
    sine = sqrt(max(0.0, 1 - cosine * cosine))
    # The formula divides by the sine; without an angle the pair is the parallel one.
    if sine < _NEARLY_PARALLEL and cosine > 0:
        return hockey_stick(*parallel_pair(participation, sigma), epsilon)
    p, both, across = participation.client_rate, participation.client_rate * participation.sample_rate, sine * unit
    means, weights = participation.others[0] * unit, participation.others[1]
    points = np.arange(-REACH - unit, means.max() + unit + REACH, 1 / _PER_DEVIATION)
    present = density((weights, means), points)
    with_x = density((weights, means + cosine * unit), points)
    observed = p * present + (1 - p) * density((np.ones(1), np.zeros(1)), points)
    against = np.expm1(epsilon) * observed + both * present
    with np.errstate(divide="ignore", invalid="ignore"):
        above = (np.log(against) - np.log(both * with_x)) / across + across / 2
        gained = both * with_x * norm.sf(above - across) - against * norm.sf(above)
    # Not finite far out, where all densities are 0 in double precision.
    return float(np.maximum(np.where(np.isfinite(gained), gained, 0.0), 0.0).sum() / _PER_DEVIATION)


def worst_angle(participation: Participation, sigma: float, epsilon: float) -> tuple[float, float]:
    """Return the cosine at which `angled_pair` is largest, to about 1e-3, and its value there.

    Args:
        participation, sigma, epsilon: as of `Delta`.
    """
    # The bounded search ends in a local maximum, so it starts beside the best point of a grid.
    grid = np.linspace(0.0, 1.0, 11)
    losses = [angled_pair(participation, sigma, epsilon, float(cosine)) for cosine in grid]
    best = int(np.argmax(losses))
    between = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)]))
    solution = minimize_scalar(
        lambda cosine: -angled_pair(participation, sigma, epsilon, float(cosine)),
        bounds=between, method="bounded", options={"xatol": 1e-3},
    )  # fmt: skip
    if -solution.fun > losses[best]:
        return float(solution.x), float(-solution.fun)
    return float(grid[best]), losses[best]


def orthogonal_pair_in_a_crowd(participation: Participation, sigma: float, epsilon: float, clients: int) -> float:
    """Return the divergence of `orthogonal_pair` when other clients have d gradients along u, too.

    Participation then hides among theirs. The other clients of `orthogonal_pair` have no gradients along u, or known
    ones. Here every one of them takes part with probability p, and uses each of its samples with probability q.

    Args:
        participation, sigma, epsilon: as of `Delta`.
        clients: number of other clients.
    """
    if not clients:
        return orthogonal_pair(participation, sigma, epsilon)
    unit, p = participation.clip / sigma, participation.client_rate
    crowd = _samples_of(clients, participation)
    own = np.zeros(len(crowd) + participation.local_samples)
    absent = np.zeros_like(own)
    absent[: len(crowd)] = crowd
    own[:] = np.convolve(
        crowd,
        binom.pmf(np.arange(participation.local_samples + 1), participation.local_samples, participation.sample_rate),
    )
    relevant = (own > NEGLIGIBLE) | (absent > NEGLIGIBLE)
    means = unit * np.flatnonzero(relevant).astype(np.float64)
    points = np.arange(means.min() - REACH, means.max() + REACH, 1 / _PER_DEVIATION)
    present = p * density((own[relevant], means), points)
    observed = present + (1 - p) * density((absent[relevant], means), points)
    rate = participation.sample_rate * np.divide(present, observed, out=np.zeros_like(observed), where=observed > 0)
    return float((observed * sampled_delta(epsilon, rate, unit)).sum() / _PER_DEVIATION)


def _samples_of(clients: int, participation: Participation) -> Floats:
    """Return the probabilities of the number of samples that `clients` clients use in a round, by repeated squaring."""
    # Sums of products of probabilities: no cancellation, so that small ones are exact, too. The negligible upper end is
    # cut off.
    client = participation.client_rate * binom.pmf(
        np.arange(participation.local_samples + 1), participation.local_samples, participation.sample_rate
    )
    client[0] += 1 - participation.client_rate
    total = np.ones(1)
    while clients:
        if clients % 2:
            total = _trimmed(np.convolve(total, client))
        client = _trimmed(np.convolve(client, client))
        clients //= 2
    return total


def _trimmed(probabilities: Floats) -> Floats:
    trimmed: Floats = probabilities[: int(np.flatnonzero(probabilities > NEGLIGIBLE)[-1]) + 1]
    return trimmed
