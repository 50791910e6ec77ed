"""Row spaces that the server can reach after each round, and exact words in them.

A round that depends on earlier rounds does not change the space, so 1,500 rounds of 120 clients have at most 120
different spaces. Clients with identical columns get the same coefficient in every combination. They form a class, which
counts with its size. As in coding theory, a vector of a row space is called a word, and its number of clients with
non-zero coefficient is called its weight.

Elimination is modulo a prime; `solution` returns to the integers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.multi_round.participation import Integers, classes

PRIMES = (2**25 - 39, 2**25 - 49, 2**25 - 61)
"""Primes for elimination; the first that works is used. A row of 2**13 products of their residues fits into 64 bits."""


def reduced(
    matrix: npt.NDArray[np.signedinteger], prime: int
) -> tuple[npt.NDArray[np.signedinteger], Integers, Integers]:
    """Return the reduced row echelon form modulo a prime.

    Args:
        matrix: integers.
        prime: p.

    Returns:
        Non-zero rows, their pivot columns, and the indices of independent rows of `matrix`. The pivots are the first
        independent columns. Pivot columns and chosen rows are independent over the rationals, too.
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
        eliminate(matrix[:, column:], done, 0, prime)  # the row is zero before
        pivots.append(column)
    return matrix[: len(pivots)], np.array(pivots, np.int64), sources[: len(pivots)]


def eliminate(matrix: npt.NDArray[np.signedinteger], row: int, column: int, prime: int) -> None:
    """Make a column a unit vector with its 1 in a row in which it is not zero; in place.

    Args:
        matrix: residues.
        row: row of the 1.
        column: column to eliminate.
        prime: p.
    """
    matrix[row] = matrix[row] * pow(int(matrix[row, column]), -1, prime) % prime
    factors = matrix[:, column].copy()
    factors[row] = 0
    others = np.flatnonzero(factors)
    matrix[others] = (matrix[others] - factors[others, None] * matrix[row]) % prime


def inverses(residues: Integers, prime: int) -> Integers:
    """Return the inverse of each residue, with three products each (Montgomery's trick).

    Args:
        residues: `(n,)` none of them 0.
        prime: p.
    """
    if len(residues) <= 1:
        return np.array([pow(int(residue), -1, prime) for residue in residues], np.int64)
    half = len(residues) // 2
    left, right = residues[:half], residues[half : 2 * half]
    of_products = inverses(np.append(left * right % prime, residues[2 * half :]), prime)
    return np.concatenate((of_products[:half] * right % prime, of_products[:half] * left % prime, of_products[half:]))


def solution(square: Integers, right: Integers, prime: int) -> tuple[list[int], int]:
    """Return integers z and d > 0 without a common divisor such that z^T `square` = d `right`, exactly.

    Dixon's p-adic lifting (Exact solution of linear equations using P-adic expansions, 1982): compute digits of the
    rational solution in base p until they determine it, by Hadamard's bound on the minors.

    Args:
        square: `(r, r)` 0/1, not singular modulo the prime.
        right: `(r,)` 0/1.
        prime: p.
    """
    size = len(square)
    inverse = reduced(np.hstack((square, np.eye(size, dtype=np.int64))), prime)[0][:, size:].T.copy()
    residual = right.copy()
    # Numerators and denominators are minors of the square with its right side: at most size**(size/2).
    # Twice the digits of such a minor, as numerator and denominator both have to be recovered.
    steps = math.ceil((size * math.log2(size) + 2) / math.log2(prime)) + 1
    expansion, modulus = np.zeros(size, dtype=object), 1
    for _ in range(steps):
        digits = inverse @ (residual % prime) % prime
        residual = (residual - square.T @ digits) // prime  # without remainder, and at most r in size
        expansion += digits.astype(object) * modulus
        modulus *= prime
    rational = [_rational(int(value), modulus) for value in expansion]
    denominator = math.lcm(*(value.denominator for value in rational))
    return [value.numerator * (denominator // value.denominator) for value in rational], denominator


def _rational(residue: int, modulus: int) -> Fraction:
    """Return the fraction of a residue, with numerator and denominator below sqrt(modulus / 2) (Wang, 1981)."""
    limit = math.isqrt(modulus // 2)
    previous, current = modulus, residue
    previous_factor, factor = 0, 1
    while current > limit:  # Euclid's algorithm, stopped half-way
        quotient = previous // current
        previous, current = current, previous - quotient * current
        previous_factor, factor = factor, previous_factor - quotient * factor
    return Fraction(current, factor)


# -- spaces -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """Combination of the basis's rows, and its number of clients with non-zero coefficient.

    Attributes:
        weight: exact number of clients, at least 1.
        combination: coprime integers, one for each of the first rows of the basis.
    """

    weight: int
    combination: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Row space of independent rows.

    Attributes:
        rows: `(r, m)` int64 0/1, independent also modulo `prime`; the columns are distinct and not zero.
        sizes: `(m,)` int64, clients per class.
        prime: prime for elimination.
    """

    rows: Integers
    sizes: Integers
    prime: int = PRIMES[0]

    @property
    def rank(self) -> int:
        """Rank r."""
        return len(self.rows)

    @cached_property
    def unit(self) -> int:
        """Greatest common divisor of all weights."""
        return int(np.gcd.reduce(self.sizes))

    def at_least(self, classes: int) -> int:
        """Return a lower bound on the weight of words with this many classes or more."""
        return int(np.sort(self.sizes)[:classes].sum())

    def within(self, support: npt.ArrayLike) -> Word:
        """Return a word that is zero outside the classes `support`.

        If there is no such word, it is zero on as many of the other classes as elimination allows, heavy classes first.
        """
        inside = np.zeros(len(self.sizes), np.bool_)
        inside[np.asarray(support, np.int64)] = True
        # First the columns that must be zero; then heavy columns, in case some freedom is left.
        order = np.lexsort((-self.sizes, inside))
        _, pivots, sources = reduced(self.rows[:, order], self.prime)
        return self.isolating(order[pivots], sources, len(pivots) - 1)

    def isolating(self, pivots: Integers, sources: Integers, isolated: int) -> Word:
        """Return the combination of rows that is zero in all of the columns `pivots` but one, with exact weight.

        Args:
            pivots: columns, as many as rows.
            sources: rows.
            isolated: place of the column in `pivots` that is not zero.
        """
        right = np.zeros(len(pivots), np.int64)
        right[isolated] = 1
        coefficients, _ = solution(self.rows[np.ix_(sources, pivots)], right, self.prime)
        combination = [0] * self.rank
        for row, coefficient in zip(sources.tolist(), coefficients, strict=True):
            combination[row] = coefficient
        return self.word(combination)

    def word(self, combination: Sequence[int]) -> Word:
        """Return a combination with its exact weight."""
        values = np.array(combination, dtype=object) @ self.rows.astype(object)  # Python's integers: no overflow
        return Word(int(self.sizes[values != 0].sum()), tuple(combination))


class UnluckyPrimeError(Exception):
    """A minor of the participation matrix is a multiple of the prime."""


class Chain:
    """Row spaces of P(1), P(2), ...: the first `ranks[t]` rows of `basis` span all of the first t + 1 rounds.

    A row that is dependent modulo the prime is proved to be dependent over the rationals by its integer coefficients.
    No proof is needed if the row repeats an earlier row, or if the space contains all vectors.

    Args:
        participation: `(rounds, clients)` bool.
        prime: prime for elimination.

    Raises:
        UnluckyPrimeError: this prime does not work for the matrix.

    Attributes:
        ranks: `(rounds,)` int64.
        basis: `(R,)` int64, the rounds (from 0) that enlarged the space, ascending.
        words: `(R,)` for each rank r (at r - 1) a light word of the space, from the elimination; its combination has r
            coefficients or fewer.
    """

    @classmethod
    def of(cls, participation: npt.NDArray[np.bool_]) -> "Chain":
        """Return the chain by the first prime that works."""
        for prime in PRIMES:
            try:
                return cls(participation, prime)
            except UnluckyPrimeError:
                continue
        raise ArithmeticError(f"every prime of {PRIMES} divides a minor of the participation matrix")

    def __init__(self, participation: npt.NDArray[np.bool_], prime: int) -> None:
        self._prime = prime
        self._classes, self._sizes = classes(participation)
        rounds, columns = self._classes.shape
        self.ranks = np.zeros(rounds, np.int64)
        self.words: list[Word] = []
        basis: list[int] = []
        known_rows: set[bytes] = {bytes(columns)}  # the row of zeros: a round without a sum
        echelon, pivots = np.zeros((0, columns), np.int64), np.zeros(0, np.int64)
        for number, row in enumerate(self._classes):
            key = row.astype(np.uint8).tobytes()
            if key not in known_rows:
                known_rows.add(key)
                rest = (row - row[pivots] @ echelon) % prime
                if rest.any():
                    basis.append(number)
                    # Heavy pivot classes make light words, since all other rows are zero in a pivot's column.
                    pivot = int(np.where(rest != 0, self._sizes, 0).argmax())
                    echelon, pivots = np.vstack((echelon, rest)), np.append(pivots, pivot)
                    eliminate(echelon, len(basis) - 1, pivot, prime)
                    self._keep_lightest(self._classes[basis], echelon, pivots)
                elif len(basis) < columns:
                    self._check_dependent(self._classes[basis], pivots, row)
            self.ranks[number] = len(basis)
        self.basis = np.array(basis, np.int64)

    def space(self, rank: int) -> Space:
        """Return the space of a rank of at least 1, with its classes."""
        rows = self._classes[self.basis[:rank]]
        _, first, inverse = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        sizes = np.bincount(inverse.ravel(), self._sizes).astype(np.int64)
        nonzero = rows[:, first].any(axis=0)
        return Space(rows[:, first[nonzero]], sizes[nonzero], self._prime)

    def _keep_lightest(self, rows: Integers, echelon: Integers, pivots: Integers) -> None:
        """Store the lightest among the last word, the new row and the rows of the reduced echelon form."""
        weight = int(rows[-1] @ self._sizes)
        best = Word(weight, (0,) * (len(rows) - 1) + (1,))
        best = min((*self.words[-1:], best), key=lambda word: word.weight)
        weights = (echelon != 0) @ self._sizes
        lightest = int(weights.argmin())
        if weights[lightest] < best.weight:
            isolated = Space(rows, self._sizes, self._prime).isolating(pivots, np.arange(len(rows)), lightest)
            best = min(best, isolated, key=lambda word: word.weight)
        self.words.append(best)

    def _check_dependent(self, rows: Integers, pivots: Integers, row: Integers) -> None:
        coefficients, denominator = solution(rows[:, pivots], row[pivots], self._prime)
        exactly = np.array(coefficients, dtype=object) @ rows.astype(object)
        if not np.array_equal(exactly, denominator * row.astype(object)):
            raise UnluckyPrimeError
