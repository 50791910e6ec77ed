"""Refusals of a client, stage by stage: a malicious server triggers every check."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    CheckSurvivors,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    Unmask,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto.key_agreement import PrivateKey
from tests.aggregation.federations import SmallFederation, Stand, refused_by_the_victim, sets_of, stand_before

N = 6
T = 4
EVERYBODY = np.arange(N, dtype=np.int64)
STRANGER = 40

# -- advertise keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (AdvertiseKeys(1, N, T - 1), "secagg.threshold-mismatch"),
        (AdvertiseKeys(1, N, N), "secagg.threshold-mismatch"),
        (AdvertiseKeys(1, 2 * T, T), "secagg.threshold-too-low"),
        (AdvertiseKeys(1, 1, T), "aggregation.single-participant"),
        (AdvertiseKeys(1, 0, T), "aggregation.single-participant"),
        (AdvertiseKeys(2, N, T), "aggregation.no-trained-update"),
        (AdvertiseKeys(0, N, T), "aggregation.no-trained-update"),
    ],
)
def test_what_the_server_announces_is_checked(message: AdvertiseKeys, check: str) -> None:
    assert refused_by_the_victim("advertise", lambda stand: (message,)) == [check]


def test_a_fraction_as_threshold_is_checked_too() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=0.6))
        start = await small.begin()
        return await Stand(small, start).ask(AdvertiseKeys(1, N, 3))

    assert asyncio.run(play()) == [(2, "secagg.threshold-mismatch")]


def test_nobody_aggregates_before_training() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.network.begin_round(1)
        return await Stand(small, None).ask(AdvertiseKeys(1, N, T))

    assert asyncio.run(play()) == [(2, "aggregation.no-trained-update")]


def test_a_round_number_serves_once() -> None:
    """A seeded run derives masks from it: the same number again would hide two updates under one mask."""

    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.aggregate(3)
        await small.network.begin_round(4)  # as far as clients know, a new round
        again = await small.train(3)
        first = small.refusals()
        skipping = await Stand(small, again).ask(AdvertiseKeys(3, N, T))
        return first, skipping, again.trained.tolist(), (await small.aggregate(4)).survivors.tolist()

    first, skipping, trained, survivors = asyncio.run(play())
    assert first == [(i, "train.round-reused") for i in range(N)]
    assert skipping == [(2, "aggregation.no-trained-update")]
    assert trained == []
    assert survivors == list(range(N))


def test_a_client_trains_once_in_a_round() -> None:
    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.begin(1)
        await small.train(1)
        return small.refusals()

    assert asyncio.run(play()) == [(i, "train.round-reused") for i in range(N)]


# -- share keys -----------------------------------------------------------------------------------------------------

FRESH = PrivateKey.from_seed(bytes(range(32))).public


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: ShareKeys(1, [*s.listed, s.listed[0]]), "secagg.duplicate-client"),
        (lambda s: ShareKeys(1, s.listed[: T - 1]), "secagg.wrong-size"),
        (lambda s: ShareKeys(1, [row for row in s.listed if row.client != 2]), "secagg.own-keys-mismatch"),
        (lambda s: s.with_advert(2, mask_key=FRESH), "secagg.own-keys-mismatch"),
        (lambda s: s.with_advert(2, sealing_key=FRESH), "secagg.own-keys-mismatch"),
        (lambda s: s.with_advert(4, mask_key=s.state.adverts[0].mask_key), "secagg.duplicate-key"),
        (lambda s: s.with_advert(4, sealing_key=s.state.adverts[0].mask_key), "secagg.duplicate-key"),
        (lambda s: s.with_advert(4, sealing_key=s.state.adverts[4].mask_key), "secagg.duplicate-key"),
        (lambda s: s.with_advert(4, mask_key=FRESH), "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, sealing_key=FRESH), "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, signature=s.state.adverts[0].signature), "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, signature=bytes(64)), "aggregation.keys-or-model-mismatch"),
        # the keys of client 4 under another name: signed, but not for that client
        (lambda s: ShareKeys(1, [*s.listed[:4], changed(s.listed[4], client=5)]),
         "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, client=STRANGER), "pki.unknown-client"),
        (lambda s: ShareKeys(2, s.listed), "secagg.out-of-order"),
    ],
)  # fmt: skip
def test_the_list_of_keys_is_checked(question: Callable[[Any], Any], check: str) -> None:
    assert refused_by_the_victim("share", lambda stand: (question(stand),)) == [check]


def test_keys_of_an_earlier_round_are_refused() -> None:
    async def play() -> Any:
        stand = await stand_before("share")
        old = stand.listed
        await stand.small.network.begin_round(2)
        start = await stand.small.train(2)
        again = Stand(stand.small, start)
        await stand.small.protocol.advertise_keys(again.state)
        mixed = [row if row.client != 4 else old[4] for row in again.listed]
        return await stand.ask(ShareKeys(2, mixed))

    assert asyncio.run(play()) == [(2, "aggregation.keys-or-model-mismatch")]


def test_more_clients_than_were_announced_are_refused() -> None:
    """With fewer participants announced, t of them could be half of the clients that share."""

    async def play() -> Any:
        small = SmallFederation(np.zeros((N, 3)), SecAggParameters(threshold=0.6))
        stand = Stand(small, await small.begin())
        replies = await small.network.ask(EVERYBODY, AdvertiseKeys(1, N - 1, 3))
        stand.state.adverts = replies.valid()
        return await stand.ask(ShareKeys(1, stand.listed))

    assert asyncio.run(play()) == [(2, "secagg.wrong-size")]


# -- masked input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        (lambda s: [*s.sealed_for(2), s.sealed_for(2)[0]], "secagg.unexpected-shares"),
        (lambda s: [*s.sealed_for(2), changed(s.sealed_for(2)[0], client=STRANGER)], "secagg.unexpected-shares"),
        (lambda s: [*s.sealed_for(2), changed(s.sealed_for(2)[0], client=2)], "secagg.unexpected-shares"),
        (lambda s: s.sealed_for(2)[: T - 2], "secagg.below-threshold"),
        (lambda s: [], "secagg.below-threshold"),
    ],
)
def test_who_has_shared_is_checked(rows: Callable[[Any], Any], check: str) -> None:
    assert refused_by_the_victim("mask", lambda stand: (MaskInput(1), SealedFromPeers(rows(stand)))) == [check]


# -- consistency check ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        ([0, 1, 2, 3, 4, 5, 5], "secagg.unknown-survivor"),
        ([0, 1, 2, 3, STRANGER], "secagg.unknown-survivor"),
        ([0, 1, 3, 4, 5], "secagg.declared-dropped"),
        ([1, 2, 3], "secagg.below-threshold"),
        ([], "secagg.declared-dropped"),
    ],
)
def test_the_survivors_are_checked(survivors: list[int], check: str) -> None:
    assert refused_by_the_victim("check", lambda stand: (CheckSurvivors(1, survivors),)) == [check]


def test_a_survivor_that_has_not_shared_is_refused() -> None:
    """Client 5 advertised keys and left: no share of its self-mask exists, so it cannot be a survivor."""
    leaving = {"secagg/share-keys": {5}}
    assert refused_by_the_victim("check", lambda stand: (CheckSurvivors(1, list(range(N))),), leaving=leaving) == [
        "secagg.unknown-survivor"
    ]


# -- unmask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        (lambda s: s.signatures[: T - 1], "secagg.too-few-signatures"),
        (lambda s: [*s.signatures, s.signatures[0]], "secagg.unexpected-signature"),
        (lambda s: [*s.signatures[:T], changed(s.signatures[0], client=STRANGER)], "secagg.unexpected-signature"),
        (lambda s: [changed(s.signatures[0], signature=s.signatures[1].signature), *s.signatures[1:]],
         "secagg.inconsistent-survivors"),
        (lambda s: [changed(s.signatures[0], signature=bytes(64)), *s.signatures[1:]],
         "secagg.inconsistent-survivors"),
    ],
)  # fmt: skip
def test_the_signatures_on_the_survivors_are_checked(rows: Callable[[Any], Any], check: str) -> None:
    assert refused_by_the_victim("unmask", lambda stand: (Unmask(1, rows(stand)),)) == [check]


def test_a_signature_of_somebody_declared_dead_is_refused() -> None:
    async def play() -> Any:
        stand = await stand_before("check")
        stand.state.survivors = sets_of(0, 1, 2, 3, 4)
        await stand.small.protocol.check_consistency(stand.state)
        return await stand.ask(Unmask(1, [*stand.signatures, changed(stand.signatures[0], client=5)]))

    assert asyncio.run(play()) == [(2, "secagg.unexpected-signature")]


def test_contradictory_sets_of_survivors_are_noticed() -> None:
    async def play() -> Any:
        stand = await stand_before("check")
        network = stand.small.network
        first = await network.ask(sets_of(0, 1, 2), CheckSurvivors(1, [0, 1, 2, 3, 4, 5]))
        second = await network.ask(sets_of(3, 4, 5), CheckSurvivors(1, [1, 2, 3, 4, 5]))
        rows = [SignatureOf(c, a.signature) for c, a in {**first.valid(), **second.valid()}.items()]
        assert len(rows) == N
        of_halves = [
            await stand.ask(Unmask(1, rows[:3]), who=(0, 1)),
            await stand.ask(Unmask(1, rows[3:]), who=(3, 4)),
        ]
        of_all = [
            await stand.ask(Unmask(1, rows), who=(2,)),
            await stand.ask(Unmask(1, rows[1:]), who=(5,)),
        ]
        return of_halves, of_all

    of_halves, of_all = asyncio.run(play())
    assert of_halves == [
        [(0, "secagg.too-few-signatures"), (1, "secagg.too-few-signatures")],
        [(3, "secagg.too-few-signatures"), (4, "secagg.too-few-signatures")],
    ]
    assert of_all == [[(2, "secagg.inconsistent-survivors")], [(5, "secagg.inconsistent-survivors")]]
