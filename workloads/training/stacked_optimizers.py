"""Local optimizers for the parameters of several clients at once, each of which may begin at any step."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from testbed.workload.section import WorkloadSection
from workloads.training.optimizers import sgd_step


class StackedOptimizer(ABC):
    """Optimizer of the parameters in several slots, (slots, d) float32."""

    @abstractmethod
    def begin(self, slots: list[int]) -> None:
        """Reset the state of some slots for new clients."""

    @abstractmethod
    def step(self, gradients: Tensor) -> None:
        """Make one step in every slot, by (slots, d) gradients."""


class StackedSGD(StackedOptimizer):
    """SGD in each slot, as torch.optim.SGD.

    Args:
        parameters: (slots, d); changed in place.
        learning_rate, momentum, weight_decay: as in torch.optim.SGD.
    """

    def __init__(self, parameters: Tensor, learning_rate: float, momentum: float, weight_decay: float) -> None:
        self._parameters = parameters
        self._rate, self._momentum, self._decay = learning_rate, momentum, weight_decay
        # torch initialises a velocity with the first gradient, which equals zero times the momentum plus the gradient.
        self._velocities = torch.zeros_like(parameters) if momentum else None

    def begin(self, slots: list[int]) -> None:
        if self._velocities is not None:
            self._velocities[slots] = 0.0

    def step(self, gradients: Tensor) -> None:
        sgd_step([self._parameters], [gradients], [self._velocities], self._rate, self._momentum, self._decay)


class StackedAdamW(StackedOptimizer):
    """AdamW in each slot (beta2 0.999, epsilon 1e-8); torch.optim.AdamW counts steps only per tensor.

    Args:
        parameters: (slots, d); changed in place.
        learning_rate, beta1, weight_decay: as in torch.optim.AdamW.
    """

    def __init__(self, parameters: Tensor, learning_rate: float, beta1: float, weight_decay: float) -> None:
        self._parameters = parameters
        self._rate, self._beta1, self._decay = learning_rate, beta1, weight_decay
        self._means, self._squares = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self._steps = torch.zeros((len(parameters), 1), dtype=torch.float64, device=parameters.device)

    def begin(self, slots: list[int]) -> None:
        for state in (self._means, self._squares, self._steps):
            state[slots] = 0.0

    def step(self, gradients: Tensor) -> None:
        beta2, epsilon = 0.999, 1e-8
        with torch.no_grad():
            self._steps += 1
            # Bias correction (Kingma and Ba 2015, Algorithm 1), by each slot's own step: clients begin one by one.
            rates = (self._rate / (1 - self._beta1**self._steps)).float()
            scales = (1 - beta2**self._steps).sqrt().float()
            self._means.lerp_(gradients, 1 - self._beta1)
            self._squares.mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
            roots = self._squares.sqrt().div_(scales).add_(epsilon)
            # The decay is decoupled from the gradient (Loshchilov and Hutter 2019, Algorithm 2).
            self._parameters.mul_(1 - self._rate * self._decay).sub_(self._means * rates / roots)


def stacked_optimizer(section: WorkloadSection, parameters: Tensor, learning_rate: float) -> StackedOptimizer:
    """Return the optimizer that a section names, for these parameters, with a round's learning rate.

    Args:
        section: ``workload``.
        parameters: (slots, d); changed in place by the optimizer.
        learning_rate: learning rate of the round.
    """
    kind = StackedAdamW if section.optimizer == "adamw" else StackedSGD
    return kind(parameters, learning_rate, section.momentum, section.weight_decay)
