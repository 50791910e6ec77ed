"""Lower bounds from the row space modulo 2 and modulo 3, by a search for the minimum distance that counts bits.

The integer vectors of a row space V, taken modulo p, are a linear code C. A lightest word of V, with coprime integers
as entries, is a word of C that is not zero and no heavier. So no word of V is lighter than the minimum distance of C.
The span of the rows of P modulo p can be smaller than C: rows may be dependent modulo p, and then the p-th part of one
of their combinations is an integer vector, too. `saturated` replaces rows by such vectors.

To show that C has no word of weight w or less, take s bases of the column space such that no column is in more than c
of them. A word of weight w is non-zero on at most w c / s columns of one of the bases. So it suffices to weigh the
combinations of that many generators or fewer, for each of the s systematic generator matrices (the algorithm of Brouwer
and Zimmermann, which has c = 1). Modulo 2, if all generators have even weight, so have all words.

A word is stored as bits: modulo 2 the positions of 1; modulo 3 the positions of 1 and the positions of 2.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.multi_round.participation import Integers
from analysis.multi_round.row_spaces import Space, eliminate, reduced

Planes = npt.NDArray[np.uint64]

_MOST_WORDS = {2: 1_500_000_000, 3: 400_000_000}  # machine words whose bits are counted: seconds
_MOST_KEPT = 10_000_000  # machine words in memory
_MOST_BASES = 24
_TOO_MANY = 30.0  # expected number of light words above which a search for their absence is hopeless
_LARGEST = 2**40  # sums of a rank's products of such entries fit into 64 bits


@dataclass(frozen=True)
class Code:
    """C, with a column for each client (or for each `unit` of clients with equal columns).

    Attributes:
        generators: `(r, n)` int64 residues, independent modulo the prime.
        prime: p, 2 or 3.
        unit: number of clients per column.
    """

    generators: Integers
    prime: int
    unit: int

    @classmethod
    def of(cls, space: Space, prime: int) -> "Code | None":
        """Return the code of a row space; None if the entries of `saturated` rows become too large."""
        rows = saturated(space.rows, prime)
        return None if rows is None else cls(np.repeat(rows, space.sizes // space.unit, axis=1), prime, space.unit)

    @cached_property
    def even(self) -> bool:
        """Whether all words have even weight."""
        return self.prime == 2 and not (self.generators.sum(axis=1) % 2).any()

    def to_exclude(self, target: int) -> int:
        """Return the weight w (columns) such that excluding words of weight w or less proves `target` (clients)."""
        heaviest = math.ceil(target / self.unit) - 1
        return heaviest - heaviest % 2 if self.even else heaviest

    def excluded(self, weight: int) -> int:
        """Return the proved lower bound in clients, if there is no word of `weight` columns or fewer."""
        return self.unit * (weight + 1 + (self.even and weight % 2 == 0))

    def expected(self, weight: int) -> float:
        """Return how many words of this weight or less a code of this size has on average."""
        rank, columns = self.generators.shape
        words = sum(math.comb(columns, count) * (self.prime - 1) ** (count - 1) for count in range(1, weight + 1))
        return float((2 if self.even else 1) * words / self.prime ** (columns - rank))


def saturated(rows: Integers, prime: int) -> Integers | None:
    """Return a basis, modulo a prime, of the integer vectors in the row space of independent rows.

    If a combination of rows is divisible by the prime, its quotient replaces one of the rows. Each time this divides
    the index of the lattice of the rows in the lattice of all integer vectors by the prime. At the end the index is not
    a multiple of the prime.

    Args:
        rows: `(r, m)` integers, independent.
        prime: p.

    Returns:
        `(r, m)` residues; None if an entry becomes too large.
    """
    rows, rank = rows.copy(), len(rows)
    # Rows in echelon form, and their coefficients in the rows.
    echelon, combined = np.zeros_like(rows), np.zeros((rank, rank), np.int64)
    pivots: list[int] = []
    for number in range(rank):
        while True:
            factors = rows[number, pivots] % prime
            rest = (rows[number] - factors @ echelon[:number]) % prime
            taken = -factors @ combined[:number]
            taken[number] += 1
            if rest.any():
                break
            # -1, 0, 1: small entries
            balanced = (taken + prime // 2) % prime - prime // 2 if prime > 2 else taken % prime
            rows[number] = balanced @ rows // prime
            if np.abs(rows[number]).max() > _LARGEST:
                return None
        pivot = int(np.flatnonzero(rest)[0])
        echelon[number], combined[number] = rest, taken % prime
        both = np.hstack((echelon[: number + 1], combined[: number + 1]))
        eliminate(both, number, pivot, prime)
        echelon[: number + 1], combined[: number + 1] = both[:, : rows.shape[1]], both[:, rows.shape[1] :]
        pivots.append(pivot)
    return rows % prime


def lower_bound(code: Code, target: int, proved: int = 0) -> int:
    """Return a proved lower bound on the weight (clients) of every word, at most `target`.

    Args:
        code: the integer vectors of the row space, modulo a prime.
        target: weight of a known word, in clients.
        proved: lower bound that is already proved, in clients; the result is 0 if a better one is unlikely or would
            take too long.
    """
    rank, columns = code.generators.shape
    weight = code.to_exclude(target)
    while weight > 0 and code.expected(weight) > _TOO_MANY:
        weight -= 1
    length = (code.prime - 1) * max(1, -(-(columns - rank) // 64))
    coverage = np.zeros(columns, np.int64)
    most_covered: list[int] = []
    systematic: list[Planes] = []
    while code.excluded(weight) > proved:
        plan = _cheapest(rank, weight, most_covered, length, code.prime)
        if plan is not None and (len(most_covered) == _MOST_BASES or plan[1] <= 1):
            break
        if len(most_covered) == _MOST_BASES:
            weight -= 1
            continue
        # Columns in few bases first: with a small c, few generators need to be combined.
        order = np.argsort(coverage, kind="stable")
        echelon, pivots, _ = reduced(code.generators[:, order].astype(np.int16), code.prime)
        coverage[order[pivots]] += 1
        most_covered.append(int(coverage.max()))
        # Pivot columns are a unit matrix: they add one for each combined generator, and are not stored.
        systematic.append(_planes(np.delete(echelon, pivots, axis=1), code.prime))
    else:
        return 0
    bases, most = plan
    lightest = weight + 1
    for generators in systematic[:bases]:
        lightest = _lightest(generators, most, lightest)
    return code.excluded(lightest - 1)


def _cheapest(rank: int, weight: int, most_covered: list[int], length: int, prime: int) -> tuple[int, int] | None:
    """Return how many bases and combined generators cover all words of a weight most cheaply; None: too many."""
    plans = []
    for bases, covered in enumerate(most_covered, start=1):
        most = min(rank, weight * covered // bases)
        sums = [math.comb(rank, count) * (prime - 1) ** (count - 1) for count in range(1, most + 1)]
        if bases * sum(sums) * length <= _MOST_WORDS[prime] and sum(sums[:-1]) * length <= _MOST_KEPT:
            plans.append((bases * sum(sums), bases, most))
    return min(plans)[1:] if plans else None


def _planes(residues: Integers, prime: int) -> Planes:
    """Return residues as bits, `(p - 1, rows, words)`: the positions of 1 (and of 2), 64 columns per machine word."""
    rows, columns = residues.shape
    padded = np.zeros((rows, max(1, -(-columns // 64)) * 64), np.int64)
    padded[:, :columns] = residues
    # Bits are only counted, so the byte order within a machine word does not matter.
    return np.stack([np.packbits(padded == value, axis=1).view(np.uint64) for value in range(1, prime)])


def _lightest(generators: Planes, most: int, below: int) -> int:
    """Return the least weight of a combination of 1 to `most` generators, at most `below`.

    Each generator counts 1 for its own column. Combinations are taken up to a factor: the last generator has factor 1.
    """
    rank = generators.shape[1]
    sums = generators  # sums of `count` generators, ordered by their last generator
    starts = np.arange(rank + 1)  # number of sums with a last generator before the i-th
    below = _lighter(sums, 1, below)
    for count in range(2, most + 1):
        parts = []
        for last in range(rank):
            with_last = _with_last(generators[:, last : last + 1], sums[:, : starts[last]])
            below = _lighter(with_last, count, below)
            if count < most:
                parts.append(with_last)
        if parts:
            sums = np.concatenate(parts, axis=1)
            starts = np.concatenate(([0], np.cumsum([part.shape[1] for part in parts])))
    return below


def _with_last(last: Planes, sums: Planes) -> Planes:
    """Return the generator plus each of the sums, and modulo 3 also minus each of the sums."""
    if len(last) == 1:
        return last ^ sums
    return np.concatenate((_sum_of_three(last, sums), _sum_of_three(last, sums[::-1])), axis=1)


def _sum_of_three(left: Planes, right: Planes) -> Planes:
    """Return the sum modulo 3 in six operations, with 0, 1 and 2 stored as the bits (0, 0), (1, 0) and (0, 1)."""
    mixed = (left[0] | right[1]) ^ (left[1] | right[0])
    return np.stack(((left[1] | right[1]) ^ mixed, (left[0] | right[0]) ^ mixed))


def _lighter(sums: Planes, count: int, below: int) -> int:
    if not sums.shape[1]:
        return below
    nonzero = sums[0] if len(sums) == 1 else sums[0] | sums[1]
    weights = np.bitwise_count(nonzero[:, 0])
    for column in range(1, nonzero.shape[1]):
        weights = weights + np.bitwise_count(nonzero[:, column]).astype(np.uint16)  # uint8 would end at 255
    return min(below, count + int(weights.min()))
