"""Participation matrix of a run, with its fairness gap, cardinality and strong privacy."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.arrays import Floats
from testbed.records import RunRecords

Integers = npt.NDArray[np.int64]


def checked(participation: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return a participation matrix as `(rounds, clients)` bool.

    Raises:
        ValueError: the argument is not a matrix of zeros and ones.
    """
    matrix = np.asarray(participation)
    if matrix.ndim != 2 or not ((matrix == 0) | (matrix == 1)).all():
        raise ValueError("a participation matrix must have two dimensions, rounds and clients, and entries 0 or 1")
    return matrix.astype(np.bool_)


def fairness_gap(participation: npt.ArrayLike, completed_only: bool = False) -> float:
    """Return F: the largest difference between two clients' shares of rounds (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
        completed_only: use shares of the rounds that gave a sum, so that skipped rounds do not make the gap smaller.

    Raises:
        ValueError: `participation` is not a matrix of zeros and ones.

    Example:
        >>> fairness_gap([[1, 1, 0], [1, 0, 0]])
        1.0
    """
    gaps = fairness_gaps(checked(participation), completed_only)
    return float(gaps[-1]) if len(gaps) else 0.0


def fairness_gaps(matrix: npt.NDArray[np.bool_], completed_only: bool = False) -> Floats:
    """Return F(t) after each round, `(rounds,)` float64.

    Args:
        matrix: `(rounds, clients)` bool.
        completed_only: use shares of the rounds that gave a sum, see `fairness_gap`.
    """
    gaps = np.zeros(len(matrix))
    counts, rounds = np.zeros(matrix.shape[1], np.int64), 0
    for number, row in enumerate(matrix):  # row by row, since a matrix of counts would be eight times as large as P
        counts += row
        rounds += not completed_only or bool(row.any())
        gaps[number] = np.ptp(counts) / rounds if rounds and len(counts) else 0.0
    return gaps


def aggregation_cardinality(participation: npt.ArrayLike) -> float:
    """Return C: the mean number of clients in a round, with skipped rounds (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.

    Raises:
        ValueError: `participation` is not a matrix of zeros and ones.

    Example:
        >>> aggregation_cardinality([[1, 1, 0], [1, 0, 0]])
        1.5
    """
    means = cardinalities(checked(participation))
    return float(means[-1]) if len(means) else 0.0


def cardinalities(matrix: npt.NDArray[np.bool_]) -> Floats:
    """Return C(t) after each round, `(rounds,)` float64."""
    clients = np.cumsum(matrix.sum(axis=1, dtype=np.int64))
    return clients / np.arange(1, len(matrix) + 1)


def strong_privacy(participation: npt.ArrayLike) -> int:
    """Return the largest T of equation (5): every reachable combination is a sum over groups of at least T clients.

    T is the size of the smallest class of clients with identical columns, without clients that are in no round. The
    groups of a combination can be taken to be the sets of clients with equal non-zero coefficient, since smaller groups
    only lower T. Clients of a class always have equal coefficients, so each group is a union of classes. For z = (1, 2,
    4, ...) the coefficients of any two classes differ, so each class is a group by itself.

    Args:
        participation: `(rounds, clients)` bool or 0/1.

    Returns:
        T; the number of clients if P is all zero, because nothing is reachable then.

    Raises:
        ValueError: `participation` is not a matrix of zeros and ones.

    Example:
        >>> strong_privacy([[1, 1, 0, 0], [1, 1, 1, 1]])
        2
    """
    matrix = checked(participation)
    _, sizes = classes(matrix)
    return int(sizes.min(initial=matrix.shape[1]))


def strong_privacies(matrix: npt.NDArray[np.bool_]) -> Integers:
    """Return the strong T after each round, `(rounds,)` int64."""
    clients = matrix.shape[1]
    privacies = np.ones(len(matrix), np.int64)
    labels, ever = np.zeros(clients, np.int64), np.zeros(clients, np.bool_)
    for number, row in enumerate(matrix):
        ever |= row
        # A row only splits classes. Renumbering keeps the labels below N, so that 2 * labels does not overflow.
        labels = np.unique(2 * labels + row, return_inverse=True)[1]
        sizes = np.bincount(labels[ever])
        privacies[number] = sizes[sizes > 0].min(initial=clients)
        if privacies[number] == 1:  # T never rises; the array is 1 from here on
            break
    return privacies


def classes(matrix: npt.NDArray[np.bool_] | Integers) -> tuple[Integers, Integers]:
    """Return the distinct non-zero columns, `(rounds, m)`, and the number of clients with each column, `(m,)`."""
    matrix = matrix.astype(np.bool_)
    taking_part = matrix[:, matrix.any(axis=0)]
    packed = np.packbits(taking_part.T, axis=1)  # comparing bytes is quicker than comparing bits
    _, first, sizes = np.unique(packed, axis=0, return_index=True, return_counts=True)
    return taking_part[:, first].astype(np.int64), sizes.astype(np.int64)


# -- of a run -------------------------------------------------------------------------------------------------------


def participation_matrix(run: RunRecords, *, compact: bool = False) -> npt.NDArray[np.uint8]:
    """Return the participation matrix of a run, `(rounds, N)` 0/1, with one row per recorded round in their order.

    An entry is 1 if the client's update is in the round's sum. This is the P of Multi-RoundSecAgg (arXiv 2106.03328,
    section 3.2), as realised in the run. A participant whose update was lost counts as absent, because the server has a
    sum without it. A skipped or aborted round is a row of zeros: it gave no sum, and F(t) and C(t) divide by all
    rounds.

    Args:
        run: records of the run.
        compact: return only the columns of clients that took part at least once (those of `summed_clients`), and one
            column of zeros for all others, if there are any. F, C and T are those of the full matrix, and a population
            of 10^6 fits into memory.
    """
    rows = _summed(run)
    population = int(run.experiment["population"])
    clients = rows["client"].to_numpy(np.int64)
    columns = population
    if compact:
        summed, clients = np.unique(clients, return_inverse=True)
        columns = len(summed) + (len(summed) < population)
    matrix = np.zeros((len(run.rounds), columns), np.uint8)
    position = pd.Series(np.arange(len(run.rounds)), index=run.rounds["round"].to_numpy())
    matrix[position.loc[rows["round"]].to_numpy(), clients] = 1
    return matrix


def summed_clients(run: RunRecords) -> npt.NDArray[np.int64]:
    """Return the clients with an update in the sum of some round, `(k,)` int64, ascending."""
    return np.unique(_summed(run)["client"].to_numpy(np.int64))


def _summed(run: RunRecords) -> pd.DataFrame:
    """Return the rows of `participation` with updates that are in a sum."""
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
    rows = run.participation
    return rows[rows["survived"] & rows["round"].isin(completed)]
