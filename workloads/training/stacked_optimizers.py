"""Local optimizers for the parameters of several clients at once, each of which begins when it likes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from testbed.workload.section import WorkloadSection


class StackedOptimizer(ABC):
    """Moves parameters by their gradients; all tensors are (slots, ...)."""

    @abstractmethod
    def begin(self, slots: list[int]) -> None:
        """Other clients begin in some slots, with no state of earlier steps."""

    @abstractmethod
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step of every slot."""


class StackedSGD(StackedOptimizer):
    """torch.optim.SGD for each slot.

    Args:
        parameters: (slots, ...) each; they are changed in place.
        learning_rate, momentum, weight_decay: as in torch.optim.SGD.
    """

    def __init__(
        self, parameters: Sequence[Tensor], learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._parameters = list(parameters)
        self._rate, self._momentum, self._decay = learning_rate, momentum, weight_decay
        # torch begins with the first gradient itself, which is what zeros times the momentum plus it are, too.
        self._velocities: list[Tensor | None] = [torch.zeros_like(one) if momentum else None for one in parameters]

    def begin(self, slots: list[int]) -> None:
        for velocity in self._velocities:
            if velocity is not None:
                velocity[slots] = 0.0

    def step(self, gradients: Sequence[Tensor]) -> None:
        with torch.no_grad():
            sgd(
                self._parameters,
                [gradient.contiguous() for gradient in gradients],  # fused kernels go through memory as it lies
                self._velocities,
                has_sparse_grad=False,
                foreach=False,
                fused=True,
                weight_decay=self._decay,
                momentum=self._momentum,
                lr=self._rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


class StackedAdamW(StackedOptimizer):
    """torch.optim.AdamW for each slot (beta2 0.999, epsilon 1e-8): its own one counts the steps of a tensor as a whole.

    Args:
        parameters: (slots, ...) each; they are changed in place.
        learning_rate, beta1, weight_decay: as in torch.optim.AdamW.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, beta1: float, weight_decay: float) -> None:
        self._parameters = list(parameters)
        self._rate, self._beta1, self._decay = learning_rate, beta1, weight_decay
        self._means = [torch.zeros_like(one) for one in parameters]
        self._squares = [torch.zeros_like(one) for one in parameters]
        slots, device = len(self._parameters[0]), self._parameters[0].device
        self._steps = torch.zeros(slots, dtype=torch.float64, device=device)

    def begin(self, slots: list[int]) -> None:
        self._steps[slots] = 0
        for state in (*self._means, *self._squares):
            state[slots] = 0.0

    def step(self, gradients: Sequence[Tensor]) -> None:
        beta2, epsilon = 0.999, 1e-8
        self._steps += 1
        rates = self._rate / (1 - self._beta1**self._steps)
        scales = (1 - beta2**self._steps).sqrt()
        with torch.no_grad():
            for parameter, gradient, mean, square in zip(
                self._parameters, gradients, self._means, self._squares, strict=True
            ):
                each = (-1, *[1] * (parameter.dim() - 1))
                mean.lerp_(gradient, 1 - self._beta1)
                square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                root = square.sqrt().div_(scales.float().view(each)).add_(epsilon)
                parameter.mul_(1 - self._rate * self._decay).sub_(mean * rates.float().view(each) / root)


def stacked_optimizer(section: WorkloadSection, parameters: Sequence[Tensor], learning_rate: float) -> StackedOptimizer:
    """The optimizer that a section names, for these parameters, at a round's rate."""
    kind = StackedAdamW if section.optimizer == "adamw" else StackedSGD
    return kind(parameters, learning_rate, section.momentum, section.weight_decay)
