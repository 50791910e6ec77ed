"""The metrics of a participation matrix against their definitions, by brute force in rational numbers."""

import ctypes
import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import multi_round
from analysis.multi_round import (
    WeakPrivacy,
    aggregation_cardinality,
    fairness_gap,
    strong_privacy,
    weak_privacy,
)
from analysis.quiet import standard_output_to_error

AMPLE_S = 600.0


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
    assert found.certified == (found.lower_bound == found.value)
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


@settings(max_examples=80)
@given(matrices(rounds=7, clients=10))
def test_weak_privacy_is_the_minimum(matrix: np.ndarray) -> None:
    expected = fewest_clients(matrix)
    found = weak_privacy(matrix, AMPLE_S)
    check(found, matrix, expected)
    assert found.certified


@settings(max_examples=60)
@given(matrices(rounds=6, clients=9))
def test_without_time_the_bounds_still_hold(matrix: np.ndarray) -> None:
    check(weak_privacy(matrix, time_limit_s=0), matrix, fewest_clients(matrix))


@settings(max_examples=60)
@given(matrices(rounds=6, clients=9))
def test_without_the_solver_the_bounds_still_hold(matrix: np.ndarray) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multi_round._RowSpace, "search", lambda space, time_limit_s: ([], 0))
        check(weak_privacy(matrix), matrix, fewest_clients(matrix))


@settings(max_examples=60)
@given(matrices(rounds=6, clients=8), st.sampled_from([2, 3, 5]))
def test_an_unlucky_prime_proves_nothing_wrong(matrix: np.ndarray, prime: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multi_round, "_PRIME", prime)
        check(weak_privacy(matrix, AMPLE_S), matrix, fewest_clients(matrix))


@settings(max_examples=60)
@given(matrices(rounds=4, clients=6))
def test_strong_privacy_is_equation_5(matrix: np.ndarray) -> None:
    # Coefficients 0, 1, 2, 4 and 8 reach every way in which classes can differ or coincide.
    groups = []
    for z in product((0, 1, 2, 4, 8), repeat=len(matrix)):
        values, sizes = np.unique(np.array(z) @ matrix, return_counts=True)
        groups += sizes[values != 0].tolist()
    assert strong_privacy(matrix) == min(groups, default=matrix.shape[1])


@given(matrices(rounds=5, clients=7))
def test_strong_is_never_more_than_weak(matrix: np.ndarray) -> None:
    assert strong_privacy(matrix) <= weak_privacy(matrix, AMPLE_S).value


def test_the_family_of_example_1() -> None:
    # N = 8, K = 4, T = 2: four batches of two, any two of them in a round.
    rounds = [[batch in chosen for batch in range(4) for _ in range(2)] for chosen in combinations(range(4), 2)]
    found = weak_privacy(rounds)
    assert (found.value, found.certified) == (2, True)
    assert strong_privacy(rounds) == 2


def test_fixed_groups_never_come_apart() -> None:
    rounds = np.kron(np.eye(3, dtype=int), np.ones((1, 5), dtype=int))[[0, 2, 0, 1]]
    assert weak_privacy(rounds).value == strong_privacy(rounds) == 5


def test_two_rounds_that_differ_in_two_clients() -> None:
    rounds = [[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]]
    found = weak_privacy(rounds)
    assert found.value == 2
    assert found.combination in ((1, -1), (-1, 1))
    assert strong_privacy(rounds) == 1


def test_disjoint_bases_may_settle_it_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    # Columns (1,0,0) and (0,1,0) three times each, (0,0,1) twice, (1,1,0) once: two disjoint bases, no third.
    monkeypatch.setattr(multi_round._RowSpace, "search", lambda space, time_limit_s: ([], 0))
    found = weak_privacy([[1, 1, 1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1, 0]])
    assert found == WeakPrivacy(2, 2, True, (0, 0, 1))


def test_every_combination_of_three_rounds_counts() -> None:
    # Rounds have 7, 4 and 3 clients, their differences no fewer than 4; +1, -1, -1 leaves the last two.
    rounds = np.array([[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 0, 0]])
    check(weak_privacy(rounds, AMPLE_S), rounds, 2)


def test_what_elimination_misses_the_search_finds() -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        matrix = (generator.random((5, 9)) < 0.5).astype(int)
        found = weak_privacy(matrix, AMPLE_S)
        assert found.certified
        check(found, matrix, fewest_clients(matrix))


def test_random_selection_gives_everybody_away_in_the_end() -> None:
    # 60 rounds of 8 out of 40: full rank. The combination that isolates a client has large coefficients: exact anyway.
    matrix = random_rounds(60, 40, 8)
    found = weak_privacy(matrix)
    assert (found.value, found.lower_bound, found.certified) == (1, 1, True)
    assert found.combination is not None
    assert clients_in(found.combination, matrix) == 1
    assert max(map(abs, found.combination)) > 2**20


def test_a_search_cut_short_says_so() -> None:
    matrix = random_rounds(20, 60, 30)
    found = weak_privacy(matrix, time_limit_s=0.5)
    assert not found.certified
    assert 2 <= found.lower_bound < found.value  # two disjoint bases at least
    assert found.combination is not None
    assert clients_in(found.combination, matrix) == found.value


def test_a_quick_start_experiment_is_settled() -> None:
    matrix = random_rounds(10, 100, 10)
    found = weak_privacy(matrix, AMPLE_S)
    assert found.certified
    assert clients_in(found.combination or (), matrix) == found.value == 10


@pytest.mark.parametrize("rounds", [0, 3])
def test_nothing_happened(rounds: int) -> None:
    nothing = np.zeros((rounds, 4), dtype=bool)
    assert weak_privacy(nothing) == WeakPrivacy(4, 4, True, None)
    assert strong_privacy(nothing) == 4
    assert fairness_gap(nothing) == 0
    assert aggregation_cardinality(nothing) == 0


def test_fairness_and_cardinality_count_skipped_rounds() -> None:
    rounds = [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert fairness_gap(rounds) == 0.5
    assert aggregation_cardinality(rounds) == 0.75


@pytest.mark.parametrize("wrong", [[1, 0], [[1, 2]], [[0.5, 1]], [[np.nan, 1]]])
def test_anything_but_a_participation_matrix_is_refused(wrong: list[object]) -> None:
    for metric in (weak_privacy, strong_privacy, fairness_gap, aggregation_cardinality):
        with pytest.raises(ValueError, match="participation matrix"):
            metric(wrong)


def test_what_the_solver_prints_stays_out_of_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with standard_output_to_error():
        ctypes.CDLL(None).puts(b"from C")
    print("ours")
    captured = capfd.readouterr()
    assert captured.out == "ours\n"
    assert captured.err == "from C\n"
