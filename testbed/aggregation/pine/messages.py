"""Messages of `pine`, stage by stage, and the sealing of the helper's share.

Stages and parties are those of DAP (draft-ietf-ppm-dap): clients upload to the leader, which passes the helper's shares
on. In DAP any party can seal a share to the helper's key. Here a share is sealed under the key of client and helper,
from the X25519 keys that both have registered with the PKI. So only the client can have sealed it, and a leader cannot
fill a sum with reports of its own.
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
    """The verification key of both aggregators; clients learn nothing of it."""

    key: Key32


class DrawVerifyKey(Message, frozen=True):
    """Question to the helper: draw the verification key of this round, before there is a report."""

    stage: ClassVar[str] = "pine/verify-key"
    Answer: ClassVar[type[Message] | None] = VerifyKey
    as_participant: ClassVar[bool] = False

    round: RoundNumber


class PineSubmission(Message, frozen=True):
    """A report: the public share, the leader's share, and the helper's sealed share."""

    nonce: ReportNonce
    public: bytes
    leader: bytes
    helper: bytes


class PineSubmit(Message, frozen=True):
    """Question for the update, shared to the server and this helper."""

    stage: ClassVar[str] = "pine/report"
    Answer: ClassVar[type[Message] | None] = PineSubmission

    round: RoundNumber
    participants: Count
    helper: ClientId


class ReportFrom(Message, frozen=True):
    """A client's report, passed on, with the leader's prepared share (`Prepared.share`)."""

    client: ClientId
    nonce: ReportNonce
    public: bytes
    helper: bytes
    prepared: bytes


class PreparedReport(Message, frozen=True):
    """Result of one report: the seeds that both aggregators must have derived if it is valid, or the failed check."""

    client: ClientId
    seeds: bytes = b""
    rejected: Annotated[str, msgspec.Meta(max_length=100)] = ""


class PreparedReports(Message, frozen=True):
    """The helper's results for the reports, in their order."""

    reports: Annotated[list[PreparedReport], Many]


class PrepareReports(Message, frozen=True):
    """Question to the helper: prepare all reports of the round, of clients that were told these facts.

    `training` is the digest of their training task, empty with ``model_binding: none``; `agreed` is the list of
    participants that they have verified, empty if they verify none.
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
    """The sum of the helper's shares, eight bytes per element, little-endian."""

    share: bytes


class SumReports(Message, frozen=True):
    """Question to the helper: sum your shares of these valid reports."""

    stage: ClassVar[str] = "pine/aggregate-share"
    Answer: ClassVar[type[Message] | None] = AggregateShare
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    clients: Annotated[list[ClientId], Many]


def context_digest(experiment_id: bytes, notice: RoundNotice, helper: int, dimension: int, vdaf: PineVdaf) -> bytes:
    """Return 32 bytes that are equal for a client and the helper only if both were told the same.

    Args:
        experiment_id: 16 bytes.
        notice: the facts that the participants were told.
        helper: its client number.
        dimension: of an update.
        vdaf: the function of the reports.
    """
    of_report = vdaf.norm_bound, vdaf.chunk, vdaf.norm_chunk
    return notice_digest(_CONTEXT_DOMAIN, experiment_id, notice, helper, dimension, *of_report)


def seal_share(pair_key: bytes, client: int, helper: int, report: tuple[bytes, bytes, bytes], context: bytes) -> bytes:
    """Seal the helper's share.

    Args:
        pair_key: 32 bytes that the two have agreed on, once for all rounds.
        client, helper: their numbers.
        report: nonce, public share and helper's share.
        context: the share opens only with the same context (`context_digest`).
    """
    nonce, public, share = report
    key = _share_key(pair_key, client, helper, nonce)
    # The public share is bound, too: the server passes it on, and could exchange it.
    return seal_once(key, share, context + public)


def open_share(
    pair_key: bytes, client: int, helper: int, nonce: bytes, public: bytes, sealed: bytes, context: bytes
) -> bytes:
    """Open a share that `seal_share` has sealed; raises `OpeningFailed`.

    Args:
        pair_key, client, helper, context: as in `seal_share`.
        nonce, public: of the report.
        sealed: its result.
    """
    key = _share_key(pair_key, client, helper, nonce)
    return open_once(key, sealed, context + public)


def _share_key(pair_key: bytes, client: int, helper: int, nonce: bytes) -> bytes:
    """Return the key of one report: its nonce is 16 random bytes, so the key is used once."""
    return content_key(pair_key, _SHARE_DOMAIN, client, helper, nonce)
