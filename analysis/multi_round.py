"""What a server can learn over many rounds: privacy, fairness and cardinality of a participation matrix.

The metrics of Multi-RoundSecAgg (So et al., Securing Secure Aggregation, arXiv 2106.03328, sections 3.2 and 6).
P is `(rounds, clients)`, 1 where a client's update is in a round's sum; a round without a sum is a row of zeros.
In the worst case the clients' updates x do not change, and the server, who knows Px, knows (P^T z)^T x for every z:
a *reachable combination* is a vector P^T z other than 0.

The weak privacy is a minimum over infinitely many z, NP-hard in general. It is found as follows.

1. Clients with identical columns get the same coefficient in every combination. They form a class, which counts with
   its size.
2. Elimination modulo a prime proposes combinations, integer arithmetic confirms them: what is reported as attained
   is attained exactly. If the smallest class can be isolated, that is the minimum. (One client isolated: T = 1.)
3. A mixed integer program over the row space (HiGHS, through scipy) searches for the minimum. It scales the
   combination so that its largest coefficient is 1, hence needs no big constant. Its dual bound is a lower bound even
   if time runs out. (In floating point: certified means up to the solver's tolerance of 1e-6 on a whole number.)
4. Another lower bound needs no solver: a combination that is 0 on a basis of the column space is 0 everywhere, so it
   has at least one client in each of several disjoint bases.
"""

import math
import time
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from analysis.quiet import standard_output_to_error

Integers = npt.NDArray[np.int64]

# Small enough that a row of 2**13 products of residues fits into 64 bits.
_PRIME = 2**25 - 39
_SOLVER_TOLERANCE = 1e-6


@dataclass(frozen=True)
class WeakPrivacy:
    """The weak multi-round privacy, or what is known about it.

    Attributes:
        value: the fewest clients in any combination that was found; attained exactly by `combination`.
        lower_bound: no reachable combination has fewer clients.
        certified: whether the two are equal, so that `value` is T.
        combination: `(rounds,)` integers z with `value` non-zero entries in P^T z; None if P is all zero.
    """

    value: int
    lower_bound: int
    certified: bool
    combination: tuple[int, ...] | None


def fairness_gap(participation: npt.ArrayLike) -> float:
    """F: the largest difference between two clients' shares of rounds (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
    """
    matrix = _matrix(participation)
    counts = matrix.sum(axis=0, dtype=np.int64)
    return float(np.ptp(counts)) / len(matrix) if matrix.size else 0.0


def aggregation_cardinality(participation: npt.ArrayLike) -> float:
    """C: the mean number of clients in a round, skipped rounds included (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
    """
    matrix = _matrix(participation)
    return float(matrix.sum(dtype=np.int64)) / len(matrix) if len(matrix) else 0.0


def strong_privacy(participation: npt.ArrayLike) -> int:
    """The largest T of equation (5): every reachable combination is a sum over groups of at least T clients.

    That is the size of the smallest class of clients with identical columns (those in no round left out). The groups
    of a combination can be taken to be the sets of clients with equal non-zero coefficient, since smaller groups
    only lower T. Clients of one class always have equal coefficients, so each group is a union of classes. And for
    z = (1, 2, 4, ...) the coefficients of two classes differ, so each class is a group by itself.

    Returns:
        T; the number of clients if P is all zero, because then nothing is reachable.
    """
    matrix = _matrix(participation)
    _, sizes = _classes(matrix)
    return int(sizes.min(initial=matrix.shape[1]))


def weak_privacy(participation: npt.ArrayLike, time_limit_s: float = 2.0) -> WeakPrivacy:
    """The weak T of Remark 1: the fewest clients with non-zero coefficient in a reachable combination.

    If P is all zero, nothing is reachable and the result is the number of clients, certified.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
        time_limit_s: wall seconds for the mixed integer program, and again for the other bound; what is certified
            does not depend on it. Elimination comes on top (milliseconds; seconds for a rank of several hundred).
    """
    matrix = _matrix(participation)
    rounds, clients = matrix.shape
    classes, sizes = _classes(matrix)
    if not len(sizes):
        return WeakPrivacy(clients, clients, True, None)
    distinct = np.unique(classes, axis=0, return_index=True)[1]
    rows = distinct[classes[distinct].any(axis=1)]
    space = _RowSpace(classes[rows], sizes)
    best, lower = space.lightest_known(), int(sizes.min())
    if best.weight > lower:
        found, bound = space.search(time_limit_s)
        best = min((best, *found), key=lambda word: word.weight)
        if bound <= best.weight:  # a bound above what is attained would be the solver's error, not a proof
            lower = max(lower, bound)
    if best.weight > lower:
        lower = max(lower, space.disjoint_bases(time_limit_s))
    combination = [0] * rounds
    for row, coefficient in zip(rows.tolist(), best.combination, strict=True):
        combination[row] = coefficient
    return WeakPrivacy(best.weight, lower, best.weight == lower, tuple(combination))


@dataclass(frozen=True)
class _Word:
    """A combination of rows, and the number of clients with non-zero coefficient in it."""

    weight: int
    combination: tuple[int, ...]


class _RowSpace:
    """What the rows of a 0/1 matrix without zero rows and columns span.

    Args:
        matrix: `(r, m)` int64, one column per class of clients.
        sizes: `(m,)` int64, clients per class.
    """

    def __init__(self, matrix: Integers, sizes: Integers) -> None:
        self._matrix = matrix
        self._sizes = sizes

    def lightest_known(self) -> _Word:
        """The lightest of the rows and of the rows of the reduced echelon form (each class that can be isolated)."""
        weights = self._matrix @ self._sizes
        row = int(weights.argmin())
        word = _Word(int(weights[row]), tuple(int(i == row) for i in range(len(weights))))
        reduced, pivots, sources = _reduced(self._matrix)
        weights = (reduced != 0) @ self._sizes
        lightest = int(weights.argmin())
        if weights[lightest] >= word.weight:
            return word
        return min(word, self._word(pivots, sources, lightest), key=lambda known: known.weight)

    def search(self, time_limit_s: float) -> tuple[list[_Word], int]:
        """The lightest word, if the solver finds it in time, and a lower bound on every word's weight.

        Variables: z (the combination), u_j <= 1 where column j may be non-zero, v_j = 1 for a column that is 1.
        Minimise the weight of u subject to |(A^T z)_j| <= u_j, (A^T z)_j >= 2 v_j - 1 and sum v >= 1.
        """
        rows, columns = self._matrix.shape
        unit = int(np.gcd.reduce(self._sizes))
        transposed = sparse.csr_matrix(self._matrix.T.astype(np.float64))
        one, none = sparse.identity(columns), sparse.csr_matrix((columns, columns))
        cost = np.concatenate((np.zeros(rows), self._sizes / unit, np.zeros(columns)))
        some_is_one = np.concatenate((np.zeros(rows + columns), np.ones(columns)))
        binary = np.concatenate((np.zeros(rows), np.ones(2 * columns)))
        with standard_output_to_error():
            result = milp(
                cost,
                integrality=binary,
                bounds=Bounds(np.where(binary, 0, -np.inf), np.where(binary, 1, np.inf)),
                constraints=[
                    LinearConstraint(sparse.hstack((transposed, -one, none)), -np.inf, 0),
                    LinearConstraint(sparse.hstack((-transposed, -one, none)), -np.inf, 0),
                    LinearConstraint(sparse.hstack((transposed, none, -2 * one)), -1, np.inf),
                    LinearConstraint(some_is_one, 1, np.inf),
                ],
                # Presolving gains nothing here; without it HiGHS prints a stray line of its own less often.
                options={"time_limit": time_limit_s, "mip_rel_gap": 0.0, "presolve": False},
            )
        words = []
        if result.x is not None:
            support = result.x[rows : rows + columns] > 0.5
            # Columns that must be zero first; then the heavy ones, in case the solver left some freedom.
            order = np.lexsort((-self._sizes, support))
            _, pivots, sources = _reduced(self._matrix[:, order])
            words.append(self._word(order[pivots], sources, len(pivots) - 1))
        bound = result.mip_dual_bound
        if bound is None or not math.isfinite(bound):
            return words, 0
        return words, unit * math.ceil(bound - _SOLVER_TOLERANCE)

    def disjoint_bases(self, time_limit_s: float) -> int:
        """How many disjoint bases of the column space were found, clients of a class being as many equal columns.

        0 if the elimination does not prove the rank (it may be too small modulo the prime).
        """
        rows, left, bases = len(self._matrix), self._sizes.copy(), 0
        deadline = time.monotonic() + time_limit_s
        while not bases or time.monotonic() < deadline:
            order = np.argsort(-left, kind="stable")[: np.count_nonzero(left)]
            for width in (4 * rows, len(order)):  # the first few columns will often do
                pivots = order[_reduced(self._matrix[:, order[:width]])[1]]
                if len(pivots) == rows:
                    break
            else:
                break
            times = int(left[pivots].min())
            left[pivots] -= times
            bases += times
        return bases

    def _word(self, pivots: Integers, sources: Integers, isolated: int) -> _Word:
        """The combination of the rows `sources` that is zero in all columns `pivots` but one, weighed exactly."""
        coefficients = _isolating(self._matrix[np.ix_(sources, pivots)], isolated)
        combination = [0] * len(self._matrix)
        for row, coefficient in zip(sources.tolist(), coefficients, strict=True):
            combination[row] = coefficient
        values = np.array(combination, dtype=object) @ self._matrix.astype(object)
        return _Word(int(self._sizes[values != 0].sum()), tuple(combination))


def _matrix(participation: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    matrix = np.asarray(participation)
    if matrix.ndim != 2 or not ((matrix == 0) | (matrix == 1)).all():
        raise ValueError("a participation matrix has two dimensions, rounds and clients, and entries 0 and 1")
    return matrix.astype(np.bool_)


def _classes(matrix: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """`(rounds, m)` the distinct non-zero columns, and `(m,)` how many clients have each."""
    taking_part = matrix[:, matrix.any(axis=0)]
    packed = np.packbits(taking_part.T, axis=1)  # comparing bytes is quicker than comparing bits
    _, first, sizes = np.unique(packed, axis=0, return_index=True, return_counts=True)
    return taking_part[:, first].astype(np.int64), sizes.astype(np.int64)


def _reduced(matrix: Integers) -> tuple[Integers, Integers, Integers]:
    """Reduced row echelon form modulo the prime: non-zero rows, their pivot columns, and independent rows chosen.

    Columns chosen as pivots are independent over the rationals too, and so are the rows.
    """
    matrix = matrix % _PRIME
    sources = np.arange(len(matrix))
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        done = len(pivots)
        candidates = np.flatnonzero(matrix[done:, column])
        if not len(candidates):
            continue
        swap = [done, done + int(candidates[0])]
        matrix[swap], sources[swap] = matrix[swap[::-1]], sources[swap[::-1]]
        matrix[done] = matrix[done] * pow(int(matrix[done, column]), -1, _PRIME) % _PRIME
        factors = matrix[:, column].copy()
        factors[done] = 0
        others = np.flatnonzero(factors)
        matrix[others] = (matrix[others] - factors[others, None] * matrix[done]) % _PRIME
        pivots.append(column)
        if len(pivots) == len(matrix):
            break
    return matrix[: len(pivots)], np.array(pivots, np.int64), sources[: len(pivots)]


def _isolating(square: Integers, isolated: int) -> list[int]:
    """Coprime integers z such that z^T `square` is zero but for column `isolated`.

    Dixon's p-adic lifting (Exact solution of linear equations using P-adic expansions, 1982): digits of the
    rational solution in base p, until they determine it by Hadamard's bound on the minors.

    Args:
        square: `(r, r)` 0/1, not singular modulo the prime.
    """
    size = len(square)
    inverse = _reduced(np.hstack((square, np.eye(size, dtype=np.int64))))[0][:, size:].T.copy()
    residual = np.zeros(size, np.int64)
    residual[isolated] = 1
    steps = math.ceil((size * math.log2(size) + 2) / math.log2(_PRIME)) + 1
    solution, modulus = np.zeros(size, dtype=object), 1
    for _ in range(steps):
        digits = inverse @ (residual % _PRIME) % _PRIME
        residual = (residual - square.T @ digits) // _PRIME
        solution += digits.astype(object) * modulus
        modulus *= _PRIME
    rational = [_rational(int(value), modulus) for value in solution]
    denominator = math.lcm(*(value.denominator for value in rational))
    return [value.numerator * (denominator // value.denominator) for value in rational]


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
