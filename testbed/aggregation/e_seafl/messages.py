"""Messages of `e-seafl`, the content that clients sign, and the seeds of masks."""

from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.kit.message_parts import Many, RoundNotice, SignatureOf, notice_digest
from testbed.aggregation.kit.sealing import content_key
from testbed.messages import ClientId, Count, Message, RoundNumber, Signature64, Vector

MASK_PURPOSE = b"testbed/e-seafl/mask/v1"
PARTICIPATION_DOMAIN = b"testbed/e-seafl/participation/v1"
_SEED_DOMAIN = b"testbed/e-seafl/seed/v1"
_CONTEXT_DOMAIN = b"testbed/e-seafl/context/v1"


class MaskedUpdate(Message, frozen=True):
    """A masked update, `(d+1,)` ring elements, and the signature that shows the assisting nodes that it was sent."""

    input: Vector
    signature: Signature64


class SendMaskedUpdate(Message, frozen=True):
    """Ask a participant for its update under one mask per assisting node."""

    stage: ClassVar[str] = "e-seafl/masked-input"
    Answer: ClassVar[type[Message] | None] = MaskedUpdate

    round: RoundNumber
    participants: Count


class SummedMasks(Message, frozen=True):
    """The sum of the masks that the survivors share with one assisting node, `(d+1,)` ring elements."""

    total: Vector


class SumMasks(Message, frozen=True):
    """Ask an assisting node for the sum of its masks over the survivors.

    `length` is d + 1. `training` is the digest of the participants' training task, empty with ``model_binding: none``;
    `agreed` the participants that all of them have verified, empty where they verify none.
    """

    stage: ClassVar[str] = "e-seafl/sum-masks"
    Answer: ClassVar[type[Message] | None] = SummedMasks
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    participants: Count
    length: Count
    training: Annotated[bytes, msgspec.Meta(max_length=32)]
    agreed: Annotated[list[ClientId], Many]
    survivors: Annotated[list[SignatureOf], Many]


def context_digest(experiment_id: bytes, notice: RoundNotice, length: int, parameters: ESeaflParameters) -> bytes:
    """Return 32 bytes that a client and an assisting node compute alike only if the server told both the same.

    Clients sign the digest, and the seeds of their masks depend on it.

    Args:
        experiment_id: 16 bytes.
        notice: the facts that the server told the participants.
        length: as in `SumMasks`.
        parameters: of the experiment.
    """
    further = length, list(parameters.assisting_nodes), parameters.bits
    return notice_digest(_CONTEXT_DOMAIN, experiment_id, notice, *further)


def mask_seed(pair_key: bytes, client: int, node: int, context: bytes) -> bytes:
    """Return the 32-byte seed of the mask that a client and an assisting node share in one round.

    Args:
        pair_key: 32 bytes that client and node have agreed on, once for all rounds.
        client, node: their numbers.
        context: of the round (`context_digest`).
    """
    return content_key(pair_key, _SEED_DOMAIN, client, node, context)
