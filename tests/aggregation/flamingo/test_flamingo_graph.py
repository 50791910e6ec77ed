"""The density of Flamingo's graphs against exact probabilities, and the graphs against a walk over their edges."""

from fractions import Fraction
from math import comb, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from testbed.adversary.cut_off import smallest_cut_off
from testbed.aggregation.flamingo.bound import (
    STEPS,
    CommitteeRequirements,
    Density,
    cut_off_bits,
    density,
    disconnected_bits,
    too_few_bits,
)
from testbed.aggregation.flamingo.graph import RoundGraph, round_graph
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.engine.registry import aggregation_protocol
from tests.thoroughness import examples


def disconnected_exactly(clients: int, epsilon: float) -> float:
    """Gilbert 1959: by the component that holds one client."""
    connected, away = [Fraction(0), Fraction(1)], 1 - Fraction(epsilon)
    for n in range(2, clients + 1):
        apart = sum(comb(n - 1, k - 1) * connected[k] * away ** (k * (n - k)) for k in range(1, n))
        connected.append(1 - apart)
    return float(1 - connected[clients])


@pytest.mark.parametrize("clients", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("epsilon", [0.3, 0.5, 0.8, 0.95])
def test_graphs_fall_apart_no_more_often_than_said(clients: int, epsilon: float) -> None:
    exactly, said = disconnected_exactly(clients, epsilon), 2 ** -disconnected_bits(clients, epsilon)
    assert exactly <= said * (1 + 1e-9)
    if exactly < 0.05:
        assert said < 1.6 * exactly + 1e-12


@pytest.mark.parametrize(("survivors", "neighbours", "epsilon"), [(20, 3, 0.5), (90, 13, 0.4), (900, 13, 0.05)])
def test_too_few_neighbours_are_a_binomial_tail(survivors: int, neighbours: int, epsilon: float) -> None:
    tail = survivors * binom.cdf(neighbours - 1, survivors - 1, epsilon)
    assert too_few_bits(survivors, neighbours, epsilon) == pytest.approx(-log2(tail), rel=1e-6)


SIZES = [20, 50, 100, 500, 2000]


@pytest.mark.parametrize("participants", SIZES)
@pytest.mark.parametrize("dishonest", [0.0, 0.1, 0.3])
def test_with_random_labels_no_sparser_graph_meets_the_papers_requirements(participants: int, dishonest: float) -> None:
    found = density(participants, CommitteeRequirements(dishonest, 0.1, 40, 20, labels="random"))
    assert found.survivors == participants - participants // 10
    bad = int(dishonest * participants)
    fewest = found.neighbours or (1 if dishonest == 0 else int(40 / -log2(dishonest)) + 1)

    def meets(steps: int) -> bool:
        epsilon = steps / STEPS
        few = too_few_bits(found.survivors, fewest, epsilon)
        return disconnected_bits(found.survivors - bad, epsilon) >= 40 and few >= 20

    assert found.steps == STEPS or meets(found.steps)
    assert found.steps == 1 or not meets(found.steps - 1)
    assert dishonest**fewest < 2**-40


@pytest.mark.parametrize("participants", SIZES)
@pytest.mark.parametrize("dishonest", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("tries", [0, 40])
def test_with_chosen_labels_the_graph_meets_the_requirements(participants: int, dishonest: float, tries: int) -> None:
    required = CommitteeRequirements(dishonest, 0.1, 40, 20, tries=tries)
    found = density(participants, required)
    if found.steps == STEPS:
        assert found.neighbours == 0
        return
    bad, gone = required.counts(participants)
    secure = cut_off_bits(participants, bad, gone, found.neighbours, found.epsilon)
    assert secure >= 40 + tries
    assert too_few_bits(found.survivors, found.neighbours, found.epsilon) >= 20
    assert disconnected_bits(found.survivors, found.epsilon) >= 20
    if found.neighbours > 1:
        assert cut_off_bits(participants, bad, gone, found.neighbours - 1, found.epsilon) < 40 + tries


def test_a_thousand_clients_need_a_hundred_neighbours_each() -> None:
    """Computed apart from this code: 13 of 52 neighbours are too few, 41 of 100 hold off a server that tries once."""
    once = density(1000, CommitteeRequirements(0.1, 0.1, 40, 20, tries=0))
    assert (once.neighbours, round(once.mean_neighbours)) == (41, 100)
    assert 900 * binom.sf(13 - 1, 100, 53 / STEPS) > 1
    assert cut_off_bits(1000, 100, 100, 13, 53 / STEPS) == 0


@pytest.mark.parametrize(("participants", "dishonest", "gone", "neighbours"), [(200, 20, 20, 18), (1000, 100, 100, 41)])
def test_a_single_client_is_a_binomial_tail(participants: int, dishonest: int, gone: int, neighbours: int) -> None:
    """The bound is never below the term of single clients, and where that dominates, near to it."""
    epsilon, honest = 0.27 if participants == 200 else 0.1, participants - dishonest
    enough = binom.sf(neighbours - 1, dishonest, epsilon)
    single = honest * enough * binom.cdf(gone, honest - 1, epsilon)
    bits = cut_off_bits(participants, dishonest, gone, neighbours, epsilon)
    assert -log2(honest * enough) - 1.1 <= bits <= -log2(single)


@pytest.mark.parametrize(("neighbours", "epsilon"), [(4, 0.3), (5, 0.3), (5, 0.25)])
def test_labels_cut_clients_off_no_more_often_than_the_bound_says(neighbours: int, epsilon: float) -> None:
    """40 clients, 8 dishonest, 5 labelled offline: graphs are drawn and searched."""
    generator, dishonest = np.random.default_rng(5), np.arange(40) < 8
    trials, hits = 300, 0
    for _ in range(trials):
        upper = np.triu(generator.random((40, 40)) < epsilon, 1)
        graph = upper | upper.T

        def is_accepted(online: Any, graph: Any = graph) -> bool:
            return bool((graph & online).sum(axis=1)[online].min() >= neighbours)

        hits += smallest_cut_off(graph, dishonest, np.ones(40, np.bool_), 5, is_accepted) is not None
    bound = 2 ** -cut_off_bits(40, 8, 5, neighbours, epsilon)
    assert hits / trials <= bound + 3 * (bound * max(1 - bound, 0) / trials) ** 0.5
    assert hits > 0
    assert bound < 0.5  # so that the comparison means something


# -- graphs ------------------------------------------------------------------------------------------------------------


def graph_of(participants: list[int], steps: int, neighbours: int, survivors: int, seed: int = 0) -> RoundGraph:
    return RoundGraph(participants, Density(len(participants), steps, survivors, neighbours), bytes([seed]) * 32)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    participants = sorted(draw(st.sets(st.integers(0, 200), min_size=2, max_size=30)))
    return {
        "participants": participants,
        "online": sorted(draw(st.sets(st.sampled_from(participants)))),
        "steps": draw(st.sampled_from([50, 300, 700, STEPS])),
        "neighbours": draw(st.integers(0, 4)),
        "survivors": draw(st.integers(0, len(participants))),
        "seed": draw(st.integers(0, 255)),
    }


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_neighbours_and_what_is_cut_and_what_is_too_weak(case: dict[str, Any]) -> None:
    online = case.pop("online")
    graph = graph_of(**case)
    neighbours = {client: set(graph.neighbours(client)) for client in case["participants"]}
    for client, around in neighbours.items():
        assert client not in around
        assert all(client in neighbours[other] for other in around)
    gone = set(case["participants"]) - set(online)
    assert graph.cut(online) == [(one, other) for one in online for other in sorted(neighbours[one] & gone)]
    reached: set[int] = set()
    waiting = online[:1]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += neighbours[one] & set(online)
    complete = case["steps"] == STEPS
    weak = len(online) < max(2, case["survivors"])
    weak |= not complete and any(len(neighbours[one] & set(online)) < case["neighbours"] for one in online)
    weak |= not complete and reached != set(online)
    assert bool(graph.weakness(online)) == weak


def test_edges_are_as_frequent_as_they_should_be_and_every_round_has_others() -> None:
    participants = list(range(0, 1200, 2))
    one, other = (round_graph(bytes(16), number, participants, Density(600, 200, 500, 3)) for number in (1, 2))
    pairs = 600 * 599 / 2
    expected, deviation = pairs * 200 / STEPS, (pairs * 200 / STEPS * (1 - 200 / STEPS)) ** 0.5
    assert abs(one.adjacency.sum() / 2 - expected) < 5 * deviation
    both = (one.adjacency & other.adjacency).sum() / 2
    assert abs(both - pairs * (200 / STEPS) ** 2) < 5 * deviation
    again = round_graph(bytes(16), 1, participants, Density(600, 200, 500, 3))
    assert np.array_equal(again.adjacency, one.adjacency)
    elsewhere = round_graph(bytes(15) + b"x", 1, participants, Density(600, 200, 500, 3))
    assert not np.array_equal(elsewhere.adjacency, one.adjacency)
    fewer = round_graph(bytes(16), 1, participants[:-1], Density(599, 200, 500, 3))
    assert not np.array_equal(fewer.adjacency, one.adjacency[:-1, :-1])


def test_who_is_no_participant_has_no_neighbours() -> None:
    graph = graph_of([1, 3, 5], STEPS, 0, 2)
    for stranger in (0, 2, 6):
        with pytest.raises(KeyError):
            graph.neighbours(stranger)


@pytest.mark.parametrize(("dishonest", "dropouts"), [(0.34, 0.3), (0.34, 0.34), (0.5, 0.4), (0.5, 0.0), (0.1, 0.1)])
def test_two_honest_clients_are_in_a_sum_of_any_size(dishonest: float, dropouts: float) -> None:
    """`bernoulli` draws any number: 3 of 100 participants, one of them dishonest and one labelled offline, left one."""
    parameters = FlamingoParameters(dishonest=dishonest, dropouts=dropouts)
    parameters.check(100)
    for n in range(2, 13):
        accomplices, _ = parameters.requirements.counts(n)
        graph = round_graph(bytes(32), 1, list(range(n)), parameters.density(n))
        assert graph.weakness(list(range(accomplices + 1)))
        guarantees: Any = aggregation_protocol(parameters).guarantees(n)
        assert 0 <= guarantees.max_colluders <= guarantees.min_sum_size - 2 <= n - 2
