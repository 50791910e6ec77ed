"""Messages of `lightsecagg`, stage by stage, the contents that clients sign, and the sealing of pieces."""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar

from testbed.aggregation.kit.message_parts import Many
from testbed.aggregation.kit.sealing import content_key, open_once, seal_once
from testbed.crypto import OpeningFailed
from testbed.crypto.prime_field import Elements, elements_from_bytes, elements_to_bytes
from testbed.messages import ClientId, Count, Key32, Message, RoundNumber, Signature64, Vector, signed_content

KEYS_DOMAIN = b"testbed/lightsecagg/advertised-key/v1"
SEALING_PURPOSE = b"testbed/lightsecagg/sealing/v1"
_PIECE_DOMAIN = b"testbed/lightsecagg/coded-piece/v1"
_ADVERTS_DOMAIN = b"testbed/lightsecagg/adverts/v1"


class LightSecAggKeyAdvert(Message, frozen=True):
    """A client's public key for this round, under which coded pieces are sealed for it; signed."""

    sealing_key: Key32
    signature: Signature64


class AdvertiseLightSecAggKeys(Message, frozen=True):
    """Question that begins the aggregation: U participants must remain, T may collude with the server."""

    stage: ClassVar[str] = "lightsecagg/advertise-keys"
    Answer: ClassVar[type[Message] | None] = LightSecAggKeyAdvert

    round: RoundNumber
    participants: Count
    threshold: Count
    max_colluders: Count


class LightSecAggAdvertOf(Message, frozen=True):
    """One client's advert, passed on."""

    client: ClientId
    sealing_key: Key32
    signature: Signature64


class PieceFor(Message, frozen=True):
    """A peer's sealed coded piece, to it or from it; a view into the message, not a copy."""

    client: ClientId
    sealed: memoryview


class PiecesForPeers(Message, frozen=True):
    """The coded pieces of a client's mask, one sealed for each peer."""

    pieces: Annotated[list[PieceFor], Many]


class ShareMasks(Message, frozen=True):
    """Question for the sealed pieces, with the keys of all clients."""

    stage: ClassVar[str] = "lightsecagg/share-masks"
    Answer: ClassVar[type[Message] | None] = PiecesForPeers

    round: RoundNumber
    adverts: Annotated[list[LightSecAggAdvertOf], Many]


class LightSecAggMasked(Message, frozen=True):
    """The masked, quantised update as elements of the field."""

    input: Vector


class PiecesFromPeers(Message, frozen=True):
    """The coded pieces that peers have sealed for this client; the senders are the clients that have shared."""

    pieces: Annotated[list[PieceFor], Many]


class MaskLightSecAggInput(Message, frozen=True):
    """Question for the masked update; the client stores the pieces of its peers."""

    stage: ClassVar[str] = "lightsecagg/masked-input"
    Answer: ClassVar[type[Message] | None] = LightSecAggMasked
    Private: ClassVar[type[Message] | None] = PiecesFromPeers

    round: RoundNumber


class SummedPieces(Message, frozen=True):
    """The sum of the survivors' coded pieces that this client holds, four bytes per element, little-endian."""

    total: bytes


class SumPieces(Message, frozen=True):
    """Question for the sum of the pieces of the survivors, the clients that have sent their masked input."""

    stage: ClassVar[str] = "lightsecagg/sum-pieces"
    Answer: ClassVar[type[Message] | None] = SummedPieces

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]


def advert_content(round_number: int, client: int, sealing_key: bytes, training: bytes) -> bytes:
    """Return the content of the signature on an advertised key, beside the domain and the experiment.

    Args:
        round_number: the round.
        client: its number.
        sealing_key: 32 bytes.
        training: digest of the training task; empty with ``model_binding: none`` (see
            `testbed.aggregation.secagg.messages.advert_content`).
    """
    return signed_content(round_number, client, sealing_key, training)


def adverts_digest(
    announced: AdvertiseLightSecAggKeys, training: bytes, adverts: Iterable[LightSecAggAdvertOf]
) -> bytes:
    """Return 32 bytes that are equal only for clients that were told the same N, U and T and shown the same keys.

    Args:
        announced: the question with N, U and T.
        training: digest of the training task.
        adverts: the keys shown, in any order.
    """
    # Sorted, because the order of the keys does not matter.
    listed = sorted((advert.client, advert.sealing_key) for advert in adverts)
    clients, keys = [client for client, _ in listed], b"".join(key for _, key in listed)
    content = signed_content(
        announced.round, announced.participants, announced.threshold, announced.max_colluders, training, clients, keys
    )
    return hashlib.sha256(_ADVERTS_DOMAIN + content).digest()


def seal_piece(pair_key: bytes, dealer: int, holder: int, piece: Elements, digest: bytes) -> bytes:
    """Seal a coded piece for a holder; the result is 16 bytes longer than the elements.

    Args:
        pair_key: 32 bytes that the two have agreed on.
        dealer, holder: client numbers.
        piece: `(piece_length,)`.
        digest: the piece opens only for a holder with the same digest (`adverts_digest`).
    """
    key = _piece_key(pair_key, dealer, holder)
    return seal_once(key, elements_to_bytes(piece), digest)


def open_piece(pair_key: bytes, dealer: int, holder: int, sealed: bytes | memoryview, digest: bytes) -> Elements:
    """Open a piece that `seal_piece` has sealed.

    Args:
        pair_key, dealer, holder, digest: as in `seal_piece`.
        sealed: its result.

    Raises:
        OpeningFailed: it does not open, or its content is not made of elements of the field.
    """
    opened = open_once(_piece_key(pair_key, dealer, holder), sealed, digest)
    piece = elements_from_bytes(opened)
    if piece is None:
        raise OpeningFailed("a coded piece that is not made of elements of the field")
    return piece


def _piece_key(pair_key: bytes, dealer: int, holder: int) -> bytes:
    # The sealing keys are of one round, so the key needs no round number.
    return content_key(pair_key, _PIECE_DOMAIN, dealer, holder)
