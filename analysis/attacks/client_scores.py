"""What single clients add to a number that is linear in a round's sum, from the sums and who was in them: Kerkouche,
Acs, Fritz, Client-specific Property Inference against Secure Aggregation in Federated Learning, WPES 2023, arXiv
2303.03908.

An attacker that has a linear detector for each round's model applies it to each round's sum. What comes out is the sum
of what it would say of the participants; over the rounds it is solved for the clients by ridge regression. Clients that
are always in the same sums get the same number. (Written from the paper's abstract and introduction and the authors'
public code; the code has the weight of the regression fixed by hand, here it is found from the sums by generalised
cross-validation, and what all clients have in common is not shrunk.)
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats

_GRID: Final = np.logspace(-6, 3, 73)
"""Weights of the penalty that are tried, in units of the largest squared singular value."""


def client_scores(participation: npt.NDArray[np.bool_], weights: Floats, values: Floats) -> Floats:
    """What each client adds.

    Args:
        participation: `(r, n)`, P: who is in which sum; each round has somebody.
        weights: `(n,)` what each client's update counts in a sum, at least 0.
        values: `(r, s)` s numbers of each round's sum.

    Returns:
        `(n, s)` for a weight of 1; NaN for clients in no sum, and those that count nothing.
    """
    in_sums = participation.any(axis=0) & (weights > 0)
    counted = participation[:, in_sums] * weights[in_sums]
    totals = counted.sum(axis=1)
    common = totals @ values / (totals @ totals)  # (s,)
    scale = np.sqrt(weights[in_sums])
    rows = counted / scale  # weighted as the norm of `analysis.attacks.reconstruction` is
    scores = np.full((participation.shape[1], values.shape[1]), np.nan)
    deviations = rows.T @ ridge(rows @ rows.T, values - totals[:, None] * common)
    scores[in_sums] = common + deviations / scale[:, None]
    return scores


def ridge(gram: Floats, values: Floats) -> Floats:
    """`(r, s)` alpha: ``rows.T @ alpha`` is the ridge regression of `values` on `rows`, where ``gram = rows @ rows.T``.

    One weight of the penalty for all s columns, by generalised cross-validation (Golub, Heath, Wahba 1979).

    Args:
        gram: `(r, r)` positive semidefinite.
        values: `(r, s)`.
    """
    squares, left = np.linalg.eigh(gram)
    squares = np.maximum(squares, 0.0)
    if not squares[-1] > 0:
        return np.zeros_like(values)
    turned = left.T @ values
    powers = np.square(turned).sum(axis=1)
    shrinkage = squares / (squares + _GRID[:, None] * squares[-1])  # of each direction, by weight
    errors = np.square(1 - shrinkage) @ powers / np.square(len(gram) - shrinkage.sum(axis=1))
    penalty = _GRID[int(errors.argmin())] * squares[-1]
    solved: Floats = left @ (turned / (squares + penalty)[:, None])
    return solved
