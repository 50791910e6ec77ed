"""Several clients trained as one computation, which is what keeps a GPU busy: the models of one client are too small.

Parameters of `slots` clients lie one beside the other; torch.func's vmap makes of a network's operations those of that
many networks (products of matrices in batches, grouped convolutions), and one backward pass gives everybody's
gradients, since no loss depends on another client's parameters. A slot is given the next client as soon as one is
done, the longest first, so that clients of unequal length waste little, and a client's parameters move in its own steps
only. Batches are those of `LocalTrainer`, from the same streams, and so are dropout's masks; what is left of a last,
smaller batch is filled with a sample that is labelled `IGNORED`: it has no loss and no gradient.

Every computation has the same shape, whoever is in it and however few they are: so a client's update does not depend on
those beside it, and the number of hosts changes no bit (tests compare them on a CPU). Against `LocalTrainer` sums have
other orders: equal but for rounding.
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
from workloads.training.stacked_optimizers import stacked_optimizer

_SAMPLE_BYTES = 1 << 29  # of the clients whose samples are on the device at the same time
_OTHER_DROPOUT = (nn.modules.dropout._DropoutNd,)


def check(network: nn.Module, name: str) -> None:
    """Raise `ExperimentError` for a network that cannot be trained for several clients at once.

    Args:
        network: any; it may be on the meta device.
        name: what the experiment calls it.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or next(module.buffers(recurse=False), None) is not None:
            raise ExperimentError(
                f"workload.clients_at_once: {name} has {type(module).__name__}, which keeps statistics besides its "
                "parameters; leave the key out, or take a model without it"
            )
        if isinstance(module, _OTHER_DROPOUT):
            raise ExperimentError(
                f"workload.clients_at_once: {name} has {type(module).__name__}, which draws from torch's own "
                "generator; leave the key out, or take workloads.models.classifiers.SeededDropout"
            )


class LocalResult(NamedTuple):
    """One client's training, as `LocalTrainer.train` gives it.

    Attributes:
        delta: (d,) float32, the local model minus the one that was given.
        loss: the mean over all examples processed.
        squared_loss: the mean of its square.
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
        seed: the experiment's.
        device: where to compute.
        name: what the experiment calls the network.
    """

    def __init__(
        self, network: nn.Module, section: WorkloadSection, seed: int, device: torch.device, name: str
    ) -> None:
        check(network, name)
        self._network = copy.deepcopy(network)
        self._dimension = vector.dimension(network)
        vector.attach(self._network, torch.empty(self._dimension, device="meta"))
        self._network.train()
        self._name = name
        self._section = section
        self._seed = seed
        self._device = device
        self._copies = vector.copies(network)
        self._slots = section.clients_at_once
        self._names = [name for name, _ in self._network.named_parameters()]
        self._shapes = [parameter.shape for parameter in self._network.parameters()]
        self._dropout = _Dropout(self._network, self._slots, section.batch_size, device)
        self._stacked: list[Tensor] = []  # (slots, ...) each
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
            clients: different ones; they name the streams for the order of the samples and for dropout.
            samples_of: a client's samples and labels, at least one, on the CPU.
            model: (d,) float32, not changed.
            round_number: names the streams, too.

        Raises:
            ExperimentError: the network does something that cannot be done for several clients at once.
        """
        if model.shape != (self._dimension,) or model.dtype != np.float32:
            raise ValueError(
                f"a model of shape ({self._dimension},) and dtype float32 is needed, "
                f"not {model.shape} and {model.dtype}"
            )
        results: dict[int, LocalResult] = {}
        with self._lock:
            waiting, held = [], 0
            for position, client in enumerate(clients):
                inputs, labels = samples_of(client)
                waiting.append(_Training(client, inputs, labels, self._section, self._seed, round_number))
                held += inputs.nbytes
                full = held >= _SAMPLE_BYTES and len(waiting) >= self._slots
                if full or position == len(clients) - 1:
                    results |= self._train(waiting, model, round_number)
                    waiting, held = [], 0
        return results

    def _train(
        self, trainings: list["_Training"], model: NDArray[np.float32], round_number: int
    ) -> dict[int, LocalResult]:
        sizes = [shape.numel() for shape in self._shapes]  # what is sent twice comes after them
        parts = torch.from_numpy(np.array(model)).to(self._device)[: sum(sizes)].split(sizes)
        initial = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        if not self._stacked:
            self._stacked = [torch.zeros((self._slots, *shape), device=self._device) for shape in self._shapes]
        optimizer = stacked_optimizer(self._section, self._stacked, self._section.learning_rate_in(round_number))
        samples = torch.cat([training.inputs for training in trainings]).to(self._device)
        labels = torch.cat([training.labels for training in trainings]).to(self._device, torch.int64)
        self._dropout.look(self._network, dict(zip(self._names, initial, strict=True)), samples[:1])
        first = 0
        for training in trainings:
            training.first, first = first, first + len(training.labels)
        queue = sorted(trainings, key=lambda training: training.steps)  # the longest is taken first, from the end
        slots: list[_Training | None] = [None] * self._slots
        sums = torch.zeros((2, self._slots), dtype=torch.float64, device=self._device)  # of losses, of their squares
        results: dict[int, LocalResult] = {}
        while queue or any(slots):
            begun = [slot for slot, training in enumerate(slots) if training is None][: len(queue)]
            if begun:
                self._begin(begun, initial)
                optimizer.begin(begun)
                sums[:, begun] = 0.0
                for slot in begun:
                    slots[slot] = queue.pop()
            rows, counts = self._rows(slots)
            there = torch.arange(rows.shape[1]) < torch.from_numpy(counts)[:, None]
            chosen = torch.from_numpy(rows.ravel()).to(self._device)
            there = there.to(self._device)
            inputs = samples.index_select(0, chosen).unflatten(0, rows.shape)
            targets = labels.index_select(0, chosen).unflatten(0, rows.shape)
            targets = targets.masked_fill(~there.view(*there.shape, *[1] * (targets.dim() - 2)), IGNORED)
            gradients = self._gradients(inputs, targets, self._dropout.draw(slots, counts), counts, sums)
            optimizer.step(gradients)
            done = [slot for slot, training in enumerate(slots) if training is not None and not training.steps_left]
            if done:
                finished = [training for slot, training in enumerate(slots) if slot in done and training is not None]
                results |= self._results(done, finished, model, sums)
                for slot in done:
                    slots[slot] = None
        return results

    def _begin(self, slots: list[int], initial: Sequence[Tensor]) -> None:
        """Put the model that was given into some slots."""
        with torch.no_grad():
            for parameter, value in zip(self._stacked, initial, strict=True):
                parameter[slots] = value

    def _rows(self, slots: Sequence["_Training | None"]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(slots, batch) which samples are next, and (slots,) how many of each row count."""
        rows = np.zeros((self._slots, self._section.batch_size), np.int64)
        counts = np.zeros(self._slots, np.int64)
        for slot, training in enumerate(slots):
            if training is not None:
                batch = training.next_batch()
                rows[slot, : len(batch)] = batch
                rows[slot, len(batch) :] = batch[0]
                counts[slot] = len(batch)
        return rows, counts

    def _gradients(
        self,
        inputs: Tensor,
        labels: Tensor,
        masks: list[Tensor],
        counts: NDArray[np.int64],
        sums: Tensor,
    ) -> Sequence[Tensor]:
        """Everybody's gradients, (slots, ...) each; the losses are added to `sums`."""
        stacked = [parameter.requires_grad_() for parameter in self._stacked]

        def logits_of(parameters: list[Tensor], inputs: Tensor, masks: list[Tensor]) -> Tensor:
            self._dropout.use(iter(masks))
            named = dict(zip(self._names, parameters, strict=True))
            return cast(Tensor, functional_call(self._network, named, (inputs,)))

        try:
            logits = vmap(logits_of)(stacked, inputs, masks)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise ExperimentError(
                f"workload.clients_at_once: {self._name} cannot be trained for several clients at once; leave the key "
                f"out ({str(error).strip().splitlines()[0]})"
            ) from error
        there = labels != IGNORED
        likelihoods = log_softmax(logits, 2).gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
        likelihoods = likelihoods.masked_fill(~there, 0.0)
        losses = -likelihoods.flatten(1).sum(dim=1) / there.flatten(1).sum(dim=1)
        with torch.no_grad():
            single = likelihoods
            if labels.dim() > 2:
                single = likelihoods.sum(dim=2) / there.sum(dim=2).clamp(min=1)
            sums[0].add_(losses.detach().double() * torch.from_numpy(counts).to(self._device))
            sums[1].add_(single.double().square().sum(dim=1))
        return torch.autograd.grad(losses.sum(), stacked)

    def _results(
        self, slots: list[int], trainings: Sequence["_Training"], model: NDArray[np.float32], sums: Tensor
    ) -> dict[int, LocalResult]:
        """What has come out in some slots."""
        with torch.no_grad():
            rows = torch.cat([parameter[slots].flatten(1) for parameter in self._stacked], dim=1).cpu().numpy()
        results = {}
        for training, values, (loss, squared) in zip(trainings, rows, sums[:, slots].T.tolist(), strict=True):
            delta = np.empty_like(model)
            np.subtract(values, model[: len(values)], out=delta[: len(values)])
            for there, again in self._copies:
                np.subtract(values[there], model[again], out=delta[again])
            results[training.client] = LocalResult(delta, loss / training.examples, squared / training.examples)
        return results


class _Training:
    """One client's local training: which samples come next.

    Attributes:
        client: its number.
        inputs, labels: its samples.
        first: where they begin among those on the device.
        steps: how many batches there are.
        steps_left: how many are to come.
        examples: samples times epochs.
        dropout: the stream of its masks.
    """

    def __init__(
        self, client: int, inputs: Tensor, labels: Tensor, section: WorkloadSection, seed: int, round_number: int
    ) -> None:
        self.client = client
        self.inputs, self.labels = inputs, labels
        self.first = 0
        self.steps = self.steps_left = section.epochs * math.ceil(len(labels) / section.batch_size)
        self.examples = section.epochs * len(labels)
        self.dropout = stream(seed, Purpose.DROPOUT, client, round_number)
        self._order = stream(seed, Purpose.BATCHES, client, round_number)
        self._size = section.batch_size
        self._batches = self._all_batches()

    def next_batch(self) -> NDArray[np.int64]:
        """The samples of the next step, by their place on the device."""
        self.steps_left -= 1
        return next(self._batches) + self.first

    def _all_batches(self) -> Iterator[NDArray[np.int64]]:
        while True:
            order = self._order.permutation(len(self.labels))
            for start in range(0, len(order), self._size):
                yield order[start : start + self._size]


class _Dropout:
    """The masks of all slots, drawn before each step as `SeededDropout` would draw them for each client alone."""

    def __init__(self, network: nn.Module, slots: int, batch_size: int, device: torch.device) -> None:
        self._modules = [m for m in network.modules() if isinstance(m, SeededDropout) and m.threshold]
        self._slots, self._batch, self._device = slots, batch_size, device
        self._calls: list[tuple[SeededDropout, torch.Size]] | None = None  # in the order of one forward pass

    def use(self, masks: Iterator[Tensor]) -> None:
        """Let the modules take these, one after the other."""
        for module in self._modules:
            module.masks = masks

    def look(self, network: nn.Module, parameters: dict[str, Tensor], sample: Tensor) -> None:
        """Learn which masks one forward pass needs, the first time."""
        if self._calls is not None:
            return
        calls: list[tuple[SeededDropout, torch.Size]] = []

        def remember(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            assert isinstance(module, SeededDropout)
            calls.append((module, inputs[0].shape))

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
                "workload.clients_at_once: a SeededDropout of this model is given values whose first dimension is not "
                "the samples; leave the key out"
            )
        self._calls = [(module, shape[1:]) for module, shape in calls]

    def draw(self, slots: Sequence[_Training | None], counts: NDArray[np.int64]) -> list[Tensor]:
        """(slots, batch, ...) float32 for each call; of samples that do not count, any."""
        assert self._calls is not None, "look comes first"
        octets = [np.zeros((self._slots, self._batch * shape.numel()), np.uint8) for _, shape in self._calls]
        for slot, training in enumerate(slots):
            if training is not None:
                for (module, shape), drawn in zip(self._calls, octets, strict=True):
                    count = int(counts[slot]) * shape.numel()
                    drawn[slot, :count] = module.octets(training.dropout, count)
        return [
            module.mask(torch.from_numpy(drawn).to(self._device)).view(self._slots, self._batch, *shape)
            for (module, shape), drawn in zip(self._calls, octets, strict=True)
        ]
