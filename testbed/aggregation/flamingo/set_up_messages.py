"""Messages that the members of a committee exchange, through the server, when their service begins.

Each dealer deals a polynomial among the members (`testbed.crypto.feldman`). In the first set-up the dealers are the
members themselves, and each deals a random secret; the key is the sum. Later the dealers are the members of the former
committee, and they deal their shares.
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
    """The committee that hands over: its signed service, and the commitments to its shares."""

    certificate: Certificate
    commitments: Commitments


class Dealing(Message, frozen=True):
    """A dealer's signed commitments, and the members' shares, sealed for each in their order.

    `proof_of_knowledge` is a signature under the first commitment, which proves that the dealer knows the secret.
    """

    commitments: Commitments
    shares: Annotated[list[SealedScalar], Members]
    signature: Signature64
    proof_of_knowledge: Signature64


class Deal(Message, frozen=True):
    """Question to a dealer: deal a random secret, or its share of the former committee's key, among this committee."""

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
    proof_of_knowledge: Signature64


class DealtShares(Message, frozen=True):
    """The shares that the dealers, in their order, have sealed for one member."""

    shares: Annotated[list[SealedScalar], Members]


class Complaints(Message, frozen=True):
    """The dealers with shares for this member that do not match their commitments; signed."""

    against: Annotated[list[ClientId], Members]
    signature: Signature64


class CheckDealings(Message, frozen=True):
    """Question to a member: check the shares of these dealings."""

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
    """The revealed share that a dealer has dealt to a member that complains."""

    dealer: ClientId
    member: ClientId
    share: Key32


class Answered(Message, frozen=True):
    """A dealer's shares for the members that complain about it."""

    shares: Annotated[list[ShareInTheOpen], Members]


class AnswerComplaints(Message, frozen=True):
    """Question to accused dealers: reveal the shares of the members that complain about you."""

    stage: ClassVar[str] = "flamingo/set-up-answer"
    Answer: ClassVar[type[Message] | None] = Answered

    round: RoundNumber
    dealings: Digest32
    complaints: Annotated[list[ComplaintsOf], Members]


class Serving(Message, frozen=True):
    """A member's signature on its service, and its state, sealed for itself, for the server to store."""

    service: Digest32
    signature: Signature64
    state: SealedState


class FinishSetUp(Message, frozen=True):
    """Question to a member: make the key from the dealings that count, given all complaints and revealed shares."""

    stage: ClassVar[str] = "flamingo/set-up-finish"
    Answer: ClassVar[type[Message] | None] = Serving

    round: RoundNumber
    complaints: Annotated[list[ComplaintsOf], Members]
    answered: list[ShareInTheOpen]


class StateOf(Message, frozen=True):
    """The state that a member has sealed for itself."""

    member: ClientId
    sealed: SealedState


class KeptService(Message, frozen=True):
    """The state of a serving committee that the server keeps from round to round."""

    certificate: Certificate
    commitments: Commitments
    states: Annotated[list[StateOf], Members]


# -- signed and sealed contents ----------------------------------------------------------------------------------------


def set_up_digest(round_number: int, committee: CommitteeList, former: Former | None) -> bytes:
    """Return 32 bytes that are equal for all parties of the same set-up.

    Args:
        round_number: the round.
        committee: the committee that is to serve.
        former: the committee that hands over, if any.
    """
    members = [[member.client, member.proof] for member in committee.members]
    service = b"" if former is None else former.certificate.service.digest
    content = signed_content(round_number, committee.first_round, members, service)
    return hashlib.sha256(_SET_UP_DOMAIN + content).digest()


def dealing_content(set_up: bytes, dealer: int, commitments: Sequence[bytes]) -> bytes:
    """Return the content that a dealer signs, with its own key and with the secret that it deals.

    Args:
        set_up: the `set_up_digest`.
        dealer: a client.
        commitments: 32 bytes each.
    """
    return signed_content(set_up, dealer, b"".join(commitments))


def dealings_digest(set_up: bytes, dealings: Sequence[DealingOf]) -> bytes:
    """Return 32 bytes that are equal for all parties that were shown the same dealings.

    Args:
        set_up: the `set_up_digest`.
        dealings: in the dealers' order.
    """
    rows = [[dealing.dealer, b"".join(dealing.commitments)] for dealing in dealings]
    return hashlib.sha256(_DEALINGS_DOMAIN + signed_content(set_up, rows)).digest()


def complaints_content(dealings: bytes, member: int, against: Sequence[int]) -> bytes:
    """Return the content that a member signs of its complaints.

    Args:
        dealings: the `dealings_digest`.
        member: a client.
        against: the dealers about which it complains.
    """
    return signed_content(dealings, member, list(against))


def commitments_digest(commitments: Sequence[bytes]) -> bytes:
    """Return 32 bytes that identify commitments."""
    return hashlib.sha256(_COMMITMENTS_DOMAIN + b"".join(commitments)).digest()


def seal_dealt(
    pair_key: bytes, dealer: int, member: int, share: bytes, set_up: bytes, commitments: Sequence[bytes]
) -> bytes:
    """Seal a dealer's share for a member, under a key for this set-up and this polynomial alone.

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
    """Open a share that `seal_dealt` has sealed; raises `OpeningFailed`.

    Args:
        pair_key, dealer, member, set_up, commitments: as in `seal_dealt`.
        sealed: its result.
    """
    return open_once(_dealt_key(pair_key, dealer, member, set_up, commitments), sealed, set_up)


def _dealt_key(pair_key: bytes, dealer: int, member: int, set_up: bytes, commitments: Sequence[bytes]) -> bytes:
    # Two runs with one seed can have the same pair keys and set-up. The commitments fix the polynomial, so that one key
    # never seals two shares.
    return content_key(pair_key, _DEALT_DOMAIN, dealer, member, set_up, commitments_digest(commitments))
