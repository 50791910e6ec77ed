"""Lower-triangular Toeplitz strategies: what their noise costs in privacy and in accuracy.

Over n rounds the released sums x_1, ..., x_n (a row each) carry the noise C^-1 z, z independent Gaussians: as if
C x + z had been released, of which everything else is made. So privacy depends on how much a client's rounds change C x
(the sensitivity), and accuracy on what is left in the prefix sums A x, which are the models: A C^-1 z, where A is the
lower-triangular matrix of ones. C is Toeplitz: column t is its first column, `coefficients`, from row t on.

Denisov, McMahan, Rush, Smith, Thakurta, Improved Differential Privacy for SGD via Optimal Private Linear Operators on
Adaptive Streams, NeurIPS 2022, arXiv 2202.08312: the factorisation, and (Theorem 2.1) that what holds for x fixed in
advance holds when each round's x depends on what was released before, as in training. Choquette-Choo, McMahan, Rush,
Thakurta, arXiv 2211.06530, Theorem 2: the sensitivity where one client has several rounds. Kalinin, Lampert, Banded
Square Root Matrix Factorization for Differentially Private Model Training, arXiv 2405.13763, Theorem 2: which rounds
cost most.
"""

import numpy as np

from testbed.arrays import Floats


def inverse(coefficients: Floats) -> Floats:
    """`(n,)` the first column of C^-1, of `(n,)` coefficients, the first of which is not 0."""
    from scipy.signal import lfilter  # slow to import

    impulse = np.zeros(len(coefficients))
    impulse[0] = 1.0
    column: Floats = lfilter([1.0], np.trim_zeros(coefficients, "b"), impulse)
    return column


def expected_error(coefficients: Floats, of: str = "mean") -> float:
    """What a prefix sum's coordinate is off by, for noise z of standard deviation 1.

    Args:
        coefficients: `(n,)` of C.
        of: ``mean``: the root of the mean squared error of the n prefix sums; ``max``: that of the last, the largest.
    """
    return error_of(np.cumsum(inverse(coefficients)), of)


def error_of(noise: Floats, of: str) -> float:
    """The same of `(n,)` `noise`, the first column of A C^-1."""
    rounds = len(noise)
    times = np.arange(rounds, 0, -1) / rounds if of == "mean" else 1.0
    return float(np.sqrt((times * noise * noise).sum()))


def largest_sum(coefficients: Floats) -> float:
    """The largest standard deviation of a coordinate of successive rows of C^-1 z, one or more of them, summed.

    Over the n rows: of m summed the last are the largest, ||P - P shifted by m|| with P the first column of A C^-1.
    """
    from scipy.signal import correlate  # slow to import

    prefix = np.cumsum(inverse(coefficients))
    rounds, squares = len(prefix), np.append(0.0, np.cumsum(prefix * prefix))
    shifts = np.arange(1, rounds + 1)
    products = np.append(correlate(prefix, prefix, "full")[rounds:], 0.0)
    variances = squares[rounds] + squares[rounds - shifts] - 2 * products
    return float(np.sqrt(variances.max()))


def gram_row(coefficients: Floats, row: int) -> Floats:
    """`(row + 1,)` of C^T C: the product of column `row` (from 0) with each column up to itself."""
    rounds = len(coefficients)
    own = coefficients[: rounds - row]
    # Column s from row `row` on is the coefficients from row - s on.
    row_of_gram: Floats = np.correlate(coefficients, own, "valid")[::-1]
    return row_of_gram


def does_not_increase(coefficients: Floats) -> bool:
    """Whether no coefficient is negative, or above the one before it."""
    return bool((coefficients >= 0).all() and (np.diff(coefficients) <= 0).all())


def sensitivity(coefficients: Floats, separation: int, participations: int) -> float:
    """The most that any client changes C x whose rounds are `separation` apart or more; contributions of 1.

    Exact for coefficients that are not negative and do not increase: then the rounds 0, b, 2b, ... cost most, as early
    as they can be and as near (Kalinin, Lampert 2024, Theorem 2). And where C has no more than b bands: then columns
    of different rounds of a client have no row in common, and those of the first rounds are the longest.

    Args:
        coefficients: `(n,)`.
        separation: b, at least 1.
        participations: k, at least 1; those for which n has no room do not count.

    Raises:
        ValueError: coefficients of neither kind.
    """
    rounds = len(coefficients)
    bands = len(np.trim_zeros(coefficients, "b"))
    if bands > separation and not does_not_increase(coefficients):
        raise ValueError("coefficients: must not be negative, nor increase, or be no more than the separation")
    total = np.zeros(rounds)
    for begin in range(0, min(rounds, participations * separation), separation):
        total[begin:] += coefficients[: rounds - begin]
    return float(np.sqrt((total * total).sum()))
