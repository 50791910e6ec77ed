"""Training of several clients as one computation, which keeps a GPU busy, as single clients' models are too small.

The parameters of `slots` clients lie side by side. torch.func's vmap turns a network's operations into those of several
networks (batched matrix products, grouped convolutions). A slot gets the next client as soon as one has finished. A
client's update does not depend on the others, so the number of hosts changes no bit. Compared with `LocalTrainer`, sums
have other orders: results are equal except for rounding.
"""

import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import log_softmax

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.clients.contract import IGNORED, Batch
from workloads.determinism import Purpose, stream
from workloads.models import vector
from workloads.models.classifiers import SeededDropout
from workloads.models.own import OwnModel
from workloads.training.objectives import CrossEntropy, objective_of
from workloads.training.proximal import add_pull
from workloads.training.stacked_optimizers import stacked_optimizer

_SAMPLE_BYTES = 1 << 29  # samples on the device at the same time
_ALIGNED = 32  # elements; every parameter begins at a multiple


def check(network: nn.Module, name: str) -> None:
    """Raise `ExperimentError` for a network that cannot be trained for several clients at once.

    Args:
        network: any network, also on the meta device.
        name: the experiment's name for it.
    """
    if (module := vector.mixing_module(network)) is not None:
        raise ExperimentError(
            f"workload.clients_at_once: {name} has {type(module).__name__} with statistics of a whole batch, but "
            "batches of several clients are padded; leave the key out, or choose a model without it"
        )
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            raise ExperimentError(
                f"workload.clients_at_once: {name} has {type(module).__name__}, which draws from torch's own "
                "generator; leave the key out, or use workloads.models.classifiers.SeededDropout"
            )


class LocalResult(NamedTuple):
    """Result of one client's training, as of `LocalTrainer.train`.

    Attributes:
        delta: (d,) float32, the local model minus the initial one.
        loss: mean over all processed examples.
        squared_loss: mean of its square.
    """

    delta: NDArray[np.float32]
    loss: float
    squared_loss: float


class ClientsTogether:
    """Local training of several clients at once.

    Calls from several threads are safe and run one after the other.

    Args:
        network: on the meta device, accepted by `check`; it is copied.
        section: as for `LocalTrainer`; `clients_at_once` is the number of slots.
        seed: the experiment's seed.
        device: device of the computation.
        name: the experiment's name for the network.
    """

    def __init__(
        self, network: nn.Module, section: WorkloadSection, seed: int, device: torch.device, name: str
    ) -> None:
        check(network, name)
        constants = network.constant_tensors() if isinstance(network, OwnModel) else []
        self._network = copy.deepcopy(network, {id(tensor): tensor for tensor in constants})
        self._dimension = vector.dimension(network)
        # On the meta device: each step gives the network its parameters (`functional_call`).
        vector.attach(self._network, torch.empty(self._dimension, device="meta"))
        self._network.train()
        self._name = name
        self._section = section
        self._seed = seed
        self._device = device
        self._copies = vector.copies(network)
        self._objective = objective_of(section.loss)
        self._is_classes = isinstance(self._objective, CrossEntropy)
        self._slots = section.clients_at_once
        # On a CPU, matrix products round depending on the memory position: there a client's number sets its slot.
        self._any_slot = device.type != "cpu"
        self._places: dict[str, tuple[slice, torch.Size]] = {}  # place of each parameter in a slot's row
        self._width = 0
        for key, parameter in self._network.named_parameters():
            self._places[key] = slice(self._width, self._width + parameter.numel()), parameter.shape
            self._width += _ALIGNED * math.ceil(parameter.numel() / _ALIGNED)
        self._dropout = _Dropout(self._network, self._slots, section.batch_size, device)
        self._rows = self._gradients = torch.zeros(0)  # (slots, width) from the first use on
        self._lock = threading.Lock()

    def train(
        self,
        clients: Sequence[int],
        samples_of: Callable[[int], Batch],
        model: NDArray[np.float32],
        round_number: int,
    ) -> dict[int, LocalResult]:
        """Train each client on its samples, from `model`.

        Args:
            clients: different clients; they identify the streams for the order of the samples and for dropout.
            samples_of: returns a client's samples and labels, at least one, on the CPU.
            model: (d,) float32, not changed.
            round_number: identifies the streams, too.

        Raises:
            ExperimentError: the network has an operation that does not support several clients at once.
        """
        if model.shape != (self._dimension,) or model.dtype != np.float32:
            raise ValueError(
                f"a model must have shape ({self._dimension},) and dtype float32, not {model.shape} and {model.dtype}"
            )
        results: dict[int, LocalResult] = {}
        with self._lock:
            waiting, size = [], 0
            for position, client in enumerate(clients):
                inputs, labels = samples_of(client)
                waiting.append(_BatchedTraining(client, inputs, labels, self._section, self._seed, round_number))
                size += inputs.nbytes
                full = size >= _SAMPLE_BYTES and len(waiting) >= self._slots
                if full or position == len(clients) - 1:
                    results |= self._train(waiting, model, round_number)
                    waiting, size = [], 0
        return results

    def _train(
        self, trainings: list["_BatchedTraining"], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalResult]:
        if not self._rows.numel():
            self._rows = torch.zeros((self._slots, self._width), device=self._device)
            self._gradients = torch.zeros_like(self._rows)
        optimizer = stacked_optimizer(self._section, self._rows, self._section.learning_rate_in(round_number))
        initial = self._row(model)
        samples = torch.cat([training.inputs for training in trainings]).to(self._device)
        labels = torch.cat([training.labels for training in trainings]).to(self._device)
        labels = labels if labels.is_floating_point() else labels.to(torch.int64)
        self._dropout.look(self._network, self._views(initial), samples[:1])
        first = 0
        for training in trainings:
            training.first, first = first, first + len(training.labels)
        queues = self._queues(trainings)
        slots: list[_BatchedTraining | None] = [None] * self._slots
        sums = torch.zeros((2, self._slots), dtype=torch.float64, device=self._device)  # losses, and their squares
        results: dict[int, LocalResult] = {}
        while any(queues) or any(slots):
            begun = []
            for slot, queue in enumerate(queues):
                if slots[slot] is None and queue:
                    slots[slot] = queue.pop()
                    begun.append(slot)
            if begun:
                self._rows[begun] = initial
                optimizer.begin(begun)
                sums[:, begun] = 0.0
            chosen, counts = self._next_batches(slots)
            there = torch.from_numpy(np.arange(chosen.shape[1]) < counts[:, None]).to(self._device)
            index = torch.from_numpy(chosen.ravel()).to(self._device)
            inputs = samples.index_select(0, index).unflatten(0, chosen.shape)
            targets = labels.index_select(0, index).unflatten(0, chosen.shape)
            if self._is_classes:
                targets = targets.masked_fill(~there.view(*there.shape, *[1] * (targets.dim() - 2)), IGNORED)
            self._backward(inputs, targets, there, self._dropout.draw(slots, counts), counts, sums)
            if self._section.proximal:
                add_pull(self._gradients, self._rows, initial, self._section.proximal)
            optimizer.step(self._gradients)
            done = [
                (slot, training_in_slot)
                for slot, training_in_slot in enumerate(slots)
                if training_in_slot is not None and not training_in_slot.steps_left
            ]
            if done:
                results |= self._results(done, model, sums)
                for slot, _ in done:
                    slots[slot] = None
        return results

    def _queues(self, trainings: Sequence["_BatchedTraining"]) -> list[list["_BatchedTraining"]]:
        """Return the waiting trainings of each slot, the longest last, which is taken first; on a GPU one queue."""
        # The longest first: a long client that began last would leave the other slots idle.
        queue = sorted(trainings, key=lambda training: training.steps_left)
        if self._any_slot:
            return [queue] * self._slots
        return [
            [training for training in queue if self._slot_of(training.client) == slot] for slot in range(self._slots)
        ]

    def _slot_of(self, client: int) -> int:
        """Return a client's slot on a CPU, by multiplicative hashing, which spreads every n-th client evenly."""
        # Knuth's prime near 2**32 over the golden ratio: client % slots would put every n-th client into one slot.
        return (client * 0x9E3779B1 % 2**32) * self._slots >> 32

    def _row(self, model: NDArray[np.float32]) -> Tensor:
        """Return the parameters of a model in the layout of a slot, (width,)."""
        row = np.zeros(self._width, np.float32)
        start = 0
        for place, shape in self._places.values():
            row[place] = model[start : start + shape.numel()]
            start += shape.numel()
        return torch.from_numpy(row).to(self._device)

    def _views(self, rows: Tensor) -> dict[str, Tensor]:
        """Return views of the parameters in (..., width) rows, (..., *shape) each."""
        return {key: rows[..., place].unflatten(-1, shape) for key, (place, shape) in self._places.items()}

    def _next_batches(self, slots: Sequence["_BatchedTraining | None"]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the samples of the next batches, (slots, batch), and the number that count in each row, (slots,)."""
        chosen = np.zeros((self._slots, self._section.batch_size), np.int64)
        counts = np.zeros(self._slots, np.int64)
        for slot, training in enumerate(slots):
            if training is not None:
                batch = training.next_batch()
                chosen[slot, : len(batch)] = batch
                # Padding keeps the shape, so that a client's rounding does not depend on other clients.
                chosen[slot, len(batch) :] = batch[0]
                counts[slot] = len(batch)
        return chosen, counts

    def _backward(
        self,
        inputs: Tensor,
        labels: Tensor,
        counted: Tensor,
        masks: list[Tensor],
        counts: NDArray[np.int64],
        sums: Tensor,
    ) -> None:
        """Compute all clients' gradients, and add the losses to `sums`.

        Args:
            inputs: (slots, batch, ...).
            labels: (slots, batch, ...).
            counted: (slots, batch) bool, the samples that count.
            masks: dropout masks.
            counts: (slots,) number of samples that count.
            sums: (2, slots), changed in place.
        """
        parameters = {key: view.detach().requires_grad_() for key, view in self._views(self._rows).items()}

        def logits_of(parameters: dict[str, Tensor], inputs: Tensor, masks: list[Tensor]) -> Tensor:
            self._dropout.use(iter(masks))
            return cast(Tensor, functional_call(self._network, parameters, (inputs,)))

        try:
            logits = vmap(logits_of)(parameters, inputs, masks)
        except torch.OutOfMemoryError:  # a RuntimeError, too, but not the network's fault
            raise
        except RuntimeError as error:
            raise ExperimentError(
                f"workload.clients_at_once: {self._name} cannot be trained for several clients at once; leave the key "
                f"out ({str(error).strip().splitlines()[0]})"
            ) from error
        if self._is_classes:
            there = labels != IGNORED
            likelihoods = log_softmax(logits, 2).gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
            likelihoods = likelihoods.masked_fill(~there, 0.0)
            # An idle slot has 0 / 0 here. Its row and its sums are reset for the next client.
            losses = -likelihoods.flatten(1).sum(dim=1) / there.flatten(1).sum(dim=1)
        else:
            of_samples = self._objective.of_samples(logits.flatten(0, 1), labels.flatten(0, 1))
            likelihoods = of_samples.view(counted.shape).masked_fill(~counted, 0.0)
            losses = likelihoods.sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        # The sum separates: no loss depends on another slot's parameters. Unused parameters get zeros.
        gradients = torch.autograd.grad(losses.sum(), [*parameters.values()], materialize_grads=True)
        for view, gradient in zip(self._views(self._gradients).values(), gradients, strict=True):
            view.copy_(gradient)
        with torch.no_grad():
            single = likelihoods
            if self._is_classes and labels.dim() > 2:
                single = likelihoods.sum(dim=2) / there.sum(dim=2).clamp(min=1)
            sums[0].add_(losses.double() * torch.from_numpy(counts).to(self._device))
            sums[1].add_(single.double().square().sum(dim=1))

    def _results(
        self, done: Sequence[tuple[int, "_BatchedTraining"]], model: NDArray[np.float32], sums: Tensor
    ) -> dict[int, LocalResult]:
        """Return the results of finished slots."""
        slots = [slot for slot, _ in done]
        rows, losses = self._rows[slots].cpu().numpy(), sums[:, slots].T.tolist()
        results = {}
        for (_, training), row, (loss, squared) in zip(done, rows, losses, strict=True):
            local = np.concatenate([row[place] for place, _ in self._places.values()])
            local = np.concatenate([local, *(local[there] for there, _ in self._copies)])
            results[training.client] = LocalResult(
                np.subtract(local, model, out=local), loss / training.examples, squared / training.examples
            )
        return results


class _BatchedTraining:
    """One client's local training: the order of its samples.

    Attributes:
        client: the client's number.
        inputs, labels: its samples.
        first: position of its first sample among those on the device.
        steps_left: number of remaining batches.
        examples: samples times epochs.
        dropout: stream of its dropout masks.
    """

    def __init__(
        self, client: int, inputs: Tensor, labels: Tensor, section: WorkloadSection, seed: int, round_number: int
    ) -> None:
        self.client = client
        self.inputs, self.labels = inputs, labels
        self.first = 0
        self.steps_left = section.epochs * math.ceil(len(labels) / section.batch_size)
        self.examples = section.epochs * len(labels)
        self.dropout = stream(seed, Purpose.DROPOUT, client, round_number)  # both as in `LocalTrainer`
        self._order = stream(seed, Purpose.BATCHES, client, round_number)
        self._size = section.batch_size
        self._batches = self._all_batches()

    def next_batch(self) -> NDArray[np.int64]:
        """Return the samples of the next step, by their position on the device."""
        self.steps_left -= 1
        return next(self._batches) + self.first

    def _all_batches(self) -> Iterator[NDArray[np.int64]]:
        while True:
            order = self._order.permutation(len(self.labels))
            for start in range(0, len(order), self._size):
                yield order[start : start + self._size]


class _Dropout:
    """Dropout masks of all slots, drawn before each step as `SeededDropout` would draw them for each client."""

    def __init__(self, network: nn.Module, slots: int, batch_size: int, device: torch.device) -> None:
        self._modules = [m for m in network.modules() if isinstance(m, SeededDropout) and m.threshold]
        self._slots, self._batch, self._device = slots, batch_size, device
        self._calls: list[tuple[SeededDropout, torch.Size]] | None = None  # in the order of one forward pass

    def use(self, masks: Iterator[Tensor]) -> None:
        """Set the masks that the modules take, one after the other."""
        for module in self._modules:
            module.masks = masks

    def look(self, network: nn.Module, parameters: dict[str, Tensor], sample: Tensor) -> None:
        """Record, the first time, the masks that one forward pass needs."""
        if self._calls is not None:
            return
        calls: list[tuple[SeededDropout, torch.Size]] = []

        def remember(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            assert isinstance(module, SeededDropout)
            calls.append((module, inputs[0].shape))

        # One dry run: under vmap a module cannot draw, so the masks' shapes must be known before.
        hooks = [module.register_forward_hook(remember) for module in self._modules]
        try:
            if hooks:
                with torch.no_grad():
                    functional_call(network, parameters, (sample,))
        finally:
            for hook in hooks:
                hook.remove()
        if any(shape[0] != 1 for _, shape in calls):
            raise ExperimentError(
                "workload.clients_at_once: a SeededDropout of this model gets values without samples as the first "
                "dimension; leave the key out"
            )
        self._calls = [(module, shape[1:]) for module, shape in calls]

    def draw(self, slots: Sequence[_BatchedTraining | None], counts: NDArray[np.int64]) -> list[Tensor]:
        """Return the masks of each call, (slots, batch, ...) float32; arbitrary for samples that do not count."""
        assert self._calls is not None, "look comes first"
        octets = [np.zeros((self._slots, self._batch * shape.numel()), np.uint8) for _, shape in self._calls]
        for slot, training in enumerate(slots):
            if training is not None:
                for (module, shape), octets_of_call in zip(self._calls, octets, strict=True):
                    count = int(counts[slot]) * shape.numel()
                    # Only for samples that count, so that the stream advances as in `LocalTrainer`.
                    octets_of_call[slot, :count] = module.octets(training.dropout, count)
        return [
            module.mask(torch.from_numpy(octets_of_call).to(self._device)).view(self._slots, self._batch, *shape)
            for (module, shape), octets_of_call in zip(self._calls, octets, strict=True)
        ]
