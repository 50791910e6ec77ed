"""Client side of `secagg`; see `testbed.aggregation.secagg.server`.

What the server says is believed where a client cannot check it: who has dropped out, as long as t clients say that
they were told the same (``consistency: none``: without that). Everything else is checked, and a check that fails ends
the client's part in the round. Where selection has batches, whole ones alone are summed (`batch_atomic`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.secagg.batches import check_whole, mates
from testbed.aggregation.secagg.dealt_shares import (
    MASK_KEY,
    SELF_MASK,
    ProveShare,
    ShareKey,
    associated_data,
    open_shares,
    seal_shares,
    sealed_bytes,
    share_key,
)
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    Masked,
    MaskInput,
    SealedForPeers,
    SealedFromPeers,
    ShareKeys,
    ShareOf,
    Shares,
    SharesFor,
    SurvivorsSignature,
    Unmask,
    UnmaskSurvivors,
    advert_content,
    adverts_digest,
    point_of,
    survivors_content,
)
from testbed.aggregation.secagg.noise_removal import RemovingClient, SharesAndNoise, UnmaskAndRemove
from testbed.batches import Batches
from testbed.crypto import shamir, signatures
from testbed.crypto.failures import InvalidSignature, OpeningFailed
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.masks import add_masks, word_dtype
from testbed.crypto.shamir import SHARE_BYTES
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.parties.client import Client, handles
from testbed.training.client import RoundUpdate, trained_update, training_digest

if TYPE_CHECKING:
    from testbed.aggregation.secagg.parameters import SecAggParameters

SEALING_PURPOSE = b"testbed/secagg/sealing/v1"
MASK_PURPOSE = b"testbed/secagg/mask/v1"
_REVEALED = 5  # the step after the last


class SecAggClient(RemovingClient):
    """One participant of one round; the methods follow the protocol's stages."""

    parameters: "SecAggParameters"

    def __init__(self, client: Client, parameters: "SecAggParameters") -> None:
        super().__init__(client, parameters)
        self._next_step: int | None = 0
        self._round = -1

    @contextmanager
    def _step(self, position: int, round_number: int) -> Iterator[None]:
        """Each stage comes once, after the one before it, in one round; none comes after a check that failed in one.

        Whoever could ask for a stage again, or go on after a refusal, could have both shares of a peer.
        """
        if self._next_step != position or (position > 0 and round_number != self._round):
            raise Refusal("secagg.out-of-order", f"stage {position} of round {round_number} is not what comes next")
        self._next_step = None
        yield
        self._next_step = position + 1

    @property
    def _batches(self) -> Batches | None:
        """The public batches, unless the experiment says that sums may break them up."""
        return self.parameters.kept_whole(self.environment.batches)

    def _secret(self, purpose: str) -> bytes:
        return self.environment.randomness.secret(self.client.number, self._round, f"secagg {purpose}")

    def _sign(self, domain: bytes, content: bytes) -> bytes:
        assert self.client.identity is not None
        meter("ed25519.sign")
        return self.client.identity.signing.sign(domain + self.environment.experiment_id, content)

    def _verify(self, registered: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
        meter("ed25519.verify")
        signatures.verify(registered, domain + self.environment.experiment_id, content, signature)

    # -- advertise keys -------------------------------------------------------------------------------------------

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        """Make two key pairs and sign their public halves."""
        with self._step(0, message.round):
            self._check_parameters(message)
            update = trained_update(self, message.round)  # a number used before would bring the same masks again
            self._round, self._training = message.round, self._digest_of_training(update)
            self._threshold, self._participants = message.threshold, message.participants
            self._sealing = PrivateKey.from_seed(self._secret("sealing key"))
            self._mask_secret = self._secret("mask key")
            self._mask = PrivateKey.from_seed(self._mask_secret)
            meter("x25519.generate", 2)
            content = self._advert_content(self.client.number, self._sealing.public, self._mask.public)
            return KeyAdvert(self._sealing.public, self._mask.public, self._sign(KEYS_DOMAIN, content))

    def _check_parameters(self, message: AdvertiseKeys) -> None:
        self._check_size(message.participants)
        if message.threshold != self.parameters.threshold_for(message.participants):
            raise Refusal("secagg.other-threshold", f"t = {message.threshold} is not what the experiment says")
        if message.threshold < self.parameters.least_threshold(message.participants):
            raise Refusal("secagg.threshold-too-low", f"t = {message.threshold} of {message.participants}")

    def _check_size(self, participants: int) -> None:
        agreed = self.client.agreed_participants
        if self.environment.participants_are_agreed and agreed is None:
            raise Refusal("secagg.not-agreed", "no participant list was agreed on in this round")
        if agreed is not None and participants != len(agreed):
            raise Refusal("secagg.other-participants", f"{participants} announced, {len(agreed)} agreed on")
        if participants < 2:
            raise Refusal("secagg.alone", "the sum of one update hides nothing")
        fewest = self.environment.minimum_participants
        if participants < fewest:
            raise Refusal("secagg.too-few-participants", f"{participants} announced, never fewer than {fewest}")
        most = self.environment.maximum_participants
        if participants > most:
            raise Refusal("secagg.too-many-participants", f"{participants} announced, never more than {most}")

    def _advert_content(self, client: int, sealing_key: bytes, mask_key: bytes) -> bytes:
        """What a client signs with its keys."""
        return advert_content(self._round, client, sealing_key, mask_key, self._training)

    def _digest_of_training(self, update: RoundUpdate) -> bytes:
        """What stands for all that the update was trained from, in what is signed; empty where nothing is to."""
        if self.parameters.model_binding == "none":
            return b""
        return training_digest(update.question, anew=self.environment.compute.measured)

    # -- share keys -----------------------------------------------------------------------------------------------

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        """Verify the peers' keys; share the mask key and the self-mask seed among them."""
        with self._step(1, message.round):
            adverts = {advert.client: advert for advert in message.adverts}
            self._check_adverts(adverts, len(message.adverts))
            self._adverts, self._digest = adverts, self._digest_of(adverts)
            self._self_mask = self._secret("self-mask seed")
            return SealedForPeers(self._share(sorted(adverts)))

    def _digest_of(self, adverts: dict[int, AdvertOf]) -> bytes:
        """What this client has in common with those that were shown the same keys."""
        return adverts_digest(self._round, self._participants, self._threshold, self._training, adverts.values())

    def _share(self, holders: list[int]) -> list[SharesFor]:
        points, t = [point_of(holder) for holder in holders], self._threshold
        secrets = {"the mask key": self._mask_secret, "the self-mask seed": self._self_mask}
        secrets |= {
            f"the noise {n}": part for n, part in enumerate(self.noise_chain(self._participants, self._round), 1)
        }
        shares = [self._deal(name, secret, points) for name, secret in secrets.items()]
        meter("shamir.share.term", len(secrets) * t * len(points))
        self._sealing_keys: dict[int, bytes] = {}
        sealed = []
        for holder, dealt in zip(holders, map(b"".join, zip(*shares, strict=True)), strict=True):
            if holder == self.client.number:
                self._own_shares = dealt
                continue
            key = self._sealing.agree(self._adverts[holder].sealing_key, SEALING_PURPOSE)
            self._sealing_keys[holder] = key
            associated = self._associated(self.client.number, holder)
            sealed.append(SharesFor(holder, seal_shares(key, self.client.number, holder, dealt, associated)))
        meter("x25519.agree", len(sealed))
        meter("aead.seal", min(len(secrets), 3) * len(sealed))
        return sealed

    def _deal(self, name: str, secret: bytes, points: Sequence[int]) -> list[bytes]:
        """A share of one of the secrets for each holder."""
        return shamir.share(secret, self._threshold, points, self._secret(f"polynomial of {name}"))

    def _check_adverts(self, adverts: dict[int, AdvertOf], count: int) -> None:
        if len(adverts) != count:
            raise Refusal("secagg.listed-twice", "a client's keys stand twice in the list")
        if not self._threshold <= count <= self._participants:
            raise Refusal("secagg.wrong-size", f"{count} clients with keys, threshold {self._threshold}")
        own = adverts.get(self.client.number)
        if own is None or (own.sealing_key, own.mask_key) != (self._sealing.public, self._mask.public):
            raise Refusal("secagg.own-keys-changed", "the list does not hold this client's keys")
        keys = [key for advert in adverts.values() for key in (advert.sealing_key, advert.mask_key)]
        if len(set(keys)) != len(keys):
            raise Refusal("secagg.key-used-twice", "the same public key stands twice in the list")
        agreed = self.client.agreed_participants
        if agreed is not None and not adverts.keys() <= agreed.keys():
            raise Refusal("secagg.foreign-participant", "keys of a client that is not on the agreed list")
        if agreed is None:
            self.environment.look_up(adverts)
        for client, advert in adverts.items():
            if client == self.client.number:
                continue
            content = self._advert_content(client, advert.sealing_key, advert.mask_key)
            try:
                self._verify(self._registered(client), KEYS_DOMAIN, content, advert.signature)
            except InvalidSignature:
                raise self._not_signed(client) from None

    def _not_signed(self, client: int) -> Refusal:
        """What a peer's signature that does not verify says.

        A client cannot tell forged keys from genuine ones of a peer that was sent another model: only the server could
        tell it that peer's digest, and it may lie. So one name says both; an honest server leaves either out before.
        """
        if self.parameters.model_binding == "none":
            return Refusal("secagg.forged-keys", f"client {client} has not signed the keys shown for it")
        return Refusal(
            "secagg.other-keys-or-training",
            f"client {client} has not signed the keys shown for it with the model that this client was sent: "
            "it was sent another, or they are forged",
        )

    def _registered(self, client: int) -> bytes:
        """A peer's signing key: of the list that was agreed on, and from nowhere else where one was."""
        agreed = self.client.agreed_participants
        return agreed[client] if agreed is not None else self.environment.directory.signing_key(client)

    def _associated(self, sender: int, receiver: int) -> bytes:
        """What sealed shares are bound to: they open for a receiver that was shown the same keys."""
        return associated_data(self._round, sender, receiver, self._digest)

    # -- masked input ---------------------------------------------------------------------------------------------

    @handles(MaskInput)
    def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
        """Quantise the update and mask it against everybody who has shared; nothing, if one of the batch has not."""
        with self._step(2, message.round):
            received = {row.client: row.sealed for row in private.shares}
            foreign = received.keys() - (self._adverts.keys() - {self.client.number})
            if foreign or len(received) != len(private.shares):
                raise Refusal("secagg.foreign-shares", "shares twice, or of somebody whose keys are not in the list")
            if len(received) + 1 < self._threshold:
                raise Refusal("secagg.too-few", f"{len(received) + 1} have shared, threshold {self._threshold}")
            self._received = received
            self._opened: dict[int, bytes] = {}
            if self._stands_by():
                return Masked(Vector(np.empty(0, word_dtype(self.parameters.bits)), self.parameters.bits))
            self._check_mates()
            return Masked(Vector(self._masked(sorted(received)), self.parameters.bits))

    def _check_mates(self) -> None:
        """All of the batch have shared with this client, and were shown the same keys: their shares open."""
        for mate in sorted(mates(self._batches, self.client.number)):
            meter("aead.open")
            try:
                self._opened[mate] = self._open(mate)
            except OpeningFailed:
                raise Refusal(
                    "secagg.batch-apart", f"client {mate} of this batch was not shown the same keys"
                ) from None

    def _stands_by(self) -> bool:
        """Whether the input is kept back: it would not be masked with all of its batch, and be in no sum."""
        return not mates(self._batches, self.client.number) <= self._received.keys()

    def _masked(self, peers: list[int]) -> npt.NDArray[Any]:
        """`(d+1,)` the update as ring elements under a mask for each peer and one of its own; `(D+1,)` with noise."""
        masked, number = self._encoded(), self.client.number
        seeds = [self._mask.agree(self._adverts[peer].mask_key, MASK_PURPOSE) for peer in peers]
        signs = [1 if peer > number else -1 for peer in peers]
        add_masks(masked, [*seeds, self._self_mask], [*signs, 1], self.parameters.bits)
        meter("x25519.agree", len(seeds))
        meter("mask.element", len(masked) * (len(seeds) + 1))
        return masked

    def _encoded(self) -> npt.NDArray[Any]:
        """The update as ring elements, with this client's noise where participants add some."""
        update, number = trained_update(self, self._round), self.client.number
        if self.parameters.noise is not None:
            return self.noisy(update.delta, self._planned_participants(), self._round)
        weight = update.samples if self.parameters.weights == "samples" else 1
        rounding = self.environment.randomness.generator(number, self._round, "stochastic rounding")
        return self.parameters.quantisation.encode(update.delta, weight, rounding)

    def _planned_participants(self) -> int:
        """How many share the noise."""
        return self._participants

    # -- consistency check ----------------------------------------------------------------------------------------

    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        """Sign the one set of survivors that this client will unmask."""
        with self._step(3, message.round):
            self._survivors = self._believable(message.survivors)
            check_whole(self._batches, message.survivors)
            self._survivors_content = survivors_content(self._round, sorted(message.survivors), self._digest)
            return SurvivorsSignature(self._sign(SURVIVORS_DOMAIN, self._survivors_content))

    def _believable(self, named: list[int]) -> set[int]:
        """The survivors among those whose shares this client holds, as far as one client alone can judge them."""
        survivors = set(named)
        shared = self._received.keys() | {self.client.number}
        if len(survivors) != len(named) or not survivors <= shared:
            raise Refusal("secagg.foreign-survivor", "a survivor twice, or one that has not shared")
        if self.client.number not in survivors and not self._may_be_left_out():
            raise Refusal("secagg.declared-dead", "declared as dropped out, but is there")
        fewest = self.parameters.fewest_in_sum(self._threshold, self.environment.batches)
        if len(survivors) < fewest:
            raise Refusal("secagg.too-few", f"{len(survivors)} survivors, never fewer than {fewest}")
        return survivors

    def _may_be_left_out(self) -> bool:
        """Whether another member of the batch may have dropped out, for which this client is left out as well."""
        return bool(mates(self._batches, self.client.number))

    # -- unmask ---------------------------------------------------------------------------------------------------

    @handles(Unmask)
    def on_unmask(self, message: Unmask) -> Shares:
        """Reveal one share for each peer: of its mask key if it dropped out, of its self-mask seed if it survived."""
        with self._step(4, message.round):
            self._check_signatures({row.client: row.signature for row in message.signatures}, len(message.signatures))
            return self._shares(self._open_shares())

    @handles(UnmaskAndRemove)
    def on_unmask_and_remove(self, message: UnmaskAndRemove) -> SharesAndNoise:
        """Reveal the same, and one share of the noise of each survivor that is more than the drop-outs call for."""
        with self._step(4, message.round):
            self._check_signatures({row.client: row.signature for row in message.signatures}, len(message.signatures))
            opened = self._open_shares()
            shares = self._shares(opened)
            noise = self.noise_to_reveal(self._participants, self._survivors, opened)
            return SharesAndNoise(shares.mask_keys, shares.self_masks, noise)

    @handles(UnmaskSurvivors)
    def on_unmask_survivors(self, message: UnmaskSurvivors) -> Shares:
        """Reveal the same on the server's word alone, where the experiment says so (``consistency: none``)."""
        with self._step(3, message.round):
            if self.parameters.consistency != "none":
                raise Refusal("secagg.unsigned-survivors", "nobody has signed the survivors")
            self._survivors = self._believable(message.survivors)
            check_whole(self._batches, message.survivors)
            shares = self._shares(self._open_shares())
        self._next_step = _REVEALED  # not the stage in between, which would reveal more
        return shares

    def _shares(self, opened: dict[int, bytes]) -> Shares:
        mask_keys, self_masks = [], []
        self._revealed: dict[int, int] = {}
        for peer, shares in opened.items():
            if peer in self._survivors:
                if self._masks_with_me(peer):
                    self_masks.append(ShareOf(peer, shares[SHARE_BYTES : 2 * SHARE_BYTES]))
            else:
                mask_keys.append(ShareOf(peer, shares[:SHARE_BYTES]))
        self._revealed |= {row.client: MASK_KEY for row in mask_keys} | {row.client: SELF_MASK for row in self_masks}
        return Shares(mask_keys, self_masks)

    @handles(ProveShare)
    def on_prove_share(self, message: ProveShare) -> ShareKey:
        """Show the key of the share that this client has revealed: it opens nothing else."""
        if self._next_step != _REVEALED or message.round != self._round:
            raise Refusal("secagg.out-of-order", "no share has been revealed in this round")
        dealer = message.dealer
        if self._revealed.get(dealer) != message.kind or dealer == self.client.number:
            raise Refusal("secagg.not-revealed", f"the share of client {dealer} that is asked for was not revealed")
        return ShareKey(share_key(self._sealing_keys[dealer], dealer, self.client.number, message.kind))

    def _masks_with_me(self, peer: int) -> bool:
        """Whether a survivor whose shares this client holds has masked with it, too; here nobody needs to ask.

        Where everybody is everybody's peer, the clients that signed leave too few others to mask with among themselves.
        """
        return True

    def _check_signatures(self, signed: dict[int, bytes], count: int) -> None:
        if len(signed) != count or not signed.keys() <= self._signers():
            raise Refusal("secagg.foreign-signature", "a signature twice, or of somebody who is no survivor")
        if count < self._threshold:
            raise Refusal("secagg.too-few-signatures", f"{count} signatures, threshold {self._threshold}")
        for client, signature in signed.items():
            try:
                self._verify(self._registered(client), SURVIVORS_DOMAIN, self._survivors_content, signature)
            except InvalidSignature:
                raise Refusal("secagg.inconsistent-survivors", f"client {client} signed another set") from None

    def _signers(self) -> set[int]:
        """Whose signatures count: the survivors', and with `smallest_sum` those of all that have shared."""
        if self._batches is None or self.parameters.smallest_sum is None:
            return self._survivors
        return {*self._received, self.client.number}

    def _open_shares(self) -> dict[int, bytes]:
        """All shares of every peer that has shared, by peer.

        Shares that do not open are left out, where the paper ends the client's part: this reveals less than shares
        that open would, and no single peer can end everybody's round with a bad ciphertext.
        """
        opened = {self.client.number: self._own_shares, **self._opened}
        meter("aead.open", len(self._received) - len(self._opened))
        for peer in self._received.keys() - self._opened.keys():
            with suppress(OpeningFailed):
                opened[peer] = self._open(peer)
        return dict(sorted(opened.items()))

    def _open(self, peer: int) -> bytes:
        """All shares of a peer; raises `OpeningFailed`, also for more or fewer than everybody deals."""
        number, sealed = self.client.number, self._received[peer]
        if len(sealed) != sealed_bytes(len(self._own_shares) // SHARE_BYTES):
            raise OpeningFailed(f"{len(sealed)} bytes of sealed shares, not those of as many secrets as everybody has")
        return open_shares(self._sealing_keys[peer], peer, number, sealed, self._associated(peer, number))
