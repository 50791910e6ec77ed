"""Recovery of single updates from many sums while the updates change: Remark 3 of Multi-RoundSecAgg as a theorem.

So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation, AAAI 2023, arXiv 2106.03328, assume in (5) that updates
do not change. Remark 3: if they change, "the multi-round privacy guarantee becomes even stronger", without a number.

Model: in round t the server sees the sum of x_i(t) over the K_t clients with P_ti = 1. The server wants a reference x_i
of client i, and ||x_i(t) - x_i|| <= delta in each of the client's rounds, in any norm. For weights w of the clients (a
single client, or the mean of a batch) let

    A(w) = min { sum_t |c_t| K_t :  P^T c = w },    infinite if w is not in the row space of P.

Theorem: the smallest error of sum_i w_i x_i that any estimator can guarantee is delta A(w). With K clients in each
round, A >= 2K - 1 for a single client, however many rounds. Proofs: docs/papers/multi-round-moving-updates.md.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csc_matrix, hstack

from analysis.bounds.checks import require_at_least
from testbed.arrays import Floats

_DETERMINED = 1e-9
_INFEASIBLE = 2  # status of scipy.optimize.linprog


@dataclass(frozen=True)
class Recovery:
    """The best guarantee for one target, with its proofs.

    Attributes:
        amplification: A(w); infinite if the target is not determined.
        coefficients: `(rounds,)` c of the estimator that attains it; None if the target is not determined.
        indistinguishable: `(clients,)` u of the two worlds; None if the target is not determined.
    """

    amplification: float
    coefficients: Floats | None = None
    indistinguishable: Floats | None = None


def recovery(participation: npt.ArrayLike, target: npt.ArrayLike) -> Recovery:
    """Return A(w) of a target, the estimator that attains it, and the worlds that no estimator tells apart.

    Args:
        participation: `(rounds, clients)` 0 or 1, P; rounds without clients count for nothing.
        target: `(clients,)` w.

    Raises:
        ValueError: the shapes do not match.

    Example:
        >>> recovery([[1, 1], [0, 1]], [1, 0]).amplification  # the difference of sums of two and one
        3.0
    """
    matrix, weights = _checked(participation), np.asarray(target, np.float64)
    if weights.shape != matrix.shape[1:]:
        raise ValueError(f"target: {weights.size} weights for {matrix.shape[1]} clients")
    sizes = matrix.sum(axis=1)
    transposed = csc_matrix(matrix.T)
    # c is split into positive and negative parts, which are both at least 0.
    solved = linprog(
        np.concatenate([sizes, sizes]), A_eq=hstack([transposed, -transposed]), b_eq=weights, method="highs"
    )
    if solved.status == _INFEASIBLE:
        return Recovery(float("inf"))
    if not solved.success:
        raise RuntimeError(f"the linear program of A(w) has no solution: {solved.message}")
    positive, negative = np.split(solved.x, 2)
    return Recovery(float(solved.fun), positive - negative, np.asarray(solved.eqlin.marginals, np.float64))


def recoveries(participation: npt.ArrayLike, targets: npt.ArrayLike) -> list[Recovery]:
    """Return `recovery` of several targets.

    Args:
        participation: see `recovery`.
        targets: `(m, clients)`, one target a row.
    """
    return [recovery(participation, target) for target in np.atleast_2d(np.asarray(targets, np.float64))]


def least_amplification(selected: int, privacy: int = 1) -> float:
    """Return the smallest A of any number of rounds of K clients: of a single client, or of the mean of a batch of T.

    Args:
        selected: K, a multiple of T.
        privacy: T; 1: single clients.

    Example:
        >>> least_amplification(selected=12), least_amplification(selected=12, privacy=6)
        (23.0, 3.0)
    """
    require_at_least(1, selected=selected, privacy=privacy)
    if selected % privacy:
        raise ValueError(f"privacy: T = {privacy} does not divide K = {selected}")
    return 2 * selected / privacy - 1


def independent_error(participation: npt.ArrayLike) -> Floats:
    """Return the root mean squared error of the best linear unbiased estimate, for independent changes of variance 1.

    The mean squared error is [(P^T D^-1 P)^-1]_ii with D = diag(K_t) (Gauss and Markov). It falls with the number of
    rounds: changes delay the recovery under random selection, and do not raise T.

    Args:
        participation: `(rounds, clients)` 0 or 1, P.

    Returns:
        `(clients,)`; infinite for clients that the sums do not determine.

    Example:
        >>> independent_error([[1, 1], [0, 1]]).round(3).tolist()  # variances 2 + 1 and 1
        [1.732, 1.0]
    """
    matrix = _checked(participation)
    scaled = matrix / np.sqrt(np.maximum(matrix.sum(axis=1), 1.0))[:, None]  # D^(-1/2) P
    _, singular, right = np.linalg.svd(scaled, full_matrices=False)
    rank = singular > singular.max(initial=0.0) * max(matrix.shape) * np.finfo(np.float64).eps
    singular, right = singular[rank], right[rank]
    errors = np.sqrt(((right / singular[:, None]) ** 2).sum(axis=0))
    undetermined = (right**2).sum(axis=0) < 1 - _DETERMINED * matrix.shape[1]
    return np.where(undetermined, np.inf, errors)


def _checked(participation: npt.ArrayLike) -> Floats:
    matrix = np.asarray(participation, np.float64)
    if matrix.ndim != 2 or not np.isin(matrix, (0.0, 1.0)).all():
        raise ValueError("participation: must have two dimensions, rounds and clients, and entries 0 or 1")
    return matrix
