"""Personalisation: layers of the model that stay with the clients and are never sent.

FedPer: Arivazhagan, Aggarwal, Singh and Choudhary, Federated Learning with Personalization Layers, 2019, arXiv
1912.00818, Algorithm 1: the last layers are personal, and trained together with the shared layers. LG-FedAvg: Liang,
Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov and Morency, Think Locally, Act Globally, 2020, arXiv 2001.01523: the
first layers are personal. All clients begin with the same layers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats
from testbed.memory import Memory
from testbed.workload.client_algorithm import ClientAlgorithm, LocalTask, TaskInfo
from testbed.workload.contract import ClientAccuracyWorkload, Evaluation, LocalUpdate, PersonalWorkload


class LocalLayersSection(BaseModel):
    """Number of local layers. A layer is a module with parameters, its running statistics included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    last: int = Field(0, ge=0, le=10_000, description="Number of last layers that stay with the clients (FedPer)")
    first: int = Field(0, ge=0, le=10_000, description="Number of first layers that stay with the clients (LG-FedAvg)")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.last and not self.first:
            raise ValueError("needs last or first, the number of layers that stay with the clients, e.g. last: 1")
        return self


LocalLayersKey = Annotated[
    LocalLayersSection | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Layers that stay with the clients, e.g. {last: 1} (FedPer) or {first: 2} (LG-FedAvg). Unset: all "
        "layers are shared",
    ),
]


class LocalLayers(ClientAlgorithm):
    """FedPer and LG-FedAvg: clients train the whole model, send the shared layers' update, and keep the other layers.

    Args:
        info: the learning task.
        initial_state: (m,) the local numbers of the initial model.
        local: (d,) bool: the positions of the local numbers in the model's vector.
    """

    name = "local_layers"

    def __init__(self, info: TaskInfo, initial_state: npt.NDArray[np.float32], local: npt.NDArray[np.bool_]) -> None:
        super().__init__(info, initial_state)
        self.local = local

    def payload_length(self, dimension: int) -> int:
        """Return d - m."""
        return dimension - len(self.initial_state)

    def payload(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """Return the shared numbers of the model, (d - m,)."""
        return model[~self.local]

    def local_update(self, workload: Any, task: LocalTask) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """Train the whole model, and return the shared layers' update and the new local numbers."""
        model = self.of_client(task.payload, task.own)
        update = workload.train(task.client, model, task.round_number)
        # A user-defined workload may return float64; states and messages are float32.
        delta = np.asarray(update.delta, np.float32)
        # The local numbers move by their own update: both parts are trained together (FedPer, Algorithm 1).
        return replace(update, delta=delta[~self.local]), task.own + delta[self.local]

    def of_client(self, shared: npt.NDArray[np.float32], own: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the whole (d,) model of a client.

        Args:
            shared: (d - m,) shared numbers.
            own: (m,) the client's local numbers.
        """
        model = np.empty(self.info.dimension, np.float32)
        model[~self.local], model[self.local] = shared, own
        return model

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """Return the mean at the shared positions and zero at the local ones."""
        # At local positions the global model keeps the initial values, which no client reads.
        step = np.zeros(self.info.dimension)
        step[~self.local] = mean
        return step

    def evaluate(
        self,
        workload: PersonalWorkload,
        model: npt.NDArray[np.float32],
        owns: Callable[[int], npt.NDArray[np.float32]],
        clients: npt.NDArray[np.int64],
    ) -> Evaluation | None:
        """Return the mean evaluation over clients, each with its own layers on its own held-out samples.

        Args:
            workload: the workload.
            model: (d,) the global model; its local numbers are ignored.
            owns: returns the local numbers of a client.
            clients: (k,) the clients to evaluate.

        Returns:
            the mean; None if no client has held-out samples.
        """
        evaluations = [
            workload.evaluate_for(client, self.of_client(model[~self.local], owns(client)))
            for client in clients.tolist()
        ]
        measured = [evaluation for evaluation in evaluations if evaluation is not None]
        if not measured:
            return None
        loss = float(np.mean([evaluation.loss for evaluation in measured]))
        accuracy = float(np.mean([evaluation.accuracy for evaluation in measured]))
        return Evaluation(loss, accuracy, sum(evaluation.samples for evaluation in measured))

    def client_accuracies(
        self,
        workload: ClientAccuracyWorkload,
        model: npt.NDArray[np.float32],
        owns: Callable[[int], npt.NDArray[np.float32]],
        clients: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Measure each client's model, with its own layers, on the client's samples.

        Args:
            workload: measures one client at a time, as each has its own model.
            model: (d,) the global model; its local numbers are ignored.
            owns: returns the local numbers of a client.
            clients: (k,).

        Returns:
            (k,) accuracies, as `ClientAccuracyWorkload.client_accuracies` returns them.
        """
        # A generator: one whole model in memory at a time.
        models = (self.of_client(model[~self.local], owns(client)) for client in clients.tolist())
        each = [
            workload.client_accuracies(clients[place : place + 1], personal) for place, personal in enumerate(models)
        ]
        return np.concatenate(each)
