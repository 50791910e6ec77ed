"""Linear algebra modulo a prime, and the way back to the integers."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from analysis.multi_round.participation import Integers

PRIMES = (2**25 - 39, 2**25 - 49, 2**25 - 61)
"""Small enough that a row of 2**13 products of residues fits into 64 bits. The first that serves is taken."""


def reduced(matrix: Integers, prime: int) -> tuple[Integers, Integers, Integers]:
    """Reduced row echelon form modulo the prime: non-zero rows, their pivot columns, and independent rows chosen.

    Columns chosen as pivots are independent over the rationals too, and so are the rows.
    """
    matrix = matrix % prime
    sources = np.arange(len(matrix))
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        done = len(pivots)
        if done == len(matrix):
            break
        candidates = np.flatnonzero(matrix[done:, column])
        if not len(candidates):
            continue
        swap = [done, done + int(candidates[0])]
        matrix[swap], sources[swap] = matrix[swap[::-1]], sources[swap[::-1]]
        eliminate(matrix, done, column, prime)
        pivots.append(column)
    return matrix[: len(pivots)], np.array(pivots, np.int64), sources[: len(pivots)]


def eliminate(matrix: npt.NDArray[np.signedinteger], row: int, column: int, prime: int) -> None:
    """Make column `column` a unit vector with its 1 in row `row`, where it is not zero; in place."""
    matrix[row] = matrix[row] * pow(int(matrix[row, column]), -1, prime) % prime
    factors = matrix[:, column].copy()
    factors[row] = 0
    others = np.flatnonzero(factors)
    matrix[others] = (matrix[others] - factors[others, None] * matrix[row]) % prime


def inverses(residues: Integers, prime: int) -> Integers:
    """The inverse of each of the `(n,)` residues, none of them 0: three products each (Montgomery's trick)."""
    if len(residues) <= 1:
        return np.array([pow(int(residue), -1, prime) for residue in residues], np.int64)
    half = len(residues) // 2
    left, right = residues[:half], residues[half : 2 * half]
    of_products = inverses(np.append(left * right % prime, residues[2 * half :]), prime)
    return np.concatenate((of_products[:half] * right % prime, of_products[:half] * left % prime, of_products[half:]))


def solution(square: Integers, right: Integers, prime: int) -> tuple[list[int], int]:
    """Integers z and d > 0 without a common divisor such that z^T `square` = d `right`, exactly.

    Dixon's p-adic lifting (Exact solution of linear equations using P-adic expansions, 1982): digits of the
    rational solution in base p, until they determine it by Hadamard's bound on the minors.

    Args:
        square: `(r, r)` 0/1, not singular modulo the prime.
        right: `(r,)` 0/1.
    """
    size = len(square)
    inverse = reduced(np.hstack((square, np.eye(size, dtype=np.int64))), prime)[0][:, size:].T.copy()
    residual = right.copy()
    # Numerators and denominators are minors of the square with its right side: at most size**(size/2).
    steps = math.ceil((size * math.log2(size) + 2) / math.log2(prime)) + 1
    found, modulus = np.zeros(size, dtype=object), 1
    for _ in range(steps):
        digits = inverse @ (residual % prime) % prime
        residual = (residual - square.T @ digits) // prime
        found += digits.astype(object) * modulus
        modulus *= prime
    rational = [_rational(int(value), modulus) for value in found]
    denominator = math.lcm(*(value.denominator for value in rational))
    return [value.numerator * (denominator // value.denominator) for value in rational], denominator


def _rational(residue: int, modulus: int) -> Fraction:
    """The fraction that `residue` stands for, with numerator and denominator below sqrt(modulus / 2) (Wang, 1981)."""
    limit = math.isqrt(modulus // 2)
    previous, current = modulus, residue
    previous_factor, factor = 0, 1
    while current > limit:
        quotient = previous // current
        previous, current = current, previous - quotient * current
        previous_factor, factor = factor, previous_factor - quotient * factor
    return Fraction(current, factor)
