"""Models of the user's own, trained as the built-in ones are."""

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
    """Images as torch has them, (n, channels, height, width), for modules that know nothing of ours."""

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
        return (images if images.dtype == torch.uint8 else images.permute(0, 3, 1, 2).contiguous()), labels


class OwnModelTraining(TorchWorkload):
    """A `Workload` that trains a module of the user's own.

    What the module and the loss draw from global generators, as dropout does, comes from the experiment's seed, the
    client and the round. A loss that is not finite makes the update one that the client does not hand on.

    Args:
        name: what is learned, for the records.
        data: the clients' samples.
        section: names the model, and says how to train.
        seed: the experiment's.

    Raises:
        ExperimentError: a module that does not take these samples, or gives what the loss and the labels do not fit.
    """

    def __init__(self, name: str, data: ClientData, section: WorkloadSection, seed: int) -> None:
        network = adapters.own_model(section, seed)
        check_fit(network, data, section)
        if section.clients_at_once > 1:
            self._check_loss_of_samples(network, data, section)
        super().__init__(name, data, section.own_model, network, section, seed, _EVALUATION_BATCH)

    def initial_model(self) -> NDArray[np.float32]:
        """(d,) float32: the module's own initial values, made each time."""
        return adapters.own_model(self._section, self._seed).values()

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """See `TorchWorkload.train`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            return _finite(super().train(client, model, round_number))

    def train_corrected(
        self, client: int, model: NDArray[np.float32], round_number: int, term: NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """See `TorchWorkload.train_corrected`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            update, steps = super().train_corrected(client, model, round_number, term)
        return _finite(update), steps

    def train_together(
        self, clients: Sequence[int], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalUpdate]:
        """See `TorchWorkload.train_together`."""
        updates = super().train_together(clients, model, round_number)
        return {client: _finite(update) for client, update in updates.items()}

    def gradient_sum(
        self, client: int, model: NDArray[np.float32], round_number: int, samples: NDArray[np.int64], clip: float | None
    ) -> LocalUpdate:
        """See `TorchWorkload.gradient_sum`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client, round_number)):
            return super().gradient_sum(client, model, round_number, samples, clip)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """See `TorchWorkload.evaluate`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING)):
            return super().evaluate(model)

    def evaluate_for(self, client: int, model: NDArray[np.float32]) -> Evaluation | None:
        """See `TorchWorkload.evaluate_for`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING, client)):
            return super().evaluate_for(client, model)

    def client_accuracies(self, clients: NDArray[np.int64], model: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `TorchWorkload.client_accuracies`."""
        with seeded_globals(stream(self._seed, Purpose.OWN_TRAINING)):
            return super().client_accuracies(clients, model)

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` where single samples have no gradients, which is tried."""
        super().check_gradient_sum()
        client = int(np.argmax(self.sample_counts))
        try:
            self.gradient_sum(client, self.initial_model(), 1, np.arange(min(2, self.sample_counts[client])), 1.0)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ExperimentError(
                f"workload.model: {self.model_name} gives no gradients of single samples, which this aggregation "
                f"clips: {first_line(error)}"
            ) from error

    @staticmethod
    def _check_loss_of_samples(network: OwnModel, data: ClientData, section: WorkloadSection) -> None:
        inputs, labels = (part[:2] for part in data.held_out())
        with torch.inference_mode(), seeded_globals(np.random.default_rng(0)):
            _, singles = objective_of(section.loss).of_batch(network.eval()(inputs), labels)
        if singles is None:
            raise ExperimentError(
                f"workload.clients_at_once: {section.loss} gives one loss for a batch, and batches of several clients "
                "are filled up; leave the key out, or give a loss for each sample"
            )


def _finite(update: LocalUpdate) -> LocalUpdate:
    """The same; with a loss that is not finite one that its client refuses to hand on (``train.diverged``)."""
    if math.isfinite(update.loss):
        return update
    lost = np.full_like(update.delta, np.nan)
    return LocalUpdate(lost, update.samples, update.loss, update.examples_processed, update.squared_loss)
