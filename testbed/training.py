"""Model broadcast and local training: the stage between selection and aggregation."""

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


class Trainer(Role):
    """Client side: local training, real or (without a workload) none."""

    @handles(Train)
    def on_train(self, message: Train) -> Trained:
        """Train on the client's own data; refuses to hand on an update that is not finite."""
        workload = self.environment.workload
        if workload is None:
            raise Refusal("train.no-workload", "this run has no workload")
        if len(message.model.values) != workload.dimension:
            raise Refusal("train.dimension", f"a model of {len(message.model.values)}, not {workload.dimension}")
        update = workload.train(self.client.number, message.model.values, message.round)
        charge("train.parameter_example", workload.dimension * update.examples_processed)
        if not np.isfinite(update.delta).all():
            raise Refusal("train.diverged", "the update is not finite; lower workload.learning_rate")
        self.client.local_update = update
        return Trained(update.samples, float(update.loss))


def trained_update(role: Role) -> LocalUpdate:
    """The update that this client has trained in this round; refuses when it has none."""
    update = role.client.local_update
    if update is None:
        raise Refusal("aggregation.nothing-trained", "asked for an update before any training")
    return update
