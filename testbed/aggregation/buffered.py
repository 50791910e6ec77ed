"""Buffered asynchronous aggregation, the clients' side: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, Federated
Learning with Buffered Asynchronous Aggregation, AISTATS 2022, arXiv 2106.06639 (FedBuff), Algorithms 1 and 2.

An update counts s(tau) = 1 / (1 + tau)^a of itself, where tau is its staleness: how many rounds have begun since the
one in which its client was sent the model. Round numbers are public, so a client needs no word of the server's to know
its own tau. In a buffer of K the server adds

    sum_i n_i s(tau_i) Delta_i / sum_i n_i

to the model, with n_i = 1 where weights are equal, as in the paper: the weights n_i do not make up for staleness, which
therefore makes the step smaller. Under secure aggregation a client scales its update itself before it masks it. In the
plain protocol the server does; here that, too, is done where the update lies.
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
    """s(tau) = 1 / (1 + tau)^exponent; section 5 of the paper has 0.5."""
    return float((1.0 + staleness) ** -exponent)


@dataclass(frozen=True)
class Staleness:
    """What clients know of it.

    Attributes:
        exponent: of `staleness_weight`.
    """

    exponent: float


class StoredUpdate(Message, frozen=True):
    """What a client has learned, as it keeps it until its buffer is full."""

    samples: Count
    loss: float
    examples: Count
    delta: Vector


class Keep(Message, frozen=True):
    """Between a host and the testbed alone: what have you learned? It is to outlast the round."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = StoredUpdate

    round: RoundNumber


class Recalled(Message, frozen=True):
    """Done."""


class KeptFrom(Message, frozen=True):
    """What the client kept, and the round in which it was sent the model."""

    round: RoundNumber
    update: StoredUpdate


class Recall(Message, frozen=True):
    """Between the testbed and a host alone: here is what you have learned. It is due in this round."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = Recalled
    Private: ClassVar[type[Message] | None] = KeptFrom

    round: RoundNumber


class UpdateKeeper(Role):
    """A client whose update is summed in a later round than it was trained in, perhaps."""

    parameters: Staleness

    @handles(Keep)
    def on_keep(self, message: Keep) -> StoredUpdate:
        """What it has learned, in full."""
        update = self.client.local_update
        assert update is not None
        delta = np.asarray(update.delta, np.float32)
        return StoredUpdate(update.samples, update.loss, update.examples_processed, Vector(delta, 0))

    @handles(Recall)
    def on_recall(self, message: Recall, private: KeptFrom) -> Recalled:
        """What it has learned counts as this round's, scaled by its staleness."""
        update = private.update
        scale = staleness_weight(message.round - private.round, self.parameters.exponent)
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
    """`(d,)` float32, rounded once."""
    return delta if scale == 1.0 else (delta.astype(np.float64) * scale).astype(np.float32)


def recalls(updates: Mapping[int, tuple[int, StoredUpdate]]) -> dict[int, Message]:
    """The private parts of `Recall`, of rounds and what was kept of them, by client."""
    return {client: KeptFrom(number, update) for client, (number, update) in updates.items()}
