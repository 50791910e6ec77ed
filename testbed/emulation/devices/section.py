"""How fast the clients compute: one factor per client, drawn once per experiment.

A factor multiplies compute time: 1 is the reference machine (the one that measures, or the one whose cost
table is used), 2 is a device that needs twice as long.

`zipf` is the heterogeneity of Lotto's evaluation (Jiang et al., arXiv 2401.02880, section 5.3, figure 7(d)):
response latencies follow Zipf's law with a = 1.2. The paper gives no range; here the law is rescaled to one.

`table` takes each client's factor from a device of a table, drawn with replacement
(`testbed.emulation.devices.tables`).
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import PLUGIN_NAME, plugin_class

MODELS = ("constant", "uniform", "log-normal", "zipf", "table")

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ModelName = Annotated[
    str, WithJsonSchema({"anyOf": [{"enum": list(MODELS)}, {"type": "string", "pattern": PLUGIN_NAME}]})
]


class Devices(BaseModel):
    """The experiment's `devices` section. A key that the model does not read has no effect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelName = Field(
        "constant",
        description="Distribution: constant, uniform, log-normal, zipf, table, or a user-defined class, "
        "package.module:Name",
    )
    factor: Factor = Field(1.0, description="Everybody's compute time relative to the reference machine (constant)")
    fastest: Factor = Field(
        1.0, description="Smallest factor (uniform, zipf), or that of the fastest device in the table (table)"
    )
    slowest: Factor = Field(10.0, description="Largest factor (uniform, zipf)")
    exponent: float = Field(
        1.2,
        ge=0.01,
        allow_inf_nan=False,
        description="Zipf's a: the k-th slowest is proportional to 1/k^a (Lotto: 1.2)",
    )
    median: Factor = Field(1.0, description="Median factor (log-normal)")
    sigma: float = Field(
        0.5,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Standard deviation of the factor's natural logarithm (log-normal)",
    )
    path: Path | None = Field(
        None, description="CSV, Parquet or JSON with a device per row, e.g. measured training latencies (table)"
    )
    column: str | None = Field(None, description="The column with latencies or scores, e.g. ResNet Latency (table)")
    larger_is_faster: bool | Literal["auto"] = Field(
        "auto", description="Whether the column holds scores, not latencies; auto: by its name (table)"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="For a user-defined class")

    @field_validator("model")
    @classmethod
    def _known(cls, model: str) -> str:
        if model not in MODELS and not re.fullmatch(PLUGIN_NAME, model):
            raise ValueError(f"unknown model {model!r}; allowed: {', '.join(MODELS)}, package.module:Name")
        return model

    @model_validator(mode="after")
    def _range(self) -> "Devices":
        if self.slowest < self.fastest and self.model != "table":
            raise ValueError(f"`slowest` ({self.slowest:g}) must be at least `fastest` ({self.fastest:g})")
        if self.model == "table" and (self.path is None or self.column is None):
            missing = "path" if self.path is None else "column"
            raise ValueError(f"the model table needs `{missing}`: a table of devices and the column to take")
        return self


class DeviceModel(Protocol):
    """What a user-defined model looks like; it is made as ``Name(section, **options)`` (`testbed.plugins.options`)."""

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
        ExperimentError: the user-defined class cannot be found, or does not return n positive numbers.
        TraceError: the table of devices cannot be used; one line with file and row.
    """
    if section.model == "constant":
        return np.full(population, section.factor)
    if section.model == "uniform":
        return generator.uniform(section.fastest, section.slowest, population)
    if section.model == "zipf":
        return zipf_factors(population, section.fastest, section.slowest, section.exponent)[
            generator.permutation(population)
        ]
    if section.model == "log-normal":
        return section.median * np.exp(section.sigma * generator.standard_normal(population))
    if section.model == "table":
        return _table_factors(section, population, generator)
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


def _table_factors(section: Devices, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    from testbed.emulation.devices.tables import read_device_table

    assert section.path is not None
    assert section.column is not None
    factors = read_device_table(section.path, section.column, section.larger_is_faster).factors
    return section.fastest * factors[generator.integers(0, len(factors), population)]


def _own_factors(section: Devices, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    own = plugin_class(section.model, "devices.model")
    model: DeviceModel = plugin_options.made(own, section.model, "devices", section)
    plugin_options.check_methods(model, section.model, "devices.model", "speed_factors(population, generator)")
    factors = np.asarray(model.speed_factors(population, generator), dtype=np.float64)
    if factors.shape != (population,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ExperimentError(
            f"devices.model: {section.model} must return {population} positive finite factors, one per client"
        )
    return factors
