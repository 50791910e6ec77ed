"""What moves a client's parameters: the interface, and optimizers of torch's interface by their names."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class


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

    def _used(self) -> list[int]:
        """The positions of the parameters that have a gradient: torch lets the others rest."""
        return [place for place, parameter in enumerate(self._parameters) if parameter.grad is not None]


class OwnOptimizer(LocalOptimizer):
    """A class with the interface of torch.optim.Optimizer, made anew for each client and round.

    Args:
        parameters: tensors that are changed in place.
        name: ``package.module:Class``.
        given: what it is made with beside the parameters and ``lr``.

    Raises:
        ExperimentError: no such class, or it does not take these options.
    """

    def __init__(self, parameters: list[nn.Parameter], name: str, given: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self._kind = kind_of(name, given)
        self._name, self._given = name, dict(given)
        self.reset(1e-3)

    def reset(self, learning_rate: float) -> None:
        try:
            self._optimizer = self._kind(self._parameters, lr=learning_rate, **self._given)
        except (TypeError, ValueError) as error:
            raise ExperimentError(f"workload.optimizer: {self._name}: {error}") from None

    def step(self) -> None:
        self._optimizer.step()


def kind_of(name: str, given: Mapping[str, Any]) -> Any:
    """The class, once it is known to take ``(parameters, lr=..., **given)``; raises `ExperimentError`."""
    kind = plugin_class(name, "workload.optimizer")
    step = getattr(kind, "step", None)
    if not (inspect.isclass(kind) and callable(step) and callable(getattr(kind, "zero_grad", None))):
        raise ExperimentError(f"workload.optimizer: {name}: must be a class like those of torch.optim")
    keywords = options.as_keywords(kind, name, "workload.optimizer_options", given, 1, "Options")
    options.bind(kind, name, "workload.optimizer", ((),), {**keywords, "lr": 0.1})
    try:
        inspect.signature(step).bind(None)
    except TypeError:
        raise ExperimentError(
            f"workload.optimizer: {name}: its step() needs a closure, which is not given here; take one whose does not"
        ) from None
    except ValueError:
        pass  # no signature to be had
    return kind
