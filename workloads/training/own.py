"""Training of user-defined models, in the way of the built-in models."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate
from workloads.data.clients.contract import Batch, ClientData, ClientImages
from workloads.determinism import Purpose, seeded_globals, stream
from workloads.models import adapters
from workloads.models.own import OwnModel
from workloads.training.classification import TorchWorkload
from workloads.training.fit import check_fit, first_line
from workloads.training.objectives import objective_of

_EVALUATION_BATCH = 250


class ChannelsFirst(ClientData):
    """Images in torch's layout, (n, channels, height, width), for user-defined modules."""

    def __init__(self, images: ClientImages) -> None:
        self._images = images
        self.description = images.description
        self.sample_counts = images.sample_counts

    def shard(self, client: int) -> Batch:
        return self._turned(self._images.shard(client))

    def held_out(self) -> Batch:
        return self._turned(self._images.held_out())

    def label_counts(self) -> NDArray[np.int64]:
        return self._images.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        return self._images.own_label_counts()

    @staticmethod
    def _turned(batch: Batch) -> Batch:
        images, labels = batch
        if images.dim() == 3:
            return images.unsqueeze(1), labels
        # Photographs in bytes already have channels first (`Form.PHOTO`).
        return (images if images.dtype == torch.uint8 else images.permute(0, 3, 1, 2).contiguous()), labels


class OwnModelTraining(TorchWorkload):
    """A `Workload` that trains a user-defined module.

    Random draws of the module and the loss from global generators, as in dropout, depend on the experiment's seed, the
    client and the round. A client refuses to send an update with a loss that is not finite.

    Args:
        name: name of the data, for the records.
        data: the clients' samples.
        section: names the model, with the settings of the training.
        seed: the experiment's seed.

    Raises:
        ExperimentError: a module that does not take these samples, or with outputs that do not fit loss and labels.
    """

    def __init__(self, name: str, data: ClientData, section: WorkloadSection, seed: int) -> None:
        network = adapters.own_model(section, seed)
        check_fit(network, data, section)
        if section.clients_at_once > 1:
            self._check_loss_of_samples(network, data, section)
        super().__init__(name, data, section.own_model, network, section, seed, _EVALUATION_BATCH)

    def initial_model(self) -> NDArray[np.float32]:
        """Return the module's own initial values, (d,) float32."""
        # Built anew: the network of this process has the values of the model loaded last.
        return adapters.own_model(self._section, self._seed).values()

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train as `TorchWorkload.train`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            return _finite(super().train(client, model, round_number))

    def train_corrected(
        self, client: int, model: NDArray[np.float32], round_number: int, term: NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """Train as `TorchWorkload.train_corrected`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            update, steps = super().train_corrected(client, model, round_number, term)
        return _finite(update), steps

    def train_together(
        self, clients: Sequence[int], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalUpdate]:
        """Train as `TorchWorkload.train_together`."""
        updates = super().train_together(clients, model, round_number)
        return {client: _finite(update) for client, update in updates.items()}

    def gradient_sum(
        self, client: int, model: NDArray[np.float32], round_number: int, samples: NDArray[np.int64], clip: float | None
    ) -> LocalUpdate:
        """Return the sum of clipped gradients as `TorchWorkload.gradient_sum`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            return super().gradient_sum(client, model, round_number, samples, clip)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """Evaluate as `TorchWorkload.evaluate`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING)):
            return super().evaluate(model)

    def evaluate_for(self, client: int, model: NDArray[np.float32]) -> Evaluation | None:
        """Evaluate as `TorchWorkload.evaluate_for`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client)):
            return super().evaluate_for(client, model)

    def client_accuracies(self, clients: NDArray[np.int64], model: NDArray[np.float32]) -> NDArray[np.float64]:
        """Measure as `TorchWorkload.client_accuracies`, with seeded global generators."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING)):
            return super().client_accuracies(clients, model)

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` if single samples have no gradients, after trying it."""
        super().check_gradient_sum()
        client = int(np.argmax(self.sample_counts))
        try:
            self.gradient_sum(client, self.initial_model(), 1, np.arange(min(2, self.sample_counts[client])), 1.0)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ExperimentError(
                f"workload.model: {self.model_name} has no gradients of single samples, which this aggregation "
                f"clips: {first_line(error)}"
            ) from error

    @staticmethod
    def _check_loss_of_samples(network: OwnModel, data: ClientData, section: WorkloadSection) -> None:
        inputs, labels = (part[:2] for part in data.held_out())
        with torch.inference_mode(), seeded_globals(np.random.default_rng(0)):
            _, singles = objective_of(section.loss).of_batch(network.eval()(inputs), labels)
        if singles is None:
            raise ExperimentError(
                f"workload.clients_at_once: {section.loss} returns one loss for a batch, but batches of several "
                "clients are padded; leave the key out, or return a loss for each sample"
            )


def _finite(update: LocalUpdate) -> LocalUpdate:
    """Return the update; with a loss that is not finite, one that its client refuses to send (``train.diverged``)."""
    if math.isfinite(update.loss):
        return update
    # NaN makes the client refuse to send the update (`Trainer.on_train`).
    lost = np.full_like(update.delta, np.nan)
    return LocalUpdate(lost, update.samples, update.loss, update.examples_processed, update.squared_loss)
