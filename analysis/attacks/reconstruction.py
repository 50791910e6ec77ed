"""Single updates out of many sums, by least squares: So et al., Multi-RoundSecAgg, arXiv 2106.03328, appendix H.2.

When a model has converged, updates hardly change from round to round, and the server's sums are (31): P times the
weighted updates, plus what they do change. If P has full rank, least squares (32) gives every update, else the
solution of minimum norm is the best there is: for clients always in the same sums, as in a batch, their weighted
mean. The paper stops at the inverse; this is the same attack for every P.

The norm is that of the clients' updates, each squared and times its weight: then members of a batch get their mean,
whatever they weigh. Where P has full rank the choice does not matter.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.attacks.view import View
from testbed.arrays import Floats

Integers = npt.NDArray[np.int64]
_DETERMINED = 1 - 1e-6


@dataclass(frozen=True)
class Estimates:
    """What the server makes of its view.

    Attributes:
        clients: `(m,)` those that are in some sum.
        updates: `(m, d)` float64, an estimate of each one's update.
        rank: of P.
        determined: `(m,)` bool: the sums leave no freedom for this client's update (were updates constant).
        condition: largest over smallest singular value of P; how much changes of the updates are amplified, at most.
    """

    clients: Integers
    updates: Floats
    rank: int
    determined: npt.NDArray[np.bool_]
    condition: float


def estimates(view: View, weights: Floats) -> Estimates:
    """Solve (31) for the updates, all coordinates at once.

    Args:
        view: what the server has seen.
        weights: `(n,)` what each client's update counts in a sum, above 0 for those that are in one.
    """
    clients = np.flatnonzero(view.participation.any(axis=0))
    scale = np.sqrt(weights[clients])
    left, singular, right = np.linalg.svd(view.participation[:, clients] * scale, full_matrices=False)
    rank = int((singular > singular[0] * max(len(left), len(clients)) * np.finfo(np.float64).eps).sum())
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    solve = (right.T / singular) @ left.T / scale[:, None]
    determined = _determined(view.participation[:, clients].astype(np.float64))
    return Estimates(clients, solve @ view.sums, rank, determined, float(singular[0] / singular[-1]))


def _determined(participation: Floats) -> npt.NDArray[np.bool_]:
    """`(m,)` whether each unit vector is in the row space of P; the weights, which scale columns, do not matter."""
    right = _row_space(participation)
    return np.asarray(np.einsum("ki,ki->i", right, right) > _DETERMINED)


def spanned(participation: npt.ArrayLike, group: Integers) -> bool:
    """Whether the sum over the clients `group`, and nobody else, is a combination of the rows of P `(rounds, n)`."""
    matrix = np.asarray(participation, np.float64)
    wanted = np.zeros(matrix.shape[1])
    wanted[group] = 1
    right = _row_space(matrix)
    return bool(np.square(right @ wanted).sum() > _DETERMINED * len(group))


def _row_space(matrix: Floats) -> Floats:
    """`(rank, n)` orthonormal rows."""
    _, singular, right = np.linalg.svd(matrix, full_matrices=False)
    rows: Floats = right[singular > singular[0] * max(matrix.shape) * np.finfo(np.float64).eps]
    return rows


def errors(estimated: Floats, true: npt.NDArray[np.float32]) -> Floats:
    """`(m,)` e_i of (33), the squared distance over the squared norm of the truth; NaN where that is 0.

    Args:
        estimated, true: `(m, d)`.
    """
    distance = np.empty(len(true))
    norm = np.empty(len(true))
    for i, (guess, update) in enumerate(zip(estimated, true, strict=True)):  # no copies of (m, d)
        update = update.astype(np.float64)
        distance[i], norm[i] = ((guess - update) ** 2).sum(), (update**2).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norm > 0, distance / norm, np.nan)


def cosines(estimated: Floats, true: npt.NDArray[np.float32]) -> Floats:
    """`(m,)` cosine of the angle between estimate and truth; NaN where one is 0."""
    dot, lengths = np.empty(len(true)), np.empty(len(true))
    for i, (guess, update) in enumerate(zip(estimated, true, strict=True)):
        update = update.astype(np.float64)
        dot[i], lengths[i] = guess @ update, np.sqrt((guess @ guess) * (update @ update))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(lengths > 0, dot / lengths, np.nan)
