"""Refusals of the clients and assisting nodes of `e-seafl`, and answers that the server leaves out."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.e_seafl.assisting_node import AssistingNode
from testbed.aggregation.e_seafl.client import ESeaflClient
from testbed.aggregation.e_seafl.messages import MaskedUpdate, SendMaskedUpdate, SumMasks, SummedMasks
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.e_seafl.server import ESeafl
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.errors import RoundAborted
from testbed.messages import Vector
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import SmallFederation, sets_of
from tests.messages_named import naming

N, NODE, CLIENT, STRANGER = 6, 2, 5, 40
PARAMETERS = ESeaflParameters(assisting_nodes=(NODE, 3), min_survivors=4)
DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (N, 5))


def federation(**keywords: Any) -> SmallFederation:
    return SmallFederation(DELTAS, PARAMETERS, protocol=ESeafl, **keywords)


def refusal_of(node: int, change: Callable[[SumMasks], Any], *, again: bool = False) -> str:
    """Return the check by which a node refuses a changed question, or the same question a second time."""

    async def play() -> Any:
        small = federation()
        protocol: Any = small.protocol
        state = protocol.begin(await small.begin())
        await protocol.collect_masked_inputs(state)
        survivors = protocol.choose_survivors(state)
        if again:
            await protocol.summed_masks(state, survivors)
        replies = await small.network.ask(sets_of(node), change(protocol.question(state, survivors)))
        return [refusal.check for refusal in replies.missing.refusals]

    (check,) = asyncio.run(play())
    return str(check)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("e-seafl.wrong-size", lambda asked: changed(asked, participants=1)),
        ("e-seafl.wrong-size", lambda asked: changed(asked, length=1)),
        ("e-seafl.model-not-bound", lambda asked: changed(asked, training=b"")),
        ("e-seafl.participants-mismatch", lambda asked: changed(asked, agreed=list(range(N)))),
        ("e-seafl.below-threshold", lambda asked: changed(asked, survivors=asked.survivors[:3])),
        ("e-seafl.below-threshold", lambda asked: changed(asked, participants=5)),
        ("e-seafl.unknown-survivor", lambda asked: changed(asked, survivors=[asked.survivors[0], *asked.survivors])),
        (
            "e-seafl.unknown-survivor",
            lambda asked: changed(asked, survivors=[*asked.survivors[1:], SignatureOf(STRANGER, bytes(64))]),
        ),
        (
            "e-seafl.missing-signature",
            lambda asked: changed(asked, survivors=[*asked.survivors[1:], SignatureOf(0, bytes(64))]),
        ),
        ("e-seafl.missing-signature", lambda asked: changed(asked, training=bytes(32))),
        ("e-seafl.missing-signature", lambda asked: changed(asked, length=7)),
        ("e-seafl.missing-signature", lambda asked: changed(asked, round=2)),
        ("e-seafl.round-reused", lambda asked: changed(asked, round=0)),
    ],
)
def test_a_node_refuses(check: str, change: Callable[[SumMasks], Any]) -> None:
    assert refusal_of(NODE, change) == check


def test_a_node_answers_once_per_round() -> None:
    assert refusal_of(NODE, lambda asked: asked, again=True) == "e-seafl.out-of-order"


def test_a_client_that_is_no_node_refuses_to_serve() -> None:
    assert refusal_of(CLIENT, lambda asked: asked) == "e-seafl.not-an-assisting-node"


class OtherSignature(ESeaflClient):
    @handles(SendMaskedUpdate)
    def on_mask_input(self, message: SendMaskedUpdate) -> MaskedUpdate:
        return changed(super().on_mask_input(message), signature=bytes(64))


class OtherLength(ESeaflClient):
    @handles(SendMaskedUpdate)
    def on_mask_input(self, message: SendMaskedUpdate) -> MaskedUpdate:
        super().on_mask_input(message)
        return MaskedUpdate(Vector(np.zeros(3, np.uint32), 32), bytes(64))


@pytest.mark.parametrize("kind", [OtherSignature, OtherLength])
def test_an_upload_that_the_nodes_would_refuse_is_left_out(kind: type[ESeaflClient]) -> None:
    small = federation(roles=[RoleSpec(kind, PARAMETERS, frozenset({CLIENT}))])
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [0, 1, 2, 3, 4]
    assert np.abs(aggregate.mean - DELTAS[:5].mean(0)).max() < 2**-15
    assert [client for client, _ in small.misbehaviour()] == [CLIENT]


class ShortSum(AssistingNode):
    @handles(SumMasks)
    def on_sum_masks(self, message: SumMasks) -> SummedMasks:
        super().on_sum_masks(message)
        return SummedMasks(Vector(np.zeros(3, np.uint32), 32))


def test_a_node_whose_sum_has_another_length_ends_the_round_and_is_named() -> None:
    small = federation(roles=[RoleSpec(ShortSum, PARAMETERS, frozenset({NODE}))])
    with pytest.raises(RoundAborted, match=naming("no-assisting-node", "client 2")):
        small.run()
    assert [client for client, _ in small.misbehaviour()] == [NODE]


def test_a_node_that_leaves_ends_the_round() -> None:
    with pytest.raises(RoundAborted, match="no-assisting-node"):
        federation(leaving={"e-seafl/sum-masks": {NODE}}).run()


@pytest.mark.parametrize("bits", [24, 32, 64])
def test_sums_in_every_ring_are_those_of_the_survivors(bits: int) -> None:
    parameters = ESeaflParameters(assisting_nodes=(NODE,), min_survivors=4, bits=bits)
    small = SmallFederation(DELTAS, parameters, protocol=ESeafl, leaving={"e-seafl/masked-input": {0, 5}})
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [1, 2, 3, 4]
    assert np.abs(aggregate.mean - DELTAS[1:5].mean(0)).max() < 2**-15


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"assisting_nodes": []}, "assisting_nodes"),
        ({"assisting_nodes": [1, 1]}, "names a client twice"),
        ({"assisting_nodes": [-1]}, "assisting_nodes"),
    ],
)
def test_nodes_that_cannot_be_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ESeaflParameters(**keys)


def test_a_node_is_one_of_the_clients() -> None:
    with pytest.raises(ValueError, match=naming("assisting_nodes", "client 3", "0 to 2")):
        PARAMETERS.check_population(3)
