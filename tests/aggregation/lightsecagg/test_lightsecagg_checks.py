"""Refusals of `lightsecagg` clients, and the server's handling of misbehaving clients."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.lightsecagg.client import LightSecAggClient
from testbed.aggregation.lightsecagg.messages import (
    AdvertiseLightSecAggKeys,
    LightSecAggAdvertOf,
    LightSecAggKeyAdvert,
    MaskLightSecAggInput,
    PieceFor,
    PiecesForPeers,
    PiecesFromPeers,
    ShareMasks,
    SummedPieces,
    SumPieces,
)
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg, LightSecAggRound
from testbed.batches import Batches
from testbed.crypto.key_agreement import PrivateKey
from testbed.errors import RoundAborted
from testbed.messages import decode, encode
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation

N, U, T = 6, 4, 2
PARAMETERS = LightSecAggParameters(threshold=U, max_colluders=T)
DELTAS = np.random.default_rng(3).uniform(-1, 1, (N, 5))
FRESH = PrivateKey.from_seed(bytes(range(32))).public
STRANGER = 40
VICTIM = 2

Question = tuple[Any, Any]
"""A message to all, and the private message to the victim."""


class Stand:
    """State of an honest round, and the questions that the server may ask next."""

    def __init__(self, small: SmallFederation, state: LightSecAggRound) -> None:
        self.small = small
        self.state = state

    @property
    def listed(self) -> list[LightSecAggAdvertOf]:
        return [LightSecAggAdvertOf(c, one.sealing_key, one.signature) for c, one in self.state.adverts.items()]

    def with_advert(self, of: int, **fields: Any) -> Question:
        return ShareMasks(1, [changed(row, **fields) if row.client == of else row for row in self.listed]), None

    @property
    def pieces(self) -> list[PieceFor]:
        return self.small.protocol.pieces_for_holders(self.state)[VICTIM].pieces

    def with_piece(self, of: int, **fields: Any) -> Question:
        rows = [changed(row, **fields) if row.client == of else row for row in self.pieces]
        return MaskLightSecAggInput(1), PiecesFromPeers(rows)


async def stand_before(stage: str, **keywords: Any) -> Stand:
    """Six clients run honestly until `stage` is next."""
    small = SmallFederation(DELTAS, PARAMETERS, protocol=LightSecAgg, **keywords)
    protocol: Any = small.protocol
    state = protocol.begin(await small.begin())
    if stage != "advertise":
        await protocol.advertise_keys(state)
    if stage in ("mask", "sum"):
        await protocol.share_masks(state)
    if stage == "sum":
        private = protocol.pieces_for_holders(state)
        await small.network.ask(ids(list(state.sealed)), MaskLightSecAggInput(1), private=private)
    return Stand(small, state)


def refused(stage: str, question: Callable[[Stand], Question], **keywords: Any) -> list[str]:
    """The checks with which the victim answers a question before `stage`."""

    async def play() -> list[str]:
        stand = await stand_before(stage, **keywords)
        message, alone = question(stand)
        private = None if alone is None else {VICTIM: alone}
        replies = await stand.small.network.ask(np.array([VICTIM]), message, private=private)
        return [refusal.check for refusal in replies.missing.refusals]

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (AdvertiseLightSecAggKeys(1, N, U - 1, T), "lightsecagg.threshold-mismatch"),
        (AdvertiseLightSecAggKeys(1, N, U, T - 1), "lightsecagg.threshold-mismatch"),
        (AdvertiseLightSecAggKeys(1, U - 1, U, T), "lightsecagg.impossible-threshold"),
        (AdvertiseLightSecAggKeys(1, 1, U, T), "aggregation.single-participant"),
        (AdvertiseLightSecAggKeys(2, N, U, T), "aggregation.no-trained-update"),
    ],
)
def test_what_the_server_announces_is_checked(message: AdvertiseLightSecAggKeys, check: str) -> None:
    assert refused("advertise", lambda stand: (message, None)) == [check]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: (ShareMasks(1, [*s.listed, s.listed[0]]), None), "lightsecagg.duplicate-client"),
        (lambda s: (ShareMasks(1, s.listed[: U - 1]), None), "lightsecagg.wrong-size"),
        (lambda s: (ShareMasks(1, [row for row in s.listed if row.client != VICTIM]), None),
         "lightsecagg.own-key-mismatch"),
        (lambda s: s.with_advert(VICTIM, sealing_key=FRESH), "lightsecagg.own-key-mismatch"),
        (lambda s: s.with_advert(4, sealing_key=s.state.adverts[0].sealing_key), "lightsecagg.duplicate-key"),
        (lambda s: s.with_advert(4, sealing_key=FRESH), "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, signature=bytes(64)), "aggregation.keys-or-model-mismatch"),
        (lambda s: s.with_advert(4, client=STRANGER), "pki.unknown-client"),
        (lambda s: (ShareMasks(2, s.listed), None), "lightsecagg.out-of-order"),
        (lambda s: (AdvertiseLightSecAggKeys(1, N, U, T), None), "lightsecagg.out-of-order"),
        (lambda s: (SumPieces(1, list(range(N))), None), "lightsecagg.out-of-order"),
    ],
)  # fmt: skip
def test_the_list_of_keys_is_checked(question: Callable[[Stand], Question], check: str) -> None:
    assert refused("share", question) == [check]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (
            lambda s: (MaskLightSecAggInput(1), PiecesFromPeers([*s.pieces, s.pieces[0]])),
            "lightsecagg.unexpected-pieces",
        ),
        (lambda s: s.with_piece(4, client=STRANGER), "lightsecagg.unexpected-pieces"),
        (lambda s: s.with_piece(4, client=VICTIM), "lightsecagg.unexpected-pieces"),
        (lambda s: (MaskLightSecAggInput(1), PiecesFromPeers(s.pieces[: U - 2])), "lightsecagg.below-threshold"),
        (lambda s: (ShareMasks(1, s.listed), None), "lightsecagg.out-of-order"),
    ],
)
def test_who_has_shared_is_checked(question: Callable[[Stand], Question], check: str) -> None:
    assert refused("mask", question) == [check]


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        ([0, 1, 2], "lightsecagg.below-threshold"),
        ([0, 1, 2, 2], "lightsecagg.unknown-survivor"),
        ([0, 1, 2, STRANGER], "lightsecagg.unknown-survivor"),
    ],
)
def test_the_survivors_are_checked(survivors: list[int], check: str) -> None:
    assert refused("sum", lambda stand: (SumPieces(1, survivors), None)) == [check]


def test_a_part_of_a_batch_is_refused() -> None:
    batches = Batches(np.repeat(np.arange(3), 2))
    assert refused("sum", lambda stand: (SumPieces(1, [0, 1, 2, 3, 4]), None), batches=batches) == [
        "aggregation.partial-batch"
    ]


def test_a_client_sums_once_whatever_it_is_asked() -> None:
    """The difference of two sums would be an update: neither a second set nor one after a refusal is answered."""

    async def play(first: list[int]) -> list[str]:
        stand = await stand_before("sum")
        network = stand.small.network
        await network.ask(np.array([VICTIM]), SumPieces(1, first))
        replies = await network.ask(np.array([VICTIM]), SumPieces(1, [0, 1, 2, 3, 4]))
        return [refusal.check for refusal in replies.missing.refusals]

    assert asyncio.run(play([0, 1, 2, 3])) == ["lightsecagg.out-of-order"]
    assert asyncio.run(play([0, 1, 2])) == ["lightsecagg.out-of-order"]


def test_a_piece_that_was_sealed_for_another_list_does_not_open() -> None:
    """The victim was shown one client fewer than have sealed pieces for it."""

    async def play() -> list[str]:
        stand = await stand_before("share")
        network, state = stand.small.network, stand.state
        others = np.array([client for client in range(N) if client != VICTIM])
        honest = (await network.ask(others, ShareMasks(1, stand.listed))).valid()
        shown = [row for row in stand.listed if row.client != 5]
        await network.ask(np.array([VICTIM]), ShareMasks(1, shown))
        rows = [
            PieceFor(client, row.sealed)
            for client, answer in honest.items()
            if client != 5
            for row in answer.pieces
            if row.client == VICTIM
        ]
        assert len(state.adverts) == N
        await network.ask(np.array([VICTIM]), MaskLightSecAggInput(1), private={VICTIM: PiecesFromPeers(rows)})
        replies = await network.ask(np.array([VICTIM]), SumPieces(1, [0, 1, 2, 3]))
        return [f"{refusal.check}: {refusal.detail}" for refusal in replies.missing.refusals]

    (said,) = asyncio.run(play())
    assert said.startswith("lightsecagg.invalid-piece: client 0: changed, or sealed with another key")


def test_two_groups_that_are_shown_a_list_each_are_summed_apart() -> None:
    """As the documentation says: U clients that are shown the same list cannot know of others."""

    async def play() -> tuple[list[Any], list[tuple[int, str]]]:
        parameters = LightSecAggParameters(threshold=3, max_colluders=1, weights="equal")
        small = SmallFederation(DELTAS, parameters, protocol=LightSecAgg)
        protocol: Any = small.protocol
        state = protocol.begin(await small.begin())
        await protocol.advertise_keys(state)
        adverts, means = state.adverts, []
        for group in ([0, 1, 2], [3, 4, 5]):
            state.adverts, state.sealed = {client: adverts[client] for client in group}, {}
            await protocol.share_masks(state)
            await protocol.collect_masked_inputs(state)
            total = await protocol.unmasked_sum(state)
            means.append(parameters.quantisation.decode(total, len(group))[0])
        return means, small.refusals()

    means, refusals = asyncio.run(play())
    assert refusals == []
    for mean, group in zip(means, (DELTAS[:3], DELTAS[3:]), strict=True):
        assert np.abs(mean - np.float32(group).mean(0)).max() < 1e-4


def test_pieces_are_kept_as_parts_of_the_message_that_they_came_in() -> None:
    """They are N / (U - T) times a model, for each client: copied twice, most of a round's time went there."""
    message = PiecesFromPeers([PieceFor(client, memoryview(bytes(40))) for client in range(3)])
    data = encode(message)
    decoded = decode(PiecesFromPeers, data)
    assert decoded == message
    assert all(row.sealed.obj is data for row in decoded.pieces)


# -- dishonest clients -------------------------------------------------------------------------------------------------


class KeyOfAnother(LightSecAggClient):
    """Advertises a key that it has not signed."""

    def on_advertise_keys(self, message: AdvertiseLightSecAggKeys) -> LightSecAggKeyAdvert:
        return changed(super().on_advertise_keys(message), sealing_key=FRESH)


class NotForAll(LightSecAggClient):
    """Seals no piece for client 0."""

    def on_share_masks(self, message: ShareMasks) -> PiecesForPeers:
        return PiecesForPeers([row for row in super().on_share_masks(message).pieces if row.client != 0])


class ShortPieces(LightSecAggClient):
    """Seals pieces that are too short."""

    def on_share_masks(self, message: ShareMasks) -> PiecesForPeers:
        return PiecesForPeers([changed(row, sealed=row.sealed[4:]) for row in super().on_share_masks(message).pieces])


class NoElements(LightSecAggClient):
    """Answers with a sum that is not made of elements of the field."""

    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        return SummedPieces(b"\xff" * len(super().on_sum_pieces(message).total))


class TooLong(LightSecAggClient):
    """Sums to one element too many."""

    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        return SummedPieces(super().on_sum_pieces(message).total + bytes(4))


@pytest.mark.parametrize(
    ("kind", "noticed", "survivors"),
    [
        (KeyOfAnother, "advertised key: ", [1, 2, 3, 4, 5]),
        (NotForAll, "shared masks: does not have one piece for every peer", [1, 2, 3, 4, 5]),
        (ShortPieces, "shared masks: does not have one piece for every peer", [1, 2, 3, 4, 5]),
        (NoElements, "summed pieces: ", list(range(N))),
        (TooLong, "summed pieces: ", list(range(N))),
    ],
)
def test_one_client_that_the_server_sees_through_is_left_out(kind: Any, noticed: str, survivors: list[int]) -> None:
    bad = 1 if kind is NotForAll else 0
    roles = [RoleSpec(kind, PARAMETERS, frozenset({bad}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=LightSecAgg, roles=roles)
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [c for c in range(N) if c != bad or len(survivors) == N]
    (event,) = small.misbehaviour()
    assert event[0] == bad
    assert event[1].startswith(noticed)
    expected = np.float32(DELTAS)[aggregate.survivors].mean(0)
    assert np.abs(aggregate.mean - expected).max() < 1e-4


class BadPieces(LightSecAggClient):
    """Seals pieces that do not open."""

    def on_share_masks(self, message: ShareMasks) -> PiecesForPeers:
        rows = super().on_share_masks(message).pieces
        return PiecesForPeers([changed(row, sealed=bytes(len(row.sealed))) for row in rows])


class WrongSum(LightSecAggClient):
    """Sums to something else."""

    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        return SummedPieces(bytes(len(super().on_sum_pieces(message).total)))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(BadPieces, "below-threshold"), (WrongSum, "implausible-sum")],
)
def test_one_client_can_end_the_round_but_not_change_the_model(kind: Any, reason: str) -> None:
    """As the documentation says: the protocol is for clients that follow it."""
    roles = [RoleSpec(kind, PARAMETERS, frozenset({0}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=LightSecAgg, roles=roles)
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert ended.value.reason == reason
