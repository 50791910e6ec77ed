"""What the parties of `pine` send each other, stage by stage, and how a client seals the helper's share.

Stages and parties are those of DAP (draft-ietf-ppm-dap): clients upload to the leader, which passes the helper's shares
on. There they are sealed to the helper's key by anybody; here under the key that client and helper agree on, by the
X25519 keys that both have registered with the PKI: so nobody but the client has sealed them, and a leader cannot fill
up a sum with reports of its own.
"""

from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.kit.message_parts import Many, RoundNotice, notice_digest
from testbed.aggregation.kit.sealing import content_key, open_once, seal_once
from testbed.crypto.pine import NONCE_BYTES, PineVdaf
from testbed.messages import ClientId, Count, Key32, Message, RoundNumber

SEALING_PURPOSE = b"testbed/pine/sealing/v1"
_SHARE_DOMAIN = b"testbed/pine/helper-share/v1"
_CONTEXT_DOMAIN = b"testbed/pine/context/v1"

ReportNonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class VerifyKey(Message, frozen=True):
    """The key of both aggregators, of which clients learn nothing."""

    key: Key32


class DrawVerifyKey(Message, frozen=True):
    """To the helper: draw the key of this round, before there is a report."""

    stage: ClassVar[str] = "pine/verify-key"
    Answer: ClassVar[type[Message] | None] = VerifyKey
    as_participant: ClassVar[bool] = False

    round: RoundNumber


class PineSubmission(Message, frozen=True):
    """A report: both aggregators' share of it, the leader's, and the helper's, sealed."""

    nonce: ReportNonce
    public: bytes
    leader: bytes
    helper: bytes


class PineSubmit(Message, frozen=True):
    """Share your update to the server and this helper."""

    stage: ClassVar[str] = "pine/report"
    Answer: ClassVar[type[Message] | None] = PineSubmission

    round: RoundNumber
    participants: Count
    helper: ClientId


class ReportFrom(Message, frozen=True):
    """One client's report as it is passed on, and what the leader says of it (`Prepared.share`)."""

    client: ClientId
    nonce: ReportNonce
    public: bytes
    helper: bytes
    prepared: bytes


class PreparedReport(Message, frozen=True):
    """The seeds that both aggregators must have found of a valid report; of another, the check that it fails."""

    client: ClientId
    seeds: bytes = b""
    rejected: Annotated[str, msgspec.Meta(max_length=100)] = ""


class PreparedReports(Message, frozen=True):
    """What the helper makes of the reports, in their order."""

    reports: Annotated[list[PreparedReport], Many]


class PrepareReports(Message, frozen=True):
    """To the helper: all reports of the round, and what the clients were told.

    `training` is the digest of what they were asked to train, empty with ``model_binding: none``; `agreed` the list of
    participants that they have verified, empty where they verify none.
    """

    stage: ClassVar[str] = "pine/prepare"
    Answer: ClassVar[type[Message] | None] = PreparedReports
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    participants: Count
    dimension: Count
    training: Annotated[bytes, msgspec.Meta(max_length=32)]
    agreed: Annotated[list[ClientId], Many]
    reports: Annotated[list[ReportFrom], Many]


class AggregateShare(Message, frozen=True):
    """The sum of the helper's shares, eight bytes an element, little-endian."""

    share: bytes


class SumReports(Message, frozen=True):
    """To the helper: sum your shares of these valid reports."""

    stage: ClassVar[str] = "pine/aggregate-share"
    Answer: ClassVar[type[Message] | None] = AggregateShare
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    clients: Annotated[list[ClientId], Many]


def context_digest(experiment_id: bytes, notice: RoundNotice, helper: int, dimension: int, vdaf: PineVdaf) -> bytes:
    """32 bytes that a client has in common with the helper only if both were told the same.

    Args:
        experiment_id: 16 bytes.
        told: what the participants were told.
        helper: who it is.
        dimension: of an update.
        vdaf: what a report is of.
    """
    of_report = vdaf.norm_bound, vdaf.chunk, vdaf.norm_chunk
    return notice_digest(_CONTEXT_DOMAIN, experiment_id, notice, helper, dimension, *of_report)


def seal_share(pair_key: bytes, client: int, helper: int, report: tuple[bytes, bytes, bytes], context: bytes) -> bytes:
    """The helper's share as it goes through the server.

    Args:
        pair_key: 32 bytes that the two have agreed on, once and for all rounds.
        client, helper: their numbers.
        report: its nonce, its public share and the helper's.
        context: it opens with the same one (`context_digest`).
    """
    nonce, public, share = report
    key = _share_key(pair_key, client, helper, nonce)
    return seal_once(key, share, context + public)


def open_share(
    pair_key: bytes, client: int, helper: int, nonce: bytes, public: bytes, sealed: bytes, context: bytes
) -> bytes:
    """Inverse of `seal_share`; raises `OpeningFailed`."""
    key = _share_key(pair_key, client, helper, nonce)
    return open_once(key, sealed, context + public)


def _share_key(pair_key: bytes, client: int, helper: int, nonce: bytes) -> bytes:
    """Of one report: the nonce is 16 random bytes of its own, so the key is used once."""
    return content_key(pair_key, _SHARE_DOMAIN, client, helper, nonce)
