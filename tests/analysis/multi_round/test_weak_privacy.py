"""The metrics of a whole participation matrix against their definitions, by brute force in rational numbers."""

import ctypes
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round import (
    WeakPrivacy,
    aggregation_cardinality,
    fairness_gap,
    row_spaces,
    strong_privacy,
    weak_privacy,
)
from analysis.multi_round.bound_search import BoundSearch
from analysis.multi_round.mixed_integer import standard_output_silenced
from tests.analysis.multi_round import brute_force
from tests.thoroughness import examples

AMPLE_S = 600.0
METHODS = ("_few_columns", "_modulo_2", "_modulo_3", "_columns", "_program")


@settings(max_examples=examples(80))
@given(data=st.data())
def test_weak_privacy_is_the_minimum(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=7, clients=10))
    expected = brute_force.fewest_clients(matrix)
    found = weak_privacy(matrix, AMPLE_S)
    brute_force.check(found, matrix, expected)
    assert found.certified


@settings(max_examples=examples(60))
@given(data=st.data())
def test_without_time_the_bounds_still_hold(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=6, clients=9))
    brute_force.check(weak_privacy(matrix, time_limit_s=0), matrix, brute_force.fewest_clients(matrix))


@pytest.mark.parametrize("method", METHODS)
def test_each_method_on_its_own_proves_nothing_wrong(method: str) -> None:
    generator = np.random.default_rng(5)
    with pytest.MonkeyPatch.context() as patch:
        for other in METHODS:
            if other != method:
                patch.setattr(BoundSearch, other, lambda search, rank, deadline: None)
        proved = 0
        for _ in range(60):
            matrix = (generator.random((5, 9)) < generator.choice([0.3, 0.5])).astype(int)
            found = weak_privacy(matrix, AMPLE_S)
            brute_force.check(found, matrix, brute_force.fewest_clients(matrix))
            proved += found.lower_bound > 1
    assert proved > 0


@settings(max_examples=examples(60))
@given(data=st.data())
def test_an_unlucky_prime_is_noticed(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=6, clients=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_spaces, "PRIMES", (2, 3, row_spaces.PRIMES[0]))
        brute_force.check(weak_privacy(matrix, AMPLE_S), matrix, brute_force.fewest_clients(matrix))


def test_rows_that_are_dependent_only_modulo_two_are_independent() -> None:
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], np.bool_)
    with pytest.raises(row_spaces.UnluckyPrimeError):
        row_spaces.Chain(triangle, 2)
    assert len(row_spaces.Chain(triangle, 3).basis) == 3
    assert weak_privacy(triangle).value == 1


@settings(max_examples=examples(60))
@given(data=st.data())
def test_strong_privacy_is_equation_5(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=4, clients=6))
    # Coefficients 0, 1, 2, 4 and 8 reach every way in which classes can differ or coincide.
    groups = []
    for z in product((0, 1, 2, 4, 8), repeat=len(matrix)):
        values, sizes = np.unique(np.array(z) @ matrix, return_counts=True)
        groups += sizes[values != 0].tolist()
    assert strong_privacy(matrix) == min(groups, default=matrix.shape[1])


@given(data=st.data())
def test_strong_is_never_more_than_weak(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=5, clients=7))
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


def test_every_combination_of_three_rounds_counts() -> None:
    # Rounds have 7, 4 and 3 clients, their differences no fewer than 4; +1, -1, -1 leaves the last two.
    rounds = np.array([[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 0, 0]])
    brute_force.check(weak_privacy(rounds, AMPLE_S), rounds, 2)


def test_searches_find_words_that_elimination_misses() -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        matrix = (generator.random((5, 9)) < 0.5).astype(int)
        found = weak_privacy(matrix, AMPLE_S)
        assert found.certified
        brute_force.check(found, matrix, brute_force.fewest_clients(matrix))


def test_random_selection_gives_everybody_away_in_the_end() -> None:
    # 60 rounds of 8 out of 40: full rank. The combination that isolates a client has large coefficients: exact anyway.
    matrix = brute_force.random_rounds(60, 40, 8)
    found = weak_privacy(matrix)
    assert (found.value, found.lower_bound, found.certified) == (1, 1, True)
    assert found.combination is not None
    assert brute_force.clients_in(found.combination, matrix) == 1
    assert max(map(abs, found.combination)) > 2**20


def test_an_incomplete_search_is_not_certified() -> None:
    # 60 rounds of 50 out of 100: too many dimensions for every method.
    matrix = brute_force.random_rounds(60, 100, 50)
    found = weak_privacy(matrix, time_limit_s=0.5)
    assert not found.certified
    assert 2 <= found.lower_bound < found.value
    assert found.combination is not None
    assert brute_force.clients_in(found.combination, matrix) == found.value


def test_a_quick_start_experiment_is_settled() -> None:
    matrix = brute_force.random_rounds(10, 100, 10)
    found = weak_privacy(matrix, AMPLE_S)
    assert found.certified
    assert brute_force.clients_in(found.combination or (), matrix) == found.value == 10


@pytest.mark.parametrize("rounds", [0, 3])
def test_nothing_happened(rounds: int) -> None:
    nothing = np.zeros((rounds, 4), dtype=bool)
    assert weak_privacy(nothing) == WeakPrivacy(4, 4)
    assert strong_privacy(nothing) == 4
    assert fairness_gap(nothing) == 0
    assert aggregation_cardinality(nothing) == 0


def test_fairness_and_cardinality_count_skipped_rounds() -> None:
    rounds = [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert fairness_gap(rounds) == 0.5
    assert aggregation_cardinality(rounds) == 0.75


def test_fairness_can_be_of_completed_rounds_alone() -> None:
    rounds = [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert fairness_gap(rounds, completed_only=True) == 1
    assert fairness_gap(rounds[1:2], completed_only=True) == 0
    assert fairness_gap([[1, 0], [0, 1]], completed_only=True) == fairness_gap([[1, 0], [0, 1]]) == 0


@pytest.mark.parametrize("wrong", [[1, 0], [[1, 2]], [[0.5, 1]], [[np.nan, 1]]])
def test_anything_but_a_participation_matrix_is_refused(wrong: list[object]) -> None:
    for metric in (weak_privacy, strong_privacy, fairness_gap, aggregation_cardinality):
        with pytest.raises(ValueError, match="participation matrix"):
            metric(wrong)


def test_output_of_the_solver_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with standard_output_silenced():
        ctypes.CDLL(None).puts(b"from C")
    print("ours")
    captured = capfd.readouterr()
    assert captured.out == "ours\n"
    assert captured.err == ""
