"""What the parties of `secagg-plus` send each other where it differs from `secagg`: what is for one client is private.

The stages have the names of those of `secagg`, so that the two can be compared stage by stage.
"""

import hashlib
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.secagg.messages import (
    AdvertOf,
    KeyAdvert,
    Many,
    Masked,
    MaskInput,
    SealedForPeers,
    Shares,
    SignatureOf,
)
from testbed.messages import ClientId, Count, Message, RoundNumber, signed_content

_COMMON_DOMAIN = b"testbed/secagg-plus/common/v1"

Tag16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


def graph_advert_content(
    round_number: int, client: int, sealing_key: bytes, mask_key: bytes, list_digest: bytes, training: bytes
) -> bytes:
    """What the signature on advertised keys covers: also the list, so that neighbours know that they share one.

    `training` is as in `secagg.messages.advert_content`.
    """
    return signed_content(round_number, client, sealing_key, mask_key, list_digest, training)


def common_digest(list_digest: bytes, training: bytes) -> bytes:
    """32 bytes that only clients have in common that were told the same participants and trained the same.

    Not the digest that the graph is drawn by: a server that could change that with the model would try models until the
    graph suits it.
    """
    return hashlib.sha256(_COMMON_DOMAIN + signed_content(list_digest, training)).digest()


class AnnounceGraph(Message, frozen=True):
    """Aggregation begins among these; the list gives the graph, k and t say how many neighbours and holders."""

    stage: ClassVar[str] = "secagg/advertise-keys"
    Answer: ClassVar[type[Message] | None] = KeyAdvert

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    neighbours: Count
    threshold: Count


class NeighbourKeys(Message, frozen=True):
    """The advertised keys of one client's neighbours, and its own."""

    adverts: Annotated[list[AdvertOf], Many]


class ShareKeysAmongNeighbours(Message, frozen=True):
    """Share your secrets with those whose keys you are sent."""

    stage: ClassVar[str] = "secagg/share-keys"
    Answer: ClassVar[type[Message] | None] = SealedForPeers
    Private: ClassVar[type[Message] | None] = NeighbourKeys

    round: RoundNumber


class MaskedWith(Message, frozen=True):
    """A client's word to one neighbour (from it, or to it) that its input is masked with that one, too.

    Authenticated under the key that the two share, and not secret.
    """

    client: ClientId
    tag: Tag16


class MaskedAmongNeighbours(Masked, frozen=True):
    """The masked, quantised update; and for each neighbour that it is masked with, a tag that says so."""

    masked_with: Annotated[list[MaskedWith], Many]


class MaskInputAmongNeighbours(MaskInput, frozen=True):
    """Mask your update against the neighbours that have shared."""

    Answer: ClassVar[type[Message] | None] = MaskedAmongNeighbours


class NeighbourSignatures(Message, frozen=True):
    """The signatures of one client's neighbours on the set of survivors, and which of them have masked with it."""

    signatures: Annotated[list[SignatureOf], Many]
    masked_with: Annotated[list[MaskedWith], Many]


class UnmaskNeighbours(Message, frozen=True):
    """Reveal the shares that the signed set calls for."""

    stage: ClassVar[str] = "secagg/unmask"
    Answer: ClassVar[type[Message] | None] = Shares
    Private: ClassVar[type[Message] | None] = NeighbourSignatures

    round: RoundNumber
