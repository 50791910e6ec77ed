"""Local optimizers: torch.optim's, bit for bit, by the functions that are behind them.

The classes would import torch's compiler when they are first made: 160 MB and a second for every process that trains.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from testbed.workload.section import WorkloadSection


class LocalOptimizer(Protocol):
    """A local optimizer."""

    def reset(self, learning_rate: float) -> None:
        """Start again, with no state of earlier steps."""

    def zero_grad(self) -> None:
        """Backward passes add to gradients; the next one begins from none."""

    def step(self) -> None:
        """Move the parameters by their gradients."""


class _Parameters:
    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters: list[Tensor] = [*parameters]

    def zero_grad(self) -> None:
        """See `LocalOptimizer`."""
        for parameter in self._parameters:
            parameter.grad = None

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]


class MomentumSGD(_Parameters):
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
        """Start again: momentum is zero."""
        self._learning_rate = learning_rate
        self._velocities: list[Tensor | None] = [None] * len(self._parameters)

    def step(self) -> None:
        """See `LocalOptimizer`."""
        with torch.no_grad():
            # fused: one pass over gradient, momentum and weights instead of three.
            sgd(
                self._parameters,
                self._gradients(),
                self._velocities,
                has_sparse_grad=False,
                foreach=False,
                fused=True,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=self._learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


class AdamW(_Parameters):
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
        """Start again: both moments are zero, and so is the count of steps."""
        self._learning_rate = learning_rate
        if not self._means:
            self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
            self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
            self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]
        for state in (*self._means, *self._squares, *self._steps):
            state.zero_()

    def step(self) -> None:
        """See `LocalOptimizer`."""
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
