"""Contributions of single clients to a statistic that is linear in a round's sum, from the sums and participants.

Kerkouche, Acs, Fritz, Client-specific Property Inference against Secure Aggregation in Federated Learning, WPES 2023,
arXiv 2303.03908.

An attacker that has a linear detector for each round's model applies it to each round's sum. The result is the sum of
the detector's outputs on the participants' updates. The results of all rounds are solved for the clients by ridge
regression. Clients that are always in the same sums get the same score. (Written from the paper's abstract and
introduction and the authors' public code. In that code the weight of the penalty is fixed by hand; here generalised
cross-validation finds it from the sums, and the clients' common mean is not shrunk.)
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats

_GRID: Final = np.logspace(-6, 3, 73)
"""Candidate weights of the penalty, in units of the largest squared singular value."""


def client_scores(participation: npt.NDArray[np.bool_], weights: Floats, values: Floats) -> Floats:
    """Solve a statistic of the sums for the contribution of each client.

    Args:
        participation: `(r, n)` bool, P: the clients in each sum; each round has at least one.
        weights: `(n,)` weight of each client's update in a sum, at least 0.
        values: `(r, s)` s statistics of each round's sum.

    Returns:
        `(n, s)` contributions for a weight of 1; NaN for clients in no sum, or of weight 0.
    """
    in_sums = participation.any(axis=0) & (weights > 0)
    counted = participation[:, in_sums] * weights[in_sums]
    totals = counted.sum(axis=1)
    # The penalty is on deviations from this mean; on the scores themselves it would pull all towards 0.
    common = totals @ values / (totals @ totals)  # (s,)
    scale = np.sqrt(weights[in_sums])
    rows = counted / scale  # weighted as the norm of `analysis.attacks.reconstruction` is
    scores = np.full((participation.shape[1], values.shape[1]), np.nan)
    deviations = rows.T @ ridge(rows @ rows.T, values - totals[:, None] * common)
    scores[in_sums] = common + deviations / scale[:, None]
    return scores


def ridge(gram: Floats, values: Floats) -> Floats:
    """Return alpha, for which ``rows.T @ alpha`` is the ridge regression of `values` on `rows`.

    All s columns share one weight of the penalty, found by generalised cross-validation (Golub, Heath, Wahba 1979).

    Args:
        gram: `(r, r)` positive semidefinite, ``rows @ rows.T``.
        values: `(r, s)`.

    Returns:
        `(r, s)`.
    """
    squares, left = np.linalg.eigh(gram)
    squares = np.maximum(squares, 0.0)  # rounding makes zeros slightly negative
    if not squares[-1] > 0:
        return np.zeros_like(values)
    turned = left.T @ values
    powers = np.square(turned).sum(axis=1)
    shrinkage = squares / (squares + _GRID[:, None] * squares[-1])  # factor of each direction, by weight
    # Squared residuals over the squared number of directions that the fit leaves free.
    errors = np.square(1 - shrinkage) @ powers / np.square(len(gram) - shrinkage.sum(axis=1))
    penalty = _GRID[int(errors.argmin())] * squares[-1]
    solved: Floats = left @ (turned / (squares + penalty)[:, None])
    return solved
