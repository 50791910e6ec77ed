"""Accuracy of correlated noise, by strategy: the error of the models' prefix sums at one epsilon.

The noise of a strategy is scaled by its sensitivity (`testbed.privacy.matrix`), so that each has the same epsilon. The
errors compare the noise left in the prefix sums, in units of the clip times the noise multiplier.

For clients with one round the best matrix is known: a fixed point of a dual vector (Denisov, McMahan, Rush, Smith,
Thakurta, arXiv 2202.08312, Theorem 3.2). It needs all n earlier vectors and n^3 operations, so it is for comparison.
"""

from dataclasses import dataclass

import numpy as np

from testbed.arrays import Floats
from testbed.privacy.matrix import banded
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.matrix.strategy import BandedStrategy, Name, Strategy, strategy
from testbed.privacy.matrix.toeplitz import expected_error, sensitivity
from testbed.privacy.noise import noise_multiplier_for

MOST_DENSE = 256  # rounds
_ITERATIONS = 500


@dataclass(frozen=True)
class StrategyError:
    """The error of one strategy.

    Attributes:
        strategy: name, with its size.
        vectors: number of vectors kept from round to round.
        sensitivity: largest change by a client, for contributions of norm 1.
        mean_error: root mean squared error of a coordinate of the n models, over clip and noise multiplier.
        max_error: the largest error of a model, that of the last.
    """

    strategy: str
    vectors: int
    sensitivity: float
    mean_error: float
    max_error: float


def strategy_errors(
    rounds: int, separation: int, participations: int, error: str = "mean", buffers: tuple[int, ...] = (1, 2, 4)
) -> list[StrategyError]:
    """Return the errors of the strategies that an experiment may name.

    Args:
        rounds: n, from 2 to `testbed.privacy.matrix.section.MOST_ROUNDS`.
        separation, participations: b and k.
        error: the error that strategies minimise, ``mean`` or ``max``.
        buffers: numbers of buffers of BLTs.
    """
    plain: tuple[Name, ...] = ("identity", "prefix-sum")
    made: list[tuple[str, Strategy]] = [
        (name, strategy(name, None, rounds, separation, participations)) for name in plain
    ]
    made.append(("square root of A", BandedStrategy(rounds, tuple(banded.square_root(rounds).tolist()))))
    for count in buffers:
        name = f"blt, {count} buffer{'s' * (count > 1)}"
        made.append((name, strategy("blt", count, rounds, separation, participations, error)))
    made.append(("band", strategy("band", None, rounds, separation, participations, error)))
    results = []
    for name, candidate in made:
        changed = sensitivity(candidate.coefficients, separation, participations)
        errors = [changed * expected_error(candidate.coefficients, of) for of in ("mean", "max")]
        results.append(StrategyError(name, candidate.vectors, changed, errors[0], errors[1]))
    # Theorem 3.2 is for clients with one round only, and takes rounds^3 operations.
    if min(participations, -(-rounds // separation)) == 1 and rounds <= MOST_DENSE:
        squares = squared_errors(best_of_one_round(rounds))
        errors = [float(np.sqrt(squares.mean())), float(np.sqrt(squares.max()))]
        results.append(StrategyError("best matrix (mean)", rounds - 1, 1.0, errors[0], errors[1]))
    return results


def squared_errors(matrix: Floats) -> Floats:
    """Return the squared error of each prefix sum, `(n,)`, for `(n, n)` C and noise of standard deviation 1."""
    squares: Floats = np.square(np.tril(np.ones_like(matrix)) @ np.linalg.inv(matrix)).sum(axis=1)
    return squares


def best_of_one_round(rounds: int) -> Floats:
    """Return the C with the least mean squared error for clients with one round.

    Args:
        rounds: n.

    Returns:
        `(n, n)` lower triangular, with columns of norm 1.

    Source:
        Denisov et al., arXiv 2202.08312, Theorem 3.2.
    """
    # Iterate v = diag((V^(1/2) A^T A V^(1/2))^(1/2)); then C^T C = V^(-1/2) (...)^(1/2) V^(-1/2).
    sums = np.tril(np.ones((rounds, rounds)))
    gram = sums.T @ sums
    v = np.diag(_root(gram)).copy()
    for _ in range(_ITERATIONS):
        scale = np.sqrt(v)
        following = np.diag(_root(scale[:, None] * gram * scale)).copy()
        moved, v = float(np.abs(following / v - 1).max()), following
        if moved < 1e-12:
            break
    scale = np.sqrt(v)
    product = _root(scale[:, None] * gram * scale) / np.outer(scale, scale)
    # C^T C needs the Cholesky factor of the matrix with reversed rows and columns: numpy returns L of L L^T.
    upper = np.linalg.cholesky(product[::-1, ::-1])[::-1, ::-1]
    lower: Floats = upper.T
    return lower


def _root(matrix: Floats) -> Floats:
    """Return the square root of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    # Rounding makes the smallest eigenvalues slightly negative.
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def noise_multiplier(rounds: int, participations: int, epsilon: float, delta: float) -> float:
    """Return the least noise multiplier that keeps an epsilon, which is the same for all strategies.

    Args:
        rounds: n.
        participations: k.
        epsilon: not to be exceeded.
        delta: in (0, 1).

    Raises:
        ValueError: if there is none.
    """
    identity = strategy("identity", None, rounds, 1, participations)
    return noise_multiplier_for(
        lambda multiplier: CorrelatedAccountant(multiplier, identity, 1, participations), epsilon, delta, participations
    )
