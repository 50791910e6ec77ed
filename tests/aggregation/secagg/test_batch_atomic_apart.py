"""A server that involves more clients than the s it announces, and shows them different lists of keys.

Holders of one member's shares and holders of another's could then be different clients, and the thresholds, which are
about s clients, would say nothing. Shares open only among clients that were shown the same keys.
"""

import asyncio
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.share_recovery import recover
from testbed.batches import Batches
from testbed.errors import ProtocolError
from testbed.messages import Message
from tests.aggregation.federations import SmallFederation

S, T = 12, 3
BATCH, FIRST, SECOND = [0, 1, 2], list(range(3, 12)), list(range(12, 21))
VARIANTS = [
    SecAggParameters(threshold=8),
    SecAggParameters(threshold=8, smallest_sum=3),
    SecAggParameters(threshold=9, consistency="none"),
]


async def attack(parameters: SecAggParameters) -> tuple[Any, set[int], set[int], set[int]]:
    """Client 0 and FIRST see one list, the rest of its batch and SECOND another; FIRST hears that the batch is there.

    Returns the federation, the arrived clients, and the clients with recoverable mask keys and self-mask seeds.
    """
    small = SmallFederation(np.ones((21, 4)), parameters, batches=Batches.consecutive(21, T), minimum=S)
    await small.begin()
    ask, t = small.network.ask, parameters.threshold_for(S)
    lists = {client: sorted(BATCH + (FIRST if client in (0, *FIRST) else SECOND)) for client in range(21)}
    told = {client: lists[client] if client in (0, *FIRST) else SECOND for client in (0, *FIRST, *SECOND)}
    adverts = (await ask(np.arange(21), AdvertiseKeys(1, S, t))).valid()
    rows = {c: AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in adverts.items()}
    sealed = {}
    for client, listed in lists.items():
        answers = (await ask(np.array([client]), ShareKeys(1, [rows[peer] for peer in listed]))).valid()
        sealed[client] = {row.client: row.sealed for row in answers[client].shares}
    private = {
        client: SealedFromPeers([SharesFor(p, sealed[p].get(client, bytes(98))) for p in listed if p != client])
        for client, listed in lists.items()
    }
    arrived = {c for c, a in (await ask(np.arange(21), MaskInput(1), private=private)).valid().items() if len(a.input)}
    signed, revealed = {}, {}
    if parameters.consistency == "signed":
        for client, survivors in told.items():
            answers = (await ask(np.array([client]), CheckSurvivors(1, survivors))).valid()
            signed.update({c: a.signature for c, a in answers.items()})
    for client, survivors in told.items():
        question: Message = Unmask(
            1, [SignatureOf(p, signed[p]) for p in signed if p in survivors and told[p] == survivors]
        )
        if parameters.consistency == "none":
            question = UnmaskSurvivors(1, survivors)
        revealed.update((await ask(np.array([client]), question)).valid())
    rebuilt = []
    for kind in ("mask_keys", "self_masks"):
        shares = {holder: getattr(answer, kind) for holder, answer in revealed.items()}
        rebuilt.append({client for client in range(21) if known(t, client, shares)})
    mask_keys, self_masks = rebuilt
    return small, arrived, mask_keys, self_masks


def known(t: int, client: int, shares: dict[int, Any]) -> bool:
    try:
        return bool(recover(t, [client], shares).secrets)
    except ProtocolError:
        return False


@pytest.mark.parametrize("parameters", VARIANTS, ids=["signed", "smallest-sum", "unsigned"])
def test_a_batch_that_is_shown_different_lists_sends_nothing(parameters: SecAggParameters) -> None:
    small, arrived, mask_keys, seeds = asyncio.run(attack(parameters))
    assert [(client, "secagg.inconsistent-batch-keys") in small.refusals() for client in BATCH] == [True] * 3
    assert not arrived & set(BATCH)
    assert not mask_keys & seeds


@pytest.mark.parametrize("parameters", VARIANTS, ids=["signed", "smallest-sum", "unsigned"])
def test_without_the_check_the_batch_is_broken(parameters: SecAggParameters, monkeypatch: pytest.MonkeyPatch) -> None:
    """One member's seed and the others' mask keys: the sum of FIRST and of that one member is had."""
    monkeypatch.setattr(SecAggClient, "common_digest", lambda self: b"")
    monkeypatch.setattr(SecAggClient, "check_batch_peers", lambda self, batch: None)
    small, arrived, mask_keys, seeds = asyncio.run(attack(parameters))
    assert small.refusals() == []
    assert {0, *FIRST} <= arrived
    assert {1, 2} <= mask_keys
    assert {0, *FIRST} <= seeds


def test_a_list_that_is_too_long_is_refused() -> None:
    small = SmallFederation(np.ones((21, 4)), SecAggParameters(threshold=0.7), batches=Batches.consecutive(21, T))
    small.environment.maximum_participants = S
    with pytest.raises(ProtocolError):
        small.run()
    assert {name for _, name in small.refusals()} == {"aggregation.too-many-participants"}
