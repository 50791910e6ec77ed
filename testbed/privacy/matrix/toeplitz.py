"""Lower-triangular Toeplitz strategies: the cost of their noise in privacy and in accuracy.

Over n rounds the released sums x_1, ..., x_n (a row each) carry the noise C^-1 z, z independent Gaussians: as if
C x + z had been released, from which the sums follow. So privacy depends on a client's change of C x (the sensitivity),
and accuracy on the noise in the prefix sums A x, which are the models: A C^-1 z, where A is the lower-triangular matrix
of ones. C is Toeplitz: column t is its first column, `coefficients`, from row t on.

Denisov, McMahan, Rush, Smith, Thakurta, Improved Differential Privacy for SGD via Optimal Private Linear Operators on
Adaptive Streams, NeurIPS 2022, arXiv 2202.08312: the factorisation, and (Theorem 2.1) that results for x fixed in
advance also hold when each round's x depends on earlier releases, as in training. Choquette-Choo, McMahan, Rush,
Thakurta, arXiv 2211.06530, Theorem 2: the sensitivity where one client has several rounds. Kalinin, Lampert, Banded
Square Root Matrix Factorization for Differentially Private Model Training, arXiv 2405.13763, Theorem 2: the rounds that
cost most.
"""

import numpy as np

from testbed.arrays import Floats


def inverse(coefficients: Floats) -> Floats:
    """Return the first column of C^-1.

    Args:
        coefficients: `(n,)` first column of C, the first of which is not 0.

    Returns:
        `(n,)`.

    Example:
        >>> inverse(np.ones(4)).tolist()  # prefix sums; their inverse takes differences
        [1.0, -1.0, 0.0, 0.0]
    """
    from scipy.signal import lfilter  # slow to import

    impulse = np.zeros(len(coefficients))
    impulse[0] = 1.0
    # Without the zeros of a band, which would make the filter take n steps per element.
    column: Floats = lfilter([1.0], np.trim_zeros(coefficients, "b"), impulse)
    return column


def expected_error(coefficients: Floats, of: str = "mean") -> float:
    """Return the standard error of a coordinate of the prefix sums, for noise z of standard deviation 1.

    Args:
        coefficients: `(n,)` first column of C.
        of: ``mean``: the root of the mean squared error of the n prefix sums; ``max``: that of the last, the largest.

    Example:
        >>> independent = np.array([1.0, 0.0, 0.0, 0.0])
        >>> expected_error(independent, "max")  # four noises of variance 1
        2.0
    """
    return error_of(np.cumsum(inverse(coefficients)), of)


def error_of(noise: Floats, of: str) -> float:
    """Return the expected error of the noise in the prefix sums.

    Args:
        noise: `(n,)` first column of A C^-1.
        of: see `expected_error`.
    """
    rounds = len(noise)
    times = np.arange(rounds, 0, -1) / rounds if of == "mean" else 1.0
    return float(np.sqrt((times * noise * noise).sum()))


def largest_sum(coefficients: Floats) -> float:
    """Return the largest standard deviation of a coordinate of a sum of successive rows of C^-1 z."""
    from scipy.signal import correlate  # slow to import
    # Of all sums of m rows, that of the last m is the largest: ||P - P shifted by m||, P the first column of A C^-1.

    prefix = np.cumsum(inverse(coefficients))
    rounds, squares = len(prefix), np.append(0.0, np.cumsum(prefix * prefix))
    shifts = np.arange(1, rounds + 1)
    products = np.append(correlate(prefix, prefix, "full")[rounds:], 0.0)
    variances = squares[rounds] + squares[rounds - shifts] - 2 * products
    return float(np.sqrt(variances.max()))


def gram_row(coefficients: Floats, row: int) -> Floats:
    """Return a row of C^T C up to the diagonal.

    Args:
        coefficients: `(n,)` first column of C.
        row: from 0.

    Returns:
        `(row + 1,)` products of column `row` with each column up to itself.
    """
    rounds = len(coefficients)
    own = coefficients[: rounds - row]
    # Column s from row `row` on is the coefficients from row - s on.
    row_of_gram: Floats = np.correlate(coefficients, own, "valid")[::-1]
    return row_of_gram


def does_not_increase(coefficients: Floats) -> bool:
    """Return whether no coefficient is negative, or above the one before it."""
    return bool((coefficients >= 0).all() and (np.diff(coefficients) <= 0).all())


def sensitivity(coefficients: Floats, separation: int, participations: int) -> float:
    """Return the largest change of C x by one client with contributions of norm 1.

    The result is exact for coefficients that are not negative and do not increase: then the rounds 0, b, 2b, ... cost
    most, as early and as near as possible (Kalinin, Lampert 2024, Theorem 2). It is exact, too, where C has no more
    than b bands: then columns of different rounds of a client have no row in common, and those of the first rounds are
    the longest.

    Args:
        coefficients: `(n,)` first column of C.
        separation: b, least distance between two rounds of a client, at least 1.
        participations: k, most rounds of a client, at least 1; rounds beyond n do not count.

    Raises:
        ValueError: if the coefficients are of neither kind.

    Example:
        >>> prefix_sums = np.ones(9)
        >>> sensitivity(prefix_sums, separation=9, participations=1)  # a client of round 1 changes 9 sums by 1
        3.0
    """
    rounds = len(coefficients)
    bands = len(np.trim_zeros(coefficients, "b"))
    if bands > separation and not does_not_increase(coefficients):
        raise ValueError("coefficients: must be at least 0 and not increase, or be no more than the separation")
    total = np.zeros(rounds)
    for begin in range(0, min(rounds, participations * separation), separation):
        total[begin:] += coefficients[: rounds - begin]
    return float(np.sqrt((total * total).sum()))
