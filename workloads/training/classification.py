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

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from testbed.errors import ExperimentError
from testbed.workload.contract import Samples
from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate
from workloads.data.clients.changed import ChangedData
from workloads.data.clients.contract import Batch, ClientData, ClientImages, ClientSequences, ClientText
from workloads.models import adapters, vector
from workloads.models.adapters import AdaptedModel
from workloads.models.own import OwnModel
from workloads.models.registry import image_model, sequence_model, text_model
from workloads.training import clipped_gradients
from workloads.training.fit import check_fit
from workloads.training.local import LocalTrainer, prepare_process
from workloads.training.together import ClientsTogether

_SMALL_IMAGE = 32 * 32
_BATCHES_OF_CLIENTS = 16
"""Evaluation batches of samples of several clients that are in memory at the same time."""


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
        if not isinstance(network, OwnModel):
            network = adapters.built_in_model(network, section, model, seed, shapes=False)
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
        # Made now: from here on the network's values are those of the model that it was last given.
        self._first = network.values() if isinstance(network, AdaptedModel) else None
        self._device = prepare_process()
        if isinstance(network, OwnModel):
            network.to_device(self._device)  # here: what is constant is there once
        self.clients_at_once = section.clients_at_once
        self._together: ClientsTogether | None = None
        if section.drift_correction is not None:
            self._check_train_is_inherited("drift_correction", "train_corrected")
        if section.clients_at_once > 1:
            self._check_train_is_inherited("clients_at_once", "train_together")
            self._together = ClientsTogether(network, section, seed, self._device, model)
        self._trainer = LocalTrainer(network, section, seed, self._device, evaluation_batch)
        self._samples_at_once = _BATCHES_OF_CLIENTS * evaluation_batch
        self._held_out: Batch | None = None
        self._label_counts: NDArray[np.int64] | None = None

    @property
    def proximal(self) -> float:
        """mu, which the training here applies; of a class that trains in its own way nobody knows."""
        return self._section.proximal if type(self).train is TorchWorkload.train else 0.0

    def initial_model(self) -> NDArray[np.float32]:
        """(d,) float32; without adapters made each time, see `workloads.models.vector.initial_vector`."""
        return vector.initial_vector(self._network, self._seed) if self._first is None else self._first.copy()

    @property
    def charged_parameters(self) -> int:
        """See `testbed.workload.contract.PartlyFrozenWorkload`."""
        return adapters.charged_parameters(self._network)

    @property
    def notes(self) -> list[str]:
        """See `testbed.workload.contract.NotedWorkload`."""
        return [*self.data.notes, *adapters.notes(self._network)]

    @property
    def data_facts(self) -> dict[str, Any]:
        """See `testbed.workload.contract.DescribedWorkload`; of built-in data there is nothing to say."""
        if self._section.is_built_in:
            return {}
        ours = type(self).train.__module__.partition(".")[0] == __name__.partition(".")[0]
        return {"trained_in_batches": ours, **self.data.facts}

    @property
    def corrected(self) -> int:
        """p: how many of the vector's first numbers are parameters; see `DriftCorrectedWorkload`."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Local training from `model` on the client's samples; see `LocalTrainer.train`."""
        return self._train(client, model, round_number, None)

    def train_corrected(
        self, client: int, model: NDArray[np.float32], round_number: int, term: NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """See `testbed.workload.contract.DriftCorrectedWorkload`."""
        steps = self._section.epochs * math.ceil(int(self.sample_counts[client]) / self._section.batch_size)
        return self._train(client, model, round_number, term), steps

    def _train(
        self, client: int, model: NDArray[np.float32], round_number: int, term: NDArray[np.float32] | None
    ) -> LocalUpdate:
        samples = int(self.sample_counts[client])
        if samples == 0:
            return self._untrained()
        images, labels = self._on_device(self.data.shard(client))
        delta, loss, squared_loss = self._trainer.train(client, images, labels, model, round_number, term)
        squared = None if math.isnan(squared_loss) and not math.isnan(loss) else squared_loss
        return LocalUpdate(delta, samples, loss, samples * self._section.epochs, squared)

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

    def _check_train_is_inherited(self, key: str, instead: str) -> None:
        """A class that trains in its own way would not be asked, where a key has another method called."""
        trains, called = (
            next(kind for kind in type(self).__mro__ if name in vars(kind)) for name in ("train", instead)
        )
        if not issubclass(called, trains):
            raise ExperimentError(
                f"workload.{key}: {trains.__name__} has a train of its own, which knows nothing of it; leave the key "
                f"out, or override {instead}, too"
            )

    def with_samples(self, change: Callable[[Samples], Samples]) -> Self:
        """See `testbed.workload.contract.ReplaceableSamplesWorkload`."""
        changed = copy.copy(self)
        changed.data, changed._held_out = ChangedData(self.data, change), None
        return changed

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
        sample_count = int(self.sample_counts[client])
        if not len(samples):
            return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), sample_count, 0.0, 0, 0.0)
        chosen = torch.from_numpy(samples)
        images, labels = self.data.shard(client)
        images, labels = self._on_device((images[chosen], labels[chosen]))
        total, loss, squared_loss = self._trainer.gradient_sum(client, images, labels, model, round_number, clip)
        return LocalUpdate(total, sample_count, loss, len(samples), squared_loss)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """Mean cross-entropy and accuracy on the held-out samples, which are kept in memory from then on."""
        if self._held_out is None:
            self._held_out = self._on_device(self.data.held_out())
        return self._trainer.evaluate(*self._held_out, model)

    def local_numbers(self, first: int, last: int) -> NDArray[np.bool_]:
        """See `testbed.workload.contract.PersonalWorkload`; a layer is a module with parameters of its own."""
        layers = vector.layers(self._network)
        if first + last >= len(layers) or vector.copies(self._network):
            raise ExperimentError(
                f"workload.local_layers: {first + last} of the {len(layers)} layers of {self.model_name}; one must be "
                "shared, and none sent twice"
            )
        local = np.zeros(self.dimension, np.bool_)
        for place in itertools.chain(*layers[:first], *layers[len(layers) - last :]):
            local[place] = True
        return local

    def evaluate_for(self, client: int, model: NDArray[np.float32]) -> Evaluation | None:
        """On held-out samples that count by the client's share of each label; where there are no labels, on all."""
        if self._held_out is None:
            self._held_out = self._on_device(self.data.held_out())
        inputs, labels = self._held_out
        if labels.dim() > 1 or labels.is_floating_point():
            return self.evaluate(model)
        if self._label_counts is None:
            self._label_counts = self.data.label_counts()
        counts = self._label_counts[client]
        label_array = labels.cpu().numpy()
        weights = (counts / np.maximum(np.bincount(label_array, minlength=len(counts)), 1))[label_array]
        chosen = np.flatnonzero(weights)
        if not len(chosen):
            return None
        there = torch.from_numpy(chosen).to(labels.device)
        weighted = torch.from_numpy(weights[chosen] / weights.sum()).to(labels.device)
        return self._trainer.evaluate_weighted(inputs[there], labels[there], weighted, model)

    def client_accuracies(self, clients: NDArray[np.int64], model: NDArray[np.float32]) -> NDArray[np.float64]:
        """Measure the accuracy on each client's training samples; see `testbed.workload.contract`.

        The samples of many clients go through the model together: a batch is as large as in `evaluate`, however few
        samples a client has.
        """
        accuracies = np.full(len(clients), np.nan)
        places = np.flatnonzero(self.sample_counts[clients])
        ends = np.cumsum(self.sample_counts[clients[places]])
        for some in np.split(places, np.flatnonzero(np.diff(ends // self._samples_at_once)) + 1):
            if not len(some):
                continue
            shards = [self.data.shard(client) for client in clients[some].tolist()]
            inputs, labels = (torch.cat(parts) for parts in zip(*shards, strict=True))
            counts = self._trainer.correct_labels(*self._on_device((inputs, labels)), model)
            if counts is None:
                break
            begins = np.cumsum([0, *(len(shard_labels) for _, shard_labels in shards[:-1])])
            right, counted = (np.add.reduceat(part.cpu().numpy(), begins) for part in counts)
            accuracies[some] = np.divide(right, counted, out=np.full(len(some), np.nan), where=counted > 0)
        return accuracies

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

    def sample_gradients(
        self, model: NDArray[np.float32], samples: Batch
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Each sample's gradient at `model`, for attacks: what anybody can compute who has the model and the samples.

        Yields:
            (k, d) float32 and the (k,) losses, some samples at a time, in their order.

        Raises:
            ExperimentError: a model whose single samples have no gradients.
        """
        clipped_gradients.check(self._network, self.model_name)
        return self._trainer.sample_gradients(*self._on_device(samples), model)

    def train_on(
        self, samples: Batch, model: NDArray[np.float32], round_number: int, number: int
    ) -> NDArray[np.float32]:
        """(d,) float32: what a client with these samples, one or more, would learn in this round, for attacks.

        Args:
            samples: as `ClientData.shard` gives them.
            model: (d,) float32.
            round_number: names the learning rate.
            number: names the stream of the samples' order, as a client's does.
        """
        images, labels = self._on_device(samples)
        return self._trainer.train(number, images, labels, model, round_number)[0]

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
        model: the name of a model of text in `workloads.models.registry`.
        section: how to train.
        seed: the experiment's.
    """

    def __init__(self, name: str, data: ClientText, model: str, section: WorkloadSection, seed: int) -> None:
        super().__init__(name, data, model, text_model(model, data.vocabulary_size), section, seed, 16)
