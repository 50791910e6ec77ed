"""Objectives: losses of samples for training, and correctness of predictions for evaluation.

A sample has one label, or one for each of its positions: logits are (n, classes) or (n, classes, positions), and
positions labelled `IGNORED` do not count. Other losses take outputs and labels of the same shape, or of one value for
each sample.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    log_softmax,
    mse_loss,
    nll_loss,
)

from testbed.errors import ExperimentError
from testbed.plugins.classes import plugin_class
from workloads.data.clients.contract import IGNORED

Loss = Callable[..., Tensor]


class Objective(ABC):
    """A loss, and the correctness of predictions."""

    per_sample = True
    """Whether single samples have losses, which training several clients at once needs."""

    @abstractmethod
    def of_batch(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss that a step minimises, and the (n,) losses of the samples.

        The samples' losses are detached and have either sign; None if single samples have no losses.
        """

    @abstractmethod
    def of_samples(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (n,), the mean over its positions if it has several."""

    @abstractmethod
    def total(self, outputs: Tensor, labels: Tensor) -> float:
        """Return the sum of the losses over the labels that `count` counts."""

    def count(self, labels: Tensor) -> int:
        """Return the number of labels that count."""
        return len(labels)

    def predictions(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the model's prediction for each label: a class, or the value itself."""
        return outputs

    def correct(self, predictions: Tensor, labels: Tensor) -> Tensor | None:
        """Return bool, of the labels' shape, whether predictions are correct; None in regression."""
        return None


class CrossEntropy(Objective):
    """Cross-entropy of logits; labels are (n,) or (n, positions) int64."""

    def of_batch(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # The two steps of cross_entropy; the losses of samples reuse the first.
        likelihoods = log_softmax(outputs, 1)
        return nll_loss(likelihoods, labels), _of_samples(likelihoods.detach(), labels)

    def of_samples(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return sample_losses(outputs, labels)

    def total(self, outputs: Tensor, labels: Tensor) -> float:
        return float(cross_entropy(outputs, labels, reduction="sum"))

    def count(self, labels: Tensor) -> int:
        return int((labels != IGNORED).sum())

    def predictions(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.argmax(dim=1)

    def correct(self, predictions: Tensor, labels: Tensor) -> Tensor:
        return predictions == labels


class ValueLoss(Objective):
    """Loss of each output and label; a sample's loss is the mean.

    Args:
        loss: called with outputs and labels of one shape, and ``reduction="none"``.
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    def of_batch(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        losses = self.of_samples(outputs, labels)
        return losses.mean(), losses.detach()

    def of_samples(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses = self._loss(_like(outputs, labels), labels, reduction="none")
        return losses.flatten(1).mean(dim=1) if losses.dim() > 1 else losses

    def total(self, outputs: Tensor, labels: Tensor) -> float:
        return float(self.of_samples(outputs, labels).sum())


class BinaryCrossEntropy(ValueLoss):
    """Binary cross-entropy of logits; labels are 0 or 1, (n,) or (n, labels) float32."""

    def __init__(self) -> None:
        super().__init__(binary_cross_entropy_with_logits)

    def predictions(self, outputs: Tensor, labels: Tensor) -> Tensor:
        # A logit of 0 is a probability of 1/2.
        return (outputs > 0).to(torch.float32)

    def correct(self, predictions: Tensor, labels: Tensor) -> Tensor:
        return _like(predictions, labels) == labels


class OwnLoss(Objective):
    """User-defined loss, or one of torch's by name, called as ``loss(outputs, labels)``.

    With integer labels and one output for each class, a sample is correct if the largest output is that of its label.

    Args:
        loss: returns a loss for each sample, or one for the batch, their mean.
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    def of_batch(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        losses = self._loss(self._fitted(outputs, labels), labels)
        if losses.dim() == 0:
            return losses, None
        losses = _per_sample(losses)
        return losses.mean(), losses.detach()

    def of_samples(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses = self._loss(self._fitted(outputs, labels), labels)
        if losses.dim() == 0 and len(labels) > 1:  # it returns only the mean
            return torch.stack(
                [self._loss(output, label) for output, label in zip(outputs.split(1), labels.split(1), strict=True)]
            )
        return _per_sample(losses) if losses.dim() else losses.reshape(1)

    def total(self, outputs: Tensor, labels: Tensor) -> float:
        loss, _ = self.of_batch(outputs, labels)
        return float(loss) * len(labels)

    def predictions(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.argmax(dim=1) if self._are_classes(outputs, labels) else outputs

    def correct(self, predictions: Tensor, labels: Tensor) -> Tensor | None:
        if predictions.is_floating_point():
            return None
        return predictions == labels

    @staticmethod
    def _are_classes(outputs: Tensor, labels: Tensor) -> bool:
        return not labels.is_floating_point() and outputs.dim() == labels.dim() + 1

    @staticmethod
    def _fitted(outputs: Tensor, labels: Tensor) -> Tensor:
        return _like(outputs, labels) if labels.is_floating_point() and outputs.shape != labels.shape else outputs


def _per_sample(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(dim=1) if losses.dim() > 1 else losses


def _like(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return outputs in the labels' shape if they have as many values, such as (n, 1) for (n,)."""
    return outputs.reshape(labels.shape) if outputs.numel() == labels.numel() else outputs


def objective_of(name: str) -> Objective:
    """Return the objective that ``workload.loss`` names.

    Raises:
        ExperimentError: there is no such loss, or it cannot be constructed.
    """
    if ":" not in name:
        named: dict[str, Callable[[], Objective]] = {
            "cross_entropy": CrossEntropy,
            "bce": BinaryCrossEntropy,
            "mse": lambda: ValueLoss(mse_loss),
            "l1": lambda: ValueLoss(l1_loss),
        }
        return named[name]()
    loss = plugin_class(name, "workload.loss")
    if inspect.isclass(loss):
        if not issubclass(loss, nn.Module):
            raise ExperimentError(f"workload.loss: {name}: must be a function or a torch.nn.Module")
        loss = _made(loss, name)
    elif _takes_reduction(loss):
        return OwnLoss(lambda outputs, labels: loss(outputs, labels, reduction="none"))
    return OwnLoss(loss)


def _made(kind: type[nn.Module], name: str) -> nn.Module:
    try:
        # "none": selection by losses uses the mean square of single losses, and padded batches leave some out.
        module: Any = kind(reduction="none") if _takes_reduction(kind) else kind()
    except TypeError as error:
        raise ExperimentError(f"workload.loss: {name}(): {error}; name a class without required arguments") from None
    if any(True for _ in module.parameters()):
        raise ExperimentError(f"workload.loss: {name} has parameters, which are not trained; move them to the model")
    return module  # type: ignore[no-any-return]


def _takes_reduction(kind: Any) -> bool:
    try:
        return "reduction" in inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return False


def sample_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each sample's cross-entropy, (n,), the mean over its positions if it has several.

    Args:
        logits: (n, classes) or (n, classes, positions).
        labels: (n,) or (n, positions) int64.
    """
    return -_of_samples(log_softmax(logits, 1), labels)


def _of_samples(likelihoods: Tensor, labels: Tensor) -> Tensor:
    """Return each sample's log-likelihood, (n,), the mean over its positions; 0 if all are `IGNORED`.

    Args:
        likelihoods: (n, classes) or (n, classes, positions), logarithms.
        labels: (n,) or (n, positions) int64.
    """
    if labels.dim() == 1:
        return likelihoods.gather(1, labels.unsqueeze(1)).squeeze(1)
    there = labels != IGNORED
    # clamp: `IGNORED` is negative, and `gather` needs an index; the value is masked out below.
    single = likelihoods.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1)
    return (single * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
