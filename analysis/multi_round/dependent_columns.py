"""Lightest words with few classes, by a search over all small sets of dependent columns modulo a prime.

Let V be the row space (rank r, m classes) and H a matrix of m - r rows with kernel V. A word with support S exists if
and only if the columns S of H are dependent. So no word has a single class if and only if no column of H is zero, no
word has two classes if and only if no two columns are parallel, and so on.

The search modulo a prime p gives a *lower* bound for this reason. Take a lightest word of V, with coprime integers as
entries. If the chosen rows of P are independent modulo p, then the integer vectors in V, taken modulo p, are exactly
the span of the rows modulo p: the index of the lattice of the rows in the lattice of all integer vectors of V divides
their maximal minors, and p does not divide one of these minors. The word modulo p is therefore in that span, is not
zero (its entries are coprime), and is no heavier. So T is at least the minimum weight modulo p, for every p.
"""

import math
import time
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from analysis.multi_round.participation import Integers
from analysis.multi_round.row_spaces import Space, inverses, reduced

MOST_CLASSES = 12
_PRIME = 2**31 - 1  # much larger than the number of sets of five columns, so that few are dependent by chance
_MOST_QUOTIENTS = 20_000_000  # columns of all small matrices of a search: seconds
_MOST_STEPS = 100_000  # small matrices that are searched one after the other
_MOST_AT_ONCE = 1000  # largest number of columns whose pairs are searched together
_PROJECTIONS = 3
_INFINITE = _PRIME  # slope of an upright vector; no residue equals it


class _UnluckyError(Exception):
    """The projection makes independent columns dependent."""


@dataclass(frozen=True)
class Exhausted:
    """Result of the search over small sets of columns.

    Attributes:
        lower_bound: weight in clients; no word is lighter.
        support: classes of the lightest word modulo the prime, if it is lighter than the target.
    """

    lower_bound: int
    support: tuple[int, ...] | None


def reach(space: Space, most: int = MOST_CLASSES) -> int:
    """Return the best lower bound that `exhaust` can prove.

    Args:
        space: the space.
        most: largest number of classes that `exhaust` tries.
    """
    return space.at_least(_few_enough(len(space.sizes), most) + 1)


def _few_enough(columns: int, most: int) -> int:
    while most > 1 and (
        math.comb(columns, most - 1) > _MOST_QUOTIENTS or (most > 3 and math.comb(columns, most - 3) > _MOST_STEPS)
    ):
        most -= 1
    return most if columns <= _MOST_AT_ONCE else min(most, 2)


def exhaust(space: Space, target: int, deadline: float, most: int = MOST_CLASSES) -> Exhausted:
    """Search for a word lighter than `target` with `most` classes or fewer.

    Args:
        space: space with at least one row.
        target: weight of a known word, in clients.
        deadline: end of the search by `time.thread_time`, in seconds; results until then are returned.
        most: largest number of classes to try.
    """
    order = np.argsort(space.sizes, kind="stable")  # small classes first
    kernel, sizes = _Kernel(space, order), space.sizes[order]
    if not kernel.proves:
        return Exhausted(int(sizes[0]), None)
    generator = np.random.default_rng(len(sizes))  # fixed: a run gets the same certificate each time
    best, support, proved = target, None, int(sizes[0])
    for count in range(1, min(_few_enough(len(sizes), most), len(kernel)) + 1):
        if proved >= best:
            break
        lightest = _of_size(kernel, sizes, count, best, generator, deadline)
        if lightest is None:
            break
        if lightest.chosen:
            best, support = lightest.best, tuple(order[list(lightest.chosen)].tolist())
        # A word lighter than `best` has more than `count` classes now: it weighs the smallest count + 1 or more.
        proved = int(sizes[: count + 1].sum())
    if proved < best and len(kernel) < most and proved == int(sizes[: len(kernel) + 1].sum()):
        best, support = proved, tuple(order[: len(kernel) + 1].tolist())  # m - r + 1 columns are always dependent
    return Exhausted(min(proved, best), support)


class _Kernel:
    """H, up to the order of its rows: [-R^T I] for the reduced echelon form [I R] of the space.

    Args:
        space: the space.
        order: `(m,)` class of each column.
    """

    def __init__(self, space: Space, order: Integers) -> None:
        echelon, pivots, _ = reduced(space.rows[:, order], _PRIME)
        self.proves = len(pivots) == space.rank  # otherwise the rows are dependent modulo the prime, and prove nothing
        self.free = np.setdiff1d(np.arange(len(order)), pivots)
        self.pivots = pivots
        self._rest = echelon[:, self.free]

    def __len__(self) -> int:
        return len(self.free)

    def zero(self) -> Integers:
        """Return the columns that are zero."""
        return np.sort(self.pivots[~self._rest.any(axis=1)])

    def projected(self, projection: Integers) -> Integers:
        """Return the projection `(k, m)` of the columns by a `(k, m - r)` matrix of residues."""
        columns = np.zeros((len(projection), len(self.free) + len(self.pivots)), np.int64)
        columns[:, self.free] = projection
        columns[:, self.pivots] = -_product(projection, self._rest.T) % _PRIME
        return columns

    def are_dependent(self, columns: tuple[int, ...]) -> bool:
        """Check whether columns are dependent."""
        chosen = np.array(columns)
        vectors = np.zeros((len(chosen), len(self.free)), np.int64)
        for vector, column in zip(vectors, columns, strict=True):
            place = np.flatnonzero(self.pivots == column)
            if len(place):
                vector[:] = -self._rest[place[0]]
            else:
                vector[self.free == column] = 1
        return len(reduced(vectors, _PRIME)[1]) < len(chosen)


def _product(left: Integers, right: Integers) -> Integers:
    """Return the product of two matrices of residues."""
    # The left matrix in halves, so that sums of products fit into 64 bits.
    high = (left >> 16) @ right % _PRIME
    return ((high << 16) + (left & 0xFFFF) @ right) % _PRIME


@dataclass(frozen=True)
class _Lightest:
    best: int
    chosen: tuple[int, ...]


def _of_size(
    kernel: _Kernel, sizes: Integers, count: int, below: int, generator: np.random.Generator, deadline: float
) -> _Lightest | None:
    """Return the lightest dependent set of `count` columns below a weight, if none of its subsets is dependent.

    Args:
        kernel: H.
        sizes: `(m,)` clients per class, ascending.
        count: number of columns.
        below: weight in clients.
        generator: random numbers for projections.
        deadline: end of the search by `time.thread_time`, in seconds.

    Returns:
        None if the time is up, or if no projection worked.
    """
    # A class can be in such a set only if the smallest other classes leave room for it.
    columns = np.flatnonzero(sizes <= below - 1 - int(sizes[: count - 1].sum()))
    if count == 1:
        zero = kernel.zero()
        lighter = len(zero) > 0 and sizes[zero[0]] < below
        return _Lightest(int(sizes[zero[0]]), (int(zero[0]),)) if lighter else _Lightest(below, ())
    # Columns that are independent in a random projection to `count` rows are independent. Dependent ones are tested
    # again in the whole of H; if only the projection made them so, larger sets were skipped, and a new one is drawn.
    for _ in range(_PROJECTIONS):
        projected = kernel.projected(generator.integers(0, _PRIME, (count, len(kernel))))
        search = _Search(kernel, sizes, count, below, deadline)
        try:
            search.quotients(projected[:, columns], (), columns)
        except _UnluckyError:
            continue
        except TimeoutError:
            return None
        return _Lightest(search.best, search.chosen)
    return None


class _Search:
    """Search over all sets of as many columns as the projection has rows."""

    def __init__(self, kernel: _Kernel, sizes: Integers, count: int, below: int, deadline: float) -> None:
        self.best = below
        self.chosen: tuple[int, ...] = ()
        self._kernel, self._sizes, self._deadline = kernel, sizes, deadline
        self._least = int(sizes[:count].sum())
        self._dependent: set[tuple[int, ...]] = set()

    def quotients(self, vectors: Integers, taken: tuple[int, ...], columns: Integers) -> None:
        """Test all sets of the columns `taken` and as many of `columns` as `vectors` has rows.

        Args:
            vectors: `(k, n)` the columns `columns`, modulo the columns `taken`; k is 2 or more.
            taken: columns that every set contains.
            columns: `(n,)` candidates for the other columns.
        """
        if len(vectors) == 2:
            there = np.ones((1, len(columns)), np.bool_)
            self._parallel(vectors[:1], vectors[1:], there, [taken], columns)
        elif len(vectors) == 3:
            self._last_three(vectors, taken, columns)
        else:
            weight = int(self._sizes[list(taken)].sum())
            pivots = self._pivots(vectors, taken, columns)
            for place in range(len(columns) - len(vectors) + 1):
                lightest = weight + int(self._sizes[columns[place : place + len(vectors)]].sum())
                if lightest >= self.best or self.best <= self._least:  # classes ascend by size: the rest is heavier
                    break
                if pivots[place]:  # a zero vector would be a smaller dependent set, which is known
                    factors = vectors[1:, place] * pivots[place] % _PRIME
                    rest = (vectors[1:, place + 1 :] - factors[:, None] * vectors[0, place + 1 :]) % _PRIME
                    self.quotients(rest, (*taken, int(columns[place])), columns[place + 1 :])

    def _last_three(self, vectors: Integers, taken: tuple[int, ...], columns: Integers) -> None:
        """Apply `quotients` with three rows, for all choices of the first of the three at once."""
        pivots = self._pivots(vectors, taken, columns)
        factors = vectors[1:] * pivots % _PRIME
        first, second = (vectors[1:, None, :] - factors[:, :, None] * vectors[0]) % _PRIME
        there = np.triu(np.ones((len(columns), len(columns)), np.bool_), 1) & (pivots != 0)[:, None]
        self._parallel(first, second, there, [(*taken, column) for column in columns.tolist()], columns)

    def _pivots(self, vectors: Integers, taken: tuple[int, ...], columns: Integers) -> Integers:
        """Return the inverse of each vector's first coordinate, `(n,)`; 0 for a zero vector."""
        if time.thread_time() > self._deadline:
            raise TimeoutError
        zero = ~vectors.any(axis=0)
        # A column that is not zero has a zero coordinate by chance only (1 in 2**31). Elimination has no row exchanges.
        if (vectors[0, ~zero] == 0).any():
            raise _UnluckyError
        for place in np.flatnonzero(zero):
            self._must_be_dependent((*taken, int(columns[place])))
        inverted = np.zeros(len(columns), np.int64)
        inverted[~zero] = inverses(vectors[0, ~zero], _PRIME)
        return inverted

    def _parallel(
        self,
        first: Integers,
        second: Integers,
        there: npt.NDArray[np.bool_],
        taken: list[tuple[int, ...]],
        columns: Integers,
    ) -> None:
        """Find parallel vectors in each of several planes.

        Args:
            first: `(planes, n)` first coordinates.
            second: `(planes, n)` second coordinates.
            there: `(planes, n)` mask of the vectors that count.
            taken: columns taken in each plane.
            columns: `(n,)` column of each vector.
        """
        upright = first == 0
        zero = upright & (second == 0) & there
        for plane, place in np.argwhere(zero):
            self._must_be_dependent((*taken[plane], int(columns[place])))
        there = there & ~zero
        # Parallel vectors have equal slopes; entries without a vector get numbers that occur once.
        slopes = np.broadcast_to(-1 - np.arange(len(columns)), first.shape).copy()
        slanted = there & ~upright
        slopes[slanted] = second[slanted] * inverses(first[slanted], _PRIME) % _PRIME
        slopes[there & upright] = _INFINITE
        ascending = np.sort(slopes, axis=1)
        for plane in np.flatnonzero((ascending[:, 1:] == ascending[:, :-1]).any(axis=1)):
            slope, counts = np.unique(slopes[plane], return_counts=True)
            for repeated in slope[counts > 1]:
                for pair in combinations(columns[slopes[plane] == repeated].tolist(), 2):
                    self._consider((*taken[plane], *pair))

    def _consider(self, chosen: tuple[int, ...]) -> None:
        weight = int(self._sizes[list(chosen)].sum())
        if weight < self.best and self._kernel.are_dependent(chosen):
            self.best, self.chosen = weight, chosen

    def _must_be_dependent(self, chosen: tuple[int, ...]) -> None:
        """Record a dependent set, since its supersets need no test; raise `_UnluckyError` for an independent set."""
        if chosen not in self._dependent:
            if not self._kernel.are_dependent(chosen):
                raise _UnluckyError
            self._dependent.add(chosen)
