"""Secure aggregation: Bonawitz, Ivanov, Kreuter, et al., Practical Secure Aggregation for Privacy-Preserving Machine
Learning, CCS 2017 (IACR ePrint 2017/281), Figure 4, the variant against malicious adversaries.

Client i sends y_i = x_i - sum_{j<i} PRG(s_ij) + sum_{j>i} PRG(s_ij) + PRG(b_i) modulo 2**bits. In the sum over all
clients the pairwise masks cancel. Both its mask key and the seed b_i are secret-shared t-of-s among its peers, so
that the server can remove what does not cancel: for a client that dropped out, with its mask key; for a survivor,
with its b_i. Nobody releases both for one peer, and clients unmask only a set of survivors that t of them have signed.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.aggregation.combining import Aggregate, AggregationParameters, AggregationRound, Ids
from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.secagg_client import MASK_PURPOSE, SecAggClient, point_of
from testbed.aggregation.secagg_messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    SignatureOf,
    Unmask,
)
from testbed.cost import charge, charge_parallel, thread_cpu_s
from testbed.crypto import shamir
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.masks import add_masks
from testbed.errors import ProtocolError, RoundAborted
from testbed.network import Replies
from testbed.parties.client import RoleSpec
from testbed.parties.summing import reduced


class SecAggParameters(AggregationParameters):
    """Sums that hide every single update."""

    protocol: Literal["secagg"] = "secagg"
    threshold: float | int = Field(
        0.7,
        gt=0,
        description="Clients that must remain: a number t, or a fraction of the participants; above half (Lotto: 0.7)",
    )
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    levels_bits: int = Field(16, ge=1, le=24, description="Bits per coordinate of an update before summing")
    clip: float = Field(1.0, gt=0, description="Largest absolute value of a coordinate of an update")

    @property
    def quantisation(self) -> Quantisation:
        """How updates become ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    def threshold_for(self, participants: int) -> int:
        """t for so many participants; a fraction is rounded up."""
        if isinstance(self.threshold, int):
            return self.threshold
        return ceil(Fraction(str(self.threshold)) * participants)

    def check(self, participants: int) -> None:
        """t must be above s/2 and at most s."""
        t = self.threshold_for(participants)
        if participants < 2:
            raise ValueError("protocol: secagg needs at least 2 participants; the sum of one hides nothing")
        if not participants < 2 * t <= 2 * participants:
            raise ValueError(
                f"threshold: t = {t} of {participants} participants; allowed {participants // 2 + 1} to {participants}"
                f" (or a fraction above 0.5)"
            )

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """The weighted sum must fit the ring."""
        self.quantisation.check(participants, maximum_weight if self.weights == "samples" else 1)


class SecAgg:
    """Server side; `aggregate` follows the paper's rounds 0 to 4."""

    needs_registration: ClassVar[bool] = True
    stages: ClassVar[tuple[str, ...]] = (
        "secagg/advertise-keys",
        "secagg/share-keys",
        "secagg/masked-input",
        "secagg/consistency",
        "secagg/unmask",
    )

    def __init__(self, parameters: SecAggParameters) -> None:
        self.parameters = parameters

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(SecAggClient, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """See `AggregationProtocol.aggregate`. The sum over the survivors, or `RoundAborted` below t of them."""
        network, number = round_.network, round_.number
        participants = len(round_.participants)
        t = self.parameters.threshold_for(participants)

        replies = await network.ask(round_.trained, AdvertiseKeys(number, participants, t))
        adverts: dict[int, KeyAdvert] = self._at_least(t, replies, "advertised keys")

        listed = [AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in adverts.items()]
        charge("message", len(listed))
        replies = await network.ask(_ids(adverts), ShareKeys(number, listed))
        shared = self._at_least(t, replies, "shared their keys")

        inboxes: dict[int, list[SharesFor]] = {client: [] for client in shared}
        for sender, bundle in shared.items():
            for row in bundle.shares:
                if row.client in inboxes and row.client != sender:
                    inboxes[row.client].append(SharesFor(sender, row.sealed))
        charge("message", sum(len(inbox) for inbox in inboxes.values()))
        private = {client: SealedFromPeers(inbox) for client, inbox in inboxes.items()}
        masked = await network.ask(_ids(shared), MaskInput(number), private=private)
        survivors = _ids(self._at_least(t, masked, "sent their input"))

        replies = await network.ask(survivors, CheckSurvivors(number, survivors.tolist()))
        signed = self._at_least(t, replies, "signed the survivors")

        signatures = [SignatureOf(client, answer.signature) for client, answer in signed.items()]
        replies = await network.ask(_ids(signed), Unmask(number, signatures))
        revealed = self._at_least(t, replies, "revealed their shares")

        total = await masked.total(survivors)
        self.unmask(total, t, adverts, _ids(shared), survivors, revealed)
        mean, weight = self.parameters.quantisation.decode(total)
        return Aggregate(mean, weight, survivors)

    def _at_least(self, t: int, replies: Replies, what: str) -> dict[int, Any]:
        """The valid answers; fewer than t of them end the round."""
        answers = replies.valid()
        if len(answers) < t:
            refusals = sorted({refusal.check for refusal in replies.missing.refusals})
            because = f"; refusals: {', '.join(refusals)}" if refusals else ""
            raise RoundAborted("below-threshold", f"{len(answers)} of {t} needed {what}{because}")
        return answers

    def unmask(
        self,
        total: npt.NDArray[Any],
        t: int,
        adverts: dict[int, KeyAdvert],
        shared: Ids,
        survivors: Ids,
        revealed: dict[int, Any],
    ) -> None:
        """Remove from `total` (in place) every mask that has not cancelled.

        Args:
            total: `(d,)` sum of the survivors' masked inputs.
            t: the secret-sharing threshold.
            adverts: everybody's keys.
            shared: who has shared (their pairwise masks are in the inputs).
            survivors: whose input is in the sum.
            revealed: the answers to `Unmask`, by client.
        """
        gone = np.setdiff1d(shared, survivors)
        mask_keys = reconstruct(t, gone, {c: answer.mask_keys for c, answer in revealed.items()})
        self_masks = reconstruct(t, survivors, {c: answer.self_masks for c, answer in revealed.items()})
        seeds = list(self_masks.values())
        signs = [-1] * len(seeds)
        for client, secret in mask_keys.items():
            key = PrivateKey.from_seed(secret)
            if key.public != adverts[client].mask_key:
                raise RoundAborted("wrong-shares", f"the shares of client {client} give another key than its own")
            for survivor in survivors.tolist():
                seeds.append(key.agree(adverts[survivor].mask_key, MASK_PURPOSE))
                signs.append(-1 if client > survivor else 1)
        charge("x25519.agree", len(gone) * len(survivors))
        charge("mask.element", len(total) * len(seeds))
        add_masks_in_threads(total, seeds, signs, self.parameters.bits)


def reconstruct(t: int, clients: Ids, revealed: dict[int, list[Any]]) -> dict[int, bytes]:
    """The shared secret of each of `clients`, from the rows that each revealing client has sent.

    Raises `RoundAborted` when fewer than t shares of a secret are there, or they do not fit together.
    """
    shares: dict[int, dict[int, bytes]] = {client: {} for client in clients.tolist()}
    for holder, rows in revealed.items():
        for row in rows:
            if row.client in shares:
                shares[row.client][holder] = row.share
    weights: dict[tuple[int, ...], shamir.LagrangeWeights] = {}  # most secrets come from the same t holders
    secrets = {}
    charge("shamir.reconstruct.term", t * len(shares))
    for client, held in shares.items():
        holders = tuple(sorted(held)[:t])
        if len(holders) < t:
            raise RoundAborted("below-threshold", f"{len(holders)} of {t} needed shares for client {client}")
        if holders not in weights:
            weights[holders] = shamir.LagrangeWeights([point_of(holder) for holder in holders])
        try:
            secrets[client] = weights[holders].reconstruct([held[holder] for holder in holders])
        except ProtocolError as error:
            raise RoundAborted("wrong-shares", f"client {client}: {error}") from None
    return secrets


def add_masks_in_threads(total: npt.NDArray[Any], seeds: list[bytes], signs: list[int], bits: int) -> None:
    """`add_masks` with the seeds spread over the machine's cores; `(d,)` `total` changes in place."""
    workers = min(os.cpu_count() or 1, max(1, len(seeds) // 8))
    if workers == 1:
        add_masks(total, seeds, signs, bits)
        return

    def add(worker: int) -> tuple[npt.NDArray[Any], float]:
        began = thread_cpu_s()
        part = np.zeros_like(total)
        add_masks(part, seeds[worker::workers], signs[worker::workers], bits)
        return part, thread_cpu_s() - began

    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(add, range(workers)))
    for part, _ in parts:
        np.add(total, part, out=total)
    reduced(total, bits)
    charge_parallel(max(cpu_s for _, cpu_s in parts))


def _ids(answers: dict[int, Any]) -> Ids:
    return np.fromiter(answers, np.int64, len(answers))
