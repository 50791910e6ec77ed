"""Number of solutions of equation (7) of Hasircioglu and Gunduz (arXiv 2205.01556), counted.

The proof of Theorem 4.1 integrates the positive part of with x' minus e^epsilon times without x' (equation (28)), and
says that this difference has one zero-crossing. That is so for all parameters: divided by the density of N(0), the
difference is a polynomial in exp(z C / sigma^2). The sign of its k-th coefficient, k from 1 on, is that of
k (1 - q) - (e^epsilon - 1 + q) (d + 1 - k), which rises with k; the constant is negative. So the coefficients change
their sign once, and by Descartes' rule of signs there is one positive root. The count here does not use this argument.
"""

from itertools import product

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from analysis.bounds.random_participation import Mixture, Participation, parallel_pair, recentred_pair
from analysis.reproduction.random_participation.published import EPSILON, PROPOSED, SCENARIOS
from analysis.reproduction.verdicts import PaperClaim, equal
from testbed.arrays import Floats

_PER_DEVIATION = 8  # points per standard deviation of the noise
_MARGIN = 40.0  # standard deviations before the first mean and after the last
_AT_A_TIME = 2**22  # values in memory together


def crossings(upper: Mixture, lower: Mixture, epsilon: float) -> int:
    """Count the sign changes of upper - e^epsilon lower.

    Args:
        upper, lower: the mixtures, of normal distributions of variance 1.
        epsilon: at least 0.
    """
    means = np.unique(np.concatenate([upper[1], lower[1]]))
    spacing = float(np.diff(means).min())
    # Far out, the ratio of the densities grows by e^spacing for each deviation. Before it reaches e^epsilon it has to
    # make up for the smallest ratio of their weights.
    beyond = (epsilon + _MARGIN) / spacing
    points = np.arange(means.min() - _MARGIN, means.max() + _MARGIN + beyond, 1 / _PER_DEVIATION)
    is_above = _log_density(upper, points) > _log_density(lower, points) + epsilon
    return int(np.count_nonzero(is_above[1:] != is_above[:-1]))


def _log_density(mixture: Mixture, points: Floats) -> Floats:
    """Return the logarithm of a mixture's density, without the constant factor."""
    weights, means = mixture
    used = weights > 0
    parts = np.array_split(points, max(1, len(points) * int(used.sum()) // _AT_A_TIME))
    return np.concatenate(
        [
            np.asarray(logsumexp(-0.5 * np.square(part[:, None] - means[used]), axis=1, b=weights[used]), np.float64)
            for part in parts
        ]
    )


def count_crossings() -> pd.DataFrame:
    """Count the zero-crossings at the published settings and on a grid of parameters.

    Returns:
        Columns p, q, d, sigma, epsilon, as printed, centred on x'.
    """
    settings = [(scenario.participation, scenario.sigmas[PROPOSED], EPSILON) for scenario in SCENARIOS]
    settings += [
        (Participation(size, client_rate, sample_rate), sigma, epsilon)
        for client_rate, sample_rate, size, sigma, epsilon in product(
            (0.001, 0.1, 0.9), (0.001, 0.1, 0.9), (1, 10, 100), (0.5, 1.0, 5.0), (0.015, 0.5, 2.0)
        )
    ]
    return pd.DataFrame.from_records(
        [
            {
                "p": participation.client_rate,
                "q": participation.sample_rate,
                "d": participation.local_samples,
                "sigma": sigma,
                "epsilon": epsilon,
                "as printed": crossings(*parallel_pair(participation, sigma), epsilon),
                "centred on x'": crossings(*recentred_pair(participation, sigma), epsilon),
            }
            for participation, sigma, epsilon in settings
        ]
    )


def crossing_claim(counted: pd.DataFrame) -> PaperClaim:
    """Return the claim that equation (7) has one solution.

    Args:
        counted: as `count_crossings` makes it.
    """
    both = counted[["as printed", "centred on x'"]].to_numpy(np.int64)
    return PaperClaim(
        "proof of Theorem 4.1: the difference in equation (28) has only one zero-crossing, the solution of (7)",
        f"{both.min()} to {both.max()} sign changes in {len(counted)} settings, as printed and centred on x'; "
        "Descartes' rule of signs gives one for all settings",
        [
            equal("fewest sign changes of a setting", float(both.min()), 1.0),
            equal("most sign changes of a setting", float(both.max()), 1.0),
        ],
        uses_data=False,
    )
