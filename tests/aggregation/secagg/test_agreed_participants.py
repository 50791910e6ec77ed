"""Participants that a selection protocol has agreed on, and the server's handling of refusals."""

import asyncio
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    ShareKeys,
    Unmask,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import CompleteGraph, listed
from testbed.aggregation.secagg.server import SecAgg
from testbed.crypto.key_agreement import PrivateKey
from testbed.errors import RoundAborted
from tests.aggregation.federations import SmallFederation, Stand, sets_of

N = 6
T = 4

FRESH = PrivateKey.from_seed(bytes(range(32))).public


# -- agreed participants --------------------------------------------------------------------------------------------


def agree(small: Any, clients: list[int], number: int = 1) -> None:
    """As if the clients had verified a participant list (Lotto)."""
    for client in clients:
        identity = small.client(client)
        identity.agreed_participants = {i: small.environment.directory.signing_key(i) for i in clients}
        identity.last_round = number


def test_without_an_agreed_list_nobody_trains_or_aggregates() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T), agreed=True)
        await small.begin()
        trained = small.refusals()
        return trained, await Stand(small, None).ask(AdvertiseKeys(1, N, T))

    trained, asked = asyncio.run(play())
    assert trained == [(i, "train.no-agreed-list") for i in range(N)]
    assert asked == [(2, "aggregation.no-agreed-list")]


def test_participants_are_those_that_were_agreed_on() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=0.6), agreed=True)
        await small.network.begin_round(1)
        agree(small, [0, 1, 2, 3, 4])
        await small.train(1)
        stand = Stand(small, None)
        other_number = await stand.ask(AdvertiseKeys(1, N, 4), who=(1,))
        replies = await small.network.ask(sets_of(0, 2, 3, 4), AdvertiseKeys(1, 5, 3))
        rows = listed(replies.valid())
        row = changed(rows[0], client=5, sealing_key=FRESH, mask_key=bytes(31) + b"\x09")
        foreign = await stand.ask(ShareKeys(1, [*rows, row]))
        return other_number, foreign

    other_number, foreign = asyncio.run(play())
    assert other_number == [(1, "aggregation.participants-mismatch")]
    assert foreign == [(2, "secagg.unlisted-participant")]


def test_peers_keys_come_from_the_agreed_list_and_the_pki_is_not_asked() -> None:
    async def play(agreed: bool) -> Any:
        small = SmallFederation(np.eye(N), SecAggParameters(threshold=T), agreed=agreed)
        await small.network.begin_round(1)
        if agreed:
            agree(small, list(range(N)))
        start = await small.train(1)
        aggregate = await small.protocol.aggregate(start)
        asked = sum(int(stage.pki_bytes_up.sum()) for stage in small.network.exchanges)
        small.network.end_round()
        return aggregate.survivors.tolist(), asked > 0

    assert asyncio.run(play(True)) == (list(range(N)), False)
    assert asyncio.run(play(False)) == (list(range(N)), True)


@pytest.mark.parametrize("stage", ["share", "unmask"])
def test_the_agreed_list_goes_before_the_bulletin_board(stage: str) -> None:
    """Signatures are checked under the keys that all participants have agreed on, even if the board changes."""

    async def play() -> Any:
        small = SmallFederation(np.eye(N), SecAggParameters(threshold=T), agreed=True)
        await small.network.begin_round(1)
        agree(small, list(range(N)))
        start = await small.train(1)
        protocol, stand = small.protocol, Stand(small, start)
        board = small.environment.directory.signing
        await protocol.advertise_keys(stand.state)
        if stage == "share":
            small.client(2).agreed_participants[4] = board[5].tobytes()
            return await stand.ask(ShareKeys(1, stand.listed))
        await protocol.share_keys(stand.state)
        await protocol.collect_masked_inputs(stand.state)
        await protocol.check_consistency(stand.state)
        board[4] = board[5]
        honest = await stand.ask(Unmask(1, stand.signatures), who=(3,))
        small.client(2).agreed_participants[4] = board[5].tobytes()
        return honest + await stand.ask(Unmask(1, stand.signatures))

    assert asyncio.run(play()) == [
        (2, "aggregation.keys-or-model-mismatch" if stage == "share" else "secagg.inconsistent-survivors")
    ]


def test_a_round_number_must_be_the_one_that_was_agreed_on() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T), agreed=True)
        await small.network.begin_round(1)
        agree(small, list(range(N)), number=5)
        await small.train(4)
        await small.train(6)
        return small.refusals()

    assert asyncio.run(play()) == [(i, "train.round-reused") for i in range(N)] * 2


# -- handling of refusals -------------------------------------------------------------------------------------------


class Announces(SecAgg):
    """Announces another threshold than the experiment's."""

    def peer_graph(self, round_: Any) -> CompleteGraph:
        honest = super().peer_graph(round_)
        return CompleteGraph(honest.participants, honest.threshold - 1)


def test_refusals_end_the_round_and_are_named() -> None:
    small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T), protocol=Announces)
    with pytest.raises(RoundAborted, match=r"below-threshold: 0 of 3 .*refusals: secagg\.threshold-mismatch"):
        small.run()
    assert small.refusals() == [(i, "secagg.threshold-mismatch") for i in range(N)]


@pytest.mark.parametrize(
    ("threshold", "size", "reason"),
    [
        (4, 8, "threshold-too-low"),
        (9, 8, "below-threshold"),
        (0.5, 8, "threshold-too-low"),
        (0.9, 1, "below-threshold"),
    ],
)
def test_rounds_that_clients_would_refuse_are_not_begun(threshold: float, size: int, reason: str) -> None:
    small = SmallFederation(np.zeros((size, 3)), SecAggParameters(threshold=threshold))
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert ended.value.reason == reason
    assert [stage.stage for stage in small.network.exchanges] == ["train"]
