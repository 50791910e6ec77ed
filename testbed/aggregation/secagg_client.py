"""Client side of `secagg`; see `testbed.aggregation.secagg`."""

from typing import TYPE_CHECKING

from testbed.aggregation.secagg_messages import (
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
)
from testbed.cost import charge
from testbed.crypto import sealing, shamir, signatures
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.masks import add_masks
from testbed.errors import ProtocolError, Refusal
from testbed.messages import Vector, signed_content
from testbed.parties.client import Client, Role, handles
from testbed.training import trained_update

if TYPE_CHECKING:
    from testbed.aggregation.secagg import SecAggParameters

SEALING_PURPOSE = b"testbed/secagg/sealing/v1"
MASK_PURPOSE = b"testbed/secagg/mask/v1"


def point_of(client: int) -> int:
    """Where a client's Shamir share is evaluated (never 0)."""
    return client + 1


def advert_content(round_number: int, client: int, sealing_key: bytes, mask_key: bytes) -> bytes:
    """What the signature on advertised keys covers."""
    return signed_content(round_number, client, sealing_key, mask_key)


def survivors_content(experiment_id: bytes, round_number: int, survivors: list[int]) -> bytes:
    """What the signature on the set of survivors covers."""
    return signed_content(experiment_id, round_number, survivors)


class SecAggClient(Role):
    """One participant of one round; the methods follow the protocol's stages."""

    parameters: "SecAggParameters"

    def __init__(self, client: Client, parameters: "SecAggParameters") -> None:
        super().__init__(client, parameters)
        self._steps_taken = 0
        self._adverts: dict[int, AdvertOf] = {}
        self._sealing_keys: dict[int, bytes] = {}
        self._survivors: list[int] = []

    def _step(self, position: int, round_number: int) -> None:
        """Each stage comes once, after the one before it, in one round: nothing can be asked for a second time."""
        if self._steps_taken != position or (position > 0 and round_number != self._round):
            raise Refusal("secagg.out-of-order", f"stage {position} asked for after {self._steps_taken} stages")
        self._steps_taken += 1

    def _secret(self, purpose: str) -> bytes:
        return self.environment.randomness.secret(self.client.number, self._round, f"secagg {purpose}")

    # -- advertise keys -------------------------------------------------------------------------------------------

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        """Make two key pairs and sign their public halves."""
        agreed = self.client.agreed_participants
        if self.environment.participants_are_agreed and agreed is None:
            raise Refusal("secagg.not-agreed", "no participant list was agreed on in this round")
        if agreed is not None and message.participants != len(agreed):
            raise Refusal("secagg.other-participants", f"{message.participants} announced, {len(agreed)} agreed on")
        if message.threshold != self.parameters.threshold_for(message.participants):
            raise Refusal("secagg.other-threshold", f"t = {message.threshold} is not what the experiment says")
        if 2 * message.threshold <= message.participants:
            raise Refusal("secagg.threshold-too-low", f"t = {message.threshold} of {message.participants}")
        self._step(0, message.round)
        self._round = message.round
        self._threshold, self._participants = message.threshold, message.participants
        self._sealing = PrivateKey.from_seed(self._secret("sealing key"))
        self._mask_secret = self._secret("mask key")
        self._mask = PrivateKey.from_seed(self._mask_secret)
        charge("x25519.generate", 2)
        charge("ed25519.sign")
        assert self.client.identity is not None
        content = advert_content(message.round, self.client.number, self._sealing.public, self._mask.public)
        signature = self.client.identity.signing.sign(KEYS_DOMAIN + self.environment.experiment_id, content)
        return KeyAdvert(self._sealing.public, self._mask.public, signature)

    # -- share keys -----------------------------------------------------------------------------------------------

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        """Verify the peers' keys; share the mask key and the self-mask seed among them."""
        self._step(1, message.round)
        adverts = {advert.client: advert for advert in message.adverts}
        self._check_adverts(adverts, len(message.adverts))
        self._adverts = adverts
        self._self_mask = self._secret("self-mask seed")
        peers = sorted(adverts)
        points = [point_of(peer) for peer in peers]
        t = self._threshold
        of_key = shamir.share(self._mask_secret, t, points, self._secret("polynomial of the mask key"))
        of_seed = shamir.share(self._self_mask, t, points, self._secret("polynomial of the self-mask seed"))
        charge("shamir.share.term", 2 * t * len(points))
        sealed = []
        for peer, key_share, seed_share in zip(peers, of_key, of_seed, strict=True):
            if peer == self.client.number:
                self._own_shares = key_share + seed_share
                continue
            key = self._sealing_keys[peer] = self._sealing.agree(adverts[peer].sealing_key, SEALING_PURPOSE)
            nonce, associated = self._envelope(self.client.number, peer)
            sealed.append(SharesFor(peer, sealing.seal(key, nonce, key_share + seed_share, associated)))
        charge("x25519.agree", len(sealed))
        charge("aead.seal", len(sealed))
        return SealedForPeers(sealed)

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
        directory = self.environment.look_up(adverts) if agreed is None else None
        charge("ed25519.verify", count - 1)
        for client, advert in adverts.items():
            if client == self.client.number:
                continue
            if agreed is not None and client not in agreed:
                raise Refusal("secagg.foreign-participant", f"client {client} is not on the agreed list")
            registered = agreed[client] if agreed is not None else directory.signing_key(client)  # type: ignore[union-attr]
            content = advert_content(self._round, client, advert.sealing_key, advert.mask_key)
            try:
                domain = KEYS_DOMAIN + self.environment.experiment_id
                signatures.verify(registered, domain, content, advert.signature)
            except ProtocolError:
                raise Refusal("secagg.forged-keys", f"client {client} has not signed the keys shown for it") from None

    def _envelope(self, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """Nonce and associated data: the pair's key serves both directions once, told apart by the sender."""
        return sender.to_bytes(12, "big"), signed_content(self._round, sender, receiver)

    # -- masked input ---------------------------------------------------------------------------------------------

    @handles(MaskInput)
    def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
        """Quantise the update and mask it against everybody who has shared."""
        self._step(2, message.round)
        received = {row.client: row.sealed for row in private.shares}
        if len(received) != len(private.shares) or not received.keys() <= self._adverts.keys() - {self.client.number}:
            raise Refusal("secagg.foreign-shares", "shares twice, or of somebody whose keys are not in the list")
        if len(received) + 1 < self._threshold:
            raise Refusal("secagg.too-few", f"{len(received) + 1} have shared, threshold {self._threshold}")
        self._received = received
        update = trained_update(self)
        weight = update.samples if self.parameters.weights == "samples" else 1
        rounding = self.environment.randomness.generator(self.client.number, message.round, "stochastic rounding")
        masked = self.parameters.quantisation.encode(update.delta, weight, rounding)
        number = self.client.number
        seeds = [self._mask.agree(self._adverts[peer].mask_key, MASK_PURPOSE) for peer in sorted(received)]
        signs = [1 if peer > number else -1 for peer in sorted(received)]
        add_masks(masked, [*seeds, self._self_mask], [*signs, 1], self.parameters.bits)
        charge("x25519.agree", len(seeds))
        charge("mask.element", len(masked) * (len(seeds) + 1))
        return Masked(Vector(masked, self.parameters.bits))

    # -- consistency check ----------------------------------------------------------------------------------------

    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        """Sign the one set of survivors that this client will unmask."""
        self._step(3, message.round)
        survivors = sorted(message.survivors)
        shared = self._received.keys() | {self.client.number}
        if len(set(survivors)) != len(survivors) or not set(survivors) <= shared:
            raise Refusal("secagg.foreign-survivor", "a survivor twice, or one that has not shared")
        if self.client.number not in survivors:
            raise Refusal("secagg.declared-dead", "declared as dropped out, but is there")
        if len(survivors) < self._threshold:
            raise Refusal("secagg.too-few", f"{len(survivors)} survivors, threshold {self._threshold}")
        self._survivors = survivors
        charge("ed25519.sign")
        assert self.client.identity is not None
        content = survivors_content(self.environment.experiment_id, self._round, survivors)
        return SurvivorsSignature(self.client.identity.signing.sign(SURVIVORS_DOMAIN, content))

    # -- unmask ---------------------------------------------------------------------------------------------------

    @handles(Unmask)
    def on_unmask(self, message: Unmask) -> Shares:
        """Reveal one share for each peer: of its mask key if it dropped out, of its self-mask seed if it survived."""
        self._step(4, message.round)
        self._check_signatures({row.client: row.signature for row in message.signatures}, len(message.signatures))
        survivors = set(self._survivors)
        mask_keys, self_masks = [], []
        for peer, opened in self._open_shares().items():
            if peer in survivors:
                self_masks.append(ShareOf(peer, opened[33:]))
            else:
                mask_keys.append(ShareOf(peer, opened[:33]))
        return Shares(mask_keys, self_masks)

    def _check_signatures(self, signed: dict[int, bytes], count: int) -> None:
        if len(signed) != count or not set(signed) <= set(self._survivors):
            raise Refusal("secagg.foreign-signature", "a signature twice, or of somebody who is no survivor")
        if count < self._threshold:
            raise Refusal("secagg.too-few-signatures", f"{count} signatures, threshold {self._threshold}")
        content = survivors_content(self.environment.experiment_id, self._round, self._survivors)
        agreed = self.client.agreed_participants
        directory = self.environment.directory
        charge("ed25519.verify", count)
        for client, signature in signed.items():
            registered = agreed[client] if agreed is not None else directory.signing_key(client)
            try:
                signatures.verify(registered, SURVIVORS_DOMAIN, content, signature)
            except ProtocolError:
                raise Refusal("secagg.inconsistent-survivors", f"client {client} signed another set") from None

    def _open_shares(self) -> dict[int, bytes]:
        """Both shares of every peer that has shared, by peer; shares that do not open are left out."""
        opened = {self.client.number: self._own_shares}
        charge("aead.open", len(self._received))
        for peer, sealed in self._received.items():
            nonce, associated = self._envelope(peer, self.client.number)
            try:
                opened[peer] = sealing.open_sealed(self._sealing_keys[peer], nonce, sealed, associated)
            except ProtocolError:
                continue
        return opened
