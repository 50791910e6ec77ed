"""Further pairs of neighbouring data sets under DP-SGD with random participation: what each loses, exactly.

Like `random_participation.orthogonal_pair`, each of them can occur, so that any guarantee for one round (Hasircioglu
and Gunduz, arXiv 2205.01556, Theorem 4.1) must allow for it. Gradients have norm C. The client's d others are parallel
to a direction u; what differs is the angle between u and the gradient of x', and what the *other clients* hold along u.
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

_PER_DEVIATION = 256  # points at which an integral over u is summed
_NEARLY_PARALLEL = 1e-6  # of the sine: from here on the pair is that of parallel gradients


def angled_pair(participation: Participation, sigma: float, epsilon: float, cosine: float) -> float:
    """The exact divergence when the gradient of x' has this cosine with the client's others, which are parallel.

    With a = what is seen along u and b = what is seen across it, x' moves both. Given a, the difference of the
    densities, with x' minus e^epsilon times without, is p q B_c(a) phi(b - s) - K(a) phi(b), which is positive above
    one b; so one integral over a is left. At cosine 0 it is `orthogonal_pair`, at 1 `as_printed`.

    Args:
        who, sigma, epsilon: as of `Delta`.
        cosine: in [-1, 1].
    """
    unit = participation.clip / sigma
    sine = sqrt(max(0.0, 1 - cosine * cosine))
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
    return float(np.maximum(np.where(np.isfinite(gained), gained, 0.0), 0.0).sum() / _PER_DEVIATION)


def worst_angle(participation: Participation, sigma: float, epsilon: float) -> tuple[float, float]:
    """The cosine at which `angled_pair` loses most, to about 1e-3, and what it loses there."""
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
    """`orthogonal_pair` when so many other clients hold d gradients along u, too: participation hides among theirs.

    The others of `orthogonal_pair` are silent along u, or what they send there is known. Here every one of them takes
    part with probability p, and uses each of its samples with probability q.
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
    """`(m,)` probabilities of the number of samples that so many clients use in a round, by repeated squaring.

    Sums of products of probabilities: no cancellation, so that small ones are exact, too. What is negligible at the
    upper end is cut off.
    """
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
