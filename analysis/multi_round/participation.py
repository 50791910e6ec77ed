"""The participation matrix of a run, and what can be counted in one: fairness, cardinality, and clients that always
take part together.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.arrays import Floats
from testbed.records import RunRecords

Integers = npt.NDArray[np.int64]


def checked(participation: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """`(rounds, clients)` bool; raises `ValueError` for anything but a matrix of zeros and ones."""
    matrix = np.asarray(participation)
    if matrix.ndim != 2 or not ((matrix == 0) | (matrix == 1)).all():
        raise ValueError("a participation matrix has two dimensions, rounds and clients, and entries 0 and 1")
    return matrix.astype(np.bool_)


def fairness_gap(participation: npt.ArrayLike, completed_only: bool = False) -> float:
    """F: the largest difference between two clients' shares of rounds (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
        completed_only: shares of the rounds that gave a sum, which skipped rounds do not make smaller.
    """
    gaps = fairness_gaps(checked(participation), completed_only)
    return float(gaps[-1]) if len(gaps) else 0.0


def fairness_gaps(matrix: npt.NDArray[np.bool_], completed_only: bool = False) -> Floats:
    """`(rounds,)` F(t) after each round; see `fairness_gap`."""
    gaps = np.zeros(len(matrix))
    counts, rounds = np.zeros(matrix.shape[1], np.int64), 0
    for number, row in enumerate(matrix):  # not a matrix of counts: it would be eight times as large as P
        counts += row
        rounds += not completed_only or bool(row.any())
        gaps[number] = np.ptp(counts) / rounds if rounds and len(counts) else 0.0
    return gaps


def aggregation_cardinality(participation: npt.ArrayLike) -> float:
    """C: the mean number of clients in a round, skipped rounds included (section 6); 0 before the first round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
    """
    means = cardinalities(checked(participation))
    return float(means[-1]) if len(means) else 0.0


def cardinalities(matrix: npt.NDArray[np.bool_]) -> Floats:
    """`(rounds,)` C(t) after each round."""
    clients = np.cumsum(matrix.sum(axis=1, dtype=np.int64))
    return clients / np.arange(1, len(matrix) + 1)


def strong_privacy(participation: npt.ArrayLike) -> int:
    """The largest T of equation (5): every reachable combination is a sum over groups of at least T clients.

    That is the size of the smallest class of clients with identical columns (those in no round left out). The groups
    of a combination can be taken to be the sets of clients with equal non-zero coefficient, since smaller groups
    only lower T. Clients of one class always have equal coefficients, so each group is a union of classes. And for
    z = (1, 2, 4, ...) the coefficients of two classes differ, so each class is a group by itself.

    Returns:
        T; the number of clients if P is all zero, because then nothing is reachable.
    """
    matrix = checked(participation)
    _, sizes = classes(matrix)
    return int(sizes.min(initial=matrix.shape[1]))


def strong_privacies(matrix: npt.NDArray[np.bool_]) -> Integers:
    """`(rounds,)` the strong T after each round; classes only ever come apart, so 1 stays 1."""
    clients = matrix.shape[1]
    privacies = np.ones(len(matrix), np.int64)
    labels, ever = np.zeros(clients, np.int64), np.zeros(clients, np.bool_)
    for number, row in enumerate(matrix):
        ever |= row
        labels = np.unique(2 * labels + row, return_inverse=True)[1]
        sizes = np.bincount(labels[ever])
        privacies[number] = sizes[sizes > 0].min(initial=clients)
        if privacies[number] == 1:
            break
    return privacies


def classes(matrix: npt.NDArray[np.bool_] | Integers) -> tuple[Integers, Integers]:
    """`(rounds, m)` the distinct non-zero columns, and `(m,)` how many clients have each."""
    matrix = matrix.astype(np.bool_)
    taking_part = matrix[:, matrix.any(axis=0)]
    packed = np.packbits(taking_part.T, axis=1)  # comparing bytes is quicker than comparing bits
    _, first, sizes = np.unique(packed, axis=0, return_index=True, return_counts=True)
    return taking_part[:, first].astype(np.int64), sizes.astype(np.int64)


# -- of a run -------------------------------------------------------------------------------------------------------


def participation_matrix(run: RunRecords, *, compact: bool = False) -> npt.NDArray[np.uint8]:
    """`(rounds, N)` 0/1: whose update is in the sum of each round; a row per recorded round, in their order.

    This is the P of Multi-RoundSecAgg (arXiv 2106.03328, section 3.2) as it came out. A participant whose update
    was lost counts as absent, because the server has a sum without it; a skipped or aborted round is a row of
    zeros: it gave no sum, and F(t) and C(t) divide by all rounds.

    Args:
        compact: only the columns of clients that took part at least once, those of `summed_clients`, and one column of
            zeros for all others (if there are any). F, C and T are the same as those of the full matrix, and a
            population of 10^6 fits.
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
    """`(k,)` the clients whose update is in the sum of some round, ascending."""
    return np.unique(_summed(run)["client"].to_numpy(np.int64))


def _summed(run: RunRecords) -> pd.DataFrame:
    """The rows of `participation` whose update is in a sum."""
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
    rows = run.participation
    return rows[rows["survived"] & rows["round"].isin(completed)]
