"""Shares that contradict each other: the dealer is found out, holders that lie are, and nobody honest is left out."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from testbed.aggregation.kit.message_parts import ShareOf
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    MASK_KEY,
    SELF_MASK,
    ProveShare,
    RevealedShares,
    ShareKey,
    SharesFor,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.crypto import shamir
from testbed.errors import RoundAborted
from testbed.network.contract import EXCLUDED
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import SmallFederation

N, T, D = 10, 6, 5
DELTAS = np.random.default_rng(2).uniform(-1, 1, (N, D)).astype(np.float32)
VICTIM = 4


class DealsInconsistently(SecAggClient):
    """Numbers that lie on no polynomial of degree t - 1, instead of shares of one of its secrets."""

    of = "the self-mask seed"

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        secret = secrets[self.of]
        numbers = [b"\0" + hashlib.sha256(secret + bytes([point])).digest() for point in points]
        return super().deal(secrets, points) | {self.of: numbers}


class DealsNoMaskKey(DealsInconsistently):
    of = "the mask key"


class DealsAnotherKey(SecAggClient):
    """Consistent shares, of a mask key that it has not advertised."""

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        return super().deal({**secrets, "the mask key": bytes(32)}, points)


class DealsNoShares(DealsInconsistently):
    """Numbers beyond the prime, to more holders than may drop out: no reconstruction takes them."""

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        dealt = super(DealsInconsistently, self).deal(secrets, points)
        return dealt | {self.of: [*dealt[self.of][: T - 2], *[b"\xff" * 33] * (len(points) - T + 2)]}


class DealsNoSharesOfItsMaskKey(DealsNoShares):
    of = "the mask key"


class SealsNothing(SecAggClient):
    """Seals shares that do not open."""

    def share_among(self, holders: list[int]) -> list[SharesFor]:
        return [SharesFor(row.client, bytes(len(row.sealed))) for row in super().share_among(holders)]


class DealsWrongToTwo(SecAggClient):
    """So few wrong ones that the secret can be had all the same."""

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        dealt = super().deal(secrets, points)
        return {name: [bytes(33), bytes(33), *shares[2:]] for name, shares in dealt.items()}


class Frames(SecAggClient):
    """Changes its share of one honest client, and opens it with the true key, or with one that it has made up."""

    made_up = False
    wrong: bytes | None = None

    @handles(Unmask)
    def on_unmask(self, message: Unmask) -> RevealedShares:
        honest = super().on_unmask(message)

        def changed(rows: list[ShareOf]) -> list[ShareOf]:
            wrong = self.wrong or b"\0" + hashlib.sha256(bytes([self.client.number])).digest()
            return [ShareOf(row.client, wrong) if row.client == VICTIM else row for row in rows]

        return msgspec.structs.replace(
            honest, mask_keys=changed(honest.mask_keys), self_masks=changed(honest.self_masks)
        )

    @handles(ProveShare)
    def on_prove_share(self, message: ProveShare) -> ShareKey:
        true = super().on_prove_share(message)
        return ShareKey(bytes(32)) if self.made_up else true


class FramesWithNoShare(Frames):
    """Claims that it was dealt a share that is too large."""

    wrong = b"\xff" * 33


class FramesWithAnotherKey(Frames):
    made_up = True


class FramesAndSaysNothing(Frames):
    @handles(ProveShare)
    def on_prove_share(self, message: ProveShare) -> Any:
        return None


def played(role: type[SecAggClient], only: set[int], **options: Any) -> tuple[Any, Any, list[int]]:
    """Return the federation, its mean (or the reason why there is none) and the clients left out from then on."""
    parameters = SecAggParameters(threshold=T, bits=32, weights="equal")
    small = SmallFederation(DELTAS, parameters, roles=[RoleSpec(role, parameters, frozenset(only))], **options)

    async def play() -> tuple[Any, list[int]]:
        start = await small.begin()
        try:
            outcome: Any = await small.protocol.aggregate(start)
        except RoundAborted as ended:
            outcome = f"{ended.reason}: {ended.detail}"
        small.network.end_round()
        return outcome, start.memory.get(EXCLUDED, np.zeros(0, np.int64)).tolist()

    return small, *asyncio.run(play())


def is_mean(outcome: Any, of: Sequence[int]) -> bool:
    return bool(np.allclose(outcome.mean, DELTAS[list(of)].mean(axis=0), atol=1e-4))


@pytest.mark.parametrize(
    ("role", "leaves", "why"),
    [
        (DealsInconsistently, False, "dealt shares that belong to no secret, as 10 holders prove"),
        (DealsNoMaskKey, True, "dealt shares that belong to no secret, as 9 holders prove"),
        (DealsAnotherKey, True, "dealt shares of another key than its own, as 9 holders prove"),
        (DealsNoShares, False, "dealt what is no share, as 6 holders prove"),
        (DealsNoSharesOfItsMaskKey, True, "dealt what is no share, as 5 holders prove"),
    ],
)
def test_a_dealer_of_no_secret_ends_one_round_and_is_left_out(role: type[SecAggClient], leaves: bool, why: str) -> None:
    small, outcome, excluded = played(role, {VICTIM}, leaving={"secagg/masked-input": {VICTIM}} if leaves else {})
    assert outcome == f"wrong-shares: client {VICTIM} {why}, and is left out from now on"
    assert excluded == [VICTIM]
    assert (VICTIM, f"share keys: {why}") in small.misbehaviour()
    assert {client for client, _ in small.misbehaviour()} == {VICTIM}


def test_what_does_not_open_proves_nothing() -> None:
    """Nobody can tell such a dealer from holders that say nothing: the round ends, and it is not left out."""
    _, outcome, excluded = played(SealsNothing, {VICTIM})
    assert outcome == f"below-threshold: 1 of {T} needed shares for client {VICTIM}"
    assert excluded == []


@pytest.mark.parametrize("role", [DealsNoMaskKey, DealsAnotherKey])
def test_shares_that_nobody_needs_are_not_looked_at(role: type[SecAggClient]) -> None:
    _, outcome, excluded = played(role, {VICTIM})
    assert is_mean(outcome, range(N))
    assert excluded == []


def test_a_few_wrong_ones_are_corrected_and_nobody_is_asked() -> None:
    small, outcome, excluded = played(DealsWrongToTwo, {VICTIM})
    assert is_mean(outcome, range(N))
    assert excluded == []
    assert "secagg/prove-share" not in {stage.stage for stage in small.network.exchanges}


@pytest.mark.parametrize("role", [Frames, FramesWithAnotherKey, FramesAndSaysNothing])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("liars", [{7, 8, 9}, {0, 7, 8, 9}])
def test_holders_that_lie_can_frame_nobody(liars: set[int], leaves: bool, role: type[SecAggClient]) -> None:
    """Two wrong shares of ten could be corrected; with more, those that are proven decide."""
    here = [client for client in range(N) if client != VICTIM] if leaves else list(range(N))
    small, outcome, excluded = played(role, liars, leaving={"secagg/masked-input": {VICTIM}} if leaves else {})
    assert excluded == []
    caught = set() if role is FramesAndSaysNothing else liars
    assert {client for client, _ in small.misbehaviour()} == caught
    if len(here) - len(liars) >= T:
        assert is_mean(outcome, here)
    else:
        assert outcome.startswith("below-threshold: 5 of 6 needed shares for client 4")


@pytest.mark.parametrize("role", [FramesWithAnotherKey, FramesWithNoShare])
@pytest.mark.parametrize("liars", [{5, 6, 7, 8, 9}, {0, 1, 2, 3, 5, 6, 7, 8, 9}])
def test_not_even_all_others_together(liars: set[int], role: type[SecAggClient]) -> None:
    _, outcome, excluded = played(role, liars)
    assert isinstance(outcome, str)
    assert excluded == []


# -- a malicious server asks for proofs ----------------------------------------------------------------------------


async def asked(small: Any, question: ProveShare, who: int = 2) -> Any:
    replies = await small.network.ask(np.array([who]), question)
    return replies.valid().get(who) or [refusal.check for refusal in replies.missing.refusals]


@pytest.mark.parametrize("unsigned", [False, True])
def test_only_what_was_revealed_is_opened(unsigned: bool) -> None:
    threshold = 7 if unsigned else T
    parameters = SecAggParameters(threshold=threshold, consistency="none" if unsigned else "signed", bits=32)
    small = SmallFederation(DELTAS, parameters, leaving={"secagg/masked-input": {9}})

    async def play() -> None:
        start = await small.begin()
        assert await asked(small, ProveShare(1, 3, SELF_MASK)) == ["secagg.out-of-order"]
        await small.protocol.aggregate(start)
        for question in (
            ProveShare(1, 3, MASK_KEY),  # the other kind
            ProveShare(1, 9, SELF_MASK),
            ProveShare(1, 2, SELF_MASK),  # its own
            ProveShare(1, 77, SELF_MASK),
        ):
            assert await asked(small, question) == ["secagg.not-revealed"]
        assert await asked(small, ProveShare(2, 3, SELF_MASK)) == ["secagg.out-of-order"]
        for question in (ProveShare(1, 3, SELF_MASK), ProveShare(1, 9, MASK_KEY)):
            assert isinstance(await asked(small, question), ShareKey)
        for late in (Unmask(1, []), UnmaskSurvivors(1, list(range(9)))):
            assert await asked(small, late) == ["secagg.out-of-order"]

    asyncio.run(play())


def test_a_key_opens_one_kind_of_share_of_one_dealer_for_one_holder() -> None:
    from testbed.aggregation.secagg.messages import open_share, open_shares, seal_shares, sealed_bytes, share_key
    from testbed.crypto import OpeningFailed

    pair, shares = bytes(range(32)), bytes(range(33)) + bytes(33) + bytes([7]) * 99
    sealed = seal_shares(pair, 1, 2, shares, b"round")
    assert len(sealed) == sealed_bytes(5)
    assert open_shares(pair, 1, 2, sealed, b"round") == shares
    assert open_share(share_key(pair, 1, 2, SELF_MASK), sealed, SELF_MASK, b"round") == bytes(33)
    keys = {share_key(pair, *of) for of in ((1, 2, 0), (1, 2, 1), (1, 2, 2), (2, 1, 0), (1, 3, 0))}
    assert len(keys) == 5
    for wrong in keys - {share_key(pair, 1, 2, 0)}:
        with pytest.raises(OpeningFailed):
            open_share(wrong, sealed, MASK_KEY, b"round")
    for place in (0, 48, 49, 97, 98, len(sealed) - 1):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(OpeningFailed):
            open_shares(pair, 1, 2, bytes(changed), b"round")
    assert len(seal_shares(pair, 1, 2, bytes(66), b"")) == sealed_bytes(2) == 98
    assert shamir.SHARE_BYTES == 33
    assert SecAgg.stages[-1] == "secagg/unmask"  # the ledger charges from there on
