"""Local optimizers: SGD with momentum, AdamW, and others with torch's interface, by name."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class
from testbed.workload.section import WorkloadSection


class LocalOptimizer(ABC):
    """A local optimizer, equal to torch.optim's bit for bit, by the functions behind its classes.

    The classes themselves would import torch's compiler at their first use: 160 MB and a second for every process that
    trains.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters: list[Tensor] = [*parameters]

    @abstractmethod
    def reset(self, learning_rate: float) -> None:
        """Start again, without state of earlier steps."""

    def zero_grad(self) -> None:
        """Clear the gradients, to which backward passes add."""
        for parameter in self._parameters:
            # Not zeros: parameters without a gradient must be recognisable (`_used`).
            parameter.grad = None

    @abstractmethod
    def step(self) -> None:
        """Move the parameters by their gradients."""

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _used(self) -> list[int]:
        """Return the positions of the parameters that have a gradient; torch leaves the others unchanged."""
        return [place for place, parameter in enumerate(self._parameters) if parameter.grad is not None]


class OwnOptimizer(LocalOptimizer):
    """A class with the interface of torch.optim.Optimizer, constructed anew for each client and round.

    Args:
        parameters: tensors that are changed in place.
        name: ``package.module:Class``.
        keywords: its arguments besides the parameters and ``lr``.

    Raises:
        ExperimentError: no such class, or it does not take these options.
    """

    def __init__(self, parameters: list[nn.Parameter], name: str, keywords: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self._kind = kind_of(name, keywords)
        self._name, self._keywords = name, dict(keywords)
        # Once now, so that wrong options end the run before its first round.
        self.reset(1e-3)

    def reset(self, learning_rate: float) -> None:
        try:
            self._optimizer = self._kind(self._parameters, lr=learning_rate, **self._keywords)
        except (TypeError, ValueError) as error:
            raise ExperimentError(f"workload.optimizer: {self._name}: {error}") from None

    def step(self) -> None:
        self._optimizer.step()


def kind_of(name: str, keywords: Mapping[str, Any]) -> Any:
    """Return an optimizer class, after checking that it takes ``(parameters, lr=..., **keywords)``.

    Args:
        name: ``package.module:Class``.
        keywords: ``workload.optimizer_options``.

    Raises:
        ExperimentError: no such class, or it does not take these options.
    """
    kind = plugin_class(name, "workload.optimizer")
    step = getattr(kind, "step", None)
    if not (inspect.isclass(kind) and callable(step) and callable(getattr(kind, "zero_grad", None))):
        raise ExperimentError(f"workload.optimizer: {name}: must be a class like those of torch.optim")
    arguments = options.as_keywords(kind, name, "workload.optimizer_options", keywords, 1, "Options")
    options.bind(kind, name, "workload.optimizer", ((),), {**arguments, "lr": 0.1})
    try:
        inspect.signature(step).bind(None)
    except TypeError:
        raise ExperimentError(
            f"workload.optimizer: {name}: its step() needs a closure, which is not supported; choose another optimizer"
        ) from None
    except ValueError:
        pass  # no signature available
    return kind


class MomentumSGD(LocalOptimizer):
    """SGD, equal to torch.optim.SGD.

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
        gradients, settings = self._gradients(), (self._learning_rate, self._momentum, self._weight_decay)
        if len(gradients) == len(self._parameters):
            sgd_step(self._parameters, gradients, self._velocities, *settings)
            return
        used = self._used()
        velocities = [self._velocities[place] for place in used]
        sgd_step([self._parameters[place] for place in used], gradients, velocities, *settings)
        for place, velocity in zip(used, velocities, strict=True):
            self._velocities[place] = velocity


def sgd_step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor | None],
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Make one step of torch.optim.SGD, in place; a velocity that is None begins with the gradient.

    Gradients must have the memory layout of their parameters.

    Args:
        parameters: changed in place.
        gradients: one per parameter.
        velocities: one per parameter; changed in place.
        learning_rate, momentum, weight_decay: as in torch.optim.SGD.
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
    """AdamW, equal to torch.optim.AdamW: Loshchilov and Hutter 2019 (arXiv 1711.05101), beta2 0.999, epsilon 1e-8.

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
        gradients, state = self._gradients(), (self._parameters, self._means, self._squares, self._steps)
        if len(gradients) < len(self._parameters):
            used = self._used()
            parameters, means, squares, steps = ([part[place] for place in used] for part in state)
        else:
            parameters, means, squares, steps = state
        with torch.no_grad():
            adamw(
                parameters,
                gradients,
                means,
                squares,
                max_exp_avg_sqs=[],
                state_steps=steps,
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
    """Return the optimizer that a section names, for these parameters.

    Args:
        section: ``workload``.
        parameters: changed in place by the optimizer.
    """
    if ":" in section.optimizer:
        return OwnOptimizer(parameters, section.optimizer, section.optimizer_options)
    kind = AdamW if section.optimizer == "adamw" else MomentumSGD
    return kind(parameters, section.momentum, section.weight_decay)
