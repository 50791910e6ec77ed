"""Server optimizers: the step from the mean update to the next model.

Without ``aggregation.server_optimizer`` the mean is added to the model (FedAvg). The other optimizers take the mean as
a gradient: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, Adaptive Federated Optimization, ICLR
2021, arXiv 2003.00295, Algorithm 2; and FedAvgM of Hsu, Qi and Brown 2019, arXiv 1909.06335.

A server optimizer sees only the mean of the updates. A function of a sum reveals no more than the sum: secure
aggregation hides the same as before, and a differential privacy guarantee holds unchanged by post-processing (Dwork and
Roth 2014, Proposition 2.1).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.memory import ArrayGroup, Memory
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import PLUGIN_NAME, check_subclass, plugin_class

KEY = "aggregation.server_optimizer"
State = Mapping[str, npt.NDArray[Any]]
"""State of an optimizer between rounds, arrays by name; empty before its first step."""

_STATE = ArrayGroup("server_optimizer/")


class ServerOptimizerSection(BaseModel):
    """Server optimizer and its parameters. The symbols are those of Reddi et al. 2021, Algorithm 2."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        description="momentum (FedAvgM), adagrad, adam or yogi (FedAdagrad, FedAdam, FedYogi); or package.module:Name "
        "for a user-defined class, which is called as Name(section, **options)",
        json_schema_extra={"examples": ["momentum", "adagrad", "adam", "yogi"]},
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="The server's learning rate (eta); unset: 1 for momentum, 0.1 for adagrad, 0.01 for adam and yogi",
    )
    beta1: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Decay of the first moment (beta_1); unset: 0.9, for adagrad 0",
    )
    beta2: float | None = Field(
        None, ge=0, lt=1, description="Decay of the second moment (beta_2), for adam and yogi; unset: 0.99"
    )
    tau: float | None = Field(
        None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Degree of adaptivity (tau), for adagrad, adam and yogi: added to the root of the second moment, "
        "which begins with tau^2. Smaller is more adaptive; unset: 0.001",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for a user-defined class",
    )

    @property
    def is_built_in(self) -> bool:
        """Whether `name` is one of the optimizers here rather than a user-defined class."""
        return self.name in OPTIMIZERS

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in OPTIMIZERS and not re.fullmatch(PLUGIN_NAME, name):
            raise ValueError(f"{name!r} is unknown; allowed: {', '.join(OPTIMIZERS)}, package.module:Name")
        return name

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        """Refuse keys that the chosen optimizer would ignore: an ignored key is a wrong experiment."""
        values = dict(self)
        if not self.is_built_in:
            for key in ("learning_rate", "beta1", "beta2", "tau"):
                if values[key] is not None:
                    raise ValueError(f"{key}: only for built-in optimizers; pass it to a user-defined class in options")
            return self
        if self.options:
            raise ValueError(f"options: only for a user-defined class; {self.name} takes none, leave options out")
        for key in ("beta2", "tau"):
            if values[key] is not None and key not in OPTIMIZERS[self.name].defaults:
                reading = [name for name, kind in OPTIMIZERS.items() if key in kind.defaults]
                raise ValueError(f"{key}: only for {' and '.join(reading)}; {self.name} does not read it, leave it out")
        return self

    def value(self, key: str) -> float:
        """Return a parameter of a built-in optimizer, or its default if it is unset."""
        configured = dict(self)[key]
        return float(OPTIMIZERS[self.name].defaults[key] if configured is None else configured)


class ServerOptimizer(ABC):
    """Step from the mean update to the next model; base class of user-defined optimizers, too.

    Args:
        section: the experiment's ``aggregation.server_optimizer``; None if it has none.

    Example:
        >>> class SignSteps(ServerOptimizer):
        ...     def step(self, state, model, mean):
        ...         moment = 0.9 * state.get("m", np.zeros_like(mean)) + 0.1 * mean
        ...         return model + 0.5 * np.sign(moment), {"m": moment}
        >>> model, state = SignSteps(None).step({}, np.zeros(2, np.float32), np.array([3.0, -0.2]))
        >>> model.tolist()
        [0.5, -0.5]
    """

    defaults: ClassVar[Mapping[str, float]] = {}

    def __init__(self, section: ServerOptimizerSection | None) -> None:
        self.section = section

    @abstractmethod
    def step(self, state: State, model: npt.NDArray[np.float32], mean: Floats) -> tuple[npt.NDArray[Any], State]:
        """Return the next model, and the state for the next step.

        The method is called once per completed round; a round that is skipped or aborted leaves model and state
        unchanged.

        Args:
            state: the state that the last step returned; empty before the first. Arrays of numbers or booleans, stored
                in the run's checkpoint.
            model: `(d,)` x_t. Neither the model nor the state may be changed in place.
            mean: `(d,)` Delta_t, the weighted mean of the survivors' updates, including noise.

        Returns:
            `(d,)` floats x_{t+1}, which are rounded to float32, and the state.
        """


class FederatedAveraging(ServerOptimizer):
    """FedAvg: add the mean (McMahan et al. 2017, arXiv 1602.05629)."""

    def __init__(self) -> None:
        super().__init__(None)

    def step(self, state: State, model: npt.NDArray[np.float32], mean: Floats) -> tuple[Floats, State]:
        """Return x + Delta."""
        return model + mean, state


class Momentum(ServerOptimizer):
    """FedAvgM: m = beta_1 m + Delta, x += eta m. With beta_1 = 0 it is FedAvg with a server learning rate."""

    defaults = {"learning_rate": 1.0, "beta1": 0.9}  # noqa: RUF012  # a ClassVar of the base

    def __init__(self, section: ServerOptimizerSection) -> None:
        super().__init__(section)
        self._rate, self._beta1 = section.value("learning_rate"), section.value("beta1")

    def step(self, state: State, model: npt.NDArray[np.float32], mean: Floats) -> tuple[Floats, State]:
        """Return the next model and its moment, stored as float32."""
        moment = (self._beta1 * _previous(state, "m", mean) + mean).astype(np.float32)
        return model + self._rate * moment.astype(np.float64), {"m": moment}


class Adaptive(ServerOptimizer):
    """Adaptive optimizer: m = beta_1 m + (1 - beta_1) Delta, x += eta m / (sqrt(v) + tau); subclasses define v.

    Source: Reddi et al. 2021, Algorithm 2.
    """

    def __init__(self, section: ServerOptimizerSection) -> None:
        super().__init__(section)
        self._rate, self._tau = section.value("learning_rate"), section.value("tau")
        self._beta1 = section.value("beta1")

    @abstractmethod
    def accumulated(self, squares: Floats, new: Floats) -> Floats:
        """Return `(d,)` v_t, given v_{t-1} and Delta_t^2."""

    def step(self, state: State, model: npt.NDArray[np.float32], mean: Floats) -> tuple[Floats, State]:
        """Return the next model and both moments, stored as float32."""
        # As in the paper, the bias towards the beginning is not corrected.
        moment = (self._beta1 * _previous(state, "m", mean) + (1 - self._beta1) * mean).astype(np.float32)
        # v begins with tau^2, the smallest value that the paper allows.
        squares = self.accumulated(_previous(state, "v", mean, self._tau**2), np.square(mean)).astype(np.float32)
        scale = np.sqrt(squares.astype(np.float64)) + self._tau
        return model + self._rate * (moment / scale), {"m": moment, "v": squares}


class Adagrad(Adaptive):
    """FedAdagrad."""

    defaults = {"learning_rate": 0.1, "beta1": 0.0, "tau": 1e-3}  # noqa: RUF012

    def accumulated(self, squares: Floats, new: Floats) -> Floats:
        """Return v + Delta^2."""
        return squares + new


class _Decaying(Adaptive):
    defaults = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}  # noqa: RUF012

    def __init__(self, section: ServerOptimizerSection) -> None:
        super().__init__(section)
        self._beta2 = section.value("beta2")


class Adam(_Decaying):
    """FedAdam."""

    def accumulated(self, squares: Floats, new: Floats) -> Floats:
        """Return beta_2 v + (1 - beta_2) Delta^2."""
        return self._beta2 * squares + (1 - self._beta2) * new


class Yogi(_Decaying):
    """FedYogi."""

    def accumulated(self, squares: Floats, new: Floats) -> Floats:
        """Return v - (1 - beta_2) Delta^2 sign(v - Delta^2)."""
        return squares - (1 - self._beta2) * new * np.sign(squares - new)


OPTIMIZERS: dict[str, type[Momentum] | type[Adaptive]] = {
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adam": Adam,
    "yogi": Yogi,
}
"""Built-in optimizers by their name in an experiment."""


def server_optimizer(section: ServerOptimizerSection | None) -> ServerOptimizer:
    """Return the optimizer of a section; None gives `FederatedAveraging`.

    Raises:
        ExperimentError: a user-defined class that does not exist, is not a `ServerOptimizer`, or does not take these
            options.
    """
    if section is None:
        return FederatedAveraging()
    if section.is_built_in:
        return OPTIMIZERS[section.name](section)
    kind = plugin_class(section.name, f"{KEY}.name")
    check_subclass(kind, ServerOptimizer, section.name, f"{KEY}.name")
    made: ServerOptimizer = plugin_options.create_with_options(kind, section.name, KEY, section)
    return made


def next_model(
    optimizer: ServerOptimizer,
    memory: Memory,
    model: npt.NDArray[np.float32],
    mean: Floats,
) -> npt.NDArray[np.float32]:
    """Return the model after a completed round, and update the optimizer's state in `memory`.

    Args:
        optimizer: built-in or user-defined.
        memory: of the run.
        model: `(d,)` float32.
        mean: `(d,)` mean update.

    Returns:
        `(d,)` float32.

    Raises:
        ExperimentError: a user-defined optimizer does not return a model and a state.
    """
    returned = optimizer.step(_STATE.read(memory), model, mean)
    try:
        after, state = returned
        stepped = np.asarray(after).astype(np.float32)
        moved = {str(name): np.asarray(array) for name, array in state.items()}
        if any(array.dtype.kind not in "biufc" for array in moved.values()):
            raise TypeError("a checkpoint holds numbers and booleans")
    except (TypeError, ValueError, AttributeError):
        raise _wrong(optimizer, f"not {type(returned).__name__}") from None
    if stepped.shape != model.shape:
        raise _wrong(optimizer, f"not a model of shape {stepped.shape}")
    # Remove the old state first: an optimizer may drop an array.
    _STATE.take(memory)
    memory.update(_STATE.named(moved))
    return stepped


def _wrong(optimizer: ServerOptimizer, returned: str) -> ExperimentError:
    kind = type(optimizer)
    return ExperimentError(
        f"{KEY}.name: {kind.__module__}:{kind.__name__}: step must return the next model and the state (arrays by "
        f"name), {returned}"
    )


def _previous(state: State, name: str, mean: Floats, beginning: float = 0.0) -> Floats:
    """Return a `(d,)` float64 array of the state, or its initial value."""
    return state[name].astype(np.float64) if name in state else np.full(len(mean), beginning)
