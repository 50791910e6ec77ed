"""Simulated training without gradient steps, for measurements of the cost of training and updates.

An update has the real model's size and the magnitude of real updates, the same for the same seed, client and round. Its
numbers have no meaning, so nothing is evaluated. `examples_processed` is that of real training, so that modelled
compute charges the same. Neither a model nor images or text are created.
"""

import math

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate
from workloads.data.clients.contract import ClientData
from workloads.determinism import Purpose, stream

_STEP = np.float32(2e-5)  # 256 values from -0.00255 to 0.00255, deviation 0.0015: see docs/how-to/workloads.md
_CENTRE = np.float32(0.5)  # bytes from -128 to 127 have the mean -0.5


class SimulatedTraining:
    """A `Workload` that simulates training.

    Args:
        name: name of the data, for the records.
        data: the clients' data; no sample is read.
        model: name of the model.
        dimension: length of the model's vector.
        charged_parameters: parameters charged per example (`testbed.workload.contract.PartlyFrozenWorkload`).
        outputs: classes or words, which set the scale of the losses.
        section: epochs.
        seed: the experiment's seed.
    """

    def __init__(
        self,
        name: str,
        data: ClientData,
        model: str,
        dimension: int,
        charged_parameters: int,
        outputs: int,
        section: WorkloadSection,
        seed: int,
    ) -> None:
        self.name = name
        self.model_name = f"{model} (simulated training)"
        self.description = f"simulated training, no model is learned; sizes of {data.description}"
        self.dimension = dimension
        self.charged_parameters = charged_parameters
        self.sample_counts = data.sample_counts
        self.population = len(data.sample_counts)
        self._data = data
        self._outputs = outputs
        self._epochs = section.epochs
        self._seed = seed

    def initial_model(self) -> NDArray[np.float32]:
        """Return zeros, (d,) float32."""
        return np.zeros(self.dimension, dtype=np.float32)

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Return noise as the update, and a loss that depends on the client alone, around the loss of guessing."""
        samples = int(self.sample_counts[client])
        if samples == 0:
            return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), samples=0, loss=0.0, examples_processed=0)
        # Raw words, a byte for each parameter: normal draws would cost more than the protocols that are measured.
        words = stream(self._seed, Purpose.SIMULATED, client, round_number).bit_generator.random_raw(
            -(-self.dimension // 8)
        )
        delta = words.view(np.int8)[: self.dimension].astype(np.float32)
        delta += _CENTRE
        delta *= _STEP
        share = float(stream(self._seed, Purpose.SIMULATED, client).uniform(0.5, 1.5))
        loss = share * math.log(self._outputs)
        return LocalUpdate(delta, samples, loss, examples_processed=samples * self._epochs, squared_loss=loss**2)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation | None:
        """Return None: there is nothing to measure."""
        return None

    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64, the training samples of each class per client."""
        return self._data.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64, without the samples that all clients share."""
        return self._data.own_label_counts()
