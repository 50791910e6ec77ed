"""What the parties of `one-shot` send each other, stage by stage, what is signed, and how shares are sealed.

A client and a member of the committee have a key in common without having spoken: both have registered an X25519 key
with the PKI. What is sealed under it opens for nobody else, and nobody else can have sealed it; the server, which
passes it on, can neither read it nor put its own in its place.
"""

import hashlib
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.kit.message_parts import Many, RoundNotice, SignatureOf, notice_digest
from testbed.aggregation.kit.sealing import content_key
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import MOST_MEMBERS
from testbed.crypto import OpeningFailed, encryption, prf
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import NONCE_BYTES, TAG_BYTES
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, elements_from_bytes, elements_to_bytes
from testbed.crypto.share_test import ROOT_BYTES, ShareTest
from testbed.messages import ClientId, Count, Message, RoundNumber, Signature64, Vector, signed_content

SURVIVORS_DOMAIN = b"testbed/one-shot/survivors/v1"
SEALING_PURPOSE = b"testbed/one-shot/sealing/v1"
_SHARE_DOMAIN = b"testbed/one-shot/key-share/v1"
_COMMITMENT_DOMAIN = b"testbed/one-shot/commitment/v1"
COMMITMENT_BYTES = 32
_CONTEXT_DOMAIN = b"testbed/one-shot/context/v1"
_PUBLIC_DOMAIN = b"testbed/one-shot/public-polynomials/v1"

_Members = msgspec.Meta(max_length=MOST_MEMBERS)
Digest32 = Annotated[bytes, msgspec.Meta(min_length=ROOT_BYTES, max_length=ROOT_BYTES)]


class OneShotSubmission(Message, frozen=True):
    """All that a client says: its masked update, and for each member of the committee a sealed share of the mask's key.

    The update is `(3 C,)`: C coefficients modulo each of the three primes, four bytes each. That the shares belong
    together is shown by commitments to them, 32 bytes for each member, and by the responses of `ShareTest`.
    """

    input: Vector
    shares: Annotated[list[bytes], _Members]
    commitments: bytes
    responses: bytes


class OneShotSubmit(Message, frozen=True):
    """Mask your update, and share the key of the mask to this committee."""

    stage: ClassVar[str] = "one-shot/masked-input"
    Answer: ClassVar[type[Message] | None] = OneShotSubmission

    round: RoundNumber
    participants: Count
    committee: CommitteeList


class ShareFrom(Message, frozen=True):
    """One client's sealed share, passed on, and what it is tested with.

    `root` is that of the client's commitments, `commitment` the one to this share, and `values` those of the client's
    responses at the member's point.
    """

    client: ClientId
    sealed: bytes
    root: Digest32
    commitment: Digest32
    values: bytes


class SharesFromSurvivors(Message, frozen=True):
    """Shares for one member, by the clients whose input has arrived."""

    shares: Annotated[list[ShareFrom], Many]


class Rejection(Message, frozen=True):
    """A client whose share a member will not sum, and the check that the share fails."""

    client: ClientId
    check: Annotated[str, msgspec.Meta(max_length=100)]


class OpenedShares(Message, frozen=True):
    """A member has opened and tested all shares: those that it will not sum."""

    rejected: Annotated[list[Rejection], Many]


class OpenShares(Message, frozen=True):
    """To the committee: whose updates could be summed, and what these clients were told.

    `training` is the digest of what they were asked to train, empty with ``model_binding: none``; `agreed` the list of
    participants that they have verified, empty where they verify none.
    """

    stage: ClassVar[str] = "one-shot/open-shares"
    Answer: ClassVar[type[Message] | None] = OpenedShares
    Private: ClassVar[type[Message] | None] = SharesFromSurvivors
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    participants: Count
    training: Annotated[bytes, msgspec.Meta(max_length=32)]
    agreed: Annotated[list[ClientId], Many]
    committee: CommitteeList
    survivors: Annotated[list[ClientId], Many]


class SignedSurvivors(Message, frozen=True):
    """A member's signature on the one set whose shares it will sum."""

    signature: Signature64


class SignSurvivors(Message, frozen=True):
    """To the committee: whose updates are to be summed, all of whose shares have passed."""

    stage: ClassVar[str] = "one-shot/sign-survivors"
    Answer: ClassVar[type[Message] | None] = SignedSurvivors
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]


class SummedShares(Message, frozen=True):
    """The sum of the survivors' shares that a member holds, four bytes an element, little-endian."""

    total: bytes


class SumShares(Message, frozen=True):
    """So many members have signed the survivors: answer with the sum of their shares."""

    stage: ClassVar[str] = "one-shot/sum-shares"
    Answer: ClassVar[type[Message] | None] = SummedShares
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], _Members]


def context_digest(
    experiment_id: bytes, notice: RoundNotice, committee: CommitteeList, code: MaskCode, bits: int
) -> bytes:
    """32 bytes that only clients have in common that were told the same; their shares open for members with the same.

    Args:
        experiment_id: 16 bytes.
        told: what the participants were told.
        committee: its members, in order.
        code: how keys are shared to them.
        bits: of a sum's coordinate.
    """
    members = committee.first_round, list(committee.clients)
    return notice_digest(_CONTEXT_DOMAIN, experiment_id, notice, *members, code.needed, code.private, bits)


def survivors_content(round_number: int, survivors: list[int], context: bytes) -> bytes:
    """What members sign, beside the domain and the experiment; `survivors` are sorted."""
    return signed_content(round_number, survivors, context)


def public_seed(experiment_id: bytes, round_number: int) -> bytes:
    """32 bytes from which everybody draws the round's public polynomials."""
    return hashlib.sha256(_PUBLIC_DOMAIN + experiment_id + round_number.to_bytes(8, "big")).digest()


def sealed_bytes(test: ShareTest) -> int:
    """How long a sealed share is, with its blinds."""
    return NONCE_BYTES + ELEMENT_BYTES * test.row_length + TAG_BYTES


def commitment_to(pair_key: bytes, nonce: bytes, dealer: int, holder: int, row: Elements, context: bytes) -> bytes:
    """32 bytes that bind the dealer to a row, and say nothing of it to others: HMAC under a key that both know.

    Args:
        pair_key, nonce, dealer, holder, context: as in `seal_share`.
        row: `(row_length,)`.
    """
    key = content_key(pair_key, _COMMITMENT_DOMAIN, dealer, holder)
    return prf.evaluate(key, context + nonce + elements_to_bytes(row))


def challenge_context(client: int, context: bytes) -> bytes:
    """The context that binds the challenge to a client's shares, beside their root."""
    return context + client.to_bytes(8, "big")


def seal_share(
    pair_key: bytes, nonce: bytes, dealer: int, holder: int, row: Elements, context: bytes, root: bytes
) -> bytes:
    """A share as it goes through the server.

    Args:
        pair_key: 32 bytes that the two have agreed on, once and for all rounds.
        nonce: 12 bytes, another one in each round.
        dealer, holder: client numbers.
        row: `(row_length,)` the share, and its blinds.
        context: it opens with the same one (`context_digest`).
        root: of the dealer's commitments; it opens with the same one.
    """
    key = _share_key(pair_key, dealer, holder)
    return nonce + encryption.seal(key, nonce, elements_to_bytes(row), context + root)


def open_share(
    pair_key: bytes, dealer: int, holder: int, share: ShareFrom, context: bytes, test: ShareTest
) -> Elements:
    """Inverse of `seal_share`; raises `OpeningFailed`, also for what are no elements of the field, or too many."""
    if len(share.sealed) != sealed_bytes(test):
        raise OpeningFailed("a share of another length")
    key, nonce = _share_key(pair_key, dealer, holder), share.sealed[:NONCE_BYTES]
    row = elements_from_bytes(encryption.open_sealed(key, nonce, share.sealed[NONCE_BYTES:], context + share.root))
    if row is None:
        raise OpeningFailed("a share that is not made of elements of the field")
    return row


def _share_key(pair_key: bytes, dealer: int, holder: int) -> bytes:
    return content_key(pair_key, _SHARE_DOMAIN, dealer, holder)
