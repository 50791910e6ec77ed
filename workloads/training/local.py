"""Local training, by mini-batch steps on one client's samples, and evaluation.

McMahan et al. 2017 (arXiv 1602.05629), Algorithm 1, ClientUpdate; SGD with momentum or AdamW. The optimizer's state
starts from zero in every round.

Each process has one model. All its parameters are views into one flat vector (`workloads.models.vector`), so that
loading the federation's model is one copy and computing the update one subtraction, for any number of layers.
"""

import math
import threading
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LabelledEvaluation
from workloads.data.clients.contract import IGNORED
from workloads.determinism import Purpose, one_thread, stream
from workloads.models import vector
from workloads.models.classifiers import SeededDropout
from workloads.models.own import OwnModel
from workloads.training.clipped_gradients import ClippedGradients
from workloads.training.linear_term import LinearTerm
from workloads.training.metrics import measured, metrics_of
from workloads.training.objectives import Objective, objective_of
from workloads.training.optimizers import local_optimizer
from workloads.training.proximal import ProximalTerm

_EVALUATION_BATCH = 250


def prepare_process() -> torch.device:
    """Configure this process for bit-identical results, and return the device: CUDA if available, else CPU.

    One thread (`workloads.determinism`); on CUDA, deterministic cuDNN kernels. A GPU's sums still differ from a CPU's
    in the last bits, so bit-identical tables need hosts of one kind.
    """
    one_thread()
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class LocalTrainer:
    """The model of a process, and its local training.

    Calls from several threads are safe and run one after the other.

    Args:
        network: a model on the meta device (`workloads.models.registry`); it is given memory here.
        section: epochs, batch size, optimizer, learning rate, momentum, weight decay.
        seed: the experiment's seed.
        device: device of the computation.
        evaluation_batch: samples per evaluation batch.
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
        drift = section.drift_correction
        pull = section.proximal if drift is None else drift.pull
        self._proximal = ProximalTerm(parameters, pull) if pull else None
        self._linear = None if drift is None else LinearTerm(parameters)
        self._objective: Objective = objective_of(section.loss)
        self._metrics = metrics_of(section.metrics)
        self._clipped = ClippedGradients(
            network, self._objective.of_samples, layers_only=not isinstance(network, OwnModel)
        )
        # All threads of a process share one network: a second call would overwrite its weights.
        self._lock = threading.Lock()

    def _load(self, model: NDArray[np.float32]) -> None:
        if model.shape != tuple(self._flat.shape) or model.dtype != np.float32:
            raise ValueError(
                f"a model must have shape {tuple(self._flat.shape)} and dtype float32, "
                f"not {model.shape} and {model.dtype}"
            )
        if self.device.type == "cpu":
            # Through numpy: torch.from_numpy warns about read-only arrays such as memory-mapped ones.
            np.copyto(self._flat.numpy(), model)
        else:
            self._flat.copy_(torch.from_numpy(np.array(model)))

    def train(
        self,
        client: int,
        images: Tensor,
        labels: Tensor,
        model: NDArray[np.float32],
        round_number: int,
        term: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.float32], float, float]:
        """Train on one client's samples, from `model`.

        Args:
            client, round_number: identify the streams for the order of the samples and for dropout.
            images: (n, ...) as the model takes them, n >= 1, on `device`.
            labels: (n,) or (n, positions) int64, on `device`.
            model: (d,) float32, not changed.
            term: (p,) float32, added to the parameters' gradients (`workload.drift_correction`); None: zeros.

        Returns:
            (d,) float32, the local model minus `model`; the mean loss over all processed examples; and the mean of its
            square.
        """
        section = self._section
        with self._lock:
            self._load(model)
            if not self._network.training:  # walking the modules costs as much as a small model's step
                self._network.train()
            self._optimizer.reset(section.learning_rate_in(round_number))
            if self._proximal is not None:
                self._proximal.begin()
            if self._linear is not None:
                self._linear.begin(term)
            self._begin_dropout(client, round_number)
            order_stream = stream(self._seed, Purpose.BATCHES, client, round_number)
            total = torch.zeros((), device=self.device)
            # NaN stays where a loss has no values for single samples: the mean square is then NaN, too.
            losses = torch.full((section.epochs, len(labels)), torch.nan, device=self.device)
            for epoch in losses:
                order = torch.from_numpy(order_stream.permutation(len(labels))).to(self.device)
                total += self._epoch(images.index_select(0, order), labels.index_select(0, order), epoch)
            # Tied parameters are trained once, but the published size counts both places of the vector.
            for there, again in self._copies:
                self._flat[again] = self._flat[there]
            # On a CPU this is the model's own memory: subtract before another thread may load its model.
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
        """Return the sum of the samples' clipped gradients at `model`; see `workloads.training.clipped_gradients`.

        Args:
            client, images, labels, model, round_number: as in `train`; all these samples count.
            clip: C, the largest norm of a gradient; None: no clipping.

        Returns:
            (d,) float32, the sum; the samples' mean loss; and the mean of its square.
        """
        with self._lock:
            self._load(model)
            self._network.train()
            self._begin_dropout(client, round_number)
            total, losses = self._clipped.sum(images, labels, clip)
        return total.cpu().numpy(), float(losses.mean()), float(losses.double().square().mean())

    def sample_gradients(
        self, images: Tensor, labels: Tensor, model: NDArray[np.float32]
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield the samples' gradients at `model` without dropout, and their losses, several samples at a time."""
        size = self._clipped.each_at_once
        for some, their_labels in zip(images.split(size), labels.split(size), strict=True):
            with self._lock:
                self._load(model)
                self._network.eval()
                gradients, losses = self._clipped.each(some, their_labels)
            yield gradients.cpu().numpy(), losses.detach().cpu().numpy()

    def _begin_dropout(self, client: int, round_number: int) -> None:
        """Set the stream of this client and round for dropout masks."""
        if self._dropouts:
            dropout_stream = stream(self._seed, Purpose.DROPOUT, client, round_number)
            for dropout in self._dropouts:
                dropout.random = dropout_stream

    def _epoch(self, images: Tensor, labels: Tensor, losses: Tensor) -> Tensor:
        """Train one pass in the given order, and return the sum of the losses without waiting for the device.

        Each sample's loss, with either sign, is written into `losses`, (n,), if single samples have losses.
        """
        size = self._section.batch_size
        total = torch.zeros((), device=self.device)
        for start in range(0, len(labels), size):
            batch_labels = labels[start : start + size]
            self._optimizer.zero_grad()
            loss, singles = self._objective.of_batch(self._network(images[start : start + size]), batch_labels)
            loss.backward()
            if self._proximal is not None:
                self._proximal.add()
            if self._linear is not None:
                self._linear.add()
            self._optimizer.step()
            # On the device: reading the number here would wait for the GPU in each step.
            total.add_(loss.detach(), alpha=len(batch_labels))
            if singles is not None:
                losses[start : start + size] = singles
        return total

    def evaluate(self, images: Tensor, labels: Tensor, model: NDArray[np.float32]) -> Evaluation:
        """Return mean loss, accuracy, metrics and recalls of `model` on the given samples.

        Accuracy is NaN in regression; all values are NaN without samples.
        """
        if not len(labels):
            return Evaluation(math.nan, math.nan, 0)
        objective, loss_sum, size = self._objective, 0.0, self._evaluation_batch
        correct: list[Tensor] = []
        predictions: list[Tensor] = []
        with self._lock, torch.inference_mode():
            self._load(model)
            self._network.eval()
            for start in range(0, len(labels), size):
                batch_labels = labels[start : start + size]
                outputs = cast(Tensor, self._network(images[start : start + size]))
                loss_sum += objective.total(outputs, batch_labels)
                predicted = objective.predictions(outputs, batch_labels)
                right = objective.correct(predicted, batch_labels)
                correct += [] if right is None else [right]
                if self._metrics:
                    like = predicted.numel() == batch_labels.numel()
                    predictions += [predicted.reshape(batch_labels.shape) if like else predicted]
        count = objective.count(labels)
        metric_values = (
            measured(self._metrics, labels.cpu().numpy(), torch.cat(predictions).cpu().numpy()) if self._metrics else ()
        )
        if not correct:
            return Evaluation(loss_sum / count, math.nan, count, metrics=metric_values)
        right = torch.cat(correct)
        # Labels of several positions end with padding (`IGNORED`), which is neither right nor wrong.
        counted = labels.numel() if labels.is_floating_point() else int((labels != IGNORED).sum())
        accuracy = int(right.sum()) / max(1, counted)
        if labels.dim() > 1:
            return Evaluation(loss_sum / count, accuracy, count, metrics=metric_values)
        return LabelledEvaluation(
            loss_sum / count, accuracy, count, _recalls(right, labels.long()), metrics=metric_values
        )

    def evaluate_weighted(
        self, images: Tensor, labels: Tensor, weights: Tensor, model: NDArray[np.float32]
    ) -> Evaluation:
        """Return the weighted sums of loss and correctness.

        Args:
            images, labels, model: as in `evaluate`.
            weights: (n,) float64, weight of each sample.
        """
        objective, loss, accuracy = self._objective, 0.0, 0.0
        with self._lock, torch.inference_mode():
            self._load(model)
            self._network.eval()
            for part in torch.arange(len(labels)).split(self._evaluation_batch):
                outputs, some_labels = cast(Tensor, self._network(images[part])), labels[part]
                loss += float(objective.of_samples(outputs, some_labels).double() @ weights[part])
                right = objective.correct(objective.predictions(outputs, some_labels), some_labels)
                accuracy += math.nan if right is None else float(right.double() @ weights[part])
        return Evaluation(loss, accuracy, len(labels))

    def correct_labels(
        self, images: Tensor, labels: Tensor, model: NDArray[np.float32]
    ) -> tuple[Tensor, Tensor] | None:
        """Count, for each sample, the labels that `model` predicts.

        Args:
            images, labels, model: as in `evaluate`; n >= 1.

        Returns:
            (n,) int64 correct labels and (n,) int64 labels that count; None in regression.
        """
        right: list[Tensor] = []
        counted: list[Tensor] = []
        with self._lock, torch.inference_mode():
            self._load(model)
            self._network.eval()
            for some, some_labels in zip(
                images.split(self._evaluation_batch), labels.split(self._evaluation_batch), strict=True
            ):
                correct = self._objective.correct(
                    self._objective.predictions(self._network(some), some_labels), some_labels
                )
                if correct is None:
                    return None
                is_label = torch.ones_like(correct) if some_labels.is_floating_point() else some_labels != IGNORED
                right.append((correct & is_label).reshape(len(some_labels), -1).sum(dim=1))
                counted.append(is_label.reshape(len(some_labels), -1).sum(dim=1))
        return torch.cat(right), torch.cat(counted)


def _recalls(correct: Tensor, labels: Tensor) -> tuple[float, ...]:
    """Return, for each label from 0, the share of its samples that are correct; NaN without samples."""
    return tuple((labels[correct].bincount(minlength=int(labels.max()) + 1) / labels.bincount()).tolist())
