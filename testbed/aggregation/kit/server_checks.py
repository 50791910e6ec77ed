"""The server's side of secure aggregation, whichever protocol: a round's state, and the checks of clients' answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationParameters, AggregationRound, clients_with_shape
from testbed.aggregation.kit.message_parts import point_of
from testbed.arrays import Ids
from testbed.crypto import memo
from testbed.crypto.prime_field import Elements, elements_from_bytes
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import Vector
from testbed.network import Replies
from testbed.training import training_digest


@dataclass
class ServerRound:
    """The part of a round's state that does not depend on the protocol.

    Attributes:
        start: how the aggregation began.
    """

    start: AggregationRound

    def misbehaved(self, client: int, detail: str) -> None:
        """Record that a client has not followed the protocol."""
        record_misbehaviour(self.start, client, detail)

    def fitting(self, vectors: Mapping[int, Vector], bits: int, length: int | None, what: str) -> Ids:
        """Return the clients with a vector of this shape; record the others as misbehaving."""
        fitting = clients_with_shape(vectors, bits, length)
        for client in sorted(vectors.keys() - set(fitting.tolist())):
            self.misbehaved(client, f"{what}: {vectors[client]}")
        return fitting

    def sums_by_point(self, replies: Replies, length: int, what: str) -> dict[int, Elements]:
        """Return the `(length,)` sums of shares that clients answer, as `total`, by the clients' points.

        Clients that answer anything else are recorded as misbehaving.
        """
        sums: dict[int, Elements] = {}
        for client, answer in replies.valid().items():
            elements = elements_from_bytes(answer.total)
            if elements is None or len(elements) != length:
                self.misbehaved(client, f"{what}: {len(answer.total)} bytes, or no elements of the field")
                continue
            sums[point_of(client)] = elements
        return sums


def record_misbehaviour(round_: AggregationRound, client: int, detail: str) -> None:
    """Record that a client has not followed the protocol."""
    round_.network.record_event(f"client:{client}", "misbehaviour", detail)


def digest_of_training(model_binding: str, round_: AggregationRound) -> bytes:
    """What clients sign of what they were asked to train; empty with ``model_binding: none``."""
    if model_binding == "none":
        warn_of_weak_binding(round_)
        return b""
    if round_.training is not None:
        return training_digest(round_.training, anew=True)
    if round_.experiment_id is not None:
        raise RoundAborted("no-training", "the server that verifies signatures must know what it asked to train")
    return b""


def warn_of_weak_binding(round_: AggregationRound) -> None:
    """Record that nobody notices whether clients were sent the same model."""
    detail = "clients do not sign the model that they were sent; a malicious server may send each another one"
    round_.network.record_event("server", "weak-binding", detail)


def verify(round_: AggregationRound, client: int, domain: bytes, content: bytes, signature: bytes) -> None:
    """Raise `ProtocolError` unless `client` has signed `content` for `domain` in this experiment."""
    if round_.experiment_id is None:
        return
    meter("ed25519.verify")
    memo.verify(round_.directory.signing_key(client), domain + round_.experiment_id, content, signature)


def at_least(least: int, count: int, replies: Replies, what: str) -> None:
    """Raise `RoundAborted` when `count` clients are fewer than `least`; refusals among the replies say why."""
    if count < least:
        raise RoundAborted("below-threshold", f"{count} of {least} needed {what}{refusals_in(replies)}")


def refusals_in(replies: Replies) -> str:
    """Return the names of the checks by which clients have refused, for the end of a sentence; empty: nobody has."""
    refusals = sorted({refusal.check for refusal in replies.missing.refusals})
    return f"; refusals: {', '.join(refusals)}" if refusals else ""


def check_equal_weights(parameters: AggregationParameters, weight: float, survivors: int) -> None:
    """Raise `RoundAborted` where all updates weigh the same and the weights of so many sum to anything else."""
    if parameters.weights == "equal" and weight != survivors:
        raise RoundAborted("implausible-sum", f"{survivors} equal weights sum to {weight}")


def quantised_mean(parameters: AggregationParameters, total: npt.NDArray[Any], survivors: Ids) -> Aggregate:
    """Return the mean of the survivors' quantised updates.

    Args:
        parameters: of a protocol that quantises.
        total: `(d+1,)` the sum of the survivors' elements.
        survivors: sorted client numbers.

    Raises:
        RoundAborted: no such sum can have these elements.
    """
    assert parameters.quantisation is not None
    mean, weight = parameters.quantisation.decode(total, len(survivors))
    check_equal_weights(parameters, weight, len(survivors))
    return Aggregate(mean, weight, survivors)


def valid_signatures(
    round_: AggregationRound, replies: Replies, domain: bytes, content: bytes, what: str
) -> dict[int, bytes]:
    """Collect the signatures of the clients that have signed the same.

    Other clients are recorded as misbehaving.

    Args:
        round_: the round.
        replies: answers with a `signature`.
        domain: of the signatures.
        content: to be signed by all.
        what: the stage, for the records.

    Returns:
        The signatures by client.
    """
    signed = {}
    for client, answer in replies.valid().items():
        try:
            verify(round_, client, domain, content, answer.signature)
        except ProtocolError as error:
            record_misbehaviour(round_, client, f"{what}: {error}")
            continue
        signed[client] = answer.signature
    return signed
