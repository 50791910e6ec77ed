"""Model broadcast and local training: the stage between selection and aggregation."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from testbed.cost import charge
from testbed.errors import Refusal
from testbed.messages import Count, Message, RoundNumber, Vector
from testbed.parties.client import Role, handles


class LocalUpdate(Protocol):
    """What a client has learned.

    Attributes:
        delta: `(d,)` float32, local model minus global model.
        samples: training samples, the weight in federated averaging.
        loss: mean training loss.
        examples_processed: samples times epochs, what modelled compute charges.
    """

    delta: npt.NDArray[np.float32]
    samples: int
    loss: float
    examples_processed: int


class Evaluation(Protocol):
    """Quality of a model on held-out data."""

    loss: float
    accuracy: float
    samples: int


class Workload(Protocol):
    """What a federation learns; `workloads.build` makes the built-in ones, a user's class is one too.

    Attributes:
        dimension: number of model parameters d.
        sample_counts: `(n,)` int64 training samples per client.
    """

    dimension: int
    sample_counts: npt.NDArray[np.int64]

    def initial_model(self) -> npt.NDArray[np.float32]:
        """`(d,)` the model before the first round."""

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train `model` on the client's data; depends on (seed, client, round) alone."""

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation:
        """Quality of `model` on held-out data."""


class Trained(Message, frozen=True):
    """Training is done; the update itself waits for the aggregation protocol."""

    samples: Count
    loss: float


class Train(Message, frozen=True):
    """The global model, to be trained on the client's own data."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = Trained

    round: RoundNumber
    model: Vector


@dataclass
class RoundUpdate:
    """The update of one round, which `trained_update` hands to that round's aggregation alone.

    Attributes:
        round: the round that it was trained in; the rest as in `LocalUpdate`.
    """

    round: int
    delta: npt.NDArray[np.float32]
    samples: int
    loss: float
    examples_processed: int


class Trainer(Role):
    """Client side: local training, real or (without a workload) none."""

    @handles(Train)
    def on_train(self, message: Train) -> Trained:
        """Train on the client's own data, once in a round; refuses to hand on an update that is not finite."""
        workload = self.environment.workload
        if workload is None:
            raise Refusal("train.no-workload", "this run has no workload")
        self._check_round(message.round)
        if message.model.bits or len(message.model) != workload.dimension:
            raise Refusal("train.dimension", f"a model of {len(message.model)}, not {workload.dimension} float32")
        update = workload.train(self.client.number, message.model.values, message.round)
        charge("train.parameter_example", workload.dimension * update.examples_processed)
        delta = np.asarray(update.delta, np.float32)
        if delta.shape != (workload.dimension,):
            raise Refusal("train.dimension", f"the workload made an update {delta.shape}, not ({workload.dimension},)")
        if not np.isfinite(delta).all():
            raise Refusal("train.diverged", "the update is not finite; lower workload.learning_rate")
        samples, loss = int(update.samples), float(update.loss)
        self.client.local_update = RoundUpdate(message.round, delta, samples, loss, update.examples_processed)
        return Trained(samples, loss)

    def _check_round(self, number: int) -> None:
        """A round number serves once: keys and masks of a seeded run come from it, and two updates under one mask are
        not hidden. Where participants are agreed on, that has used the number; elsewhere training does.
        """
        client = self.client
        if self.environment.participants_are_agreed:
            if client.agreed_participants is None:
                raise Refusal("train.not-agreed", "no participant list was agreed on in this round")
            if number != client.last_round or client.local_update is not None:
                raise Refusal(
                    "train.round-used", f"round {number}; participants were agreed on for {client.last_round}"
                )
            return
        if number <= client.last_round:
            raise Refusal("train.round-used", f"round {number} was used before")
        client.last_round = number


def trained_update(role: Role, round_number: int) -> LocalUpdate:
    """The update that this client has trained in this round; refuses when it has none."""
    update = role.client.local_update
    if not isinstance(update, RoundUpdate) or update.round != round_number:
        raise Refusal("aggregation.nothing-trained", f"asked for an update of round {round_number} before its training")
    return update
