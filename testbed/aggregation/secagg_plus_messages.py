"""What the parties of `secagg-plus` send each other where it differs from `secagg`: what is for one client is private.

The stages have the names of those of `secagg`, so that the two can be compared stage by stage.
"""

from typing import Annotated, ClassVar

from testbed.aggregation.secagg_messages import AdvertOf, KeyAdvert, Many, SealedForPeers, Shares, SignatureOf
from testbed.messages import ClientId, Count, Message, RoundNumber, signed_content


def graph_advert_content(
    round_number: int, client: int, sealing_key: bytes, mask_key: bytes, list_digest: bytes
) -> bytes:
    """What the signature on advertised keys covers: also the list, so that neighbours know that they share one."""
    return signed_content(round_number, client, sealing_key, mask_key, list_digest)


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


class NeighbourSignatures(Message, frozen=True):
    """The signatures of one client's neighbours on the set of survivors."""

    signatures: Annotated[list[SignatureOf], Many]


class UnmaskNeighbours(Message, frozen=True):
    """Reveal the shares that the signed set calls for."""

    stage: ClassVar[str] = "secagg/unmask"
    Answer: ClassVar[type[Message] | None] = Shares
    Private: ClassVar[type[Message] | None] = NeighbourSignatures

    round: RoundNumber
