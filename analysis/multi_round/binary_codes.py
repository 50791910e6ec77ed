"""Lower bounds from the row space modulo 2, whose minimum distance can be searched by counting bits.

The vectors of integers in a row space V, taken modulo 2, are a binary code C. A lightest word of V, with coprime
integers as entries, is a word of C that is not zero and no heavier. So no word of V is lighter than the minimum
distance of C. (What the rows of P span modulo 2 can be less than C: rows may be dependent modulo 2, and then half of
their sum is a vector of integers too. `saturated` puts such halves in their place.)

Two ways to show that C has no word of weight w or less:

- `by_generators`, for small rank: take s bases of the column space such that no column is in more than c of them. A
  word of weight w is non-zero on at most w c / s columns of one of them. So the sums of that many generators or fewer,
  of each of the s systematic generator matrices, are weighed (Brouwer and Zimmermann's algorithm, where c = 1).
- `by_checks`, for large rank: if the sums of up to h columns of a check matrix are all different, C has no word of
  weight 2h or less.

When all generators have even weight, so have all words.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.multi_round.participation import Integers
from analysis.multi_round.row_spaces import Space

Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_MOST_SUMS = 1_500_000_000  # machine words to be counted: seconds
_MOST_KEPT = 20_000_000  # machine words in memory
_MOST_CHECKED = 12_000_000  # sums to be sorted: a second
_MOST_SETS = 24
_TOO_MANY = 30.0  # light words to be expected: there is little hope that there are none
_LARGEST = 2**40


@dataclass(frozen=True)
class BinaryCode:
    """C, with a column for each client (or for each `unit` of clients with equal columns).

    Attributes:
        generators: `(r, n)` 0/1, independent modulo 2.
        unit: clients for which a column stands.
    """

    generators: Bits
    unit: int

    @classmethod
    def of(cls, space: Space) -> "BinaryCode | None":
        """The code of a row space; None where halves of sums grow too large to be computed."""
        rows = saturated(space.rows)
        if rows is None:
            return None
        return cls(np.repeat(rows.astype(np.uint8), space.sizes // space.unit, axis=1), space.unit)

    @cached_property
    def even(self) -> bool:
        """Whether all words have even weight."""
        return not (self.generators.sum(axis=1, dtype=np.int64) % 2).any()

    def to_exclude(self, target: int) -> int:
        """The largest weight w such that excluding words of weight w or less proves `target` (clients)."""
        heaviest = math.ceil(target / self.unit) - 1
        return heaviest - heaviest % 2 if self.even else heaviest

    def excluded(self, weight: int) -> int:
        """Clients in the lightest word there may be, when there is none of `weight` columns or fewer."""
        return self.unit * (weight + 1 + (self.even and weight % 2 == 0))


def saturated(rows: Integers) -> Integers | None:
    """`(r, m)` 0/1: a basis, modulo 2, of the integer vectors in the row space of independent `rows`.

    Whenever some rows sum to an even vector, half of that sum takes the place of one of them. Each time the index of
    the lattice that the rows generate in that of all integer vectors halves; at the end it is odd.
    """
    rows = rows.copy()
    reduced_rows: list[tuple[int, int]] = []  # without the leading bits of those before; and the sum that it is
    for number in range(len(rows)):
        while True:
            value, taken = _as_number(rows[number]), 1 << number
            for other, others in reduced_rows:
                if value ^ other < value:
                    value, taken = value ^ other, taken ^ others
            if value:
                break
            members = [row for row in range(number + 1) if taken >> row & 1]
            rows[number] = rows[members].sum(axis=0) // 2
            if np.abs(rows[number]).max() > _LARGEST:
                return None
        reduced_rows.append((value, taken))
        reduced_rows.sort(reverse=True)
    return rows % 2


def _as_number(row: Integers) -> int:
    return int.from_bytes(np.packbits((row % 2).astype(np.uint8)).tobytes(), "big")


def by_generators(code: BinaryCode, target: int, known: int = 0) -> int:
    """A proved lower bound on the weight (clients) of every word, at best `target`; less where that takes too long.

    Args:
        target: the weight of a word that is known.
        known: a lower bound that is known; where there is little hope for more, the result is 0.
    """
    rank, columns = code.generators.shape
    weight = code.to_exclude(target)
    while weight > 0 and _expected(code, weight) > _TOO_MANY:
        weight -= 1
    coverage = np.zeros(columns, np.int64)
    most_covered: list[int] = []
    systematic: list[Words] = []
    while code.excluded(weight) > known:
        plan = _cheapest(rank, weight, most_covered, -(-(columns - rank) // 64) or 1)
        if plan is not None and (len(most_covered) == _MOST_SETS or plan[1] <= 1):
            break
        if len(most_covered) == _MOST_SETS:
            weight -= 1
            continue
        order = np.argsort(coverage, kind="stable")
        echelon, pivots = _systematic(code.generators[:, order])
        coverage[order[pivots]] += 1
        most_covered.append(int(coverage.max()))
        systematic.append(_packed(np.delete(echelon, pivots, axis=1)))
    else:
        return 0
    sets, most = plan
    lightest = weight + 1
    for words in systematic[:sets]:
        lightest = min(lightest, _lightest_sum(words, most, lightest))
    return code.excluded(lightest - 1)


def _expected(code: BinaryCode, weight: int) -> float:
    """How many words of this weight or less a code of this size has on average."""
    rank, columns = code.generators.shape
    every_other = 2 if code.even else 1
    return every_other * sum(math.comb(columns, count) for count in range(1, weight + 1)) / 2 ** (columns - rank)


def _cheapest(rank: int, weight: int, most_covered: list[int], length: int) -> tuple[int, int] | None:
    """How many bases to take, and how many generators to sum, to see every word of this weight; None: too expensive."""
    plans = []
    for sets, covered in enumerate(most_covered, start=1):
        most = min(rank, weight * covered // sets)
        sums = sum(math.comb(rank, count) for count in range(1, most + 1))
        kept = math.comb(rank, max(0, most - 1))
        if sets * sums * length <= _MOST_SUMS and kept * length <= _MOST_KEPT:
            plans.append((sets * sums, sets, most))
    return min(plans)[1:] if plans else None


def _systematic(generators: Bits) -> tuple[Bits, Integers]:
    """Reduced row echelon form modulo 2, and the pivot columns: the first ones that are independent."""
    matrix, pivots = generators.copy(), []
    for column in range(matrix.shape[1]):
        done = len(pivots)
        if done == len(matrix):
            break
        candidates = np.flatnonzero(matrix[done:, column])
        if len(candidates):
            swap = [done, done + int(candidates[0])]
            matrix[swap] = matrix[swap[::-1]]
            others = np.flatnonzero(matrix[:, column])
            matrix[others[others != done]] ^= matrix[done]
            pivots.append(column)
    return matrix, np.array(pivots, np.int64)


def _packed(bits: Bits) -> Words:
    """`(rows, words)` uint64: 64 bits each, zeros at the end; one word at least."""
    rows, columns = bits.shape
    padded = np.zeros((rows, max(1, -(-columns // 64)) * 64), np.uint8)
    padded[:, :columns] = bits
    return np.packbits(padded, axis=1).view(np.uint64)


def _lightest_sum(words: Words, most: int, below: int) -> int:
    """The least weight among sums of 1 to `most` generators, each counting 1 for itself; `below` if none is lighter."""
    sums = words  # of `count` generators, ordered by the last of them
    starts = np.arange(len(words) + 1)  # sums whose last generator is before the i-th come first
    for count in range(1, most + 1):
        if count > 1:
            if count < most:
                parts = [words[last] ^ sums[: starts[last]] for last in range(len(words))]
                sums = np.concatenate(parts)
                starts = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
            else:
                for last in range(len(words)):
                    below = _lighter(words[last] ^ sums[: starts[last]], count, below)
                return below
        below = _lighter(sums, count, below)
    return below


def _lighter(sums: Words, count: int, below: int) -> int:
    if not len(sums):
        return below
    weights = np.bitwise_count(sums[:, 0])
    for column in range(1, sums.shape[1]):
        weights = weights + np.bitwise_count(sums[:, column]).astype(np.uint16)
    return min(below, count + int(weights.min()))


def most_checked(code: BinaryCode) -> int:
    """The largest h such that not too many sums have to be compared."""
    columns = code.generators.shape[1]
    half, sums = 0, 1
    while half < columns and (sums := sums + math.comb(columns, half + 1)) <= _MOST_CHECKED:
        half += 1
    return half


def by_checks(code: BinaryCode, target: int) -> int:
    """A proved lower bound on the weight (clients) of every word, at best `target`.

    At most 64 check equations are used: fewer equations have more solutions, so what holds for them holds for C.
    """
    columns = code.generators.shape[1]
    echelon, pivots = _systematic(code.generators)
    free = np.setdiff1d(np.arange(columns), pivots)[:64]
    checks = np.zeros((columns, len(free)), np.uint8)
    checks[pivots] = echelon[:, free]
    checks[free, np.arange(len(free))] = 1
    words = _packed(checks)[:, 0]
    half, most = 0, min(most_checked(code), -(-code.to_exclude(target) // 2))
    sums, seen = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    starts = np.ones(columns, np.int64)  # how many sums have their last column before the i-th
    while half < most:
        parts = [words[last] ^ sums[: starts[last]] for last in range(columns)]
        sums = np.concatenate(parts)
        starts = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
        seen = np.sort(np.concatenate((seen, sums)))
        if (seen[1:] == seen[:-1]).any():
            break
        half += 1
    return code.excluded(2 * half)
