"""Compute speed of the clients: one factor per client, drawn once per experiment.

A factor multiplies compute time: 1 is the reference machine (the measuring machine, or the machine of the cost table),
2 is a device that needs twice as long.

`zipf` is the heterogeneity of Lotto's evaluation (Jiang et al., arXiv 2401.02880, section 5.3, figure 7(d)): response
latencies follow Zipf's law with a = 1.2. The paper gives no range; here the law is rescaled to one.

`table` draws each client's factor from a table of devices, with replacement (`read_device_factors`).
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from testbed.arrays import Floats
from testbed.emulation.traces.columns import read_columns
from testbed.errors import ExperimentError, TraceError
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
    factor: Factor = Field(1.0, description="Compute time of every client relative to the reference machine (constant)")
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
    column: str | None = Field(None, description="Column with latencies or scores, e.g. ResNet Latency (table)")
    larger_is_faster: bool | Literal["auto"] = Field(
        "auto", description="Whether the column holds scores, not latencies; auto: decided by its name (table)"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Options of a user-defined class")

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if model not in MODELS and not re.fullmatch(PLUGIN_NAME, model):
            raise ValueError(f"unknown model {model!r}; allowed: {', '.join(MODELS)}, package.module:Name")
        return model

    @model_validator(mode="after")
    def _check_keys(self) -> "Devices":
        if self.slowest < self.fastest and self.model != "table":
            raise ValueError(f"`slowest` ({self.slowest:g}) must be at least `fastest` ({self.fastest:g})")
        if self.model == "table" and (self.path is None or self.column is None):
            missing = "path" if self.path is None else "column"
            raise ValueError(f"the model table needs `{missing}`: a table of devices and the column to take")
        return self


class DeviceModel(Protocol):
    """Protocol of a user-defined model; it is created as ``Name(section, **options)`` (`testbed.plugins.options`)."""

    def speed_factors(self, population: int, generator: np.random.Generator) -> npt.ArrayLike:
        """Return `(population,)` positive finite factors; all randomness comes from `generator`."""


def speed_factors(
    section: Devices, population: int, generator: np.random.Generator, key: str = "devices"
) -> npt.NDArray[np.float64]:
    """Return the factor by which each client's compute takes longer than on the reference machine.

    Args:
        section: the experiment's `devices` section.
        population: number of clients n.
        generator: for simulation; the same state gives the same factors.
        key: path of the section in the experiment, for errors.

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
    return _own_factors(section, population, generator, key)


def zipf_factors(population: int, fastest: float, slowest: float, exponent: float) -> npt.NDArray[np.float64]:
    """Return factors by Zipf's law: the k-th value is 1/k^a, rescaled linearly to the range.

    Args:
        population: number of factors n, at least 1.
        fastest: smallest factor.
        slowest: largest factor.
        exponent: Zipf's a.

    Returns:
        `(n,)` float64, descending from `slowest` to `fastest`; a single client has `slowest`.

    Example:
        >>> zipf_factors(3, fastest=1.0, slowest=10.0, exponent=1.0).round(2).tolist()
        [10.0, 3.25, 1.0]
    """
    law = np.arange(1, population + 1, dtype=np.float64) ** -exponent
    if population > 1:
        law = (law - law[-1]) / (law[0] - law[-1])
    # Rounding must not leave the range.
    return np.clip(fastest + (slowest - fastest) * law, fastest, slowest)


def _table_factors(section: Devices, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    assert section.path is not None
    assert section.column is not None
    factors = read_device_factors(section.path, section.column, section.larger_is_faster)
    return section.fastest * factors[generator.integers(0, len(factors), population)]


def _own_factors(
    section: Devices, population: int, generator: np.random.Generator, key: str
) -> npt.NDArray[np.float64]:
    own = plugin_class(section.model, f"{key}.model")
    model: DeviceModel = plugin_options.create_with_options(own, section.model, key, section)
    plugin_options.check_methods(model, section.model, f"{key}.model", "speed_factors(population, generator)")
    factors = np.asarray(model.speed_factors(population, generator), dtype=np.float64)
    if factors.shape != (population,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ExperimentError(
            f"{key}.model: {section.model} must return {population} positive finite factors, one per client"
        )
    return factors


_FASTER = re.compile(r"score|speed|throughput|flops|fps|per[_ ]s|/s", re.IGNORECASE)
_SLOWER = re.compile(r"latency|duration|time|seconds|delay|(?:^|[^a-z/])(?:s|ms|us|ns)(?:$|[^a-z])", re.IGNORECASE)


def read_device_factors(path: Path, column: str, larger_is_faster: bool | Literal["auto"] = "auto") -> Floats:
    """Read speed factors from a column of a table of devices.

    A column holds latencies (smaller is faster) or scores (larger is faster). The published tables that this function
    is made for:

    - AI-Benchmark scores of 333 phones (``raw_ai_benchmark_list.json`` of FLASH; Ignatov et al., AI Benchmark: All
      About Deep Learning on Smartphones in 2019, arXiv 1910.06663): every ``..._Score`` is a speed. ``CPU_F_AI_Score``
      is floating-point inference on the CPU. ``AI_Score`` is the sum with accelerators, by which FLASH finds the
      nearest phone with a measured training time (there with a footnote's number behind the score).
    - Training latencies of 997 phones and models in ms, columns ``ResNet Latency`` and ``Vit Latency`` (of 21 phones).
      A 0 stands for a phone without a result; such phones are left out.

    Args:
        path: CSV, Parquet or JSON with a device per row (see `testbed.emulation.traces.columns`).
        column: name of the column with latencies or scores.
        larger_is_faster: True for scores, False for latencies; "auto": decided by the column's name.

    Returns:
        `(m,)` float64: compute time of each device relative to the fastest device of the table; at least 1. Devices
            without a value in the column, or with 0 there, are left out.

    Raises:
        TraceError: one line with file and row: the file or the column cannot be used, a value is negative, all are 0,
            or the column's name does not tell latencies from scores.
    """
    table = read_columns(path, [column])
    values = table.values[0]
    if (values < 0).any():
        first_bad = int(np.argmax(values < 0))
        raise TraceError(
            f"{path}: row {table.rows[first_bad]}: {column} is {values[first_bad]:g}; no latency or score is negative"
        )
    # 0 stands for a device without a result in the published tables.
    measured = values[values > 0]
    if not len(measured):
        raise TraceError(f"{path}: {column} is 0 in every row; choose a column of latencies or scores")
    scores = _are_scores(path, column) if larger_is_faster == "auto" else larger_is_faster
    with np.errstate(over="ignore"):
        factors: Floats = measured.max() / measured if scores else measured / measured.min()
    if not np.isfinite(factors).all():
        raise TraceError(f"{path}: {column}: values from {measured.min():g} to {measured.max():g} are too far apart")
    return factors


def _are_scores(path: Path, column: str) -> bool:
    faster, slower = _FASTER.search(column), _SLOWER.search(column)
    if (faster is None) == (slower is None):
        raise TraceError(
            f"{path}: the column name {column!r} does not tell scores from latencies; "
            "set devices.larger_is_faster to true or false"
        )
    return faster is not None
