"""The experiment's `availability` section: one alternative for each model, told apart by `model`."""

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
# Below a hundredth of a second the clock would do nothing but follow clients that come and go.
MeanDuration = Annotated[float, Field(ge=0.01)]
# Beyond, the mean lies so far from nearly all durations that it describes none.
Shape = Annotated[float, Field(ge=0.1, le=10)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DropOut(_Section):
    """Clients that leave in the middle of a round; with any model."""

    rate: Probabilities = Field(
        0.0, description="Probability that a client leaves during a round it takes part in; a list is cycled"
    )
    stage: str = Field(
        "random",
        description="Stage in which those of `rate` leave, e.g. 'secagg/masked-input'; 'random': any stage after "
        "selection",
    )
    hazard: Hazard = Field(
        0.0,
        description="Probability that a client leaves in a stage, drawn anew in each: one number for every stage "
        "after selection, or stages with their probabilities, e.g. {train: 0.2}",
    )


class AvailabilityModel(_Section):
    """What the section has with every model."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Keys of the section that mean nothing with this model; they go when an override sets the model."""

    dropout: DropOut = Field(default_factory=DropOut, description="Clients that leave during the round")
    model: str

    def per_client(self) -> dict[str, float | list[float]]:
        """Keys whose value may be a list that is given to the clients in turn, and their values."""
        return {"dropout.rate": self.dropout.rate}

    def check(self, population: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) when a list is longer than the population."""
        for key, value in self.per_client().items():
            if isinstance(value, list) and len(value) > population:
                raise ValueError(
                    f"{key}: a list of {len(value)} values for a population of {population}; at most {population}"
                )


class Always(AvailabilityModel):
    """Everybody is there, except for drop-outs."""

    model: Literal["always"] = Field("always", description="Everybody is there in every round")

    @model_validator(mode="before")
    @classmethod
    def _nobody_unavailable(cls, data: Any) -> Any:
        """Experiments written out before models had keys of their own say `unavailable: 0.0` here."""
        if isinstance(data, dict) and "unavailable" in data:
            if isinstance(data["unavailable"], bool) or data["unavailable"] != 0:
                raise ValueError("`unavailable` has an effect only with `model: bernoulli`; set that or remove it")
            return {key: value for key, value in data.items() if key != "unavailable"}
        return data


class Bernoulli(AvailabilityModel):
    """Each client is away in a round with a probability of its own (Multi-RoundSecAgg, section 5: drawn from 0.1, 0.2,
    0.3, 0.4 and 0.5).
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
        description="Each client's probability is drawn from the list, any of it as likely, by the seed; false: the "
        "list is given to the clients in turn",
    )

    @model_validator(mode="after")
    def _drawn_from_a_list(self) -> Self:
        if self.drawn and not isinstance(self.unavailable, list):
            raise ValueError("`drawn` has an effect only where `unavailable` is a list; give one or remove it")
        return self

    def per_client(self) -> dict[str, float | list[float]]:
        return {"unavailable": self.unavailable, **super().per_client()}


class LabelDependent(AvailabilityModel):
    """Who is there depends on what data it has (first version of Multi-RoundSecAgg, experiments, non-IID setting)."""

    model: Literal["label-dependent"] = Field(
        "label-dependent",
        description="Each client is away in a round with a probability that grows with its most frequent label, "
        "samples that all clients share (workload.partition.shared_samples) aside",
    )
    lowest: Probability = Field(0.1, description="Probability of being away for a round with label 0")
    highest: Probability = Field(0.5, description="Probability of being away with the last label; linear in between")


class Markov(AvailabilityModel):
    """Clients come and go at random, whatever happened before (two states, continuous time)."""

    model: Literal["markov"] = Field(
        "markov", description="Clients come and go; exponential durations, in equilibrium from the start"
    )
    mean_online_s: MeanDuration = Field(description="Mean seconds that a client stays online")
    mean_offline_s: MeanDuration = Field(description="Mean seconds that a client stays offline")


class DiurnalWeibull(AvailabilityModel):
    """Clients come and go with Weibull durations, and come back faster at some hours of the day.

    Weibull: D. Nurmi, J. Brevik, R. Wolski, "Modeling Machine Availability in Enterprise and Wide-Area Distributed
    Computing Environments", Euro-Par 2005; B. Javadi, D. Kondo, J.-M. Vincent, D. P. Anderson, "Discovering
    Statistical Models of Availability in Large Distributed Systems", IEEE TPDS 22(11), 2011. Devices of a federation
    follow the day: K. Bonawitz et al., "Towards Federated Learning at Scale", MLSys 2019.
    """

    model: Literal["diurnal-weibull"] = Field(
        "diurnal-weibull", description="Clients come and go; Weibull durations, and the rhythm of the day"
    )
    mean_online_s: MeanDuration = Field(description="Mean seconds that a client stays online")
    mean_offline_s: MeanDuration = Field(
        description="Mean seconds that a client stays offline, without the rhythm of the day"
    )
    online_shape: Shape = Field(1.0, description="Weibull shape of the online durations; 1: exponential")
    offline_shape: Shape = Field(1.0, description="Weibull shape of the offline durations; 1: exponential")
    amplitude: float = Field(
        ge=0,
        lt=1,
        description="Time offline passes at 1 + amplitude times its mean speed at the peak, at 1 - amplitude half a "
        "day later",
    )
    peak_hour: float = Field(
        0.0, ge=0, le=24, description="Hour of the client's day at which clients come back fastest; time 0 is midnight"
    )
    day_s: float = Field(86400.0, ge=1, description="Seconds of a day (24 hours, whatever its length)")
    spread_hours: float = Field(
        0.0, ge=0, le=24, description="Clients' midnights lie evenly at random over this many hours (time zones)"
    )


class Traced(AvailabilityModel):
    """Clients follow the devices of a trace."""

    model: Literal["trace"] = Field("trace", description="Clients are online when the devices of a trace were")
    path: Path = Field(description="The trace: a file as `testbed trace convert` writes it (.parquet or .csv)")
    assign: Literal["draw", "cycle"] = Field(
        "draw",
        description="draw: each client gets a device of its own at random (with more clients than devices: with "
        "replacement); cycle: in turn, in the order of the trace, so that client 0 is its first",
    )
    shift: bool = Field(False, description="Turn each client's trace by a random time (it is a circle)")
    repeat: bool = Field(
        True,
        description="Begin again when the trace is over; otherwise nobody is online then. A device that was "
        "recorded for a part of the trace does the same again in the rest of it, either way",
    )
    start_s: float = Field(0.0, ge=0, description="Seconds after the trace's begin at which the run begins")


class Scheduled(AvailabilityModel):
    """What happened in another run happens again, and nothing else."""

    unread = frozenset({"dropout"})

    model: Literal["schedule"] = Field(
        "schedule", description="The same clients are away or drop out in the same rounds and stages as recorded"
    )
    path: Path = Field(description="The schedule: a file as `testbed trace record RUN` writes it (.parquet or .csv)")

    @model_validator(mode="after")
    def _nothing_besides(self) -> Self:
        if self.dropout != DropOut():
            raise ValueError("a schedule says who drops out; remove `dropout`")
        return self


class UserDefinedAvailability(AvailabilityModel):
    """A user-defined model: ``Name(section, population, randomness, **options)`` makes an `Availability`."""

    model: Annotated[str, Field(pattern=PLUGIN_NAME, description="A user-defined class, as package.module:Name")]
    options: dict[str, Any] = Field(default_factory=dict, description="Options that your class declares")


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
"""The built-in ones."""
