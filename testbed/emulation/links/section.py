"""The `links` section of an experiment: bandwidth and latency per client, capacity of the server, transport."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from testbed.emulation.links.distributions import Drawn
from testbed.emulation.links.transport import Transport
from testbed.plugins.classes import PLUGIN_NAME


def one_or_list(value: Any) -> str:
    """Which form a per-client setting has; an error is then about that form alone."""
    return "list" if isinstance(value, list | tuple) else "number"


NUMBER, LIST = Tag("number"), Tag("list")
EitherForm = Discriminator(one_or_list)
NotEmpty = Field(min_length=1)

Rate = Annotated[float, Field(gt=0)]
Delay = Annotated[float, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Assigned(_Form):
    """Rows or traces of a file, given out to the clients."""

    assign: Literal["cycle", "sample"] = Field(
        "cycle", description="cycle: in turn, in the order of the file; sample: at random with replacement"
    )
    scale: _Positive = Field(1.0, description="Factor on what the file says")


class Followed(_Assigned):
    """Rates that change over time as in measured bandwidth traces, repeated for ever."""

    trace: Path = Field(description="A two-column file, seconds and Mbit/s, or a folder of them")
    shift: bool = Field(True, description="Each client begins at a random moment of its trace; false: at its beginning")


class Tabled(_Assigned):
    """Constant rates of measured devices; download and upload from one file are those of the same device."""

    table: Path = Field(
        description="CSV or Parquet with one device per row, in Mbit/s; or FLASH's flash_speed_distri.json, whose "
        "columns down and up are normal distributions, drawn from once per client"
    )
    column: str = Field(description="Which column holds the rate; FLASH: down or up")
    assign: Literal["cycle", "sample"] = Field(
        "sample", description="cycle: in turn, in the order of the file; sample: at random with replacement"
    )
    minimum: Delay = Field(
        0.1, description="Least Mbit/s drawn from FLASH's distributions, which are truncated to it (before `scale`)"
    )


class MatrixColumn(_Assigned):
    """One-way delays from a matrix in ms: a row per client, a column per place that the server may stand in."""

    matrix: Path = Field(description="CSV, Parquet or .npy, delays in ms; with or without names")
    column: str | Annotated[int, Field(ge=0)] = Field(description="The server's column, by name or counted from 0")


# Tags with spaces, which no key has: an error's path leaves out what is no key.
_FORMS = {"distribution": "a distribution", "trace": "a trace", "table": "a table", "matrix": "a matrix"}


def form_of(value: Any) -> str | None:
    """Which form a setting of the links has; None for a mapping that is none of them."""
    if isinstance(value, BaseModel):
        value = type(value).model_fields
    if isinstance(value, dict):
        return next((form for key, form in _FORMS.items() if key in value), None)
    return one_or_list(value)


def _any_form(*keys: str) -> Discriminator:
    named = ", ".join(f"`{key}`" for key in keys[:-1]) + f" or `{keys[-1]}`"
    expected = f"Input should be a number, a list, or a mapping with {named}"
    return Discriminator(form_of, custom_error_type="no_such_form", custom_error_message=expected)


_DRAWN = Annotated[Drawn, Tag(_FORMS["distribution"])]
RateSetting = Annotated[
    Annotated[Rate, NUMBER]
    | Annotated[list[Rate], NotEmpty, LIST]
    | _DRAWN
    | Annotated[Followed, Tag(_FORMS["trace"])]
    | Annotated[Tabled, Tag(_FORMS["table"])],
    _any_form("distribution", "trace", "table"),
]
DelaySetting = Annotated[
    Annotated[Delay, NUMBER]
    | Annotated[list[Delay], NotEmpty, LIST]
    | _DRAWN
    | Annotated[MatrixColumn, Tag(_FORMS["matrix"])],
    _any_form("distribution", "matrix"),
]


class Outages(_Form):
    """Loss of connectivity: at random moments nothing moves in either direction; transfers stall and go on later."""

    mean_between_s: Annotated[float, Field(gt=0, le=1e9)] = Field(
        description="Mean seconds from the end of an outage to the next one (exponential)"
    )
    mean_length_s: Annotated[float, Field(gt=0, le=1e9)] = Field(description="Mean seconds of an outage (exponential)")


class Links(BaseModel):
    """The experiment's `links` section. A list is given to the clients in turn (cycled)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    down_mbit_s: RateSetting = Field(
        44.0,
        description="Each client's downlink in Mbit/s (Lotto: 44): a number, a list to cycle through, a distribution, "
        "bandwidth traces, or a table of devices",
    )
    up_mbit_s: RateSetting = Field(44.0, description="Each client's uplink in Mbit/s, in the same forms")
    latency_ms: DelaySetting = Field(
        50.0,
        description="One-way delay between client and server in ms: a number, a list to cycle through, a distribution, "
        "or a column of a matrix",
    )
    server_down_mbit_s: Rate = Field(25_000.0, description="The server's downlink in Mbit/s, shared max-min fairly")
    server_up_mbit_s: Rate = Field(25_000.0, description="The server's uplink in Mbit/s, shared max-min fairly")
    transport: Annotated[
        Annotated[Literal["none", "tcp", "tls"], Tag("a preset")] | Annotated[Transport, Tag("own numbers")],
        Discriminator(lambda value: "own numbers" if isinstance(value, dict | Transport) else "a preset"),
    ] = Field("none", description="Headers and acknowledgements around messages: a preset, or numbers of one's own")
    outages: Outages | None = Field(None, description="Loss of connectivity; not beside bandwidth traces")
    model: Annotated[str, Field(pattern=PLUGIN_NAME)] | None = Field(
        None,
        description="A user-defined class, package.module:Name, instead of all that: Name(section, **options).links("
        "population, generator) returns a testbed.emulation.links.ClientLinks",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="For a user-defined class")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        down, up = self.down_mbit_s, self.up_mbit_s
        if isinstance(down, Followed) and isinstance(up, Followed) and down.trace == up.trace:
            _check_same("trace", assign=(down.assign, up.assign), shift=(down.shift, up.shift))
        if isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table:
            _check_same("table", assign=(down.assign, up.assign))
        if self.options and self.model is None:
            raise ValueError("`options` are for a user-defined class; set `model`")
        if self.outages is not None and (isinstance(down, Followed) or isinstance(up, Followed)):
            raise ValueError("`outages` cannot be added to bandwidth traces, which have their own; remove one of them")
        return self


def _check_same(file: str, **settings: tuple[object, object]) -> None:
    """Raise `ValueError` for a setting that differs between the directions, which are read from one file."""
    for key, (down, up) in settings.items():
        if down != up:
            raise ValueError(f"down_mbit_s and up_mbit_s have the same {file}, but not the same `{key}`")


def cycled(values: float | list[float], population: int) -> npt.NDArray[np.float64]:
    """`(population,)` float64: one value for everybody, or a list given out in turn."""
    if isinstance(values, list):
        return np.resize(np.asarray(values, dtype=np.float64), population)
    return np.full(population, values, np.float64)
