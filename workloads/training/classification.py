"""Learning as a federated workload: some clients' data, one of the models, local training.

All built-in workloads are of this kind. `ImageClassification` is that of images; a user-defined class
may derive from it and bring only data::

    class MyImages(ImageClassification):
        def __init__(self, section, population, seed):
            train, test = ...  # LabelledImages: (n, height, width) uint8 and (n,) int64
            data = PartitionedDataset(
                train, test, classes=10, scaling=Scaling(0.0, 255.0), description="mine",
                section=section, population=population, seed=seed,
            )
            super().__init__("my-images", data, "cnn", section, seed)
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate
from workloads.data.clients.contract import Batch, ClientData, ClientImages, ClientSequences, ClientText
from workloads.models import vector
from workloads.models.registry import image_model, sequence_model, text_model
from workloads.training import clipped_gradients
from workloads.training.fit import check_fit
from workloads.training.local import LocalTrainer, prepare_process
from workloads.training.together import ClientsTogether

_SMALL_IMAGE = 32 * 32


class TorchWorkload:
    """A `Workload` that trains a network of torch.

    Making one sets torch to one thread in this process (see `workloads.training.local.prepare_process`).

    Args:
        name: what is learned, for the records.
        data: the clients' samples.
        model: what the network is called in the records.
        network: on torch's meta device; it is given memory here.
        section: how to train.
        seed: the experiment's.
        evaluation_batch: samples that are evaluated at once.

    Raises:
        ExperimentError: the network has parameters or buffers that are no floats.
    """

    def __init__(
        self,
        name: str,
        data: ClientData,
        model: str,
        network: nn.Module,
        section: WorkloadSection,
        seed: int,
        evaluation_batch: int,
    ) -> None:
        vector.check_floats(network, model)
        self.name = name
        self.model_name = model
        self.description = data.description
        self.sample_counts = data.sample_counts
        self.population = len(data.sample_counts)
        self.data = data
        self.dimension = vector.dimension(network)
        self._section = section
        self._seed = seed
        self._network = network
        self._device = prepare_process()
        self.clients_at_once = section.clients_at_once
        self._together: ClientsTogether | None = None
        if section.clients_at_once > 1:
            self._check_train_is_inherited()
            self._together = ClientsTogether(network, section, seed, self._device, model)
        self._trainer = LocalTrainer(network, section, seed, self._device, evaluation_batch)
        self._held_out: Batch | None = None

    @property
    def proximal(self) -> float:
        """mu, which the training here applies; of a class that trains in its own way nobody knows."""
        return self._section.proximal if type(self).train is TorchWorkload.train else 0.0

    def initial_model(self) -> NDArray[np.float32]:
        """(d,) float32, made each time; see `workloads.models.vector.initial_vector`."""
        return vector.initial_vector(self._network, self._seed)

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Local training from `model` on the client's samples; see `LocalTrainer.train`."""
        samples = int(self.sample_counts[client])
        if samples == 0:
            return self._untrained()
        images, labels = self._on_device(self.data.shard(client))
        delta, loss, squared_loss = self._trainer.train(client, images, labels, model, round_number)
        said = None if math.isnan(squared_loss) and not math.isnan(loss) else squared_loss
        return LocalUpdate(delta, samples, loss, samples * self._section.epochs, said)

    def train_together(
        self, clients: Sequence[int], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalUpdate]:
        """As `train` for each of them, `workload.clients_at_once` at the same time; see `ClientsTogether.train`."""
        assert self._together is not None, "workload.clients_at_once is 1"
        learning = [client for client in clients if self.sample_counts[client]]
        results = self._together.train(learning, self.data.shard, model, round_number)
        updates = {}
        for client in clients:
            samples = int(self.sample_counts[client])
            if client in results:
                result = results[client]
                examples = samples * self._section.epochs
                updates[client] = LocalUpdate(result.delta, samples, result.loss, examples, result.squared_loss)
            else:
                updates[client] = self._untrained()
        return updates

    def _untrained(self) -> LocalUpdate:
        """Of a client without samples."""
        return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), 0, 0.0, 0, 0.0)

    def _check_train_is_inherited(self) -> None:
        """A class that trains in its own way would not be asked."""
        kind = type(self)
        if kind.train is not TorchWorkload.train and kind.train_together is TorchWorkload.train_together:
            raise ExperimentError(
                f"workload.clients_at_once: {kind.__name__} has a train of its own, which trains one client at a time; "
                "leave the key out, or override train_together, too"
            )

    def check_fit(self) -> None:
        """Raise `ExperimentError` where network, loss and labels do not fit, which is tried on some samples."""
        check_fit(self._network, self.data, self._section)

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` for a model whose single samples have no gradients; see `clipped_gradients.check`."""
        clipped_gradients.check(self._network, self.model_name)

    def gradient_sum(
        self, client: int, model: NDArray[np.float32], round_number: int, samples: NDArray[np.int64], clip: float | None
    ) -> LocalUpdate:
        """The sum of some samples' clipped gradients at `model`; see `testbed.workload.contract.GradientWorkload`."""
        held = int(self.sample_counts[client])
        if not len(samples):
            return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), held, 0.0, 0, 0.0)
        chosen = torch.from_numpy(samples)
        images, labels = self.data.shard(client)
        images, labels = self._on_device((images[chosen], labels[chosen]))
        total, loss, squared_loss = self._trainer.gradient_sum(client, images, labels, model, round_number, clip)
        return LocalUpdate(total, held, loss, len(samples), squared_loss)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """Mean cross-entropy and accuracy on the held-out samples, which are kept in memory from then on."""
        if self._held_out is None:
            self._held_out = self._on_device(self.data.held_out())
        return self._trainer.evaluate(*self._held_out, model)

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each parameter, in the order of the model's vector."""
        return [tuple(parameter.shape) for parameter in self._network.parameters()]

    def known_samples(self) -> NDArray[np.float32]:
        """(m, ...) float32: the inputs that models are evaluated on, as the model takes them."""
        inputs: NDArray[np.float32] = self.data.held_out()[0].numpy().astype(np.float32)
        return inputs

    def training_samples(self, client: int) -> NDArray[np.float32]:
        """(n, ...) float32: a client's inputs, as the model takes them: what attacks are measured against."""
        inputs: NDArray[np.float32] = self.data.shard(client)[0].numpy().astype(np.float32)
        return inputs

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64."""
        return self.data.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: the same without the samples that all clients share."""
        return self.data.own_label_counts()

    def _on_device(self, samples: Batch) -> Batch:
        images, labels = samples
        kind = labels.dtype if labels.is_floating_point() else torch.int64
        return images.to(self._device), labels.to(self._device, kind)


class ImageClassification(TorchWorkload):
    """Learning to classify images.

    Args:
        name: what is learned, for the records.
        data: the clients' images.
        model: the name of a model in `workloads.models.registry`.
        section: how to train.
        seed: the experiment's.

    Raises:
        ExperimentError: a model that is unknown or does not take such images, or data of another class.
    """

    def __init__(self, name: str, data: ClientImages, model: str, section: WorkloadSection, seed: int) -> None:
        if not isinstance(data, ClientImages):
            raise ExperimentError(f"workload.dataset: {name}: the class of its data must derive from ClientImages")
        network = image_model(model, data.height, data.width, data.classes, data.channels)
        is_small = data.channels == 1 or data.height * data.width <= _SMALL_IMAGE
        super().__init__(name, data, model, network, section, seed, 250 if is_small else 50)


class SequenceClassification(TorchWorkload):
    """Learning the labels of sequences: the character that comes next, or what a text says.

    Args:
        name: what is learned, for the records.
        data: the clients' sequences.
        model: ``char-lstm``, ``sent-lstm`` or ``word-bag``.
        section: how to train.
        seed: the experiment's.
    """

    def __init__(self, name: str, data: ClientSequences, model: str, section: WorkloadSection, seed: int) -> None:
        network = sequence_model(model, data.classes, data.vocabulary_size)
        super().__init__(name, data, model, network, section, seed, 100)


class NextWordPrediction(TorchWorkload):
    """Learning to predict the next word: the loss is the mean over words, and exp(loss) the perplexity.

    Args:
        name: what is learned, for the records.
        data: the clients' text.
        model: ``albert`` or ``albert-small``.
        section: how to train.
        seed: the experiment's.
    """

    def __init__(self, name: str, data: ClientText, model: str, section: WorkloadSection, seed: int) -> None:
        super().__init__(name, data, model, text_model(model, data.vocabulary_size), section, seed, 16)
