"""Secure aggregation: Bonawitz, Ivanov, Kreuter, et al., Practical Secure Aggregation for Privacy-Preserving Machine
Learning, CCS 2017 (IACR ePrint 2017/281), Figure 4, the variant against malicious adversaries.

Client i sends y_i = x_i - sum_{j<i} PRG(s_ij) + sum_{j>i} PRG(s_ij) + PRG(b_i) modulo 2**bits. In the sum over all
clients the pairwise masks cancel. Both its mask key and the seed b_i are secret-shared t-of-s among its peers, so
that the server can remove what does not cancel: for a client that dropped out, with its mask key; for a survivor,
with its b_i. Nobody releases both for one peer, and clients unmask only a set of survivors that t of them have signed.

Without that signed set (``consistency: none``, the paper's variant against a server that follows the protocol) every
client believes what it alone is told of the survivors.

Clients sign with their keys what they were asked to train, and mask with those alone that were asked the same
(``model_binding: signed``). Else a server sends all but one a model whose update it knows, and no sum hides that one:
Pasquini, Francati, Ateniese, CCS 2022 (`testbed.adversary.model_inconsistency`). One model for all may still be a bad
one.

Where selection has batches, only whole batches are summed: `testbed.aggregation.secagg.batches`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound, of_shape
from testbed.aggregation.secagg.batches import NOBODY, WholeBatches
from testbed.aggregation.secagg.client import MASK_PURPOSE, SecAggClient
from testbed.aggregation.secagg.dealt_shares import MASK_KEY, SELF_MASK, sealed_bytes
from testbed.aggregation.secagg.mask_threads import add_masks_in_threads
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    Shares,
    SharesFor,
    SignatureOf,
    Unmask,
    UnmaskSurvivors,
    advert_content,
    adverts_digest,
    survivors_content,
)
from testbed.aggregation.secagg.noise_removal import UnmaskAndRemove, remove_noise, shares_each
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.share_correction import recover
from testbed.aggregation.secagg.share_disputes import UndecidedShares, settled
from testbed.arrays import Ids
from testbed.crypto import signatures
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import Message
from testbed.network import Replies
from testbed.parties.client import RoleSpec
from testbed.training.client import training_digest

_PROBE = PrivateKey.from_seed(bytes(32))  # shows which public keys are of small order


class SecAgg(WholeBatches, AggregationProtocol):
    """Server side; `aggregate` follows the paper's rounds 0 to 4."""

    needs_registration = True
    _training: bytes  # the digest of what they were asked to train; empty with model_binding: none
    _digest: bytes  # what the clients of this round have in common
    stages = SecAggParameters.stages

    def __init__(self, parameters: SecAggParameters) -> None:
        super().__init__(parameters)
        self.stages = parameters.stages_of_round()

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(SecAggClient, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """See `AggregationProtocol.aggregate`. The sum over the survivors, or `RoundAborted` below t of them.

        A malicious server overrides some of the five steps.
        """
        t = self.threshold(round_)
        self.whole(round_, t, round_.trained, "trained")
        adverts = await self.advertise_keys(round_, t)
        self.whole(round_, t, _ids(adverts), "advertised keys")
        bundles = await self.share_keys(round_, t, adverts)
        self.whole(round_, t, _ids(bundles), "shared their keys")
        masked, arrived = await self.collect_inputs(round_, t, bundles)
        survivors = self.included(round_, t, _ids(bundles), arrived)
        excluded = self.left_out(round_, masked, _ids(bundles), arrived, survivors)
        revealed = await self.collect_reveals(round_, t, survivors, excluded)
        total = await masked.total(survivors)
        revealed = await self.unmasked(round_, total, t, adverts, bundles, survivors, revealed)
        remove_noise(self.parameters.noise, round_, total, self.parameters.bits, t, survivors, revealed)
        mean, weight = self.parameters.mean(total, len(survivors), round_)
        if self.parameters.weights == "equal" and weight != len(survivors):
            raise RoundAborted("implausible-sum", f"{len(survivors)} equal weights sum to {weight}")
        return Aggregate(mean, weight, survivors, self.parameters.noise_in(len(survivors), len(round_.participants)))

    def threshold(self, round_: AggregationRound) -> int:
        """t of this round; raises `RoundAborted` where clients would refuse it anyway."""
        participants = len(round_.participants)
        t = self.parameters.threshold_for(participants)
        if participants < max(2, t):
            raise RoundAborted("below-threshold", f"{participants} of {max(2, t)} needed participants")
        if t < self.parameters.least_threshold(participants):
            above = "half" if self.parameters.consistency == "signed" else "two thirds"
            raise RoundAborted(
                "threshold-too-low", f"t = {t} of {participants} participants, which must exceed {above}"
            )
        return t

    # -- what another graph than the complete one changes -----------------------------------------------------------

    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """Those of `among` with whom a client shares its secrets and agrees on masks: all but itself."""
        return [peer for peer in among if peer != client]

    def advert_content(self, round_: AggregationRound, client: int, advert: KeyAdvert) -> bytes:
        """What a client signs with its keys."""
        return advert_content(round_.number, client, advert.sealing_key, advert.mask_key, self._training)

    def digest_of_training(self, round_: AggregationRound) -> bytes:
        """What clients sign of what they were asked to train."""
        if self.parameters.model_binding == "none":
            detail = "clients do not sign the model that they were sent; a malicious server may send each another one"
            round_.network.record_event("server", "weak-binding", detail)
            return b""
        if round_.training is not None:
            return training_digest(round_.training, anew=True)
        if round_.experiment_id is not None:
            raise RoundAborted("no-training", "the server that verifies signatures must know what it asked to train")
        return b""

    # -- round 0 --------------------------------------------------------------------------------------------------

    async def advertise_keys(self, round_: AggregationRound, t: int) -> dict[int, KeyAdvert]:
        """Who takes part (the paper's U1), with their public keys."""
        self._training = self.digest_of_training(round_)
        question = AdvertiseKeys(round_.number, len(round_.participants), t)
        replies = await round_.network.ask(round_.trained, question)
        return self._at_least(t, self._usable(replies.valid(), round_), replies, "advertised keys")

    def _usable(self, adverts: dict[int, KeyAdvert], round_: AggregationRound) -> dict[int, KeyAdvert]:
        """Without the adverts that peers would refuse: one client must not be able to end everybody's round."""
        usable: dict[int, KeyAdvert] = {}
        seen: set[bytes] = set()
        for client, advert in adverts.items():
            keys = {advert.sealing_key, advert.mask_key}
            content = self.advert_content(round_, client, advert)
            try:
                if len(keys) < 2 or keys & seen:
                    raise ProtocolError("a key that is used twice")
                for key in keys:
                    _PROBE.exchange(key)
                _verify(round_, client, KEYS_DOMAIN, content, advert.signature)
            except ProtocolError as error:
                round_.network.record_event(f"client:{client}", "misbehaviour", f"advertised keys: {error}")
                continue
            seen |= keys
            usable[client] = advert
        meter("x25519.agree", 2 * len(adverts))
        return usable

    # -- round 1 --------------------------------------------------------------------------------------------------

    async def share_keys(
        self, round_: AggregationRound, t: int, adverts: dict[int, KeyAdvert]
    ) -> dict[int, dict[int, bytes]]:
        """What each client (U2) has sealed for each of the others; who leaves somebody out has not shared."""
        listed = [AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in adverts.items()]
        self._digest = adverts_digest(round_.number, len(round_.participants), t, self._training, listed)
        meter("message", len(listed))
        replies = await round_.network.ask(_ids(adverts), ShareKeys(round_.number, listed))
        return self._at_least(t, self._whole(replies, adverts, round_), replies, "shared their keys")

    def _whole(
        self, replies: Replies, adverts: dict[int, KeyAdvert], round_: AggregationRound
    ) -> dict[int, dict[int, bytes]]:
        """What those have sealed who leave nobody out, nor anything."""
        bundles = {}
        size = sealed_bytes(shares_each(self.parameters.noise, len(round_.participants)))
        for client, answer in replies.valid().items():
            bundle = {row.client: row.sealed for row in answer.shares if len(row.sealed) == size}
            if len(bundle) == len(answer.shares) and bundle.keys() == set(self.peers(client, adverts)):
                bundles[client] = bundle
            else:
                round_.network.record_event(f"client:{client}", "misbehaviour", "shared keys: not with every peer")
        return bundles

    # -- round 2 --------------------------------------------------------------------------------------------------

    async def collect_inputs(
        self, round_: AggregationRound, t: int, bundles: dict[int, dict[int, bytes]]
    ) -> tuple[Replies, Ids]:
        """The masked inputs, and whose they are (U3); where batches are kept whole, some are asked but send none."""
        private = {
            client: SealedFromPeers([SharesFor(peer, bundles[peer][client]) for peer in peers])
            for client, peers in self.peers_that_shared(bundles).items()
        }
        meter("message", sum(len(part.shares) for part in private.values()))
        replies = await round_.network.ask(_ids(bundles), self.mask_input(round_.number), private=private)
        standing_by = set(self.standing_by(round_, _ids(bundles)).tolist())
        answers = replies.valid()
        inputs = {client: answer.input for client, answer in answers.items() if client not in standing_by}
        length = None if round_.dimension is None else self.parameters.elements(round_.dimension)
        survivors = of_shape(inputs, self.parameters.bits, length)
        for client in np.setdiff1d(_ids(inputs), survivors).tolist():
            round_.network.record_event(f"client:{client}", "misbehaviour", f"masked input: {inputs[client]}")
        there = [*survivors.tolist(), *(standing_by & answers.keys())]
        self._at_least(t, dict.fromkeys(there), replies, "sent their input")
        return replies, survivors

    def mask_input(self, round_number: int) -> Message:
        """The question for the masked inputs."""
        return MaskInput(round_number)

    def peers_that_shared(self, bundles: Mapping[int, Any]) -> dict[int, list[int]]:
        """Who each client is told has shared: all its peers that have."""
        return {client: self.peers(client, bundles) for client in bundles}

    # -- rounds 3 and 4 -----------------------------------------------------------------------------------------------

    async def collect_reveals(
        self, round_: AggregationRound, t: int, survivors: Ids, excluded: Ids = NOBODY
    ) -> dict[int, Shares]:
        """What each client reveals once it knows the survivors, signed or (``consistency: none``) not."""
        if self.parameters.consistency == "signed":
            signed = await self.check_consistency(round_, t, survivors, excluded)
            return await self.collect_shares(round_, t, signed, excluded)
        asked = np.union1d(survivors, excluded)
        replies = await round_.network.ask(asked, UnmaskSurvivors(round_.number, survivors.tolist()))
        return self._at_least(t, replies.valid(), replies, "revealed their shares")

    # -- round 3 --------------------------------------------------------------------------------------------------

    async def check_consistency(
        self, round_: AggregationRound, t: int, survivors: Ids, excluded: Ids = NOBODY
    ) -> dict[int, bytes]:
        """The signatures on the set of survivors (U4), of the survivors and of those left out."""
        replies = await round_.network.ask(
            np.union1d(survivors, excluded), CheckSurvivors(round_.number, survivors.tolist())
        )
        content = survivors_content(round_.number, survivors.tolist(), self._digest)
        signed = {}
        for client, answer in replies.valid().items():
            try:
                _verify(round_, client, SURVIVORS_DOMAIN, content, answer.signature)
            except ProtocolError as error:
                round_.network.record_event(f"client:{client}", "misbehaviour", f"consistency check: {error}")
                continue
            signed[client] = answer.signature
        self._at_least(t, self.counting(signed, excluded), replies, "signed the survivors")
        return signed

    # -- round 4 --------------------------------------------------------------------------------------------------

    async def collect_shares(
        self, round_: AggregationRound, t: int, signed: dict[int, bytes], excluded: Ids = NOBODY
    ) -> dict[int, Shares]:
        """What each client (U5) reveals."""
        rows = [SignatureOf(client, signature) for client, signature in self.counting(signed, excluded).items()]
        kind = Unmask if shares_each(self.parameters.noise, len(round_.participants)) == 2 else UnmaskAndRemove
        replies = await round_.network.ask(_ids(signed), kind(round_.number, rows))
        return self._at_least(t, replies.valid(), replies, "revealed their shares")

    def _at_least(self, t: int, answers: dict[int, Any], replies: Replies, what: str) -> dict[int, Any]:
        """`answers`, of which fewer than t end the round."""
        if len(answers) < t:
            refusals = sorted({refusal.check for refusal in replies.missing.refusals})
            because = f"; refusals: {', '.join(refusals)}" if refusals else ""
            raise RoundAborted("below-threshold", f"{len(answers)} of {t} needed {what}{because}")
        return answers

    async def unmasked(
        self,
        round_: AggregationRound,
        total: npt.NDArray[Any],
        t: int,
        adverts: dict[int, KeyAdvert],
        bundles: dict[int, dict[int, bytes]],
        survivors: Ids,
        revealed: dict[int, Shares],
    ) -> dict[int, Shares]:
        """`unmask`, and where shares contradict each other, once more without those that their holders cannot prove."""
        for _ in (MASK_KEY, SELF_MASK):
            try:
                self.unmask(round_, total, t, adverts, _ids(bundles), survivors, revealed)
            except UndecidedShares as undecided:
                revealed = await settled(round_, t, self._digest, adverts, bundles, revealed, undecided)
            else:
                return revealed
        self.unmask(round_, total, t, adverts, _ids(bundles), survivors, revealed)
        return revealed

    def unmask(
        self,
        round_: AggregationRound,
        total: npt.NDArray[Any],
        t: int,
        adverts: dict[int, KeyAdvert],
        shared: Ids,
        survivors: Ids,
        revealed: dict[int, Shares],
    ) -> None:
        """Remove from `total` (in place) every mask that has not cancelled.

        Args:
            round_: where wrong shares are recorded.
            total: `(d+1,)` sum of the survivors' masked inputs.
            t: the secret-sharing threshold.
            adverts: everybody's keys.
            shared: who has shared (their pairwise masks are in the inputs).
            survivors: whose input is in the sum.
            revealed: the answers to `Unmask`, by client.

        Raises:
            UndecidedShares: shares contradict each other; `total` is as it was.
            RoundAborted: too few of them.
        """
        gone = np.setdiff1d(shared, survivors)
        mask_keys = recover(t, gone.tolist(), {c: answer.mask_keys for c, answer in revealed.items()})
        self_masks = recover(t, survivors.tolist(), {c: answer.self_masks for c, answer in revealed.items()})
        for client, holder in mask_keys.wrong + self_masks.wrong:
            detail = f"unmask: wrong share of client {client}, dealt so by it or changed by client {holder}"
            round_.network.record_event(f"client:{holder}", "misbehaviour", detail)
        for kind, found in ((MASK_KEY, mask_keys), (SELF_MASK, self_masks)):
            if found.undecided:
                raise UndecidedShares(kind, found.undecided)
        seeds = list(self_masks.secrets.values())
        signs = [-1] * len(seeds)
        for client, secret in mask_keys.secrets.items():
            key = PrivateKey.from_seed(secret)
            if key.public != adverts[client].mask_key:
                raise UndecidedShares(MASK_KEY, {client: "the shares give another key than its own"})
            for survivor in self.peers(client, survivors.tolist()):
                seeds.append(key.agree(adverts[survivor].mask_key, MASK_PURPOSE))
                signs.append(-1 if client > survivor else 1)
        meter("x25519.agree", len(seeds) - len(survivors))
        meter("mask.element", len(total) * len(seeds))
        add_masks_in_threads(total, seeds, signs, self.parameters.bits)


def _verify(round_: AggregationRound, client: int, domain: bytes, content: bytes, signature: bytes) -> None:
    """Raise `ProtocolError` unless `client` has signed `content` for `domain` in this experiment."""
    if round_.experiment_id is None:
        return
    meter("ed25519.verify")
    signatures.verify(round_.directory.signing_key(client), domain + round_.experiment_id, content, signature)


def _ids(answers: dict[int, Any]) -> Ids:
    return np.fromiter(answers, np.int64, len(answers))
