"""Parts of messages that several protocols share: signatures, shares, and participants' notices."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec

from testbed.messages import ClientId, Message, Signature64, signed_content

MAXIMUM_PARTICIPANTS = 100_000

Many = msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)
Share33 = Annotated[bytes, msgspec.Meta(min_length=33, max_length=33)]


def point_of(client: int) -> int:
    """Return the evaluation point of a client's Shamir share (never 0)."""
    return client + 1  # the share at 0 is the secret


class SignatureOf(Message, frozen=True):
    """One client's signature, passed on."""

    client: ClientId
    signature: Signature64


class ShareOf(Message, frozen=True):
    """A share of one client's secret."""

    client: ClientId
    share: Share33


class RoundNotice(Protocol):
    """Facts that the server tells all participants of a round, and may repeat to a committee."""

    @property
    def round(self) -> int:
        """The round."""

    @property
    def participants(self) -> int:
        """Number of participants."""

    @property
    def training(self) -> bytes:
        """Digest of the training task; empty with ``model_binding: none``."""

    @property
    def agreed(self) -> Collection[int]:
        """The verified list of participants; empty if clients verify none."""


@dataclass(frozen=True)
class ParticipantNotice:
    """`RoundNotice` as one participant knows it."""

    round: int
    participants: int
    training: bytes
    agreed: Collection[int]


def notice_digest(domain: bytes, experiment_id: bytes, notice: RoundNotice, *further: object) -> bytes:
    """Return 32 bytes that are equal only for clients that were told the same facts.

    Args:
        domain: of the protocol.
        experiment_id: 16 bytes.
        notice: the facts that a client was told.
        further: facts of the protocol.
    """
    # Sorted: parties may have the agreed list in different orders.
    content = signed_content(notice.round, notice.participants, notice.training, sorted(notice.agreed), *further)
    return hashlib.sha256(domain + experiment_id + content).digest()
