"""Stages out of order, and the value of the checks: no client reveals both shares of a peer."""

import asyncio
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    CheckSurvivors,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    Unmask,
)
from tests.aggregation.federations import refused_by_the_victim, sets_of, stand_before

N = 6
T = 4

# -- order ----------------------------------------------------------------------------------------------------------


def questions(stand: Any) -> list[tuple[Any, Any]]:
    """The five questions as an honest server would ask client 2, as far as they exist."""
    asked: list[tuple[Any, Any]] = [(AdvertiseKeys(1, N, T), None)]
    asked.append((ShareKeys(1, stand.listed), None))
    asked.append((MaskInput(1), SealedFromPeers(stand.sealed_for(2))))
    asked.append((CheckSurvivors(1, list(range(N))), None))
    asked.append((Unmask(1, stand.signatures), None))
    return asked


@pytest.mark.parametrize("position", range(5))
def test_every_stage_comes_in_its_order(position: int) -> None:
    stages = ["advertise", "share", "mask", "check", "unmask"]

    async def play() -> Any:
        stand = await stand_before(stages[position])
        asked = questions(stand)
        early = [await stand.ask(*asked[later]) for later in range(5) if later != position]
        in_order = await stand.ask(*asked[position])
        again = await stand.ask(*asked[position])
        return early, in_order, again

    early, in_order, again = asyncio.run(play())
    assert early == [[(2, "secagg.out-of-order")]] * 4
    assert in_order == []
    assert again == [(2, "secagg.out-of-order")]


@pytest.mark.parametrize("position", range(1, 5))
def test_a_stage_of_another_round_is_out_of_order(position: int) -> None:
    async def play() -> Any:
        stand = await stand_before(["advertise", "share", "mask", "check", "unmask"][position])
        message, private = questions(stand)[position]
        return await stand.ask(changed(message, round=2), private)

    assert asyncio.run(play()) == [(2, "secagg.out-of-order")]


@pytest.mark.parametrize("position", range(5))
def test_after_a_refusal_nothing_more_is_answered(position: int) -> None:
    bad = [
        lambda s: (AdvertiseKeys(1, 1, T), None),
        lambda s: (ShareKeys(1, []), None),
        lambda s: (MaskInput(1), SealedFromPeers([])),
        lambda s: (CheckSurvivors(1, []), None),
        lambda s: (Unmask(1, []), None),
    ]

    async def play() -> Any:
        stand = await stand_before(["advertise", "share", "mask", "check", "unmask"][position])
        first = await stand.ask(*bad[position](stand))
        return first, [await stand.ask(*asked) for asked in questions(stand)]

    first, rest = asyncio.run(play())
    assert first[0][1] != "secagg.out-of-order"
    assert rest == [[(2, "secagg.out-of-order")]] * 5


def test_no_client_ever_reveals_both_shares_of_a_peer() -> None:
    """Over everything that a client answers to a server that asks on, for other sets, in the same round."""

    async def play() -> Any:
        stand = await stand_before("check", leaving={"secagg/masked-input": {5}})
        await stand.small.protocol.check_consistency(stand.state)
        revealed = []
        for _ in range(2):
            for survivors in ([0, 1, 2, 3, 4], [1, 2, 3, 4]):
                await stand.small.network.ask(sets_of(1, 2, 3, 4), CheckSurvivors(1, survivors))
                replies = await stand.small.network.ask(sets_of(1, 2, 3, 4), Unmask(1, stand.signatures))
                revealed += list(replies.valid().items())
        return revealed

    revealed = asyncio.run(play())
    assert sorted(client for client, _ in revealed) == [1, 2, 3, 4]
    for _, shares in revealed:
        assert {row.client for row in shares.mask_keys} == {5}
        assert {row.client for row in shares.self_masks} == {0, 1, 2, 3, 4}


# -- the value of the checks -----------------------------------------------------------------------------------------


def _both_kinds_of_shares(colluders: int) -> tuple[int, int]:
    """Return the shares of client 0's self-mask and mask key that a server gets with these colluders, of N = 6."""

    async def play() -> tuple[int, int]:
        stand = await stand_before("check")
        small, network = stand.small, stand.small.network
        bad = list(range(N - colluders, N))
        honest = list(range(N - colluders))
        halves = [honest[: (len(honest) + 1) // 2], honest[(len(honest) + 1) // 2 :]]
        found = []
        for half, survivors in zip(halves, ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5]), strict=True):
            told = np.array(half, np.int64)
            signed = {c: a.signature for c, a in (await network.ask(told, CheckSurvivors(1, survivors))).items()}
            for client in bad:  # a colluder signs both sets
                role = small.client(client).role(SecAggClient, small.parameters)
                role.progress.state = "masked"
                signed[client] = role.on_check_survivors(CheckSurvivors(1, survivors)).signature
            rows = [SignatureOf(c, s) for c, s in sorted(signed.items())]
            revealed = (await network.ask(told, Unmask(1, rows))).valid()
            kind = "self_masks" if 0 in survivors else "mask_keys"
            of_victim = sum(row.client == 0 for shares in revealed.values() for row in getattr(shares, kind))
            found.append(of_victim + len(bad))
        return found[0], found[1]

    return asyncio.run(play())


def test_it_takes_2t_minus_s_colluders_to_have_both_shares_of_a_client() -> None:
    """Lotto, Corollary 1: secagg holds against fewer than 2t - s dishonest participants, and no check can do more."""
    assert 2 * T - N == 2
    assert min(_both_kinds_of_shares(colluders=2)) >= T
    assert min(_both_kinds_of_shares(colluders=1)) < T


@pytest.mark.parametrize(("minimum", "checks"), [(N, []), (N + 1, ["aggregation.too-few-participants"])])
def test_fewer_participants_than_an_honest_server_takes_are_refused(minimum: int, checks: list[str]) -> None:
    assert refused_by_the_victim("advertise", lambda stand: (AdvertiseKeys(1, N, T),), minimum=minimum) == checks
