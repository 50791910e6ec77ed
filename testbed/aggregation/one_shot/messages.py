"""Messages of `one-shot`, stage by stage, the contents that members sign, and the sealing of shares.

A client and a committee member have a common key without exchanging messages: both have registered an X25519 key with
the PKI. Only these two can seal or open contents under it. The server passes sealed contents on, and can neither read
nor replace them.
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
    """A client's only message: its masked update, and for each committee member a sealed share of the mask's key.

    The update is `(3 C,)`: C coefficients modulo each of the three primes, four bytes each. Commitments to the shares,
    32 bytes per member, and the responses of `ShareTest` prove that the shares are consistent.
    """

    input: Vector
    shares: Annotated[list[bytes], _Members]
    commitments: bytes
    responses: bytes


class OneShotSubmit(Message, frozen=True):
    """Question for the masked update, with the key of its mask shared to this committee."""

    stage: ClassVar[str] = "one-shot/masked-input"
    Answer: ClassVar[type[Message] | None] = OneShotSubmission

    round: RoundNumber
    participants: Count
    committee: CommitteeList


class ShareFrom(Message, frozen=True):
    """A client's sealed share, passed on, with the inputs of its test.

    `root` is the root of the client's commitments, `commitment` the commitment to this share, and `values` are the
    values of the client's responses at the member's point.
    """

    client: ClientId
    sealed: bytes
    root: Digest32
    commitment: Digest32
    values: bytes


class SharesFromSurvivors(Message, frozen=True):
    """The shares for one member from the clients that have sent their input."""

    shares: Annotated[list[ShareFrom], Many]


class Rejection(Message, frozen=True):
    """A client with a share that a member will not sum, and the check that the share fails."""

    client: ClientId
    check: Annotated[str, msgspec.Meta(max_length=100)]


class OpenedShares(Message, frozen=True):
    """A member's result of opening and testing all shares: those that it will not sum."""

    rejected: Annotated[list[Rejection], Many]


class OpenShares(Message, frozen=True):
    """Question to the committee: open the shares of these clients, which were told these facts.

    `survivors` are the clients that could be in the sum. `training` is the digest of their training task, empty
    with ``model_binding: none``; `agreed` is the list of participants that they have verified, empty if they verify
    none.
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
    """A member's signature on the one set of clients for its sum of shares."""

    signature: Signature64


class SignSurvivors(Message, frozen=True):
    """Question to the committee: sign the clients of the sum; all their shares have passed."""

    stage: ClassVar[str] = "one-shot/sign-survivors"
    Answer: ClassVar[type[Message] | None] = SignedSurvivors
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]


class SummedShares(Message, frozen=True):
    """The sum of the survivors' shares that a member holds, four bytes per element, little-endian."""

    total: bytes


class SumShares(Message, frozen=True):
    """Question to the committee: sum the shares of the survivors that U members have signed."""

    stage: ClassVar[str] = "one-shot/sum-shares"
    Answer: ClassVar[type[Message] | None] = SummedShares
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], _Members]


def context_digest(
    experiment_id: bytes, notice: RoundNotice, committee: CommitteeList, code: MaskCode, bits: int
) -> bytes:
    """Return 32 bytes that are equal only for parties that were told the same; shares open only with the same digest.

    Args:
        experiment_id: 16 bytes.
        notice: the facts that the participants were told.
        committee: its members, in order.
        code: by which keys are shared to them.
        bits: of a sum's coordinate.
    """
    members = committee.first_round, list(committee.clients)
    return notice_digest(_CONTEXT_DOMAIN, experiment_id, notice, *members, code.needed, code.private, bits)


def survivors_content(round_number: int, survivors: list[int], context: bytes) -> bytes:
    """Return the content that members sign, beside the domain and the experiment.

    Args:
        round_number: the round.
        survivors: sorted client numbers.
        context: of the round (`context_digest`).
    """
    return signed_content(round_number, survivors, context)


def public_seed(experiment_id: bytes, round_number: int) -> bytes:
    """Return 32 bytes from which all parties draw the round's public polynomials.

    Args:
        experiment_id: 16 bytes.
        round_number: the round.
    """
    return hashlib.sha256(_PUBLIC_DOMAIN + experiment_id + round_number.to_bytes(8, "big")).digest()


def sealed_bytes(test: ShareTest) -> int:
    """Return the length of a sealed share with its blinds."""
    return NONCE_BYTES + ELEMENT_BYTES * test.row_length + TAG_BYTES


def commitment_to(pair_key: bytes, nonce: bytes, dealer: int, holder: int, row: Elements, context: bytes) -> bytes:
    """Return 32 bytes that bind the dealer to a row and hide it from others: HMAC under a key of dealer and holder.

    Args:
        pair_key, nonce, dealer, holder, context: as in `seal_share`.
        row: `(row_length,)`.
    """
    key = content_key(pair_key, _COMMITMENT_DOMAIN, dealer, holder)
    return prf.evaluate(key, context + nonce + elements_to_bytes(row))


def challenge_context(client: int, context: bytes) -> bytes:
    """Return the context that binds the challenge to a client's shares, beside their root.

    Args:
        client: its number.
        context: of the round (`context_digest`).
    """
    return context + client.to_bytes(8, "big")


def seal_share(
    pair_key: bytes, nonce: bytes, dealer: int, holder: int, row: Elements, context: bytes, root: bytes
) -> bytes:
    """Seal a share for a member.

    Args:
        pair_key: 32 bytes that the two have agreed on, once for all rounds.
        nonce: 12 bytes, different in each round.
        dealer, holder: client numbers.
        row: `(row_length,)` the share, and its blinds.
        context: the share opens only with the same context (`context_digest`).
        root: of the dealer's commitments; the share opens only with the same root.
    """
    key = _share_key(pair_key, dealer, holder)
    # Without `root` a malicious server could have a member test its share with factors of the server's choice.
    return nonce + encryption.seal(key, nonce, elements_to_bytes(row), context + root)


def open_share(
    pair_key: bytes, dealer: int, holder: int, share: ShareFrom, context: bytes, test: ShareTest
) -> Elements:
    """Open a share that `seal_share` has sealed.

    Args:
        pair_key, dealer, holder, context: as in `seal_share`.
        share: the sealed share with its root.
        test: of the shares.

    Raises:
        OpeningFailed: it does not open, has the wrong length, or is not made of elements of the field.
    """
    if len(share.sealed) != sealed_bytes(test):
        raise OpeningFailed("a share of another length")
    key, nonce = _share_key(pair_key, dealer, holder), share.sealed[:NONCE_BYTES]
    row = elements_from_bytes(encryption.open_sealed(key, nonce, share.sealed[NONCE_BYTES:], context + share.root))
    if row is None:
        raise OpeningFailed("a share that is not made of elements of the field")
    return row


def _share_key(pair_key: bytes, dealer: int, holder: int) -> bytes:
    return content_key(pair_key, _SHARE_DOMAIN, dealer, holder)
