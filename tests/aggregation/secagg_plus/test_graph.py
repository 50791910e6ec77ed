"""The graph: a circle in an order that nobody chooses."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.secagg_plus.graph import NeighbourGraph, list_digest
from tests.messages_named import naming

ID = b"an experiment's."


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], int, NeighbourGraph]:
    participants = sorted(draw(st.sets(st.integers(0, 10**6), min_size=2, max_size=60)))
    size = len(participants)
    k = draw(st.sampled_from([*range(2, size - 1, 2), size - 1]))
    return participants, k, NeighbourGraph(participants, k, list_digest(ID, draw(st.integers(0, 99)), participants))


def reached_from(start: int, around: dict[int, frozenset[int]], without: frozenset[int]) -> set[int]:
    reached, border = set(), [start]
    while border:
        client = border.pop()
        if client not in reached:
            reached.add(client)
            border += around[client] - without
    return reached


@given(graphs())
def test_everybody_has_k_neighbours_and_is_theirs(case: tuple[list[int], int, NeighbourGraph]) -> None:
    participants, k, graph = case
    around = {client: graph.around(client) for client in participants}
    for client, those in around.items():
        assert client in those
        assert len(those) == k + 1
        assert all(client in around[peer] for peer in those)
    assert reached_from(participants[0], around, frozenset()) == set(participants)


@given(graphs())
def test_neighbours_are_the_nearest_on_the_circle(case: tuple[list[int], int, NeighbourGraph]) -> None:
    participants, k, graph = case
    circle = graph.circle()
    assert sorted(circle) == participants
    if k < len(participants) - 1:
        for place, client in enumerate(circle):
            near = {circle[(place + step) % len(circle)] for step in range(-k // 2, k // 2 + 1)}
            assert graph.around(client) == near


@pytest.mark.parametrize("k", [2, 4])
def test_fewer_than_k_removed_clients_never_part_the_others(k: int) -> None:
    participants = range(9)
    graph = NeighbourGraph(participants, k, list_digest(ID, 1, participants))
    around = {client: graph.around(client) for client in participants}
    parted = {}
    for count in (k - 1, k):
        parted[count] = [
            gone
            for gone in combinations(participants, count)
            if len(reached_from(min(set(participants) - set(gone)), around, frozenset(gone))) < 9 - count
        ]
    assert parted[k - 1] == []
    assert len(parted[k]) == 9 * (9 - k - 1) // 2  # two gaps of k/2 each: as many as the bound counts


def test_the_graph_depends_on_experiment_round_and_list_alone() -> None:
    participants = list(range(40))

    def circle(identity: bytes, number: int, those: list[int]) -> list[int]:
        return NeighbourGraph(those, 4, list_digest(identity, number, those)).circle()

    first = circle(ID, 1, participants)
    assert circle(ID, 1, list(participants)) == first
    others = [
        circle(b"another one's id", 1, participants),
        circle(ID, 2, participants),
        circle(ID, 1, [*range(39), 40]),
    ]
    assert all(other != first for other in others)
    assert NeighbourGraph(participants, 8, list_digest(ID, 1, participants)).circle() == first


def test_every_distance_between_two_clients_is_equally_frequent() -> None:
    """Over many rounds; 4.5 standard deviations of the count in each of 9 distances."""
    rounds, size = 4000, 10
    counts = np.zeros(size, int)
    for number in range(rounds):
        circle = NeighbourGraph(range(size), 2, list_digest(ID, number, range(size))).circle()
        counts[(circle.index(7) - circle.index(2)) % size] += 1
    expected = rounds / (size - 1)
    assert counts[0] == 0
    assert np.abs(counts[1:] - expected).max() < 4.5 * np.sqrt(expected)


@pytest.mark.parametrize("k", [0, 1, 3, 10, 12, -2])
def test_a_number_of_neighbours_that_the_circle_cannot_have(k: int) -> None:
    with pytest.raises(ValueError, match=naming("k", 10, "even", 9)):
        NeighbourGraph(range(10), k, bytes(32))


def test_who_takes_no_part_has_no_neighbours() -> None:
    graph = NeighbourGraph([1, 5, 9, 11, 12], 2, bytes(32))
    for stranger in (0, 6, 13):
        with pytest.raises(KeyError):
            graph.around(stranger)
