"""Client side of `secagg`; see `testbed.aggregation.secagg.server`.

A client believes facts that it cannot check: the dropouts, as long as t clients sign that they were told the same (with
``consistency: none``, without signatures). It checks everything else, and a failed check ends its part in the round.
The table `share_holding.STAGES` says in which order it answers questions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.kit.message_parts import ShareOf, SignatureOf
from testbed.aggregation.kit.participant import check_signers
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    MASK_KEY,
    SELF_MASK,
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    Masked,
    MaskInput,
    ProveShare,
    RevealedShares,
    SealedForPeers,
    SealedFromPeers,
    ShareKey,
    ShareKeys,
    SharesFor,
    SurvivorsSignature,
    Unmask,
    UnmaskSurvivors,
    share_key,
    survivors_content,
)
from testbed.aggregation.secagg.noise import SharesAndNoise, UnmaskAndRemove
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import CompleteGraph, PeerGraph
from testbed.aggregation.secagg.share_holding import ShareHolder
from testbed.crypto import OpeningFailed, memo
from testbed.crypto.key_agreement import PrivateKey, check_public
from testbed.crypto.masks import word_dtype
from testbed.crypto.shamir import SHARE_BYTES
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.network.masked_vectors import Elements, Masks, Seed, agreed_seed
from testbed.parties.client import Client, handles
from testbed.training import trained_update


class SecAggClient(ShareHolder):
    """A participant of one round; the methods follow the protocol's stages.

    Attributes:
        batches: rule for clients that may be summed together.
        training: digest of the training task.
        mask: the key pair of the masks in common with peers.
        survivors: the survivors that it was told, among its peers and itself.
        survivors_signed: the signed content with all survivors.
        revealed: by peer, the kind of the share that it has revealed.
    """

    training: bytes
    mask: PrivateKey
    survivors: set[int]
    survivors_signed: bytes

    def __init__(self, client: Client, parameters: SecAggParameters) -> None:
        super().__init__(client, parameters)
        self.batches = parameters.batch_policy(client.batches)
        self.revealed: dict[int, int] = {}

    # -- AdvertiseKeys --------------------------------------------------------------------------------------------

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        """Make two key pairs and sign their public halves (stage AdvertiseKeys)."""
        with self.progress.answering(message, message.round):
            return self.advertise(message.round, self.peer_graph(message))

    def peer_graph(self, message: Any) -> PeerGraph:
        """Return the announced graph; refuses a graph that does not match the experiment."""
        self.check_size(message.participants)
        if message.threshold != self.parameters.threshold_for(message.participants):
            expected = self.parameters.threshold_for(message.participants)
            raise Refusal("secagg.threshold-mismatch", f"t = {message.threshold}; the experiment has t = {expected}")
        # With t of half or less, two disjoint groups of clients could unmask two sets of survivors.
        if message.threshold < self.parameters.least_threshold(message.participants):
            detail = f"t = {message.threshold} of {message.participants} participants"
            raise Refusal("secagg.threshold-too-low", detail)
        return CompleteGraph(message.participants, message.threshold)

    def advertise(self, round_number: int, graph: PeerGraph) -> KeyAdvert:
        """Make and sign the keys of this round."""
        update = trained_update(self, round_number)  # a number used before would bring the same masks again
        self.round, self.graph = round_number, graph
        self.training = self.digest_of_training(update)
        self.sealing = memo.key_pair(self.secret("sealing key"))
        self.mask_secret = self.secret("mask key")
        self.mask = memo.key_pair(self.mask_secret)
        meter("x25519.generate", 2)
        content = self.advert_content(self.number, self.sealing.public, self.mask.public)
        return KeyAdvert(self.sealing.public, self.mask.public, self.sign(KEYS_DOMAIN, content))

    def advert_content(self, client: int, sealing_key: bytes, mask_key: bytes) -> bytes:
        """Return the content that a client signs with its keys."""
        return self.parameters.signed_with_keys(
            self.graph.advert_content(self.round, client, sealing_key, mask_key, self.training)
        )

    # -- ShareKeys ------------------------------------------------------------------------------------------------

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        """Verify the peers' keys; share the mask key and the self-mask seed among the peers (stage ShareKeys)."""
        with self.progress.answering(message, message.round):
            return self.share(message.adverts)

    def share(self, shown: Sequence[AdvertOf]) -> SealedForPeers:
        """Share the secrets among the clients with these keys."""
        adverts = {advert.client: advert for advert in shown}
        self.check_adverts(adverts, len(shown))
        self.adverts = adverts
        self.digest = self.common_digest()
        self.self_mask = self.secret("self-mask seed")
        return SealedForPeers(self.share_among(sorted(adverts)))

    def common_digest(self) -> bytes:
        """Return a digest that is equal for all clients that were shown the same keys and facts."""
        return self.graph.common_digest(self.round, self.training, self.adverts.values())

    def check_adverts(self, adverts: dict[int, AdvertOf], count: int) -> None:
        """Refuse keys other than those of this round's participants with the same training task."""
        if len(adverts) != count:
            raise Refusal("secagg.duplicate-client", "a client is listed twice")
        if not self.graph.threshold <= count <= self.graph.holders:
            raise Refusal("secagg.wrong-size", f"{count} clients with keys, threshold {self.graph.threshold}")
        own = adverts.get(self.number)
        if own is None or (own.sealing_key, own.mask_key) != (self.sealing.public, self.mask.public):
            raise Refusal("secagg.own-keys-mismatch", "the list does not have this client's keys")
        keys = [key for advert in adverts.values() for key in (advert.sealing_key, advert.mask_key)]
        if len(set(keys)) != len(keys):
            raise Refusal("secagg.duplicate-key", "the list has a public key twice")
        agreed = self.client.agreed_participants
        if agreed is not None and not adverts.keys() <= agreed.keys():
            raise Refusal("secagg.unlisted-participant", "a client with keys is not on the agreed list")
        if agreed is None:
            self.environment.look_up(adverts)
        signed = {c: (advert.sealing_key, advert.mask_key, advert.signature) for c, advert in adverts.items()}
        self.check_signatures(
            KEYS_DOMAIN,
            self.advert_content(0, b"", b""),
            signed,
            lambda client: self.advert_content(client, *signed[client][:2]),
            self.not_signed,
            shown_to_all=self.graph.same_holders,
            but=self.number,
        )

    # -- MaskedInputCollection ------------------------------------------------------------------------------------

    @handles(MaskInput)
    def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
        """Encode the update and mask it against every peer that has shared (stage MaskedInputCollection)."""
        with self.progress.answering(message, message.round):
            return Masked(self.masked_input(private.shares))

    def masked_input(self, rows: Sequence[SharesFor]) -> Vector:
        """Return the masked input; empty if a member of the client's batch has not shared: it will be in no sum."""
        received = {row.client: row.sealed for row in rows}
        foreign = received.keys() - (self.adverts.keys() - {self.number})
        if foreign or len(received) != len(rows):
            detail = "a client's shares are listed twice, or the client has no keys in the list"
            raise Refusal("secagg.unexpected-shares", detail)
        # With fewer holders, the masks could never be removed.
        if len(received) + 1 < self.graph.threshold:
            detail = f"{len(received) + 1} clients have shared, threshold {self.graph.threshold}"
            raise Refusal("secagg.below-threshold", detail)
        self.received, bits = received, self.parameters.bits
        batch = self.batches.batch_peers(self.number)
        if self.keeps_back(batch):
            return Vector(np.empty(0, word_dtype(bits)), bits)
        self.check_batch_peers(batch)
        return self._masked(sorted(received))

    def keeps_back(self, batch: frozenset[int]) -> bool:
        """Return whether the client sends no input, as it could not mask it with its whole batch."""
        return not batch <= self.received.keys()

    def check_batch_peers(self, batch: frozenset[int]) -> None:
        """Refuse unless the members of its batch were shown the same keys, so that their shares open."""
        for peer in sorted(batch):
            meter("aead.open")
            try:
                self.opened[peer] = self.open_shares_of(peer)
            except OpeningFailed:
                raise Refusal(
                    "secagg.inconsistent-batch-keys", f"client {peer} of this batch was not shown the same keys"
                ) from None

    def _masked(self, peers: list[int]) -> Vector:
        """Return the update as ring elements under masks of its peers and its own: `(d+1,)`, or `(D+1,)` with noise."""
        elements, parameters = self.encoded(), self.parameters
        keys = [self.adverts[peer].mask_key for peer in peers]
        seeds: list[Seed] = [agreed_seed(self.mask.public, key, parameters.mask_purpose) for key in keys]
        seeds.append(self.self_mask)
        # The two ends of a mask have opposite signs, so that it cancels in the sum.
        signs = [*(1 if peer > self.number else -1 for peer in peers), 1]
        masks = Masks(seeds, signs, parameters.prg, [self.mask])
        meter("x25519.agree", len(peers))
        meter(parameters.mask_operation, len(elements) * len(seeds))
        if self.environment.symbolic_masks:
            # Symbolic masks skip the key agreement that would refuse a key of small order.
            for key in keys:
                check_public(key)
        return self.under_masks(elements, masks)

    def encoded(self) -> npt.NDArray[Any] | Elements:
        """Return the update as ring elements, with this client's noise if participants add noise."""
        update = trained_update(self, self.round)
        return self.noise.encoded(self, update, self.graph.participants, self.round)

    # -- ConsistencyCheck -----------------------------------------------------------------------------------------

    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        """Sign the one set of survivors that this client will unmask (stage ConsistencyCheck)."""
        with self.progress.answering(message, message.round):
            self.survivors = self.believable(message.survivors)
            self.batches.check_survivors(message.survivors)
            return self.sign_survivors(message.survivors)

    def sign_survivors(self, named: list[int]) -> SurvivorsSignature:
        """Return the signature on all survivors."""
        self.survivors_signed = survivors_content(self.round, sorted(named), self.digest)
        return SurvivorsSignature(self.sign(SURVIVORS_DOMAIN, self.survivors_signed))

    def believable(self, named: list[int]) -> set[int]:
        """Return the survivors of which this client holds shares; refuses sets that are visibly wrong."""
        survivors = set(named)
        shared = self.received.keys() | {self.number}
        if len(survivors) != len(named) or not survivors <= shared:
            raise Refusal("secagg.unknown-survivor", "a survivor is listed twice, or has not shared")
        if self.number not in survivors and not self.may_be_left_out():
            raise Refusal("secagg.declared-dropped", f"client {self.number} has not dropped out, but is not a survivor")
        fewest = self.batches.min_sum_size(self.graph.threshold)
        if len(survivors) < fewest:
            raise Refusal("secagg.below-threshold", f"{len(survivors)} survivors; at least {fewest}")
        return survivors

    def may_be_left_out(self) -> bool:
        """Return whether this client may be left out because another member of its batch may have dropped out."""
        return bool(self.batches.batch_peers(self.number))

    # -- Unmasking ------------------------------------------------------------------------------------------------

    @handles(Unmask)
    def on_unmask(self, message: Unmask) -> RevealedShares:
        """Reveal one share per peer, once t clients have signed the same survivors (stage Unmasking)."""
        with self.progress.answering(message, message.round):
            return self.unmask(message.signatures)

    @handles(UnmaskAndRemove)
    def on_unmask_and_remove(self, message: UnmaskAndRemove) -> SharesAndNoise:
        """Reveal the same shares, and one share of each survivor's noise that exceeds the plan for these dropouts."""
        with self.progress.answering(message, message.round):
            self._check_signatures(message.signatures)
            opened = self.open_shares()
            shares = self._shares(opened)
            noise = self.noise.shares_to_reveal(self.graph.participants, self.survivors, opened)
            return SharesAndNoise(shares.mask_keys, shares.self_masks, noise)

    @handles(UnmaskSurvivors)
    def on_unmask_survivors(self, message: UnmaskSurvivors) -> RevealedShares:
        """Reveal the same shares without signatures, if the experiment allows it (``consistency: none``)."""
        with self.progress.answering(message, message.round):
            if self.parameters.consistency != "none":
                raise Refusal("secagg.unsigned-survivors", "no client has signed the survivors")
            self.survivors = self.believable(message.survivors)
            self.batches.check_survivors(message.survivors)
            return self._shares(self.open_shares())

    def unmask(self, rows: Sequence[SignatureOf]) -> RevealedShares:
        """Return the shares that the survivors require; refuses survivors that are not signed."""
        self._check_signatures(rows)
        return self._shares(self.open_shares())

    def _check_signatures(self, rows: Sequence[SignatureOf]) -> None:
        check_signers(rows, self.signers(), self.graph.threshold, protocol="secagg", signers="survivor")

        def other_set(client: int) -> Refusal:
            return Refusal("secagg.inconsistent-survivors", f"client {client} signed another set")

        to_all = self.graph.same_holders
        self.check_same_signed(SURVIVORS_DOMAIN, self.survivors_signed, rows, other_set, shown_to_all=to_all)

    def signers(self) -> set[int]:
        """Return the clients whose signatures count: survivors, or all clients that have shared if batches allow it."""
        return {*self.received, self.number} if self.batches.outsiders_sign else self.survivors

    def _shares(self, opened: dict[int, bytes]) -> RevealedShares:
        """Return one share per peer: of the mask key of a dropout, of the self-mask seed of a survivor."""
        mask_keys, self_masks = [], []
        # One kind for each peer: both kinds would unmask its input.
        for peer, shares in opened.items():
            if peer not in self.survivors:
                mask_keys.append(ShareOf(peer, shares[:SHARE_BYTES]))
            elif self.has_masked_with_me(peer):
                self_masks.append(ShareOf(peer, shares[SHARE_BYTES : 2 * SHARE_BYTES]))
        self.revealed = {row.client: MASK_KEY for row in mask_keys} | {row.client: SELF_MASK for row in self_masks}
        return RevealedShares(mask_keys, self_masks)

    def has_masked_with_me(self, peer: int) -> bool:
        """Return whether a survivor has masked with this client, which holds its shares; here without a check.

        In a complete graph, the clients that signed leave too few others that could mask only among themselves.
        """
        return True

    @handles(ProveShare)
    def on_prove_share(self, message: ProveShare) -> ShareKey:
        """Reveal the key of the share that this client has revealed; it opens nothing else (`share_recovery`)."""
        self.progress.check(message, message.round)
        dealer = message.dealer
        # The key of another share would reveal that share, too.
        if self.revealed.get(dealer) != message.kind or dealer == self.number:
            detail = f"the requested share of client {dealer} was not revealed"
            raise Refusal("secagg.not-revealed", detail)
        return ShareKey(share_key(self.sealing_keys[dealer], dealer, self.number, message.kind))
