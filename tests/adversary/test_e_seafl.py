"""Outcomes of a malicious server and malicious assisting nodes of `e-seafl`."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.e_seafl import AnswerWrongMasks, ContradictNodes, ShrinkSurvivors
from testbed.adversary.misbehaviour import AttackContext, dishonest_role, malicious_server
from testbed.adversary.pine import WrongSumOptions
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.e_seafl.server import ESeafl
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (8, 7))
NODES, VICTIM = (2, 5), 4
PARAMETERS = ESeaflParameters(assisting_nodes=NODES, min_survivors=5)


def attacked(kind: Any, dishonest: set[int]) -> tuple[SmallFederation, list[str], Any]:
    context = AttackContext(frozenset(dishonest), {kind: VictimOptions(victim=VICTIM)})
    small = SmallFederation(DELTAS, PARAMETERS, protocol=malicious_server(ESeafl, [kind], context))
    try:
        outcome: Any = small.run()
    except RoundAborted as ended:
        outcome = ended
    return small, [event.detail for event in small.network.events if event.kind == "attack"], outcome


@pytest.mark.parametrize("accomplices", [set(), {2}, {5}, {0, 1, 2, 3, 6, 7}])
def test_one_honest_node_refuses_a_second_sum(accomplices: set[int]) -> None:
    small, (outcome,), aggregate = attacked(ContradictNodes, accomplices)
    assert len(aggregate.survivors) == len(DELTAS)
    assert outcome.startswith(f"contradict-dropouts: victim {VICTIM}: failed: ")
    honest = [node for node in NODES if node not in accomplices]
    assert small.refusals() == [(node, "e-seafl.out-of-order") for node in honest]


def test_all_nodes_and_the_server_together_recover_every_update() -> None:
    small, (outcome,), aggregate = attacked(ContradictNodes, set(NODES))
    assert len(aggregate.survivors) == len(DELTAS)
    assert small.refusals() == []
    coins = small.randomness.simulation_key(VICTIM, 1, "stochastic rounding")
    encoded = PARAMETERS.quantisation.encode(np.float32(DELTAS[VICTIM]), 1, coins)
    digest = hashlib.sha256(encoded.tobytes()).hexdigest()
    assert outcome.endswith(f"reconstructed, weight 1, sha256 {digest}")
    assert ContradictNodes.update_recovered is not None
    assert ContradictNodes.update_recovered.search(outcome.removeprefix("contradict-dropouts: "))


def test_the_nodes_refuse_a_sum_of_few_clients() -> None:
    small, (outcome,), ended = attacked(ShrinkSurvivors, {0, 1})
    assert outcome == f"shrink-the-sum: asked for the sum of client {VICTIM} and 2 accomplices"
    assert small.refusals() == [(node, "e-seafl.below-threshold") for node in NODES]
    assert isinstance(ended, RoundAborted)


def with_wrong_sums(options: WrongSumOptions) -> SmallFederation:
    node = frozenset({NODES[0]})
    role = dishonest_role(
        AnswerWrongMasks.extends, [AnswerWrongMasks], AttackContext(node, {AnswerWrongMasks: options})
    )
    return SmallFederation(DELTAS, PARAMETERS, protocol=ESeafl, roles=[RoleSpec(role, PARAMETERS, node)])


def test_a_forged_sum_of_masks_ends_the_round() -> None:
    with pytest.raises(RoundAborted, match="implausible-sum"):
        with_wrong_sums(WrongSumOptions()).run()


@pytest.mark.parametrize("by", [0.5, -0.5])
def test_a_node_that_adds_to_its_sum_moves_the_model(by: float) -> None:
    """The protocol does not promise a correct sum: without the commitments of the paper, no party detects this."""
    honest = SmallFederation(DELTAS, PARAMETERS, protocol=ESeafl).run()
    small = with_wrong_sums(WrongSumOptions(by=by))
    aggregate = small.run()
    assert small.misbehaviour() == []
    np.testing.assert_allclose(aggregate.mean - honest.mean, by / aggregate.weight, atol=1e-4)


def test_an_error_beyond_the_ring_ends_the_round() -> None:
    with pytest.raises(RoundAborted, match="implausible-sum"):
        with_wrong_sums(WrongSumOptions(by=-1e9)).run()
