"""Metrics after every round: equal to those of each prefix, with certificates that can be checked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round import (
    OverRounds,
    aggregation_cardinality,
    fairness_gap,
    over_rounds,
    strong_privacy,
)
from analysis.multi_round.simulation import dropout_probabilities, simulate
from testbed.selection.batch_partition import BatchPartitionParameters
from testbed.selection.random_selection import RandomParameters, WeightedRandomParameters
from tests.analysis.multi_round import brute_force
from tests.thoroughness import examples

AMPLE_S = 600.0


def check_combinations(found: OverRounds, matrix: np.ndarray) -> None:
    """Each one uses only rounds that have been, and leaves as many clients as it should; in Python's integers."""
    for number in range(len(found)):
        combination = found.combination(number)
        assert all(used <= number for used in combination)
        left = [
            client
            for client in range(matrix.shape[1])
            if sum(value * int(matrix[used, client]) for used, value in combination.items())
        ]
        assert len(left) == (found.weak[number] if found.rank[number] else 0)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_every_round_is_as_the_rounds_up_to_it_define(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=7, clients=9))
    found = over_rounds(matrix, AMPLE_S)
    assert len(found) == len(matrix)
    check_combinations(found, matrix)
    for number in range(len(matrix)):
        prefix = matrix[: number + 1]
        assert found.weak[number] == found.lower_bound[number] == brute_force.fewest_clients(prefix)
        assert found.strong[number] == strong_privacy(prefix)
        assert found.rank[number] == brute_force.rank(prefix)
        assert found.fairness[number] == fairness_gap(prefix)
        assert found.cardinality[number] == aggregation_cardinality(prefix)


@settings(max_examples=examples(30))
@given(data=st.data())
def test_without_time_every_round_still_has_its_bounds(data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=7, clients=9))
    found = over_rounds(matrix, 0.0)
    check_combinations(found, matrix)
    for number in range(len(matrix)):
        assert found.lower_bound[number] <= brute_force.fewest_clients(matrix[: number + 1]) <= found.weak[number]


@pytest.mark.parametrize(
    "parameters",
    [
        RandomParameters(participants=4),
        WeightedRandomParameters(participants=4),
        BatchPartitionParameters(participants=4, privacy=2),
    ],
)
def test_simulated_runs_are_certified_in_every_round(
    parameters: RandomParameters | WeightedRandomParameters | BatchPartitionParameters,
) -> None:
    matrix = simulate(parameters, dropout_probabilities(10, 3), 30, 3)
    found = over_rounds(matrix, AMPLE_S)
    assert found.certified.all()
    check_combinations(found, matrix)
    for number in range(0, 30, 3):
        assert found.weak[number] == brute_force.fewest_clients(matrix[: number + 1])
    assert (np.diff(found.weak) <= 0).all()
    assert found.weak[-1] == (2 if isinstance(parameters, BatchPartitionParameters) else 1)


def test_one_stays_one_and_dependent_rounds_change_nothing() -> None:
    rounds = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    found = over_rounds(rounds)
    assert found.weak.tolist() == [2, 2, 1, 1, 1, 1]
    assert found.strong.tolist() == [2, 2, 1, 1, 1, 1]
    assert found.rank.tolist() == [1, 1, 2, 2, 2, 3]
    assert found.combination(1) == {0: 1}
    assert found.combination(5) in ({2: 1}, {0: 1, 2: -1})


def test_before_the_first_sum_nothing_is_reachable() -> None:
    found = over_rounds([[0, 0, 0], [1, 1, 0]])
    assert found.weak.tolist() == found.strong.tolist() == [3, 2]
    assert found.certified.all()
    assert found.proof[0] == "nothing reachable"
    assert found.combination(0) == {}


def test_rounds_that_are_not_settled_are_named() -> None:
    matrix = simulate(RandomParameters(participants=12), np.full(100, 0.3), 80, 1)
    found = over_rounds(matrix, 0.0)
    frame = found.frame()
    assert frame["round"].tolist() == list(range(1, 81))
    assert not frame["certified"].all()
    assert (frame["lower_bound"] <= frame["weak"]).all()
    assert (frame["certified"] == (frame["lower_bound"] == frame["weak"])).all()
    assert set(frame["proof"]) == {"smallest class"}


def test_progress_names_the_rank_of_each_step() -> None:
    lines: list[str] = []
    over_rounds(simulate(RandomParameters(participants=6), np.full(40, 0.3), 45, 1), AMPLE_S, lines.append)
    assert lines
    assert all(line.startswith("rank ") for line in lines)
