"""The experiment's `availability` section: one alternative per model, selected by `model`."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from testbed.emulation.links import LIST, NUMBER, EitherForm, NotEmpty
from testbed.plugins.classes import PLUGIN_NAME, USER_DEFINED, alternative_by

Probability = Annotated[float, Field(ge=0, le=1)]
Probabilities = Annotated[Annotated[Probability, NUMBER] | Annotated[list[Probability], NotEmpty, LIST], EitherForm]


def _number_or_mapping(value: Any) -> str:
    return "mapping" if isinstance(value, dict) else "number"


Hazard = Annotated[
    Annotated[Probability, Tag("number")] | Annotated[dict[str, Probability], Tag("mapping")],
    Discriminator(_number_or_mapping),
]
# Shorter durations would make the clock do nothing but follow clients that go online and offline.
MeanDuration = Annotated[float, Field(ge=0.01)]
# Beyond these limits the mean is so far from nearly all durations that it describes none of them.
Shape = Annotated[float, Field(ge=0.1, le=10)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Dropout(_Section):
    """Dropouts in the middle of a round, with any availability model."""

    rate: Probabilities = Field(
        0.0, description="Probability that a client drops out of a round in which it participates; a list is cycled"
    )
    stage: str = Field(
        "random",
        description="Stage in which the clients of `rate` drop out, e.g. 'secagg/masked-input'; 'random': any stage "
        "after selection",
    )
    hazard: Hazard = Field(
        0.0,
        description="Probability that a client drops out in a stage, drawn for each stage: one number for every stage "
        "after selection, or stages with their probabilities, e.g. {train: 0.2}",
    )


class AvailabilityModel(_Section):
    """Keys that the section has with every model."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Keys of the section without effect under this model; an override that sets the model removes them."""

    dropout: Dropout = Field(default_factory=Dropout, description="Clients that drop out during the round")
    model: str

    def per_client(self) -> dict[str, float | list[float]]:
        """Return the keys with a value per client, which may be lists to cycle through, and their values."""
        return {"dropout.rate": self.dropout.rate}

    def check(self, population: int) -> None:
        """Check that no list is longer than the population.

        Raises:
            ValueError: one line with the key and the allowed length.
        """
        for key, value in self.per_client().items():
            if isinstance(value, list) and len(value) > population:
                raise ValueError(
                    f"{key}: a list of {len(value)} values for a population of {population}; at most {population}"
                )


class Always(AvailabilityModel):
    """All clients are online, except for dropouts."""

    model: Literal["always"] = Field("always", description="All clients are online in every round")

    @model_validator(mode="before")
    @classmethod
    def _nobody_unavailable(cls, data: Any) -> Any:
        """Accept `unavailable: 0.0`, which older experiments have here, and drop the key."""
        if isinstance(data, dict) and "unavailable" in data:
            if isinstance(data["unavailable"], bool) or data["unavailable"] != 0:
                raise ValueError("`unavailable` has an effect only with `model: bernoulli`; set that or remove it")
            return {key: value for key, value in data.items() if key != "unavailable"}
        return data


class Bernoulli(AvailabilityModel):
    """Each client is away in a round with its own probability.

    Multi-RoundSecAgg, section 5, draws the probabilities from 0.1, 0.2, 0.3, 0.4 and 0.5.
    """

    model: Literal["bernoulli"] = Field(
        "bernoulli", description="Each client is away in a round with probability `unavailable`"
    )
    unavailable: Probabilities = Field(
        0.0,
        description="Probability p of being away for a round; a list is cycled, e.g. [0.1, 0.3, 0.5]",
    )
    drawn: bool = Field(
        False,
        description="Draw each client's probability from the list, uniformly, by the seed; false: cycle through the "
        "list",
    )

    @model_validator(mode="after")
    def _drawn_from_a_list(self) -> Self:
        if self.drawn and not isinstance(self.unavailable, list):
            raise ValueError("`drawn` has an effect only where `unavailable` is a list; give one or remove it")
        return self

    def per_client(self) -> dict[str, float | list[float]]:
        return {"unavailable": self.unavailable, **super().per_client()}


class LabelDependent(AvailabilityModel):
    """The availability of a client depends on its most frequent label.

    Source:
        Multi-RoundSecAgg, first version (arXiv 2106.03328v1), experiments, non-IID setting.
    """

    model: Literal["label-dependent"] = Field(
        "label-dependent",
        description="Each client is away in a round with a probability that grows with its most frequent label "
        "(without samples that all clients share: workload.partition.shared_samples)",
    )
    lowest: Probability = Field(0.1, description="Probability of being away for a round with label 0")
    highest: Probability = Field(
        0.5, description="Probability of being away for a round with the last label; linear in between"
    )


class Markov(AvailabilityModel):
    """Clients go online and offline at random, independently of the past (two states, continuous time)."""

    model: Literal["markov"] = Field(
        "markov", description="Clients go online and offline; exponential durations, in equilibrium from the start"
    )
    mean_online_s: MeanDuration = Field(description="Mean seconds that a client stays online")
    mean_offline_s: MeanDuration = Field(description="Mean seconds that a client stays offline")


class DiurnalWeibull(AvailabilityModel):
    """Clients go online and offline with Weibull durations, and return faster at some hours of the day.

    Source:
        Weibull durations: D. Nurmi, J. Brevik, R. Wolski, "Modeling Machine Availability in Enterprise and Wide-Area
            Distributed Computing Environments", Euro-Par 2005; B. Javadi, D. Kondo, J.-M. Vincent, D. P. Anderson,
            "Discovering Statistical Models of Availability in Large Distributed Systems", IEEE TPDS 22(11), 2011. Daily
            rhythm of federated devices: K. Bonawitz et al., "Towards Federated Learning at Scale", MLSys 2019.
    """

    model: Literal["diurnal-weibull"] = Field(
        "diurnal-weibull", description="Clients go online and offline; Weibull durations and a daily rhythm"
    )
    mean_online_s: MeanDuration = Field(description="Mean seconds that a client stays online")
    mean_offline_s: MeanDuration = Field(
        description="Mean seconds that a client stays offline, without the daily rhythm"
    )
    online_shape: Shape = Field(1.0, description="Weibull shape of the online durations; 1: exponential")
    offline_shape: Shape = Field(1.0, description="Weibull shape of the offline durations; 1: exponential")
    amplitude: float = Field(
        ge=0,
        lt=1,
        description="Offline time passes at 1 + amplitude times its mean speed at the peak, and at 1 - amplitude half "
        "a day later",
    )
    peak_hour: float = Field(
        0.0, ge=0, le=24, description="Hour of the client's day at which clients return fastest; time 0 is midnight"
    )
    day_s: float = Field(86400.0, ge=1, description="Length of a day in seconds; a day has 24 hours")
    spread_hours: float = Field(
        0.0, ge=0, le=24, description="Clients' midnights are uniformly random over this many hours (time zones)"
    )


class Traced(AvailabilityModel):
    """Clients follow the devices of an availability trace."""

    model: Literal["trace"] = Field("trace", description="Clients are online when the devices of a trace were")
    path: Path = Field(description="The trace: a file as `testbed trace convert` writes it (.parquet or .csv)")
    assign: Literal["draw", "cycle"] = Field(
        "draw",
        description="draw: each client gets a different device at random (with replacement if there are more clients "
        "than devices); cycle: in the order of the trace, so that client 0 has the first device",
    )
    shift: bool = Field(False, description="Rotate each client's trace by a random time")
    repeat: bool = Field(
        True,
        description="Begin again when the trace is over; false: all clients are offline then. The recording of a "
        "device that covers a part of the trace is repeated over the rest of the trace in both cases",
    )
    start_s: float = Field(0.0, ge=0, description="Seconds after the beginning of the trace at which the run begins")


class Scheduled(AvailabilityModel):
    """Clients are away or drop out exactly as recorded in another run."""

    unread = frozenset({"dropout"})

    model: Literal["schedule"] = Field(
        "schedule", description="Clients are away or drop out in the same rounds and stages as recorded"
    )
    path: Path = Field(description="The schedule: a file as `testbed trace record RUN` writes it (.parquet or .csv)")

    @model_validator(mode="after")
    def _nothing_besides(self) -> Self:
        if self.dropout != Dropout():
            raise ValueError("`dropout` has no effect with a schedule, which has its own dropouts; remove `dropout`")
        return self


class UserDefinedAvailability(AvailabilityModel):
    """A user-defined model: ``Name(section, population, randomness, **options)`` creates an `Availability`."""

    model: Annotated[str, Field(pattern=PLUGIN_NAME, description="A user-defined class, as package.module:Name")]
    options: dict[str, Any] = Field(default_factory=dict, description="Options of a user-defined class")


AvailabilitySection = Annotated[
    Annotated[Always, Tag("always")]
    | Annotated[Bernoulli, Tag("bernoulli")]
    | Annotated[LabelDependent, Tag("label-dependent")]
    | Annotated[Markov, Tag("markov")]
    | Annotated[DiurnalWeibull, Tag("diurnal-weibull")]
    | Annotated[Traced, Tag("trace")]
    | Annotated[Scheduled, Tag("schedule")]
    | Annotated[UserDefinedAvailability, Tag(USER_DEFINED)],
    Discriminator(alternative_by("model", "always")),
]
MODELS: tuple[type[AvailabilityModel], ...] = (
    Always,
    Bernoulli,
    LabelDependent,
    Markov,
    DiurnalWeibull,
    Traced,
    Scheduled,
)
"""The built-in models."""
