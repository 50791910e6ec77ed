"""Client side of buffered asynchronous aggregation (FedBuff).

Source: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, Federated Learning with Buffered Asynchronous Aggregation,
AISTATS 2022, arXiv 2106.06639, Algorithms 1 and 2.

An update is scaled by s(tau) = 1 / (1 + tau)^a. Its staleness tau is the number of rounds that began after the client
received the model. Round numbers are public, so a client computes its own tau. For a buffer of K updates the server
adds

    sum_i n_i s(tau_i) Delta_i / sum_i n_i

to the model, with n_i = 1 where weights are equal, as in the paper. The divisor has no s(tau_i), so staleness makes the
step smaller. Under secure aggregation a client scales its update before it masks it. In the plain protocol the server
scales updates; the testbed scales them at the client in both cases, with the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.messages import Count, Message, RoundNumber, Vector
from testbed.parties.client import Role, handles
from testbed.training import RoundUpdate, Train


def staleness_weight(staleness: int, exponent: float) -> float:
    """Return s(tau) = 1 / (1 + tau)^exponent; section 5 of the paper uses the exponent 0.5.

    Args:
        staleness: tau, in rounds.
        exponent: a.

    Example:
        >>> staleness_weight(3, 0.5)
        0.5
    """
    return float((1.0 + staleness) ** -exponent)


@dataclass(frozen=True)
class Staleness:
    """Settings of staleness that clients know.

    Attributes:
        exponent: see `staleness_weight`.
    """

    exponent: float


class StoredUpdate(Message, frozen=True):
    """A client's update, stored until its buffer is full."""

    samples: Count
    loss: float
    examples: Count
    delta: Vector


class Keep(Message, frozen=True):
    """Internal question of the testbed to a host: return the trained update, so that it outlasts the round."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = StoredUpdate

    round: RoundNumber


class Recalled(Message, frozen=True):
    """Acknowledgement of `Recall`."""


class KeptFrom(Message, frozen=True):
    """A stored update, with the round in which its client received the model."""

    round: RoundNumber
    update: StoredUpdate


class Recall(Message, frozen=True):
    """Internal message of the testbed to a host: the stored update is due in this round."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = Recalled
    Private: ClassVar[type[Message] | None] = KeptFrom

    round: RoundNumber


class UpdateKeeper(Role):
    """Role of clients with updates that may be summed in a later round than they were trained in."""

    parameters: Staleness

    @handles(Keep)
    def on_keep(self, message: Keep) -> StoredUpdate:
        """Return the client's update, uncompressed."""
        update = self.client.local_update
        assert update is not None
        delta = np.asarray(update.delta, np.float32)
        return StoredUpdate(update.samples, update.loss, update.examples_processed, Vector(delta, 0))

    @handles(Recall)
    def on_recall(self, message: Recall, private: KeptFrom) -> Recalled:
        """Make the stored update this round's update, scaled by its staleness."""
        update = private.update
        scale = staleness_weight(message.round - private.round, self.parameters.exponent)
        # Under masks the server cannot scale single updates, so the client does it before it masks.
        self.client.local_update = RoundUpdate(
            scaled(update.delta.values, scale),
            update.samples,
            update.loss,
            update.examples,
            round=message.round,
            question=Train(message.round, Vector(np.zeros(0, np.float32), 0)),
        )
        return Recalled()


def scaled(delta: npt.NDArray[np.float32], scale: float) -> npt.NDArray[np.float32]:
    """Return `delta` `(d,)` times `scale`, computed in float64 and rounded once to float32.

    Args:
        delta: `(d,)` float32.
        scale: factor.
    """
    return delta if scale == 1.0 else (delta.astype(np.float64) * scale).astype(np.float32)


def recalls(updates: Mapping[int, tuple[int, StoredUpdate]]) -> dict[int, Message]:
    """Return the private parts of `Recall` by client, given each client's round and stored update."""
    return {client: KeptFrom(number, update) for client, (number, update) in updates.items()}
