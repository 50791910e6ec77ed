"""What the members of a committee send each other, through the server, when their service begins.

Each dealer deals a polynomial among the members (`testbed.crypto.feldman`). In the first set-up the dealers are the
members themselves, and what they deal is random; the key is the sum. Later they are the members of the former
committee, and what they deal is their shares.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.flamingo.messages import Certificate, Members, SealedMemberState, SealedState
from testbed.aggregation.kit.sealing import content_key, open_once, seal_once
from testbed.committee.messages import CommitteeList
from testbed.crypto import encryption
from testbed.messages import ClientId, Digest32, Key32, Message, RoundNumber, Signature64, signed_content

DEALING_DOMAIN = b"testbed/flamingo/dealing/v1"
COMPLAINTS_DOMAIN = b"testbed/flamingo/complaints/v1"
KNOWN_DOMAIN = b"testbed/flamingo/known-secret/v1"
DEALING_PURPOSE = b"testbed/flamingo/dealt-share/v1"
_DEALT_DOMAIN = b"testbed/flamingo/dealt-share/v1"
_SET_UP_DOMAIN = b"testbed/flamingo/set-up/v1"
_DEALINGS_DOMAIN = b"testbed/flamingo/dealings/v1"
_COMMITMENTS_DOMAIN = b"testbed/flamingo/commitments/v1"

SEALED_SCALAR_BYTES = 32 + encryption.TAG_BYTES

SealedScalar = Annotated[bytes, msgspec.Meta(min_length=SEALED_SCALAR_BYTES, max_length=SEALED_SCALAR_BYTES)]
Commitments = Annotated[list[Key32], Members]


class Former(Message, frozen=True):
    """The committee that hands over: its service as its members have signed it, and the commitments to its shares."""

    certificate: Certificate
    commitments: Commitments


class Dealing(Message, frozen=True):
    """A dealer's commitments, which it has signed, and the members' shares, sealed for each in their order.

    `known` is a signature, too, under the first of the commitments: whoever has made that knows what it deals.
    """

    commitments: Commitments
    shares: Annotated[list[SealedScalar], Members]
    signature: Signature64
    known: Signature64


class Deal(Message, frozen=True):
    """This committee is to serve: deal a random secret among it, or your share of the former committee's."""

    stage: ClassVar[str] = "flamingo/set-up-deal"
    Answer: ClassVar[type[Message] | None] = Dealing
    Private: ClassVar[type[Message] | None] = SealedMemberState

    round: RoundNumber
    committee: CommitteeList
    former: Former | None


class DealingOf(Message, frozen=True):
    """One dealer's commitments, passed on."""

    dealer: ClientId
    commitments: Commitments
    signature: Signature64
    known: Signature64


class DealtShares(Message, frozen=True):
    """The shares that the dealers, in their order, have sealed for one member."""

    shares: Annotated[list[SealedScalar], Members]


class Complaints(Message, frozen=True):
    """The dealers whose shares for this member are not what they have committed to; signed."""

    against: Annotated[list[ClientId], Members]
    signature: Signature64


class CheckDealings(Message, frozen=True):
    """What has been dealt; check your shares."""

    stage: ClassVar[str] = "flamingo/set-up-check"
    Answer: ClassVar[type[Message] | None] = Complaints
    Private: ClassVar[type[Message] | None] = DealtShares

    round: RoundNumber
    committee: CommitteeList
    former: Former | None
    dealings: Annotated[list[DealingOf], Members]


class ComplaintsOf(Message, frozen=True):
    """One member's complaints, passed on."""

    member: ClientId
    against: Annotated[list[ClientId], Members]
    signature: Signature64


class ShareInTheOpen(Message, frozen=True):
    """The share that a dealer has dealt to a member who complains."""

    dealer: ClientId
    member: ClientId
    share: Key32


class Answered(Message, frozen=True):
    """A dealer's shares for those who complain about it."""

    shares: Annotated[list[ShareInTheOpen], Members]


class AnswerComplaints(Message, frozen=True):
    """These members complain; whoever they complain about shows what it has dealt to them."""

    stage: ClassVar[str] = "flamingo/set-up-answer"
    Answer: ClassVar[type[Message] | None] = Answered

    round: RoundNumber
    dealings: Digest32
    complaints: Annotated[list[ComplaintsOf], Members]


class Serving(Message, frozen=True):
    """A member's signature on its service; and what it needs for it, sealed for itself, for the server to keep."""

    service: Digest32
    signature: Signature64
    state: SealedState


class FinishSetUp(Message, frozen=True):
    """All complaints and what was answered; who has dealt what nobody can complain about makes the key."""

    stage: ClassVar[str] = "flamingo/set-up-finish"
    Answer: ClassVar[type[Message] | None] = Serving

    round: RoundNumber
    complaints: Annotated[list[ComplaintsOf], Members]
    answered: list[ShareInTheOpen]


class StateOf(Message, frozen=True):
    """What a member has sealed for itself."""

    member: ClientId
    sealed: SealedState


class KeptService(Message, frozen=True):
    """What the server keeps from round to round of a committee that serves."""

    certificate: Certificate
    commitments: Commitments
    states: Annotated[list[StateOf], Members]


# -- what is signed and sealed -----------------------------------------------------------------------------------------


def set_up_digest(round_number: int, committee: CommitteeList, former: Former | None) -> bytes:
    """32 bytes that only those have in common that take part in the same set-up."""
    members = [[member.client, member.proof] for member in committee.members]
    service = b"" if former is None else former.certificate.service.digest
    content = signed_content(round_number, committee.first_round, members, service)
    return hashlib.sha256(_SET_UP_DOMAIN + content).digest()


def dealing_content(set_up: bytes, dealer: int, commitments: Sequence[bytes]) -> bytes:
    """What a dealer signs, with its own key and with what it deals; `set_up` is the `set_up_digest`."""
    return signed_content(set_up, dealer, b"".join(commitments))


def dealings_digest(set_up: bytes, dealings: Sequence[DealingOf]) -> bytes:
    """32 bytes that only those have in common that were shown the same dealings."""
    rows = [[dealing.dealer, b"".join(dealing.commitments)] for dealing in dealings]
    return hashlib.sha256(_DEALINGS_DOMAIN + signed_content(set_up, rows)).digest()


def complaints_content(dealings: bytes, member: int, against: Sequence[int]) -> bytes:
    """What a member signs of its complaints about dealings (`dealings_digest`)."""
    return signed_content(dealings, member, list(against))


def commitments_digest(commitments: Sequence[bytes]) -> bytes:
    """32 bytes that stand for commitments."""
    return hashlib.sha256(_COMMITMENTS_DOMAIN + b"".join(commitments)).digest()


def seal_dealt(
    pair_key: bytes, dealer: int, member: int, share: bytes, set_up: bytes, commitments: Sequence[bytes]
) -> bytes:
    """Seal a dealer's share for a member, under a key for this set-up and this polynomial alone.

    Pair keys, the experiment's id and the set-up can be the same in two runs with one seed. The commitments fix the
    polynomial, so that one key never seals two shares.

    Args:
        pair_key: of dealer and member, 32 bytes.
        dealer: a client.
        member: a client.
        share: 32 bytes.
        set_up: its `set_up_digest`.
        commitments: the dealer's, to the polynomial that the share is on.

    Returns:
        `SEALED_SCALAR_BYTES`.
    """
    return seal_once(_dealt_key(pair_key, dealer, member, set_up, commitments), share, set_up)


def open_dealt(
    pair_key: bytes, dealer: int, member: int, sealed: bytes, set_up: bytes, commitments: Sequence[bytes]
) -> bytes:
    """Inverse of `seal_dealt`; raises `OpeningFailed`."""
    return open_once(_dealt_key(pair_key, dealer, member, set_up, commitments), sealed, set_up)


def _dealt_key(pair_key: bytes, dealer: int, member: int, set_up: bytes, commitments: Sequence[bytes]) -> bytes:
    return content_key(pair_key, _DEALT_DOMAIN, dealer, member, set_up, commitments_digest(commitments))
