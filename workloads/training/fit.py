"""Check that a network, a loss and labels fit, tried on some samples before the first round."""

import numpy as np
import torch
from torch import Tensor, nn

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.clients.contract import ClientData
from workloads.determinism import seeded_globals
from workloads.models import vector
from workloads.models.own import OwnModel
from workloads.training.objectives import BinaryCrossEntropy, CrossEntropy, OwnLoss, objective_of


def check_fit(network: nn.Module, data: ClientData, section: WorkloadSection) -> None:
    """Try a network with memory, and the loss, on some samples.

    Args:
        network: the network; its gradients are reset.
        data: the clients' data.
        section: settings of the training.

    Raises:
        ExperimentError: the network does not take the samples, its outputs do not fit loss and labels, or it cannot be
            trained.
    """
    device = next(network.parameters()).device
    # Four samples: enough to show shapes, without a noticeable delay before the first round.
    inputs, labels = (part[:4].to(device) for part in data.held_out())
    labels = labels if labels.is_floating_point() else labels.long()
    name = section.own_model or section.model
    shown = f"samples {tuple(inputs.shape)} of {_kind(inputs)}"
    training = network.training
    network.eval()
    # The trial must not advance the global generators, which user code may draw from.
    with seeded_globals(np.random.default_rng(0)):
        try:
            outputs = _outputs(network, inputs)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            are_bytes = inputs.dtype == torch.uint8 and inputs.dim() == 4
            hint = "; they are bytes, so begin its forward with x.float() / 255" if are_bytes else ""
            raise ExperimentError(f"workload.model: {name} does not take {shown}: {first_line(error)}{hint}") from error
        if not isinstance(outputs, Tensor):
            raise ExperimentError(
                f"workload.model: {name} returns a {type(outputs).__name__}; return one tensor of outputs"
            )
        problem = _misfit(outputs, labels, section, data) or _untrainable(network, inputs, outputs, labels, section)
        if problem:
            raise ExperimentError(f"workload.model: {name}: {problem}")
        # For B = 1, 1 % B is 0: each batch has one sample.
        single = int(np.count_nonzero(data.sample_counts % section.batch_size == 1 % section.batch_size))
        try:
            if single and vector.mixing_module(network) is not None:
                with torch.inference_mode():
                    network.train()(inputs[:1])
        except ValueError as error:
            raise ExperimentError(
                f"workload.batch_size: {single} clients end an epoch with a batch of one sample, which {name} "
                f"cannot normalise ({first_line(error)}); choose another batch size"
            ) from error
    network.zero_grad()
    network.train(training)


def _untrainable(network: nn.Module, inputs: Tensor, outputs: Tensor, labels: Tensor, section: WorkloadSection) -> str:
    """Return the reason why the loss allows no training step; empty if it does."""
    if not outputs.requires_grad:
        try:
            outputs = network.train()(inputs)
        except ValueError:  # too few samples to normalise
            return ""
        finally:
            network.eval()
    if not outputs.requires_grad:
        return "its outputs have no gradient (computed under no_grad, or detached?), so it cannot be trained"
    loss, _ = objective_of(section.loss).of_batch(outputs, labels)
    if not loss.requires_grad:
        return f"workload.loss {section.loss} has no gradient (argmax, comparisons and .item() have none)"
    try:
        loss.backward()
    except RuntimeError as error:
        return f"workload.loss {section.loss} has no gradient for labels of {_kind(labels)}: {first_line(error)}"
    return ""


def _outputs(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the module's outputs, with images in the layout that it takes."""
    try:
        return network(inputs)  # type: ignore[no-any-return]
    except RuntimeError:
        if not isinstance(network, OwnModel) or not network.channels_last or inputs.dim() != 4:
            raise
    # A module may take torch's layout or channels last; the layout that works is used from here on.
    network.channels_last = False
    return network(inputs)  # type: ignore[no-any-return]


def _misfit(outputs: Tensor, labels: Tensor, section: WorkloadSection, data: ClientData) -> str:
    """Return the reason why a module's outputs do not fit labels and loss; empty if they do."""
    gives = f"returns outputs {tuple(outputs.shape)} for {len(labels)} samples"
    objective = objective_of(section.loss)
    if not outputs.is_floating_point() or not len(outputs.shape) or len(outputs) != len(labels):
        return f"{gives}, of {_kind(outputs)}; return floats, one row for each sample"
    if isinstance(objective, CrossEntropy):
        needed = _classes(labels, data)
        if outputs.dim() != labels.dim() + 1 or outputs.shape[2:] != labels.shape[1:]:
            return f"{gives}; cross_entropy needs logits, (n, classes{', positions' * (labels.dim() > 1)})"
        # Refused here: on a GPU a label beyond the logits is a failed assertion, after which the process cannot use it.
        if outputs.shape[1] < needed:
            return f"{gives}, {outputs.shape[1]} classes; the labels go up to {needed - 1}"
    elif not isinstance(objective, OwnLoss) and outputs.numel() != labels.numel():
        more = "; with one logit per class, use cross_entropy" if isinstance(objective, BinaryCrossEntropy) else ""
        return f"{gives}; {section.loss} needs as many values as the labels have, {tuple(labels.shape)}{more}"
    try:
        loss, singles = objective.of_batch(outputs, labels)
        if len(labels) > 1:  # four samples may fit four outputs by chance
            objective.of_batch(outputs[:-1], labels[:-1])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return f"{gives}, which workload.loss {section.loss} does not take with labels {tuple(labels.shape)} of " + (
            f"{_kind(labels)}: {first_line(error)}"
        )
    if not isinstance(loss, Tensor) or loss.dim() or (singles is not None and singles.shape != labels.shape[:1]):
        return f"workload.loss {section.loss} must return one loss, or one for each sample"
    return ""


def _classes(labels: Tensor, data: ClientData) -> int:
    if labels.dim() == 1:
        return int(data.label_counts().shape[1])
    return int(labels.max()) + 1


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
