"""The definitions of the multi-round metrics, by brute force in rational numbers."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from analysis.multi_round import WeakPrivacy


def rank(rows: np.ndarray) -> int:
    left = [[Fraction(int(entry)) for entry in row] for row in rows]
    found = 0
    for column in range(rows.shape[1]):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        left.remove(pivot)
        left = [[a - row[column] / pivot[column] * b for a, b in zip(row, pivot, strict=True)] for row in left]
        found += 1
    return found


def fewest_clients(matrix: np.ndarray) -> int:
    """Remark 1: some combination lies within a set of clients iff leaving them out lowers the rank."""
    clients, full = matrix.shape[1], rank(matrix)
    for size in range(1, clients + 1):
        for chosen in combinations(range(clients), size):
            if rank(np.delete(matrix, chosen, axis=1)) < full:
                return size
    return clients


def clients_in(combination: tuple[int, ...], matrix: np.ndarray) -> int:
    return int(np.count_nonzero(np.array(combination, dtype=object) @ matrix.astype(object)))


def check(found: WeakPrivacy, matrix: np.ndarray, expected: int) -> None:
    assert found.lower_bound <= expected <= found.value
    if matrix.any():
        assert found.combination is not None
        assert clients_in(found.combination, matrix) == found.value
        assert math.gcd(*found.combination) == 1
    else:
        assert found.combination is None


def random_rounds(rounds: int, clients: int, participants: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.stack([generator.permutation(np.arange(clients) < participants) for _ in range(rounds)])


def matrices(rounds: int, clients: int) -> st.SearchStrategy[np.ndarray]:
    """Participation matrices with repeated rows and columns now and then."""

    def build(drawn: tuple[list[list[int]], list[int], list[int]]) -> np.ndarray:
        entries, rows, columns = drawn
        matrix = np.array(entries)
        return matrix[np.array(rows) % len(matrix)][:, np.array(columns) % matrix.shape[1]]

    entry = st.integers(0, 1)
    return st.tuples(
        st.integers(1, clients).flatmap(
            lambda width: st.lists(st.lists(entry, min_size=width, max_size=width), min_size=1, max_size=rounds)
        ),
        st.lists(st.integers(0, 20), min_size=1, max_size=rounds),
        st.lists(st.integers(0, 20), min_size=1, max_size=clients),
    ).map(build)
