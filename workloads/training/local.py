"""Local training: mini-batch steps on one client's samples, and evaluation.

McMahan et al. 2017 (arXiv 1602.05629), Algorithm 1, ClientUpdate; SGD with momentum or AdamW, whose state starts
from zero in every round.

One model lives in each process. All its parameters are views into one flat vector (`workloads.models.vector`), so that
taking in a federation's model is one copy and giving back the change is one subtraction, whatever the number of layers.

A sample has one label, or one for each of its positions: logits are (n, classes) or (n, classes, positions). Positions
labelled `IGNORED` count for nothing.
"""

import threading
from abc import ABC, abstractmethod
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LabelledEvaluation
from workloads.data.clients.contract import IGNORED
from workloads.determinism import Purpose, one_thread, stream
from workloads.models import vector
from workloads.models.classifiers import SeededDropout
from workloads.training.clipped_gradients import ClippedGradients
from workloads.training.proximal import ProximalTerm


class LocalOptimizer(ABC):
    """A local optimizer: torch.optim's, bit for bit, by the functions that are behind them.

    The classes would import torch's compiler when they are first made: 160 MB and a second for every process that
    trains.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters: list[Tensor] = [*parameters]

    @abstractmethod
    def reset(self, learning_rate: float) -> None:
        """Start again, with no state of earlier steps."""

    def zero_grad(self) -> None:
        """Backward passes add to gradients; the next one begins from none."""
        for parameter in self._parameters:
            parameter.grad = None

    @abstractmethod
    def step(self) -> None:
        """Move the parameters by their gradients."""

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]


class MomentumSGD(LocalOptimizer):
    """torch.optim.SGD.

    Args:
        parameters: tensors that are changed in place.
        momentum, weight_decay: as in torch.optim.SGD.
    """

    def __init__(self, parameters: list[nn.Parameter], momentum: float, weight_decay: float) -> None:
        super().__init__(parameters)
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.reset(0.0)

    def reset(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._velocities: list[Tensor | None] = [None] * len(self._parameters)

    def step(self) -> None:
        sgd_step(
            self._parameters,
            self._gradients(),
            self._velocities,
            self._learning_rate,
            self._momentum,
            self._weight_decay,
        )


def sgd_step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor | None],
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """One step of torch.optim.SGD, in place; a velocity that is None begins with the gradient.

    Gradients must lie in memory as their parameters do.
    """
    with torch.no_grad():
        # fused: one pass over gradient, momentum and weights instead of three.
        sgd(
            parameters,
            gradients,
            velocities,
            has_sparse_grad=False,
            foreach=False,
            fused=True,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class AdamW(LocalOptimizer):
    """torch.optim.AdamW: Loshchilov and Hutter 2019 (arXiv 1711.05101), beta2 0.999, epsilon 1e-8.

    Args:
        parameters: tensors that are changed in place.
        beta1, weight_decay: as in torch.optim.AdamW.
    """

    def __init__(self, parameters: list[nn.Parameter], beta1: float, weight_decay: float) -> None:
        super().__init__(parameters)
        self._beta1 = beta1
        self._weight_decay = weight_decay
        self._means: list[Tensor] = []

    def reset(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        if not self._means:
            self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
            self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
            self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]
        for state in (*self._means, *self._squares, *self._steps):
            state.zero_()

    def step(self) -> None:
        with torch.no_grad():
            adamw(
                self._parameters,
                self._gradients(),
                self._means,
                self._squares,
                max_exp_avg_sqs=[],
                state_steps=self._steps,
                foreach=False,
                fused=True,
                amsgrad=False,
                beta1=self._beta1,
                beta2=0.999,
                lr=self._learning_rate,
                weight_decay=self._weight_decay,
                eps=1e-8,
                maximize=False,
            )


def local_optimizer(section: WorkloadSection, parameters: list[nn.Parameter]) -> LocalOptimizer:
    """The optimizer that a section names, for these parameters."""
    kind = AdamW if section.optimizer == "adamw" else MomentumSGD
    return kind(parameters, section.momentum, section.weight_decay)


_EVALUATION_BATCH = 250


def prepare_process() -> torch.device:
    """Set what bit-identical results need in this process, and choose the device: CUDA if there is one, else
    CPU.

    One thread (`workloads.determinism`). On CUDA cuDNN is kept to deterministic kernels; a GPU's sums still differ
    from a CPU's in the last bits, so tables meant to be identical bit for bit need hosts of one kind.
    """
    one_thread()
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class LocalTrainer:
    """The one model of a process, and local training of it.

    Calls from several threads are safe and run one after the other.

    Args:
        network: a model on the meta device (`workloads.models.registry`); it is given memory here.
        section: epochs, batch size, optimizer, learning rate, momentum, weight decay.
        seed: the experiment's seed.
        device: where to compute.
        evaluation_batch: samples that are evaluated at once.
    """

    def __init__(
        self,
        network: nn.Module,
        section: WorkloadSection,
        seed: int,
        device: torch.device,
        evaluation_batch: int = _EVALUATION_BATCH,
    ) -> None:
        self.device = device
        self._section = section
        self._seed = seed
        self._network = network
        self._flat = torch.zeros(vector.dimension(network), dtype=torch.float32, device=device)
        self._copies = vector.copies(network)
        vector.attach(network, self._flat)
        self._evaluation_batch = evaluation_batch
        self._dropouts = [module for module in self._network.modules() if isinstance(module, SeededDropout)]
        parameters = list(self._network.parameters())
        self._optimizer = local_optimizer(section, parameters)
        self._proximal = ProximalTerm(parameters, section.proximal) if section.proximal else None
        self._clipped = ClippedGradients(network, sample_losses)
        self._lock = threading.Lock()

    def _load(self, model: NDArray[np.float32]) -> None:
        if model.shape != tuple(self._flat.shape) or model.dtype != np.float32:
            raise ValueError(
                f"a model of shape {tuple(self._flat.shape)} and dtype float32 is needed, "
                f"not {model.shape} and {model.dtype}"
            )
        if self.device.type == "cpu":
            # Through numpy: torch.from_numpy warns about read-only arrays such as memory-mapped ones.
            np.copyto(self._flat.numpy(), model)
        else:
            self._flat.copy_(torch.from_numpy(np.array(model)))

    def train(
        self, client: int, images: Tensor, labels: Tensor, model: NDArray[np.float32], round_number: int
    ) -> tuple[NDArray[np.float32], float, float]:
        """Train on one client's samples, from `model`.

        Args:
            client, round_number: name the streams for the order of the samples and for dropout.
            images: (n, ...) that the model takes and labels: (n,) or (n, positions) int64, n >= 1, on `device`.
            model: (d,) float32, not changed.

        Returns:
            delta: (d,) float32, the local model minus `model`; the mean loss over all examples processed, and the
            mean of its square.
        """
        section = self._section
        with self._lock:
            self._load(model)
            if not self._network.training:  # walking the modules costs as much as a small model's step
                self._network.train()
            self._optimizer.reset(section.learning_rate_in(round_number))
            if self._proximal is not None:
                self._proximal.begin()
            self._begin_dropout(client, round_number)
            order_stream = stream(self._seed, Purpose.BATCHES, client, round_number)
            total = torch.zeros((), device=self.device)
            losses = torch.empty((section.epochs, len(labels)), device=self.device)
            for epoch in losses:
                order = torch.from_numpy(order_stream.permutation(len(labels))).to(self.device)
                total += self._epoch(images.index_select(0, order), labels.index_select(0, order), epoch)
            for there, again in self._copies:
                self._flat[again] = self._flat[there]
            local = self._flat.cpu().numpy()
            delta = np.subtract(local, model)
        return delta, float(total) / (section.epochs * len(labels)), float(losses.double().square().mean())

    def gradient_sum(
        self,
        client: int,
        images: Tensor,
        labels: Tensor,
        model: NDArray[np.float32],
        round_number: int,
        clip: float | None,
    ) -> tuple[NDArray[np.float32], float, float]:
        """The sum of the samples' clipped gradients at `model`; see `workloads.training.clipped_gradients`.

        The arguments are those of `train`; the samples are those that count, at least one, and `clip` is C.

        Returns:
            (d,) float32, the sum; the samples' mean loss, and the mean of its square.
        """
        with self._lock:
            self._load(model)
            self._network.train()
            self._begin_dropout(client, round_number)
            total, losses = self._clipped.sum(images, labels, clip)
        return total.cpu().numpy(), float(losses.mean()), float(losses.double().square().mean())

    def _begin_dropout(self, client: int, round_number: int) -> None:
        """Masks come from the stream of this client and round."""
        if self._dropouts:
            dropout_stream = stream(self._seed, Purpose.DROPOUT, client, round_number)
            for dropout in self._dropouts:
                dropout.random = dropout_stream

    def _epoch(self, images: Tensor, labels: Tensor, losses: Tensor) -> Tensor:
        """One pass in the given order; returns the sum of the losses without waiting for the device.

        The logarithm of each sample's likelihood, minus its own loss, goes into `losses`, (n,).
        """
        size = self._section.batch_size
        total = torch.zeros((), device=self.device)
        for start in range(0, len(labels), size):
            batch_labels = labels[start : start + size]
            self._optimizer.zero_grad()
            # What cross_entropy does, in its two steps: the first is needed for the single losses, too.
            likelihoods = log_softmax(self._network(images[start : start + size]), 1)
            loss = nll_loss(likelihoods, batch_labels)
            loss.backward()
            if self._proximal is not None:
                self._proximal.add()
            self._optimizer.step()
            total.add_(loss.detach(), alpha=len(batch_labels))
            losses[start : start + size] = _of_samples(likelihoods.detach(), batch_labels)
        return total

    def evaluate(self, images: Tensor, labels: Tensor, model: NDArray[np.float32]) -> Evaluation:
        """Mean cross-entropy (natural logarithm), accuracy and recalls of `model` on the given samples."""
        loss_sum, size = 0.0, self._evaluation_batch
        correct = torch.zeros(labels.shape, dtype=torch.bool, device=self.device)
        with self._lock, torch.inference_mode():
            self._load(model)
            self._network.eval()
            for start in range(0, len(labels), size):
                batch_labels = labels[start : start + size]
                logits = cast(Tensor, self._network(images[start : start + size]))
                loss_sum += float(cross_entropy(logits, batch_labels, reduction="sum"))
                correct[start : start + size] = logits.argmax(dim=1) == batch_labels
        count = int((labels != IGNORED).sum())
        loss, accuracy = loss_sum / count, int(correct.sum()) / count
        if labels.dim() > 1:
            return Evaluation(loss, accuracy, count)
        return LabelledEvaluation(loss, accuracy, count, _recalls(correct, labels))


def _recalls(correct: Tensor, labels: Tensor) -> tuple[float, ...]:
    """Of each label, from 0: the share of its samples that are correct; NaN where there is none."""
    return tuple((labels[correct].bincount(minlength=int(labels.max()) + 1) / labels.bincount()).tolist())


def sample_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(n,) each sample's cross-entropy, the mean over its positions if it has several."""
    return -_of_samples(log_softmax(logits, 1), labels)


def _of_samples(likelihoods: Tensor, labels: Tensor) -> Tensor:
    """(n,) each sample's log-likelihood, the mean over its positions if it has several; 0 where all are `IGNORED`.

    Args:
        likelihoods: (n, classes) or (n, classes, positions), logarithms.
        labels: (n,) or (n, positions) int64.
    """
    if labels.dim() == 1:
        return likelihoods.gather(1, labels.unsqueeze(1)).squeeze(1)
    there = labels != IGNORED
    single = likelihoods.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1)
    return (single * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
