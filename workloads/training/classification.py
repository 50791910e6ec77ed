"""Torch training as a federated workload: clients' data, a model, and local training.

All built-in workloads are of this kind. A user-defined class may derive from `ImageClassification`, the one for images,
and bring only data::

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
"""Largest number of evaluation batches in memory at the same time, for samples of several clients."""


class TorchWorkload:
    """A `Workload` that trains a torch network.

    Construction limits torch to one thread in this process (see `workloads.training.local.prepare_process`).

    Args:
        name: name of the data, for the records.
        data: the clients' samples.
        model: name of the network, for the records.
        network: on torch's meta device; it is given memory here.
        section: settings of the training.
        seed: the experiment's seed.
        evaluation_batch: samples per evaluation batch.

    Raises:
        ExperimentError: the network has parameters or buffers that are not floats.
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
        # Computed now: later the network has the values of the model loaded last.
        self._first = network.values() if isinstance(network, AdaptedModel) else None
        self._device = prepare_process()
        if isinstance(network, OwnModel):
            network.to_device(self._device)  # before copies are made, so that constants exist only once
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
        """mu of FedProx's term; 0 for a class with its own `train`, which may not apply the term."""
        return self._section.proximal if type(self).train is TorchWorkload.train else 0.0

    def initial_model(self) -> NDArray[np.float32]:
        """Return the initial model, (d,) float32, as `workloads.models.vector.initial_vector` computes it."""
        return vector.initial_vector(self._network, self._seed) if self._first is None else self._first.copy()

    @property
    def charged_parameters(self) -> int:
        """Parameters that modelled compute charges per example."""
        return adapters.charged_parameters(self._network)

    @property
    def notes(self) -> list[str]:
        """Notes on the data and the model, one line each."""
        return [*self.data.notes, *adapters.notes(self._network)]

    @property
    def data_facts(self) -> dict[str, Any]:
        """Facts about the user's data for the records; empty for built-in data."""
        if self._section.is_built_in:
            return {}
        ours = type(self).train.__module__.partition(".")[0] == __name__.partition(".")[0]
        return {"trained_in_batches": ours, **self.data.facts}

    @property
    def corrected(self) -> int:
        """p, the number of parameters, which come first in the model's vector."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train from `model` on the client's samples.

        Args:
            client: the client.
            model: (d,) float32; not changed.
            round_number: the round, 1 for the first.
        """
        return self._train(client, model, round_number, None)

    def train_corrected(
        self, client: int, model: NDArray[np.float32], round_number: int, term: NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """Train with `term`, (p,) float32, added to each gradient; return the update and the number of steps."""
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
        # NaN next to a loss: the user's loss gives no values for single samples.
        squared = None if math.isnan(squared_loss) and not math.isnan(loss) else squared_loss
        return LocalUpdate(delta, samples, loss, samples * self._section.epochs, squared)

    def train_together(
        self, clients: Sequence[int], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalUpdate]:
        """Train several clients, `workload.clients_at_once` at the same time, and return their updates."""
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
        """Return the update of a client without samples."""
        return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), 0, 0.0, 0, 0.0)

    def _check_train_is_inherited(self, key: str, instead: str) -> None:
        """Raise `ExperimentError` if a subclass overrides `train` but not the method that a key calls in its place."""
        trains, called = (
            next(kind for kind in type(self).__mro__ if name in vars(kind)) for name in ("train", instead)
        )
        if not issubclass(called, trains):
            raise ExperimentError(
                f"workload.{key}: the train method of {trains.__name__} does not support this key; leave the key out, "
                f"or override {instead}, too"
            )

    def with_samples(self, change: Callable[[Samples], Samples]) -> Self:
        """Return the same workload with all training and evaluation samples passed through `change` at each use."""
        # Shallow: network and trainer are shared; only the samples differ.
        changed = copy.copy(self)
        changed.data, changed._held_out = ChangedData(self.data, change), None
        return changed

    def check_fit(self) -> None:
        """Raise `ExperimentError` if network, loss and labels do not fit, tried on some samples."""
        check_fit(self._network, self.data, self._section)

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` for a model without per-sample gradients; see `clipped_gradients.check`."""
        clipped_gradients.check(self._network, self.model_name)

    def gradient_sum(
        self, client: int, model: NDArray[np.float32], round_number: int, samples: NDArray[np.int64], clip: float | None
    ) -> LocalUpdate:
        """Return the sum of some samples' clipped gradients at `model`.

        Args:
            client: the client.
            model: (d,) float32.
            round_number: the round.
            samples: (k,) int64, positions among the client's samples.
            clip: C, the largest norm of a gradient; None: no clipping.
        """
        sample_count = int(self.sample_counts[client])
        if not len(samples):
            return LocalUpdate(np.zeros(self.dimension, dtype=np.float32), sample_count, 0.0, 0, 0.0)
        chosen = torch.from_numpy(samples)
        images, labels = self.data.shard(client)
        images, labels = self._on_device((images[chosen], labels[chosen]))
        total, loss, squared_loss = self._trainer.gradient_sum(client, images, labels, model, round_number, clip)
        return LocalUpdate(total, sample_count, loss, len(samples), squared_loss)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """Return mean loss and accuracy on the held-out samples, which stay in memory from then on."""
        if self._held_out is None:
            self._held_out = self._on_device(self.data.held_out())
        return self._trainer.evaluate(*self._held_out, model)

    def local_numbers(self, first: int, last: int) -> NDArray[np.bool_]:
        """Return the positions of the first and last layers in the model's vector, (d,) bool.

        A layer is a module with parameters of its own.

        Raises:
            ExperimentError: no layer would be left to share, or a parameter is sent twice.
        """
        layers = vector.layers(self._network)
        if first + last >= len(layers) or vector.copies(self._network):
            raise ExperimentError(
                f"workload.local_layers: {first + last} of the {len(layers)} layers of {self.model_name}; at least one "
                "layer must be shared, and no parameter sent twice: choose fewer layers or another model"
            )
        local = np.zeros(self.dimension, np.bool_)
        for place in itertools.chain(*layers[:first], *layers[len(layers) - last :]):
            local[place] = True
        return local

    def evaluate_for(self, client: int, model: NDArray[np.float32]) -> Evaluation | None:
        """Evaluate on held-out samples, weighted by the client's share of each label; unweighted without labels."""
        if self._held_out is None:
            self._held_out = self._on_device(self.data.held_out())
        inputs, labels = self._held_out
        if labels.dim() > 1 or labels.is_floating_point():
            return self.evaluate(model)
        if self._label_counts is None:
            self._label_counts = self.data.label_counts()
        counts = self._label_counts[client]
        label_array = labels.cpu().numpy()
        # Each label weighs as in the client's data: its count, divided by the held-out samples with that label.
        weights = (counts / np.maximum(np.bincount(label_array, minlength=len(counts)), 1))[label_array]
        chosen = np.flatnonzero(weights)
        if not len(chosen):
            return None
        there = torch.from_numpy(chosen).to(labels.device)
        weighted = torch.from_numpy(weights[chosen] / weights.sum()).to(labels.device)
        return self._trainer.evaluate_weighted(inputs[there], labels[there], weighted, model)

    def client_accuracies(self, clients: NDArray[np.int64], model: NDArray[np.float32]) -> NDArray[np.float64]:
        """Measure the accuracy of `model` on each client's training samples.

        Samples of many clients are evaluated together, so that batches are as large as in `evaluate` even if clients
        have few samples.

        Args:
            clients: (k,) int64, different clients in ascending order.
            model: (d,) float32.

        Returns:
            (k,) float64, 0 to 1; NaN for a client without samples, and in regression.
        """
        accuracies = np.full(len(clients), np.nan)
        # Without empty clients: `reduceat` returns a wrong value for an empty segment.
        places = np.flatnonzero(self.sample_counts[clients])
        ends = np.cumsum(self.sample_counts[clients[places]])
        # Cut where the running number of samples passes a multiple: groups bound the memory.
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
        """Return the shape of each parameter, in the order of the model's vector."""
        return [tuple(parameter.shape) for parameter in self._network.parameters()]

    def known_samples(self) -> NDArray[np.float32]:
        """Return the evaluation inputs, (m, ...) float32, as the model takes them."""
        inputs: NDArray[np.float32] = self.data.held_out()[0].numpy().astype(np.float32)
        return inputs

    def training_samples(self, client: int) -> NDArray[np.float32]:
        """Return a client's inputs, (n, ...) float32, as the model takes them; attacks are compared with them."""
        inputs: NDArray[np.float32] = self.data.shard(client)[0].numpy().astype(np.float32)
        return inputs

    def sample_gradients(
        self, model: NDArray[np.float32], samples: Batch
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield the gradients of single samples at `model`, for attacks by a party with the model and the samples.

        Args:
            model: (d,) float32.
            samples: as `ClientData.shard` returns them.

        Yields:
            (k, d) float32 gradients and (k,) losses, several samples at a time, in their order.

        Raises:
            ExperimentError: a model without per-sample gradients.
        """
        clipped_gradients.check(self._network, self.model_name)
        return self._trainer.sample_gradients(*self._on_device(samples), model)

    def train_on(
        self, samples: Batch, model: NDArray[np.float32], round_number: int, number: int
    ) -> NDArray[np.float32]:
        """Return the update, (d,) float32, of a client with these samples in this round; for attacks.

        Args:
            samples: one or more, as `ClientData.shard` returns them.
            model: (d,) float32.
            round_number: the round, which determines the learning rate.
            number: identifies the stream of the samples' order, as a client's number does.
        """
        images, labels = self._on_device(samples)
        return self._trainer.train(number, images, labels, model, round_number)[0]

    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64, the training samples of each class per client."""
        return self.data.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64, without the samples that all clients share."""
        return self.data.own_label_counts()

    def _on_device(self, samples: Batch) -> Batch:
        images, labels = samples
        # Data sets store labels in small integers; torch's losses index with int64.
        kind = labels.dtype if labels.is_floating_point() else torch.int64
        return images.to(self._device), labels.to(self._device, kind)


class ImageClassification(TorchWorkload):
    """Training of image classifiers.

    Args:
        name: name of the data, for the records.
        data: the clients' images.
        model: name of a model in `workloads.models.registry`.
        section: settings of the training.
        seed: the experiment's seed.

    Raises:
        ExperimentError: a model that is unknown or does not take such images, or data of another class.
    """

    def __init__(self, name: str, data: ClientImages, model: str, section: WorkloadSection, seed: int) -> None:
        if not isinstance(data, ClientImages):
            raise ExperimentError(f"workload.dataset: {name}: its data must be of a class derived from ClientImages")
        network = image_model(model, data.height, data.width, data.classes, data.channels)
        is_small = data.channels == 1 or data.height * data.width <= _SMALL_IMAGE
        super().__init__(name, data, model, network, section, seed, 250 if is_small else 50)


class SequenceClassification(TorchWorkload):
    """Training on labelled sequences: prediction of the next character, or classification of texts.

    Args:
        name: name of the data, for the records.
        data: the clients' sequences.
        model: ``char-lstm``, ``sent-lstm`` or ``word-bag``.
        section: settings of the training.
        seed: the experiment's seed.
    """

    def __init__(self, name: str, data: ClientSequences, model: str, section: WorkloadSection, seed: int) -> None:
        network = sequence_model(model, data.classes, data.vocabulary_size)
        super().__init__(name, data, model, network, section, seed, 100)


class NextWordPrediction(TorchWorkload):
    """Training of next-word prediction: the loss is the mean over words, and exp(loss) the perplexity.

    Args:
        name: name of the data, for the records.
        data: the clients' text.
        model: name of a text model in `workloads.models.registry`.
        section: settings of the training.
        seed: the experiment's seed.
    """

    def __init__(self, name: str, data: ClientText, model: str, section: WorkloadSection, seed: int) -> None:
        super().__init__(name, data, model, text_model(model, data.vocabulary_size), section, seed, 16)
