"""Client side of `lightsecagg`; see `testbed.aggregation.lightsecagg.server`."""

from typing import ClassVar

import numpy as np

from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.kit.participant import Participant, row
from testbed.aggregation.lightsecagg.messages import (
    KEYS_DOMAIN,
    SEALING_PURPOSE,
    AdvertiseLightSecAggKeys,
    LightSecAggAdvertOf,
    LightSecAggKeyAdvert,
    LightSecAggMasked,
    MaskLightSecAggInput,
    PieceFor,
    PiecesForPeers,
    PiecesFromPeers,
    ShareMasks,
    SummedPieces,
    SumPieces,
    advert_content,
    adverts_digest,
    open_piece,
    seal_piece,
)
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.crypto import OpeningFailed, memo
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import TAG_BYTES
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, elements_to_bytes, total
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import Client, StageTable, handles
from testbed.training import trained_update
from testbed.vectors.integers import IntegerVector

_ORDER = "lightsecagg.out-of-order"


class LightSecAggClient(Participant):
    """A participant of one round; the methods follow the protocol's stages.

    Attributes:
        announced: the question that began the aggregation, with N, U and T.
        code: the coding of masks.
        sealing: the key pair under which peers seal pieces for this client.
        adverts: the keys that it was shown, including its own.
        digest: equal for all clients that were shown the same keys and facts.
        mask_seed: seed of its mask.
        pair_keys: by peer, the key under which the two seal pieces.
        own_piece: the coded piece of its own mask that it keeps.
        received: by peer that has shared, its sealed piece.
    """

    STAGES: ClassVar[StageTable] = StageTable(
        start="new",
        rows={
            AdvertiseLightSecAggKeys: row("new", "advertised", _ORDER),
            ShareMasks: row("advertised", "shared", _ORDER),
            MaskLightSecAggInput: row("shared", "masked", _ORDER),
            SumPieces: row("masked", "summed", _ORDER),  # once: the difference of two sums decodes to a single mask
        },
    )
    parameters: LightSecAggParameters
    announced: AdvertiseLightSecAggKeys
    code: MaskCode
    training: bytes
    sealing: PrivateKey
    adverts: dict[int, LightSecAggAdvertOf]
    digest: bytes
    mask_seed: bytes
    own_piece: Elements

    def __init__(self, client: Client, parameters: LightSecAggParameters) -> None:
        super().__init__(client, parameters)
        self.batches = parameters.batch_policy(client.batches)
        self.pair_keys: dict[int, bytes] = {}
        self.received: dict[int, memoryview] = {}

    # -- AdvertiseKeys ------------------------------------------------------------------------------------------------

    @handles(AdvertiseLightSecAggKeys)
    def on_advertise_keys(self, message: AdvertiseLightSecAggKeys) -> LightSecAggKeyAdvert:
        """Make a key pair and sign its public half; refuse thresholds that are not the experiment's."""
        with self.progress.answering(message, message.round):
            self.check_size(message.participants)
            parameters = self.parameters
            expected = (
                parameters.threshold_for(message.participants),
                parameters.max_colluders_for(message.participants),
            )
            # With a smaller U or T of the server's choice, fewer holders would decode a single mask.
            if (message.threshold, message.max_colluders) != expected:
                detail = f"U = {message.threshold}, T = {message.max_colluders}; the experiment has U, T = {expected}"
                raise Refusal("lightsecagg.threshold-mismatch", detail)
            if not 2 <= message.threshold <= message.participants or message.max_colluders >= message.threshold:
                detail = f"U = {message.threshold}, T = {message.max_colluders} of {message.participants} participants"
                raise Refusal("lightsecagg.impossible-threshold", detail)
            update = trained_update(self, message.round)  # a number used before would bring the same masks again
            self.round, self.announced = message.round, message
            self.code = MaskCode(len(update.delta) + 1, message.threshold, message.max_colluders)
            self.training = self.digest_of_training(update)
            self.sealing = memo.key_pair(self.secret("lightsecagg sealing key"))
            meter("x25519.generate")
            content = advert_content(self.round, self.number, self.sealing.public, self.training)
            return LightSecAggKeyAdvert(self.sealing.public, self.sign(KEYS_DOMAIN, content))

    # -- ShareMasks: the paper's offline encoding and sharing of local masks ------------------------------------------

    @handles(ShareMasks)
    def on_share_masks(self, message: ShareMasks) -> PiecesForPeers:
        """Verify the peers' keys; draw a mask, code it, and seal one piece for each peer."""
        with self.progress.answering(message, message.round):
            adverts = {advert.client: advert for advert in message.adverts}
            self.check_adverts(adverts, len(message.adverts))
            self.adverts = adverts
            self.digest = adverts_digest(self.announced, self.training, adverts.values())
            self.mask_seed = self.secret("lightsecagg mask")
            return PiecesForPeers(self.coded_pieces(sorted(adverts)))

    def check_adverts(self, adverts: dict[int, LightSecAggAdvertOf], count: int) -> None:
        """Refuse keys other than those of this round's participants with the same training task."""
        if len(adverts) != count:
            raise Refusal("lightsecagg.duplicate-client", "a client is listed twice")
        if not self.announced.threshold <= count <= self.announced.participants:
            detail = f"{count} clients with keys, of {self.announced.participants}, threshold {self.code.needed}"
            raise Refusal("lightsecagg.wrong-size", detail)
        own = adverts.get(self.number)
        if own is None or own.sealing_key != self.sealing.public:
            raise Refusal("lightsecagg.own-key-mismatch", "the list does not hold this client's key")
        if len({advert.sealing_key for advert in adverts.values()}) != count:
            raise Refusal("lightsecagg.duplicate-key", "two clients have the same public key")
        agreed = self.client.agreed_participants
        if agreed is not None and not adverts.keys() <= agreed.keys():
            raise Refusal("lightsecagg.unlisted-participant", "a client with a key is not on the agreed list")
        if agreed is None:
            self.environment.look_up(adverts)
        signed = {client: (advert.sealing_key, advert.signature) for client, advert in adverts.items()}
        self.check_signatures(
            KEYS_DOMAIN,
            advert_content(self.round, 0, b"", self.training),
            signed,
            lambda client: advert_content(self.round, client, signed[client][0], self.training),
            self.not_signed,
            shown_to_all=True,
            but=self.number,
        )

    def coded_pieces(self, holders: list[int]) -> list[PieceFor]:
        """Return the coded piece of each holder, sealed; the client keeps its own piece."""
        code = self.code
        coded = code.coded(self.mask_seed, tuple(point_of(holder) for holder in holders))
        meter("mask.element", code.length + code.private * code.piece_length)
        meter("field.multiply", len(holders) * code.needed * code.piece_length)
        pieces = []
        for holder, piece in zip(holders, coded, strict=True):
            if holder == self.number:
                self.own_piece = piece.copy()  # not all that it is a part of
                continue
            key = memo.agree(self.sealing, self.adverts[holder].sealing_key, SEALING_PURPOSE)
            self.pair_keys[holder] = key
            sealed = seal_piece(key, self.number, holder, piece, self.digest)
            pieces.append(PieceFor(holder, memoryview(sealed)))
        meter("x25519.agree", len(pieces))
        meter("aead.seal", len(pieces))
        meter("aead.byte", len(pieces) * ELEMENT_BYTES * code.piece_length)
        return pieces

    # -- MaskInput: masking and uploading of local models -------------------------------------------------------------

    @handles(MaskLightSecAggInput)
    def on_mask_input(self, message: MaskLightSecAggInput, private: PiecesFromPeers) -> LightSecAggMasked:
        """Return the sum of the update and the mask in the field."""
        with self.progress.answering(message, message.round):
            received = {row.client: row.sealed for row in private.pieces}
            foreign = received.keys() - (self.adverts.keys() - {self.number})
            if foreign or len(received) != len(private.pieces):
                detail = "a client's piece is listed twice, or the client has no key in the list"
                raise Refusal("lightsecagg.unexpected-pieces", detail)
            # Fewer holders can never decode the sum.
            if len(received) + 1 < self.code.needed:
                detail = f"{len(received) + 1} clients have shared, threshold {self.code.needed}"
                raise Refusal("lightsecagg.below-threshold", detail)
            self.received = received
            return LightSecAggMasked(IntegerVector(total([self.encoded(), self.mask()])))

    def mask(self) -> Elements:
        """Return the `(d+1,)` mask."""
        meter("mask.element", self.code.length)
        meter("field.add.element", self.code.length)
        return self.code.mask(self.mask_seed)

    def encoded(self) -> Elements:
        """Return the update as `(d+1,)` elements of the field; the last element is its weight."""
        return np.asarray(self.quantised_update(trained_update(self, self.round)))

    # -- SumPieces: one-shot aggregate-model recovery -----------------------------------------------------------------

    @handles(SumPieces)
    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        """Return the sum of the survivors' pieces: once per round, for at least U survivors."""
        with self.progress.answering(message, message.round):
            survivors = set(message.survivors)
            if len(survivors) != len(message.survivors) or not survivors <= self.received.keys() | {self.number}:
                raise Refusal("lightsecagg.unknown-survivor", "a survivor is listed twice, or has not shared")
            if len(survivors) < self.code.needed:
                detail = f"{len(survivors)} survivors; at least {self.code.needed}"
                raise Refusal("lightsecagg.below-threshold", detail)
            self.batches.check_survivors(message.survivors)
            pieces = [self.piece_of(survivor) for survivor in sorted(survivors)]
            meter("field.add.element", len(pieces) * self.code.piece_length)
            return SummedPieces(elements_to_bytes(total(pieces)))

    def piece_of(self, peer: int) -> Elements:
        """Return a peer's coded piece; refuses a piece that was sealed for clients that were shown other keys."""
        if peer == self.number:
            return self.own_piece
        meter("aead.open")
        meter("aead.byte", ELEMENT_BYTES * self.code.piece_length)
        sealed = self.received[peer]
        try:
            if len(sealed) != ELEMENT_BYTES * self.code.piece_length + TAG_BYTES:
                raise OpeningFailed(f"a coded piece of {len(sealed)} bytes has the wrong length")
            return open_piece(self.pair_keys[peer], peer, self.number, sealed, self.digest)
        except OpeningFailed as error:
            raise Refusal("lightsecagg.invalid-piece", f"client {peer}: {error}") from None
