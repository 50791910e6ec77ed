"""What the parties of `one-shot` send each other, stage by stage, what is signed, and how shares are sealed.

A client and a member of the committee have a key in common without having spoken: both have registered an X25519 key
with the PKI. What is sealed under it opens for nobody else, and nobody else can have sealed it; the server, which
passes it on, can neither read it nor put its own in its place.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.secagg.messages import MAXIMUM_PARTICIPANTS, SignatureOf
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import MOST_MEMBERS
from testbed.crypto import OpeningFailed, encryption, prf
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import NONCE_BYTES, TAG_BYTES
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, elements_from_bytes, elements_to_bytes
from testbed.messages import ClientId, Count, Message, RoundNumber, Signature64, Vector, signed_content

SURVIVORS_DOMAIN = b"testbed/one-shot/survivors/v1"
SEALING_PURPOSE = b"testbed/one-shot/sealing/v1"
_SHARE_DOMAIN = b"testbed/one-shot/key-share/v1"
_CONTEXT_DOMAIN = b"testbed/one-shot/context/v1"
_PUBLIC_DOMAIN = b"testbed/one-shot/public-polynomials/v1"

_Many = msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)
_Members = msgspec.Meta(max_length=MOST_MEMBERS)


class Submission(Message, frozen=True):
    """All that a client says: its masked update, and for each member of the committee a sealed share of the mask's key.

    The update is `(3 C,)`: C coefficients modulo each of the three primes, four bytes each.
    """

    input: Vector
    shares: Annotated[list[bytes], _Members]


class Submit(Message, frozen=True):
    """Mask your update, and share the key of the mask to this committee."""

    stage: ClassVar[str] = "one-shot/masked-input"
    Answer: ClassVar[type[Message] | None] = Submission

    round: RoundNumber
    participants: Count
    committee: CommitteeList


class ShareFrom(Message, frozen=True):
    """One client's sealed share, passed on."""

    client: ClientId
    sealed: bytes


class SharesFromSurvivors(Message, frozen=True):
    """What the survivors have sealed for one member."""

    shares: Annotated[list[ShareFrom], _Many]


class SignedSurvivors(Message, frozen=True):
    """A member has opened all shares: its signature on whose they are."""

    signature: Signature64


class OpenShares(Message, frozen=True):
    """To the committee: whose updates are to be summed, and what these clients were told.

    `training` is the digest of what they were asked to train, empty with ``model_binding: none``; `agreed` the list of
    participants that they have verified, empty where they verify none.
    """

    stage: ClassVar[str] = "one-shot/open-shares"
    Answer: ClassVar[type[Message] | None] = SignedSurvivors
    Private: ClassVar[type[Message] | None] = SharesFromSurvivors
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    participants: Count
    training: Annotated[bytes, msgspec.Meta(max_length=32)]
    agreed: Annotated[list[ClientId], _Many]
    committee: CommitteeList
    survivors: Annotated[list[ClientId], _Many]


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
    experiment_id: bytes,
    round_number: int,
    participants: int,
    training: bytes,
    agreed: Iterable[int],
    committee: CommitteeList,
    code: MaskCode,
    bits: int,
) -> bytes:
    """32 bytes that only clients have in common that were told the same; their shares open for members with the same.

    Args:
        experiment_id: 16 bytes.
        round_number, participants: what the server says.
        training, agreed: see `OpenShares`.
        committee: its members, in order.
        code: how keys are shared to them.
        bits: of a sum's coordinate.
    """
    content = signed_content(
        round_number, participants, training, sorted(agreed), committee.first_round, list(committee.clients),
        code.needed, code.private, bits,
    )  # fmt: skip
    return hashlib.sha256(_CONTEXT_DOMAIN + experiment_id + content).digest()


def survivors_content(round_number: int, survivors: list[int], context: bytes) -> bytes:
    """What members sign, beside the domain and the experiment; `survivors` are sorted."""
    return signed_content(round_number, survivors, context)


def public_seed(experiment_id: bytes, round_number: int) -> bytes:
    """32 bytes from which everybody draws the round's public polynomials."""
    return hashlib.sha256(_PUBLIC_DOMAIN + experiment_id + round_number.to_bytes(8, "big")).digest()


def sealed_bytes(code: MaskCode) -> int:
    """How long a sealed share is."""
    return NONCE_BYTES + ELEMENT_BYTES * code.piece_length + TAG_BYTES


def seal_share(pair_key: bytes, nonce: bytes, dealer: int, holder: int, share: Elements, context: bytes) -> bytes:
    """A share as it goes through the server.

    Args:
        pair_key: 32 bytes that the two have agreed on, once and for all rounds.
        nonce: 12 bytes, another one in each round.
        dealer, holder: client numbers.
        share: `(piece_length,)`.
        context: it opens with the same one (`context_digest`).
    """
    return nonce + encryption.seal(_share_key(pair_key, dealer, holder), nonce, elements_to_bytes(share), context)


def open_share(pair_key: bytes, dealer: int, holder: int, sealed: bytes, context: bytes, code: MaskCode) -> Elements:
    """Inverse of `seal_share`; raises `OpeningFailed`, also for what are no elements of the field, or too many."""
    if len(sealed) != sealed_bytes(code):
        raise OpeningFailed("a share of another length")
    key, nonce = _share_key(pair_key, dealer, holder), sealed[:NONCE_BYTES]
    share = elements_from_bytes(encryption.open_sealed(key, nonce, sealed[NONCE_BYTES:], context))
    if share is None:
        raise OpeningFailed("a share that is not made of elements of the field")
    return share


def _share_key(pair_key: bytes, dealer: int, holder: int) -> bytes:
    return prf.evaluate(pair_key, _SHARE_DOMAIN + signed_content(dealer, holder))
