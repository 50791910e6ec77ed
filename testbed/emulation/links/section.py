"""The `links` section of an experiment: bandwidth and latency per client, server capacity, transport."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from testbed.arrays import Floats
from testbed.emulation.traces.series import Rows
from testbed.emulation.transport.section import PRESETS, Transport
from testbed.plugins.classes import PLUGIN_NAME

LEAST_SHARE = 1e-6
"""Smallest probability that bounds must leave of a distribution; far out in a tail, most digits of a value are lost."""
_LEAST_UNIFORM = 2.0**-54  # random() gives multiples of 2^-53; 0 would be minus infinity as a normal number
_READS = {
    "uniform": ("minimum", "maximum"),
    "normal": ("mean", "sigma", "minimum", "maximum"),
    "log-normal": ("median", "sigma", "minimum", "maximum"),
}
_NEEDS = {
    "uniform": ("minimum", "maximum"),
    "normal": ("mean", "sigma", "minimum"),
    "log-normal": ("median", "sigma"),
}

_Positive = Annotated[float, Field(gt=0)]


class RandomValue(BaseModel):
    """A distribution of a value per client, drawn once per experiment, in the unit of its key.

    Distributions are truncated: conditioned on lying between two bounds, not clipped to them. Each value takes one
    uniform random number through the inverse of the truncated distribution. Unlike rejection sampling, this takes the
    same random numbers for any bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    distribution: Literal["uniform", "normal", "log-normal"] = Field(description="Shape")
    minimum: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Smallest value (uniform, normal; log-normal: 0 if not given)"
    )
    maximum: _Positive | None = Field(None, description="Largest value (uniform; the others: none if not given)")
    mean: float | None = Field(None, description="Mean before truncation (normal)")
    median: _Positive | None = Field(None, description="Median before truncation (log-normal)")
    sigma: _Positive | None = Field(
        None, description="Standard deviation before truncation (normal), or that of the natural logarithm (log-normal)"
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        reads, needs = _READS[self.distribution], _NEEDS[self.distribution]
        values = dict(self)
        for key in ("minimum", "maximum", "mean", "median", "sigma"):
            is_set = values[key] is not None
            if is_set and key not in reads:
                raise ValueError(f"a {self.distribution} distribution has no `{key}`; it has {', '.join(reads)}")
            if not is_set and key in needs:
                raise ValueError(f"a {self.distribution} distribution needs `{key}`; it needs {', '.join(needs)}")
        if self.maximum is not None and self.maximum < (self.minimum or 0.0):
            raise ValueError(f"`maximum` ({self.maximum:g}) must be at least `minimum` ({self.minimum:g})")
        if self.distribution != "uniform":
            low, high = self._bounds()
            mean, sigma = self._mean_and_sigma()
            if share_between(np.array([mean]), np.array([sigma]), low, high)[0] < LEAST_SHARE:
                raise ValueError("`minimum` and `maximum` leave almost nothing of the distribution; move them")
        return self

    def draw(self, population: int, generator: np.random.Generator) -> Floats:
        """Draw `(population,)` float64 values within the bounds, using `population` uniform numbers."""
        low, high = self._bounds()
        if self.distribution == "uniform":
            return np.clip(low + (high - low) * generator.random(population), low, high)
        mean, sigma = (np.full(population, number) for number in self._mean_and_sigma())
        values = truncated_normal(mean, sigma, low, high, generator)
        if self.distribution == "log-normal":
            values = np.exp(values)
        return np.clip(values, self.minimum or 0.0, np.inf if self.maximum is None else self.maximum)

    def _bounds(self) -> tuple[float, float]:
        """Return the bounds of the normal variable: of the value, or of its logarithm for log-normal."""
        bounds = self.minimum or 0.0, np.inf if self.maximum is None else self.maximum
        if self.distribution != "log-normal":
            return bounds
        with np.errstate(divide="ignore"):
            low, high = np.log(bounds).tolist()
        return low, high

    def _mean_and_sigma(self) -> tuple[float, float]:
        assert self.sigma is not None
        if self.median is not None:
            return float(np.log(self.median)), self.sigma
        assert self.mean is not None
        return self.mean, self.sigma


def truncated_normal(mean: Floats, sigma: Floats, low: float, high: float, generator: np.random.Generator) -> Floats:
    """Draw `(n,)` values, each of its own normal distribution conditioned on lying in [`low`, `high`].

    Args:
        mean, sigma: `(n,)`; where sigma is 0 the value is the mean, clipped to the bounds.
        low, high: the bounds; may be infinite.
        generator: source of n uniform numbers.
    """
    from scipy.special import ndtr, ndtri  # slow to import

    uniform = np.maximum(generator.random(len(mean)), _LEAST_UNIFORM)
    moving = sigma > 0
    scale = np.where(moving, sigma, 1.0)
    # By the inverse of the distribution: one uniform number per value, for any bounds.
    sign, first, last = _lower_tail((low - mean) / scale, (high - mean) / scale)
    standard = sign * ndtri(ndtr(first) + (ndtr(last) - ndtr(first)) * uniform)
    # Rounding in the tails must not leave the bounds.
    return np.clip(np.where(moving, mean + scale * standard, mean), low, high)


def share_between(mean: Floats, sigma: Floats, low: float, high: float) -> Floats:
    """Return the probabilities that normal variables lie in [`low`, `high`].

    Args:
        mean, sigma: `(n,)`; where sigma is 0, the probability is 1 if the mean lies in the interval, else 0.
        low, high: the bounds; may be infinite.

    Returns:
        `(n,)` float64.

    Example:
        >>> share_between(np.array([0.0]), np.array([1.0]), -1.96, 1.96).round(3).tolist()
        [0.95]
    """
    from scipy.special import ndtr  # slow to import

    with np.errstate(divide="ignore", invalid="ignore"):
        _, first, last = _lower_tail((low - mean) / sigma, (high - mean) / sigma)
    return np.where(sigma > 0, ndtr(last) - ndtr(first), (low <= mean) & (mean <= high)).astype(np.float64)


def _lower_tail(first: Floats, last: Floats) -> tuple[Floats, Floats, Floats]:
    """Return standardised bounds, mirrored where both are above the mean: near 1, probabilities lose their digits."""
    mirrored = first > 0
    return np.where(mirrored, -1.0, 1.0), np.where(mirrored, -last, first), np.where(mirrored, -first, last)


def number_or_list(value: Any) -> str:
    """Return the form of a per-client setting, so that an error is about that form alone."""
    return "list" if isinstance(value, list | tuple) else "number"


NUMBER, LIST = Tag("number"), Tag("list")
EitherForm = Discriminator(number_or_list)
NotEmpty = Field(min_length=1)

Rate = Annotated[float, Field(gt=0)]
Delay = Annotated[float, Field(ge=0)]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Assigned(_Form):
    """Rows or traces of a file, assigned to the clients."""

    assign: Literal["cycle", "sample"] = Field(
        "cycle", description="cycle: in turn, in the order of the file; sample: at random with replacement"
    )
    scale: _Positive = Field(1.0, description="Factor on the values of the file")


class _OverTime(_Assigned):
    """Numbers that change over time as in measured traces, repeated for ever."""

    shift: bool = Field(True, description="Each client begins at a random moment of its trace; false: at time 0")
    rows: Rows = Field(
        "until-next",
        description="Meaning of a row of the file: its value holds until the next row; interval-before: the value was "
        "measured since the row before, as in Pensieve's files (Norway, FCC, Oboe, Puffer) and logs of bytes",
    )


class Followed(_OverTime):
    """Rates that change over time as in measured bandwidth traces, repeated for ever."""

    trace: Path = Field(description="A two-column file, seconds and Mbit/s, or a folder of them")


class FollowedDelay(_OverTime):
    """Delays that change over time; a stage has the delays at its beginning."""

    trace: Path = Field(description="A two-column file, seconds and ms one way, or a folder of them")


class FollowedShare(_OverTime):
    """Losses that change over time; a stage has the losses at its beginning, at most 0.5."""

    trace: Path = Field(description="A two-column file, seconds and a probability, or a folder of them")


class Tabled(_Assigned):
    """Constant rates of measured devices; download and upload from one file belong to the same device."""

    table: Path = Field(
        description="CSV or Parquet with one device per row, in Mbit/s; or FLASH's flash_speed_distri.json with normal "
        "distributions in the columns down and up, drawn from once per client"
    )
    column: str = Field(description="Column with the rate; FLASH: down or up")
    assign: Literal["cycle", "sample"] = Field(
        "sample", description="cycle: in turn, in the order of the file; sample: at random with replacement"
    )
    minimum: Delay = Field(
        0.1, description="Smallest rate in Mbit/s of FLASH's distributions, which are truncated there (before `scale`)"
    )


class MatrixColumn(_Assigned):
    """One-way delays from a matrix in ms: a row per client, a column per possible place of the server."""

    matrix: Path = Field(description="CSV, Parquet or .npy, delays in ms; with or without names")
    column: str | Annotated[int, Field(ge=0)] = Field(description="The server's column, by name or counted from 0")


# Tags with spaces, which no key has: an error's path leaves out parts that are not keys.
_FORMS = {"distribution": "a distribution", "trace": "a trace", "table": "a table", "matrix": "a matrix"}


def form_of(value: Any) -> str | None:
    """Return the form of a `links` setting; None for a mapping of no known form."""
    if isinstance(value, BaseModel):
        value = type(value).model_fields
    if isinstance(value, dict):
        return next((form for key, form in _FORMS.items() if key in value), None)
    return number_or_list(value)


def _any_form(*keys: str) -> Discriminator:
    keys_text = f"`{keys[-1]}`"
    if len(keys) > 1:
        keys_text = ", ".join(f"`{key}`" for key in keys[:-1]) + f" or {keys_text}"
    expected = f"Input should be a number, a list, or a mapping with {keys_text}"
    return Discriminator(form_of, custom_error_type="no_such_form", custom_error_message=expected)


_DISTRIBUTION = Annotated[RandomValue, Tag(_FORMS["distribution"])]
RateSetting = Annotated[
    Annotated[Rate, NUMBER]
    | Annotated[list[Rate], NotEmpty, LIST]
    | _DISTRIBUTION
    | Annotated[Followed, Tag(_FORMS["trace"])]
    | Annotated[Tabled, Tag(_FORMS["table"])],
    _any_form("distribution", "trace", "table"),
]
DelaySetting = Annotated[
    Annotated[Delay, NUMBER]
    | Annotated[list[Delay], NotEmpty, LIST]
    | _DISTRIBUTION
    | Annotated[FollowedDelay, Tag(_FORMS["trace"])]
    | Annotated[MatrixColumn, Tag(_FORMS["matrix"])],
    _any_form("distribution", "trace", "matrix"),
]
MOST_LOSS = 0.5
Share = Annotated[float, Field(ge=0, le=MOST_LOSS)]
ShareSetting = Annotated[
    Annotated[Share, NUMBER]
    | Annotated[list[Share], NotEmpty, LIST]
    | _DISTRIBUTION
    | Annotated[FollowedShare, Tag(_FORMS["trace"])],
    _any_form("distribution", "trace"),
]
BufferSetting = Annotated[
    Annotated[_Positive, NUMBER] | Annotated[list[_Positive], NotEmpty, LIST] | _DISTRIBUTION,
    _any_form("distribution"),
]


class Outages(_Form):
    """Loss of connectivity: at random moments nothing moves in either direction; transfers stall and continue later."""

    mean_between_s: Annotated[float, Field(gt=0, le=1e9)] = Field(
        description="Mean seconds from the end of an outage to the next one (exponential)"
    )
    mean_length_s: Annotated[float, Field(gt=0, le=1e9)] = Field(description="Mean seconds of an outage (exponential)")


class Links(BaseModel):
    """The experiment's `links` section. Lists are cycled through by the clients."""

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
        "traces over time, or a column of a matrix",
    )
    server_down_mbit_s: Rate = Field(25_000.0, description="The server's downlink in Mbit/s, shared max-min fairly")
    server_up_mbit_s: Rate = Field(25_000.0, description="The server's uplink in Mbit/s, shared max-min fairly")
    transport: Annotated[
        Annotated[Literal["auto", "none", "tcp", "tls", "quic"], Tag("a preset")]
        | Annotated[Transport, Tag("own numbers")],
        Discriminator(lambda value: "own numbers" if isinstance(value, dict | Transport) else "a preset"),
    ] = Field(
        "auto",
        description="Connections, congestion windows and headers: a preset, or a mapping of numbers; auto: tcp where a "
        "client has a latency or loss above 0, or `buffer_ms`, else none",
    )
    loss: ShareSetting = Field(
        0.0,
        description="Probability that a packet is lost, in each direction: a number, a list to cycle through, a "
        "distribution, or traces over time; needs a transport with congestion control",
    )
    loss_burst_packets: Annotated[float, Field(ge=1, le=10_000)] = Field(
        1.0, description="Mean packets lost in a row (Gilbert-Elliott); 1: losses are independent"
    )
    buffer_ms: BufferSetting | None = Field(
        None,
        description="Longest queue in front of a client's link before packets are lost, each way, in ms at its rate: a "
        "number, a list, or a distribution; none: any length",
    )
    outages: Outages | None = Field(None, description="Loss of connectivity; not together with bandwidth traces")
    model: Annotated[str, Field(pattern=PLUGIN_NAME)] | None = Field(
        None,
        description="A user-defined class, package.module:Name, instead of the keys above: Name(section, "
        "**options).links(population, generator) returns a testbed.emulation.links.ClientLinks",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Options of a user-defined class")

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        self._check()
        return self

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return these links with other (validated) values for some keys; raise `ValueError` if they do not fit."""
        changed = self.model_copy(update=settings)
        changed._check()
        return changed

    def _check(self) -> None:
        down, up = self.down_mbit_s, self.up_mbit_s
        if isinstance(down, Followed) and isinstance(up, Followed) and down.trace == up.trace:
            _check_same("trace", assign=(down.assign, up.assign), shift=(down.shift, up.shift))
            _check_same("trace", rows=(down.rows, up.rows))
        if isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table:
            _check_same("table", assign=(down.assign, up.assign))
        if self.options and self.model is None:
            raise ValueError("`options` are for a user-defined class; set `model`")
        if self.outages is not None and (isinstance(down, Followed) or isinstance(up, Followed)):
            raise ValueError("`outages` cannot be combined with bandwidth traces, which have their own; remove one")
        if isinstance(self.loss, RandomValue) and (self.loss.maximum is None or self.loss.maximum > MOST_LOSS):
            raise ValueError(f"`loss` is a probability: its distribution needs a `maximum` of at most {MOST_LOSS}")
        transport = PRESETS.get(self.transport) if isinstance(self.transport, str) else self.transport
        if transport is not None and not transport.has_windows:
            loses = any(self.loss) if isinstance(self.loss, list) else self.loss != 0
            for key, is_set in (("loss", loses), ("buffer_ms", self.buffer_ms is not None)):
                if is_set:
                    raise ValueError(
                        f"`{key}` needs a transport that retransmits lost packets; set `links.transport: tcp`"
                    )


def _check_same(file: str, **settings: tuple[object, object]) -> None:
    """Check that settings of one file are equal in both directions; raise `ValueError` otherwise."""
    for key, (down, up) in settings.items():
        if down != up:
            raise ValueError(f"down_mbit_s and up_mbit_s have the same {file}, but not the same `{key}`; make it equal")


def cycle_values(values: float | list[float], population: int) -> npt.NDArray[np.float64]:
    """Return one value per client.

    Args:
        values: one value for all clients, or a list to cycle through.
        population: number of clients n.

    Returns:
        `(n,)` float64.

    Example:
        >>> cycle_values([1.0, 2.0], 5).tolist()
        [1.0, 2.0, 1.0, 2.0, 1.0]
    """
    if isinstance(values, list):
        return np.resize(np.asarray(values, dtype=np.float64), population)
    return np.full(population, values, np.float64)
