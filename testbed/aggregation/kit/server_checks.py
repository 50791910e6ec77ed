"""Server side of secure aggregation in any protocol: the state of a round, and checks of the clients' answers."""

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
    """Part of a round's state that all protocols share.

    Attributes:
        start: state at the beginning of the aggregation.
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
        """Return the `(length,)` sums of shares (`total` in the answers) by the clients' evaluation points.

        Clients with any other answer are recorded as misbehaving.
        """
        sums: dict[int, Elements] = {}
        for client, answer in replies.valid().items():
            elements = elements_from_bytes(answer.total)
            if elements is None or len(elements) != length:
                self.misbehaved(client, f"{what}: {len(answer.total)} bytes are not {length} elements of the field")
                continue
            sums[point_of(client)] = elements
        return sums


def record_misbehaviour(round_: AggregationRound, client: int, detail: str) -> None:
    """Record that a client has not followed the protocol.

    Args:
        round_: the round.
        client: its number.
        detail: text of the record.
    """
    round_.network.record_event(f"client:{client}", "misbehaviour", detail)


def digest_of_training(model_binding: str, round_: AggregationRound) -> bytes:
    """Return the digest of the training task that clients sign; empty with ``model_binding: none``.

    Args:
        model_binding: "none" or anything else.
        round_: the round.

    Raises:
        RoundAborted: the server checks signatures but does not know the training task.
    """
    if model_binding == "none":
        warn_of_weak_binding(round_)
        return b""
    if round_.training is not None:
        # Anew: the server is a machine of its own, also where clients of this process have hashed the same task.
        return training_digest(round_.training, anew=True)
    if round_.experiment_id is not None:
        raise RoundAborted("no-training", "the server that verifies signatures must know the training task")
    return b""


def colluders_by_binding(model_binding: str, colluders: int) -> int:
    """Return the colluders that a protocol tolerates; -1 (not even none) with ``model_binding: none``.

    A server may then send each client another model, and learns single updates from sums without any accomplice.

    Args:
        model_binding: "none" or anything else.
        colluders: the number that is tolerated if all clients check that they have the same model.

    Example:
        >>> colluders_by_binding("signed", 3), colluders_by_binding("none", 3)
        (3, -1)
    """
    return -1 if model_binding == "none" else colluders


def warn_of_weak_binding(round_: AggregationRound) -> None:
    """Record that clients cannot notice whether they were sent the same model."""
    detail = "clients do not sign the model that they were sent; a malicious server may send each another one"
    round_.network.record_event("server", "weak-binding", detail)


def verify(round_: AggregationRound, client: int, domain: bytes, content: bytes, signature: bytes) -> None:
    """Raise `ProtocolError` unless `client` has signed `content` for `domain` in this experiment.

    Args:
        round_: the round.
        client: its number.
        domain: of the signature.
        content: the signed content.
        signature: 64 bytes.
    """
    if round_.experiment_id is None:  # a server that checks no signatures (`AggregationRound`)
        return
    meter("ed25519.verify")
    memo.verify(round_.directory.signing_key(client), domain + round_.experiment_id, content, signature)


def at_least(least: int, count: int, replies: Replies, what: str) -> None:
    """Raise `RoundAborted` if `count` is below `least`.

    Args:
        least: required number of clients.
        count: number of clients.
        replies: replies of the stage; the message lists refusals among them.
        what: end of the message "... of ... needed", e.g. "signed the survivors".
    """
    if count < least:
        raise RoundAborted("below-threshold", f"{count} of {least} needed {what}{refusals_in(replies)}")


def refusals_in(replies: Replies) -> str:
    """Return the refusal codes among the replies, as the end of a message; empty if there are none."""
    refusals = sorted({refusal.check for refusal in replies.missing.refusals})
    return f"; refusals: {', '.join(refusals)}" if refusals else ""


def check_equal_weights(parameters: AggregationParameters, weight: float, survivors: int) -> None:
    """Raise `RoundAborted` if all updates should weigh 1, and the sum of weights is not the number of survivors.

    Args:
        parameters: of the protocol.
        weight: sum of the weights.
        survivors: number of updates in the sum.
    """
    if parameters.weights == "equal" and weight != survivors:
        raise RoundAborted("implausible-sum", f"{survivors} equal weights sum to {weight}")


def quantised_mean(parameters: AggregationParameters, total: npt.NDArray[Any], survivors: Ids) -> Aggregate:
    """Return the mean of the survivors' quantised updates.

    Args:
        parameters: of a protocol that quantises.
        total: `(d+1,)` the sum of the survivors' elements.
        survivors: sorted client numbers.

    Raises:
        RoundAborted: `total` cannot be such a sum.
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
