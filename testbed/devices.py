"""How fast the clients compute: one factor per client, drawn once per experiment.

A factor multiplies compute time: 1 is the reference machine (the one that measures, or the one whose cost
table is used), 2 is a device that needs twice as long.

`zipf` is the heterogeneity of Lotto's evaluation (Jiang et al., arXiv 2401.02880, section 5.3, figure 7(d)):
response latencies follow Zipf's law with a = 1.2. The paper gives no range; here the law is rescaled to one.
"""

import re
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from testbed.errors import ExperimentError
from testbed.own_class import OWN_CLASS, own_class

MODELS = ("constant", "uniform", "zipf")

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ModelName = Annotated[
    str, WithJsonSchema({"anyOf": [{"enum": list(MODELS)}, {"type": "string", "pattern": OWN_CLASS}]})
]


class Devices(BaseModel):
    """The experiment's `devices` section. A key that the model does not read has no effect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelName = Field(
        "constant",
        description="Distribution: constant, uniform, zipf, or a class of your own, package.module:Name",
    )
    factor: Factor = Field(1.0, description="Everybody's compute time relative to the reference machine (constant)")
    fastest: Factor = Field(1.0, description="Smallest factor (uniform, zipf)")
    slowest: Factor = Field(10.0, description="Largest factor (uniform, zipf)")
    exponent: float = Field(
        1.2,
        ge=0.01,
        allow_inf_nan=False,
        description="Zipf's a: the k-th slowest is proportional to 1/k^a (Lotto: 1.2)",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="For a class of your own")

    @field_validator("model")
    @classmethod
    def _known(cls, model: str) -> str:
        if model not in MODELS and not re.fullmatch(OWN_CLASS, model):
            raise ValueError(f"unknown model {model!r}; allowed: {', '.join(MODELS)}, package.module:Name")
        return model

    @model_validator(mode="after")
    def _range(self) -> "Devices":
        if self.slowest < self.fastest:
            raise ValueError(f"`slowest` ({self.slowest:g}) must be at least `fastest` ({self.fastest:g})")
        return self


class DeviceModel(Protocol):
    """What a class of one's own looks like; it is made as `Name(section)`."""

    def speed_factors(self, population: int, generator: np.random.Generator) -> npt.ArrayLike:
        """`(population,)` positive finite factors; all randomness from `generator`."""


def speed_factors(section: Devices, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """The factor by which each client's compute takes longer than on the reference machine.

    Args:
        section: the experiment's.
        population: number of clients n.
        generator: for simulation; the same state gives the same factors.

    Returns:
        `(n,)` float64, positive.

    Raises:
        ExperimentError: the user's own class cannot be found, or does not return n positive numbers.
    """
    if section.model == "constant":
        return np.full(population, section.factor)
    if section.model == "uniform":
        return generator.uniform(section.fastest, section.slowest, population)
    if section.model == "zipf":
        return zipf_factors(population, section.fastest, section.slowest, section.exponent)[
            generator.permutation(population)
        ]
    return _own_factors(section, population, generator)


def zipf_factors(population: int, fastest: float, slowest: float, exponent: float) -> npt.NDArray[np.float64]:
    """Zipf's law from slowest to fastest: the k-th value is 1/k^a, rescaled linearly to the range.

    Returns:
        `(population,)` float64 within the range, descending: `slowest` first, `fastest` last (a client
        alone is the slowest).
    """
    law = np.arange(1, population + 1, dtype=np.float64) ** -exponent
    if population > 1:
        law = (law - law[-1]) / (law[0] - law[-1])
    return np.clip(fastest + (slowest - fastest) * law, fastest, slowest)


def _own_factors(section: Devices, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    own = own_class(section.model, "devices.model")
    model: DeviceModel = own(section)
    factors = np.asarray(model.speed_factors(population, generator), dtype=np.float64)
    if factors.shape != (population,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ExperimentError(
            f"devices.model: {section.model} must return {population} positive finite factors, one per client"
        )
    return factors
