"""Messages of a round of `flamingo`, and the contents that parties sign and seal.

The messages of the set-up are in `set_up_messages`.
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
    """The service of a committee: its members, the round of its set-up and its public key, signed by the members.

    `commitments` is the digest of the commitments to the polynomial through the members' shares.
    """

    committee: CommitteeList
    set_up_in: RoundNumber
    public_key: Key32
    commitments: Digest32

    @property
    def digest(self) -> bytes:
        """32 bytes that identify the service; members sign them."""
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
    """The signed seed of the mask that a client has in common with a neighbour, encrypted to the committee.

    `proof_of_knowledge` proves that the client has created the ciphertext's first half itself
    (`threshold_elgamal.encrypt_and_prove`).
    """

    neighbour: ClientId
    point: Key32
    sealed: SealedSeed
    signature: Signature64
    proof_of_knowledge: Signature64


class Reported(Message, frozen=True):
    """The masked, quantised update, with everything that is needed to remove its masks.

    `shares`: of the seed of the client's own mask, sealed for the members in their order. `seeds`: of the masks in
    common with its neighbours, in their order.
    """

    input: Vector
    shares: Annotated[list[SealedShare], Members]
    seeds: Annotated[list[EncryptedSeed], Many]


class MaskedReport(Message, frozen=True):
    """Question for the update, masked against the client's neighbours among these participants."""

    stage: ClassVar[str] = "flamingo/report"
    Answer: ClassVar[type[Message] | None] = Reported

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    certificate: Certificate


# -- cross-check -------------------------------------------------------------------------------------------------------


class LabelsSignature(Message, frozen=True):
    """A member's signature on the set of clients online that it was told."""

    signature: Signature64


class SealedMemberState(Message, frozen=True):
    """The state that a member sealed for itself when its service began, and that the server has stored."""

    sealed: SealedState


class CheckLabels(Message, frozen=True):
    """Question for a signature on the labels: participants that have reported are online, the others offline."""

    stage: ClassVar[str] = "flamingo/cross-check"
    Answer: ClassVar[type[Message] | None] = LabelsSignature
    Private: ClassVar[type[Message] | None] = SealedMemberState

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    online: Annotated[list[ClientId], Many]
    certificate: Certificate


# -- reconstruction ----------------------------------------------------------------------------------------------------


class CutEdge(Message, frozen=True):
    """An edge between a client online and one offline, with the first half of the online client's signed ciphertext."""

    online: ClientId
    offline: ClientId
    point: Key32
    signature: Signature64
    proof_of_knowledge: Signature64


class SharesForMember(Message, frozen=True):
    """The sealed shares that the clients online, in their order, have dealt to one member."""

    shares: Annotated[list[SealedShare], Many]


class Opened(Message, frozen=True):
    """A member's partial decryptions of the cut edges, in their order, and the shares of self-masks that open.

    `proof` covers all decryptions (`equal_logarithms`); it is empty if there was nothing to decrypt.
    """

    points: Annotated[list[Key32], msgspec.Meta(max_length=MOST_EDGES)]
    shares: Annotated[list[ShareOf], Many]
    proof: Annotated[bytes, msgspec.Meta(max_length=equal_logarithms.PROOF_BYTES)]


class Reconstruct(Message, frozen=True):
    """Question for the shares and decryptions that the labels require, with the members' signatures on the labels."""

    stage: ClassVar[str] = "flamingo/reconstruct"
    Answer: ClassVar[type[Message] | None] = Opened
    Private: ClassVar[type[Message] | None] = SharesForMember

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], Members]
    edges: Annotated[list[CutEdge], msgspec.Meta(max_length=MOST_EDGES)]


# -- signed and sealed contents ----------------------------------------------------------------------------------------


def round_digest(round_number: int, participants: Sequence[int], service: bytes) -> bytes:
    """Return 32 bytes that are equal for all parties that were told the same participants and service.

    Args:
        round_number: the round.
        participants: sorted client numbers.
        service: its digest, 32 bytes.
    """
    content = signed_content(round_number, list(participants), service)
    return hashlib.sha256(_ROUND_DOMAIN + content).digest()


def service_content(digest: bytes) -> bytes:
    """Return the content that a member signs of its service."""
    return signed_content(digest)


def labels_content(digest: bytes, online: Sequence[int]) -> bytes:
    """Return the content that a member signs of a round (`round_digest`) and its clients online.

    Args:
        digest: of the round (`round_digest`), 32 bytes.
        online: sorted client numbers.
    """
    return signed_content(digest, list(online))


def seed_content(digest: bytes, client: int, neighbour: int, point: bytes) -> bytes:
    """Return the content that a client signs of an encrypted seed (section 4.5).

    Args:
        digest: of the round (`round_digest`), 32 bytes.
        client: the client that encrypts.
        neighbour: the other client of the mask.
        point: first half of the ciphertext, 32 bytes.
    """
    return signed_content(digest, client, neighbour, point)


def seed_associated(digest: bytes, client: int, neighbour: int) -> bytes:
    """Return the associated data of an encrypted seed.

    Args:
        digest: of the round (`round_digest`), 32 bytes.
        client: the client that encrypts.
        neighbour: the other client of the mask.
    """
    return signed_content(digest, client, neighbour)


def decryptions_content(digest: bytes, member: int, edges: Sequence[CutEdge]) -> bytes:
    """Return the content of a member's proof of its decryptions: the round with its committee, the member, the edges.

    Args:
        digest: of the round (`round_digest`), 32 bytes.
        member: the client that proves.
        edges: all that it was asked to decrypt, in their order.
    """
    return _DECRYPTIONS_DOMAIN + signed_content(digest, member, [[edge.online, edge.offline] for edge in edges])


def pair_seed(pair_key: bytes, digest: bytes, training: bytes) -> bytes:
    """Return the 32-byte seed h of the mask that two clients have in common in a round.

    Args:
        pair_key: 32 bytes that the two clients have agreed on.
        digest: of the round (`round_digest`), 32 bytes.
        training: digest of the training task.
    """
    # Clients that were sent different models have no mask in common, so their inputs stay hidden.
    return content_key(pair_key, _SEED_DOMAIN, digest, training)


def seal_share(pair_key: bytes, client: int, member: int, share: bytes, digest: bytes) -> bytes:
    """Seal a client's share for a member under a key of this round; the result is 16 bytes longer.

    Args:
        pair_key: 32 bytes that the two have agreed on.
        client: the dealer.
        member: the receiver.
        share: 33 bytes.
        digest: of the round (`round_digest`), 32 bytes.
    """
    return seal_once(_share_key(pair_key, client, member, digest), share, digest)


def open_share(pair_key: bytes, client: int, member: int, sealed: bytes, digest: bytes) -> bytes:
    """Open a share that `seal_share` has sealed; raises `OpeningFailed`.

    Args:
        pair_key, client, member, digest: as in `seal_share`.
        sealed: its result.
    """
    return open_once(_share_key(pair_key, client, member, digest), sealed, digest)


def _share_key(pair_key: bytes, client: int, member: int, digest: bytes) -> bytes:
    return content_key(pair_key, _SHARE_DOMAIN, client, member, digest)
