"""Strategies as whole matrices: slow, and obviously right."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
from scipy.linalg import solve_triangular, sqrtm, toeplitz

from testbed.arrays import Floats


def dense(coefficients: Floats) -> Floats:
    """`(n, n)` C."""
    return np.tril(toeplitz(coefficients))


def prefix_sums(rounds: int) -> Floats:
    """`(n, n)` A."""
    return np.tril(np.ones((rounds, rounds)))


def error(matrix: Floats, of: str) -> float:
    """Return the standard error of a prefix sum, for independent noise of deviation 1 times C^-1."""
    rows = np.square(prefix_sums(len(matrix)) @ np.linalg.inv(matrix)).sum(axis=1)
    return float(np.sqrt(rows.mean() if of == "mean" else rows.max()))


def allowed(rounds: int, separation: int, participations: int) -> Iterator[tuple[int, ...]]:
    """Every set of rounds that are so far apart."""
    for count in range(1, participations + 1):
        for chosen in combinations(range(rounds), count):
            if all(later - earlier >= separation for earlier, later in pairwise(chosen)):
                yield chosen


def changed(matrix: Floats, chosen: tuple[int, ...]) -> float:
    """How much contributions of +1 or -1 in these rounds change C x, at most: every sign tried."""
    columns = matrix[:, list(chosen)]
    signs = 1 - 2 * (np.arange(2 ** len(chosen))[:, None] >> np.arange(len(chosen)) & 1)
    return float(np.sqrt(np.square(columns @ signs.T).sum(axis=0).max()))


def best_of_one_round(rounds: int) -> Floats:
    """Return the C with columns of norm 1 and the least mean squared error, for clients with one round.

    Denisov, McMahan, Rush, Smith, Thakurta, arXiv 2202.08312, Theorem 3.2: the fixed point of a dual vector v.
    """
    gram = prefix_sums(rounds).T @ prefix_sums(rounds)
    v = np.diag(np.real(sqrtm(gram)))
    for _ in range(300):
        root = np.sqrt(v)
        v = np.diag(np.real(sqrtm(root[:, None] * gram * root)))
    root = np.sqrt(v)
    product = np.real(sqrtm(root[:, None] * gram * root)) / np.outer(root, root)
    return np.linalg.cholesky(product[::-1, ::-1])[::-1, ::-1].T  # lower triangular, with C^T C = product


def solved(matrix: Floats, noise: Floats) -> Floats:
    """`(n, d)` C^-1 z."""
    return np.asarray(solve_triangular(matrix, noise, lower=True))
