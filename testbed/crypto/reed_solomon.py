"""Finding the wrong values of a polynomial over `prime_field`: Reed-Solomon codes, decoded by Welch-Berlekamp.

Welch and Berlekamp, Error Correction for Algebraic Block Codes, US patent 4,633,470, 1986, as in Gemmell and Sudan,
Highly Resilient Correctors for Polynomials, 1992, section 2. For a polynomial P of fewer than t coefficients and at
most e wrong values y_j there are E of degree e, zero at the wrong points, and Q = P E with Q(x_j) = y_j E(x_j) at all
points. Every such nonzero pair has Q / E = P. Finding a pair is a system of linear equations, solved in O(m**3) steps.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.crypto import InvalidShares
from testbed.crypto.prime_field import PRIME, inverse, reduce_words


def wrong_values(points: Sequence[int], values: Sequence[int], threshold: int) -> list[int]:
    """Return the indices of the wrong values: at most (m - t) / 2 of them.

    Args:
        points: `(m,)` distinct, modulo the prime.
        values: `(m,)` modulo the prime.
        threshold: t, coefficients of the polynomial.

    Raises:
        InvalidShares: no polynomial with t coefficients fits all but (m - t) / 2 of the values.

    Example:
        >>> wrong_values(points=[1, 2, 3, 4], values=[5, 7, 8, 11], threshold=2)  # 3 + 2x, but at 3
        [2]
    """
    count = len(points)
    errors = (count - threshold) // 2
    powers = [[1] * count]
    for _ in range(threshold + errors - 1):
        powers.append([power * point % PRIME for power, point in zip(powers[-1], points, strict=True)])
    of_quotient = powers[: threshold + errors]
    of_locator = [
        [-power * value % PRIME for power, value in zip(row, values, strict=True)] for row in powers[: errors + 1]
    ]
    # One equation Q(x_j) - y_j E(x_j) = 0 for each value; the unknowns are t + e coefficients of Q and e + 1 of E.
    solution = _kernel(np.array([*of_quotient, *of_locator], np.uint64).T)
    dividend, locator = solution[: threshold + errors], solution[threshold + errors :]
    polynomial, too_many = _quotient(dividend, locator), f"more than {errors} of {count} values are wrong"
    if polynomial is None or len(polynomial) > threshold:
        raise InvalidShares(too_many)
    pairs = zip(points, values, strict=True)
    wrong = [place for place, (point, value) in enumerate(pairs) if _at(polynomial, point) != value]
    # With too many wrong values, a quotient may exist that does not fit the rest.
    if len(wrong) > errors:
        raise InvalidShares(too_many)
    return wrong


def elimination_steps(count: int, threshold: int) -> int:
    """Return the multiplications and additions of `wrong_values`, up to terms of lower order.

    They are those of the elimination, of all rows by each column.

    Args:
        count: m, number of values.
        threshold: t, coefficients of the polynomial.
    """
    columns = threshold + 2 * ((count - threshold) // 2) + 1
    return count * columns * min(count, columns)


def _kernel(matrix: npt.NDArray[np.uint64]) -> list[int]:
    """Return a nonzero solution of ``matrix @ x = 0``; zero if there is no other."""
    rows = matrix.copy()
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        place = len(pivots)
        nonzero = np.flatnonzero(rows[place:, column])
        if not len(nonzero):
            # A column without a pivot: set its variable to 1 and the later variables to 0.
            solution = [0] * matrix.shape[1]
            solution[column] = 1
            for row, pivot in enumerate(pivots):
                solution[pivot] = -int(rows[row, column]) % PRIME
            return solution
        rows[[place, place + nonzero[0]]] = rows[[place + nonzero[0], place]]
        rows[place] = reduce_words(rows[place] * np.uint64(inverse(int(rows[place, column]))))
        # Words are unsigned: add the negative instead of subtracting.
        factors = np.uint64(PRIME) - rows[:, column]
        factors[place] = 0
        rows += reduce_words(factors[:, None] * rows[place])
        rows = reduce_words(rows).astype(np.uint64)
        pivots.append(column)
    return [0] * matrix.shape[1]


def _quotient(dividend: list[int], divisor: list[int]) -> list[int] | None:
    """Return the quotient's coefficients, lowest first, without leading zeros; None if there is a remainder."""
    dividend, divisor = _trimmed(dividend), _trimmed(divisor)
    if not divisor:
        return None
    quotient, scale = [0] * max(0, len(dividend) - len(divisor) + 1), inverse(divisor[-1])
    for shift in range(len(quotient) - 1, -1, -1):
        factor = quotient[shift] = dividend[shift + len(divisor) - 1] * scale % PRIME
        for place, coefficient in enumerate(divisor):
            dividend[shift + place] = (dividend[shift + place] - factor * coefficient) % PRIME
    return None if any(dividend) else _trimmed(quotient)


def _trimmed(polynomial: list[int]) -> list[int]:
    trimmed = list(polynomial)
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    return trimmed


def _at(polynomial: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value
