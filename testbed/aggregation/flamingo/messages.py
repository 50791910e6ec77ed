"""What the parties of `flamingo` send each other in a round, and what they sign and seal; the set-up's messages are in
`set_up_messages`.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.kit.message_parts import Many, ShareOf, SignatureOf
from testbed.aggregation.kit.sealing import content_key, open_once, seal_once
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import MOST_MEMBERS
from testbed.crypto import encryption, equal_logarithms, threshold_elgamal
from testbed.crypto.shamir import SHARE_BYTES
from testbed.messages import ClientId, Digest32, Key32, Message, RoundNumber, Signature64, Vector, signed_content

SERVICE_DOMAIN = b"testbed/flamingo/service/v1"
SEEDS_DOMAIN = b"testbed/flamingo/encrypted-seed/v1"
LABELS_DOMAIN = b"testbed/flamingo/labels/v1"
MASK_PURPOSE = b"testbed/flamingo/mask/v1"
SHARES_PURPOSE = b"testbed/flamingo/shares/v1"
_ROUND_DOMAIN = b"testbed/flamingo/round/v1"
_SEED_DOMAIN = b"testbed/flamingo/pair-seed/v1"
_DECRYPTIONS_DOMAIN = b"testbed/flamingo/decryptions/v1"
_SHARE_DOMAIN = b"testbed/flamingo/self-mask-share/v1"

SEALED_SHARE_BYTES = SHARE_BYTES + encryption.TAG_BYTES
SEALED_SEED_BYTES = 32 + threshold_elgamal.OVERHEAD_BYTES
MOST_STATE_BYTES = 200
MOST_EDGES = 100_000_000

Members = msgspec.Meta(max_length=MOST_MEMBERS)
SealedShare = Annotated[bytes, msgspec.Meta(min_length=SEALED_SHARE_BYTES, max_length=SEALED_SHARE_BYTES)]
SealedSeed = Annotated[bytes, msgspec.Meta(min_length=SEALED_SEED_BYTES, max_length=SEALED_SEED_BYTES)]
SealedState = Annotated[bytes, msgspec.Meta(max_length=MOST_STATE_BYTES)]


class Service(Message, frozen=True):
    """What a committee serves with: its members, the round of its set-up, their public key and what they have signed.

    `commitments` is the digest of the commitments to the polynomial whose values are the members' shares.
    """

    committee: CommitteeList
    set_up_in: RoundNumber
    public_key: Key32
    commitments: Digest32

    @property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it; what members sign."""
        members = [[member.client, member.proof] for member in self.committee.members]
        content = signed_content(
            self.committee.first_round, members, self.set_up_in, self.public_key, self.commitments
        )  # fmt: skip
        return hashlib.sha256(SERVICE_DOMAIN + content).digest()


class Certificate(Message, frozen=True):
    """A service, and the signatures of enough of its members on it."""

    service: Service
    signatures: Annotated[list[SignatureOf], Members]


# -- report ------------------------------------------------------------------------------------------------------------


class EncryptedSeed(Message, frozen=True):
    """The seed of the mask that a client has in common with a neighbour, encrypted to the committee; signed.

    `known` proves that the client has made the ciphertext's first half itself (`threshold_elgamal.encrypt_and_prove`).
    """

    neighbour: ClientId
    point: Key32
    sealed: SealedSeed
    signature: Signature64
    known: Signature64


class Reported(Message, frozen=True):
    """The masked, quantised update; shares of the seed of its own mask, sealed for the members in their order; and the
    seeds of the masks that it has in common with its neighbours, in theirs.
    """

    input: Vector
    shares: Annotated[list[SealedShare], Members]
    seeds: Annotated[list[EncryptedSeed], Many]


class MaskedReport(Message, frozen=True):
    """Mask your update against your neighbours among these participants; the committee will unmask the sum."""

    stage: ClassVar[str] = "flamingo/report"
    Answer: ClassVar[type[Message] | None] = Reported

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    certificate: Certificate


# -- cross-check -------------------------------------------------------------------------------------------------------


class LabelsSignature(Message, frozen=True):
    """A member's signature on who is online, as it was told."""

    signature: Signature64


class SealedMemberState(Message, frozen=True):
    """What a member has sealed for itself when its service began; the server has kept it."""

    sealed: SealedState


class CheckLabels(Message, frozen=True):
    """Whose report has arrived, of these participants; the others count as offline."""

    stage: ClassVar[str] = "flamingo/cross-check"
    Answer: ClassVar[type[Message] | None] = LabelsSignature
    Private: ClassVar[type[Message] | None] = SealedMemberState

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    online: Annotated[list[ClientId], Many]
    certificate: Certificate


# -- reconstruction ----------------------------------------------------------------------------------------------------


class CutEdge(Message, frozen=True):
    """An edge between a client that is online and one that is not, with the first half of what the former has encrypted
    for it, which it has signed.
    """

    online: ClientId
    offline: ClientId
    point: Key32
    signature: Signature64
    known: Signature64


class SharesForMember(Message, frozen=True):
    """The sealed shares that the clients online, in their order, have dealt to one member."""

    shares: Annotated[list[SealedShare], Many]


class Opened(Message, frozen=True):
    """A member's partial decryptions of the cut edges, in their order; and those shares of self-masks that open.

    `proof` proves all of the decryptions at once (`equal_logarithms`); it is empty where nothing was to be decrypted.
    """

    points: Annotated[list[Key32], msgspec.Meta(max_length=MOST_EDGES)]
    shares: Annotated[list[ShareOf], Many]
    proof: Annotated[bytes, msgspec.Meta(max_length=equal_logarithms.PROOF_BYTES)]


class Reconstruct(Message, frozen=True):
    """The members' signatures on the labels; open what these call for."""

    stage: ClassVar[str] = "flamingo/reconstruct"
    Answer: ClassVar[type[Message] | None] = Opened
    Private: ClassVar[type[Message] | None] = SharesForMember

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], Members]
    edges: Annotated[list[CutEdge], msgspec.Meta(max_length=MOST_EDGES)]


# -- what is signed and sealed -----------------------------------------------------------------------------------------


def round_digest(round_number: int, participants: Sequence[int], service: bytes) -> bytes:
    """32 bytes that only those have in common that were told the same participants and service (its digest)."""
    content = signed_content(round_number, list(participants), service)
    return hashlib.sha256(_ROUND_DOMAIN + content).digest()


def service_content(digest: bytes) -> bytes:
    """What a member signs of its service."""
    return signed_content(digest)


def labels_content(digest: bytes, online: Sequence[int]) -> bytes:
    """What a member signs of a round (`round_digest`) and who is online."""
    return signed_content(digest, list(online))


def seed_content(digest: bytes, client: int, neighbour: int, point: bytes) -> bytes:
    """What a client signs of an encrypted seed: its first half, whose it is, and the round (section 4.5)."""
    return signed_content(digest, client, neighbour, point)


def seed_associated(digest: bytes, client: int, neighbour: int) -> bytes:
    """What an encrypted seed goes with: whose it is, and the round."""
    return signed_content(digest, client, neighbour)


def decryptions_content(digest: bytes, member: int, edges: Sequence[CutEdge]) -> bytes:
    """The content of a member's proof of its decryptions: the round with its committee and key, the member, the edges.

    Args:
        digest: of the round (`round_digest`), 32 bytes.
        member: the client that proves.
        edges: all that it was asked to decrypt, in their order.
    """
    return _DECRYPTIONS_DOMAIN + signed_content(digest, member, [[edge.online, edge.offline] for edge in edges])


def pair_seed(pair_key: bytes, digest: bytes, training: bytes) -> bytes:
    """32 bytes: the seed h of the mask that two clients have in common in a round.

    With what they were asked to train in it, as they have signed nothing: those that were sent different models have no
    mask in common, and what they send stays hidden.
    """
    return content_key(pair_key, _SEED_DOMAIN, digest, training)


def seal_share(pair_key: bytes, client: int, member: int, share: bytes, digest: bytes) -> bytes:
    """A client's share for a member, 16 bytes longer; under a key for this round alone (`round_digest`)."""
    return seal_once(_share_key(pair_key, client, member, digest), share, digest)


def open_share(pair_key: bytes, client: int, member: int, sealed: bytes, digest: bytes) -> bytes:
    """Inverse of `seal_share`; raises `OpeningFailed`."""
    return open_once(_share_key(pair_key, client, member, digest), sealed, digest)


def _share_key(pair_key: bytes, client: int, member: int, digest: bytes) -> bytes:
    return content_key(pair_key, _SHARE_DOMAIN, client, member, digest)
