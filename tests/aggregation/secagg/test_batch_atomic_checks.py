"""A server that asks for a part of a batch, stage by stage: the clients' refusals and withheld shares."""

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import (
    CheckSurvivors,
    MaskInput,
    RevealedShares,
    SealedFromPeers,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.batches import Batches
from tests.aggregation.federations import SmallFederation, Stand

N, T = 12, 7
THREES = Batches.consecutive(N, 3)
DELTAS = np.random.default_rng(3).uniform(-1, 1, (N, 5))
EVERYBODY = list(range(N))
changed = msgspec.structs.replace


def without(*clients: int) -> list[int]:
    return [client for client in EVERYBODY if client not in clients]


async def before_check(leaving: Any = None, **options: Any) -> Any:
    """Four batches of three have masked, but for those that left."""
    return await masked(THREES, leaving, **{"threshold": T, **options})


async def masked(partition: Batches, leaving: Any = None, **options: Any) -> Any:
    """The same with other batches."""
    parameters = SecAggParameters(**options)
    small = SmallFederation(DELTAS, parameters, batches=partition, leaving=leaving)
    protocol, start = small.protocol, await small.begin()
    stand = Stand(small, start)
    await protocol.advertise_keys(stand.state)
    await protocol.share_keys(stand.state)
    await protocol.collect_masked_inputs(stand.state)
    return stand


def refused(message: Any, who: list[int], **options: Any) -> list[tuple[int, str]]:
    async def play() -> Any:
        stand = await before_check(**options)
        return await stand.ask(message, who=who)

    return asyncio.run(play())


# -- a partial batch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [(4,), (3, 4), (0, 4, 11), (0, 1, 2, 4)])
def test_everybody_that_is_named_refuses_a_partial_batch(lost: tuple[int, ...]) -> None:
    named = without(*lost)
    found = refused(CheckSurvivors(1, named), named)
    assert found == [(client, "aggregation.partial-batch") for client in named]


@pytest.mark.parametrize("lost", [(4,), (3, 4)])
def test_nobody_needs_signatures_to_refuse_it(lost: tuple[int, ...]) -> None:
    named = without(*lost)
    options = {"consistency": "none", "threshold": 9}
    found = refused(UnmaskSurvivors(1, named), named, **options)
    assert found == [(client, "aggregation.partial-batch") for client in named]


def test_one_that_is_left_out_alone_refuses_too() -> None:
    assert refused(CheckSurvivors(1, without(4)), [4]) == [(4, "aggregation.partial-batch")]


def test_where_batches_are_ignored_it_is_only_the_one_left_out() -> None:
    assert refused(CheckSurvivors(1, without(4)), EVERYBODY, batches="ignored") == [(4, "secagg.declared-dropped")]


def test_a_batch_that_never_was_whole_cannot_be_made_so() -> None:
    """Client 4 has not shared: its whole batch includes a client without shares, and the rest is a part of a batch."""
    leaving = {"secagg/share-keys": {4}}
    for named, check in ((EVERYBODY, "secagg.unknown-survivor"), (without(4), "aggregation.partial-batch")):
        found = refused(CheckSurvivors(1, named), [3, 5, 6], leaving=leaving)
        assert found == [(3, check), (5, check), (6, check)]


def test_a_stranger_in_the_list_is_a_refusal_and_no_crash() -> None:
    assert refused(CheckSurvivors(1, [*EVERYBODY, 40]), [2]) == [(2, "secagg.unknown-survivor")]


@pytest.mark.parametrize(
    ("smallest", "check"), [(None, [(2, "secagg.below-threshold")]), (6, []), (7, [(2, "secagg.below-threshold")])]
)
def test_how_few_whole_batches_are_enough(smallest: int | None, check: Any) -> None:
    """Two batches of three, where t is 7."""
    found = refused(CheckSurvivors(1, [0, 1, 2, 3, 4, 5]), [2], smallest_sum=smallest)
    assert found == check


# -- an input that would not be masked with its whole batch -----------------------------------------------------------


def test_no_input_is_sent_before_the_whole_batch_has_shared() -> None:
    """The server hides from client 2 that client 1 has shared; it is told of enough others."""

    async def play() -> Any:
        small = SmallFederation(DELTAS, SecAggParameters(threshold=T), batches=THREES)
        stand = Stand(small, await small.begin())
        await small.protocol.advertise_keys(stand.state)
        await small.protocol.share_keys(stand.state)
        rows = [row for row in stand.sealed_for(2) if row.client != 1]
        replies = await small.network.ask(
            np.array([2, 3]), MaskInput(1), private={2: SealedFromPeers(rows), 3: SealedFromPeers(stand.sealed_for(3))}
        )
        lengths = {client: len(answer.input) for client, answer in replies.valid().items()}
        later = await stand.ask(CheckSurvivors(1, without(1)), who=[2]), small.refusals()
        return lengths, later[0]

    lengths, later = asyncio.run(play())
    assert lengths == {2: 0, 3: 6}
    assert later == [(2, "aggregation.partial-batch")]


# -- different unions to different clients ----------------------------------------------------------------------------


def test_different_unions_of_whole_batches_never_find_t_signers_each() -> None:
    async def play() -> Any:
        stand = await before_check()
        network = stand.small.network
        first, second = without(0, 1, 2), without(9, 10, 11)
        one = (await network.ask(np.array([3, 4, 5, 6, 7, 8]), CheckSurvivors(1, first))).valid()
        two = (await network.ask(np.array([0, 1, 2, 9, 10, 11]), CheckSurvivors(1, second))).valid()
        rows = [SignatureOf(client, answer.signature) for client, answer in {**one, **two}.items()]
        assert len(rows) == N
        few = [row for row in rows if row.client in one]
        inside = [row for row in rows if row.client in first]
        return [
            await stand.ask(Unmask(1, few), who=[3]),
            await stand.ask(Unmask(1, inside), who=[4]),
            await stand.ask(Unmask(1, rows), who=[5]),
            await stand.ask(CheckSurvivors(1, second), who=[6]),
            await stand.ask(Unmask(1, few), who=[6]),
        ]

    assert asyncio.run(play()) == [
        [(3, "secagg.too-few-signatures")],
        [(4, "secagg.inconsistent-survivors")],
        [(5, "secagg.unexpected-signature")],
        [(6, "secagg.out-of-order")],
        [(6, "secagg.too-few-signatures")],
    ]


def test_after_one_set_was_unmasked_there_is_no_other() -> None:
    async def play() -> Any:
        stand = await before_check()
        stand.state.survivors, stand.state.helpers = np.array(without(0, 1, 2)), np.array([0, 1, 2])
        await stand.small.protocol.check_consistency(stand.state)
        rows = [row for row in stand.signatures if row.client > 2]
        first = await stand.small.network.ask(np.arange(N), Unmask(1, rows))
        again = [await stand.ask(CheckSurvivors(1, without(9, 10, 11))), await stand.ask(Unmask(1, rows))]
        return len(first.valid()), again

    assert asyncio.run(play()) == (N, [[(2, "secagg.out-of-order")], [(2, "secagg.out-of-order")]])


# -- left-out clients -------------------------------------------------------------------------------------------------


def left_out_reveals(**options: Any) -> dict[int, RevealedShares]:
    """Batch 1 is left out, since client 4 sent no input."""

    async def play() -> Any:
        stand = await before_check({"secagg/masked-input": {4}}, **options)
        protocol, state = stand.small.protocol, stand.state
        assert (state.survivors.tolist(), state.helpers.tolist()) == (without(3, 4, 5), [3, 5])
        await protocol.check_consistency(state)
        await protocol.collect_shares(state)
        return state.revealed

    return asyncio.run(play())


@pytest.mark.parametrize("smallest", [None, 3])
def test_who_is_left_out_gives_its_mask_key_away_and_nobody_gives_its_seed(smallest: int | None) -> None:
    revealed = left_out_reveals(smallest_sum=smallest)
    assert sorted(revealed) == without(4)
    for shares in revealed.values():
        assert sorted(row.client for row in shares.mask_keys) == [3, 4, 5]
        assert sorted(row.client for row in shares.self_masks) == without(3, 4, 5)


def test_signatures_of_those_left_out_count_only_where_the_experiment_says_so() -> None:
    async def play(smallest: int | None) -> Any:
        stand = await before_check({"secagg/masked-input": {4}}, smallest_sum=smallest)
        stand.state.survivors, stand.state.helpers = np.array(without(3, 4, 5)), np.array([3, 5])
        await stand.small.protocol.check_consistency(stand.state)
        return await stand.ask(Unmask(1, stand.signatures)), await stand.ask(Unmask(1, stand.signatures), who=[3])

    assert asyncio.run(play(None)) == ([(2, "secagg.unexpected-signature")], [(3, "secagg.unexpected-signature")])
    assert asyncio.run(play(3)) == ([], [])


def test_a_client_that_is_no_participant_never_signs_for_those_that_are() -> None:
    """With a smallest sum the signatures of all clients that have shared count; client 4 has not."""

    async def play() -> Any:
        stand = await before_check({"secagg/share-keys": {4}}, smallest_sum=3)
        stand.state.survivors, stand.state.helpers = np.array(without(3, 4, 5)), np.array([3, 5])
        await stand.small.protocol.check_consistency(stand.state)
        return await stand.ask(Unmask(1, [*stand.signatures, changed(stand.signatures[0], client=4)]))

    assert asyncio.run(play()) == [(2, "secagg.unexpected-signature")]


def test_a_batch_of_one_is_nobodys_reason_to_be_left_out() -> None:
    """Batches of one and two: client 0 has no batch peers that could have dropped out."""
    batches = Batches([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5])

    async def play() -> Any:
        stand = await masked(batches, threshold=T)
        return [
            await stand.ask(CheckSurvivors(1, without(0)), who=[0]),
            await stand.ask(CheckSurvivors(1, without(1, 2)), who=[1]),
        ]

    assert asyncio.run(play()) == [[(0, "secagg.declared-dropped")], []]


# -- under an agreed list ---------------------------------------------------------------------------------------------


def test_batches_and_an_agreed_list_of_participants_go_together() -> None:
    """As `verifiable-batch-partition` has it: three of five batches were agreed on, and one loses a member."""

    async def play() -> Any:
        batches = Batches.consecutive(15, 3)
        deltas = np.random.default_rng(4).uniform(-1, 1, (15, 5))
        leaving = {"secagg/masked-input": {7}}
        small = SmallFederation(
            deltas, SecAggParameters(threshold=0.6), batches=batches, agreed=True, minimum=9, leaving=leaving
        )
        small.everybody = batches.members([0, 2, 4])
        await small.network.begin_round(1)
        for client in small.everybody.tolist():
            identity = small.client(client)
            directory = small.environment.directory
            identity.agreed_participants = {i: directory.signing_key(i) for i in small.everybody.tolist()}
            identity.last_round = 1
        start = await small.train(1)
        return (await small.protocol.aggregate(start)).survivors.tolist(), small.refusals()

    assert asyncio.run(play()) == ([0, 1, 2, 12, 13, 14], [])
