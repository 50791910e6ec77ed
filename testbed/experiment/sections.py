"""Sections of an experiment for protocols, time, cluster, output and records; other packages define the others."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters
from testbed.emulation.compute.cost import REFERENCE_COSTS, read_costs
from testbed.errors import TestbedError
from testbed.files.names import path_or_uri
from testbed.plugins.classes import PLUGIN_NAME, USER_DEFINED, alternative_by
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters
from testbed.selection.supply import Supply
from testbed.spelling import did_you_mean

_ClassName = Annotated[str, Field(pattern=PLUGIN_NAME, description="A user-defined class, as package.module:Name")]


class UserDefinedSelection(SelectionParameters):
    """User-defined selection protocol, which gets all further keys."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _ClassName

    def supply(self, population: int, online: float) -> Supply | None:
        """Return None: a user-defined protocol's needs are unknown here."""
        return None


class UserDefinedAggregation(AggregationParameters):
    """User-defined aggregation protocol, which gets all further keys."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _ClassName

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the defaults of built-in protocols: the class may have others."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key in self.model_fields_set}


def _section(built_in: Iterable[Any], own: Any, default: Any) -> Any:
    """Return the union of all protocols' parameters, discriminated by ``protocol``."""
    tagged = [Annotated[kind, Tag(_name(kind))] for kind in built_in]
    return Annotated[
        Union[*tagged, Annotated[own, Tag(USER_DEFINED)]], Discriminator(alternative_by("protocol", _name(default)))
    ]


def _name(parameters: Any) -> str:
    return str(parameters.model_fields["protocol"].default)


if TYPE_CHECKING:  # the base classes; the unions are made of the catalogues at run time
    SelectionSection = SelectionParameters
    AggregationSection = AggregationParameters
else:
    SelectionSection = _section(selections.PROTOCOLS, UserDefinedSelection, selections.DEFAULT)
    AggregationSection = _section(aggregations.PROTOCOLS, UserDefinedAggregation, aggregations.DEFAULT)


_COSTS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}, {"type": "string"}]}
)


class Section(BaseModel):
    """Base of the sections: frozen, without unknown keys, infinities or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Time(Section):
    """Clock, compute times, deadlines and quorums."""

    former_defaults: ClassVar[Mapping[str, Any]] = {"disconnects": "invisible"}
    """Defaults of earlier versions, which secrets leave out."""

    clock: Literal["virtual", "wall"] = Field(
        "virtual",
        description="virtual (default): time is computed from links and devices, without waiting; wall: live mode, "
        "which sends the real bytes through throttled sockets in real time",
    )
    compute: Literal["measured", "modelled"] = Field(
        "modelled",
        description="Compute times. modelled (default): from a cost table, the same on every machine; measured: thread "
        "CPU time of the real work on this machine. The wall clock waits for both",
    )
    costs: Annotated[dict[str, Annotated[float, Field(ge=0)]], _COSTS_SCHEMA] = Field(
        default_factory=dict,
        description="Entries that replace those of the reference cost table of modelled compute, in seconds per unit; "
        "or a file of them, as `testbed calibrate` writes",
    )
    deadline_s: float = Field(60.0, gt=0, description="Longest duration of a stage, in seconds")
    stage_deadlines: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Deadlines of single stages, in seconds, e.g. {lotto/announce: 5}; others have deadline_s",
    )
    stage_quorums: dict[str, Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="Answers after which the server ends a stage early (over-selection), by stage: a whole number of "
        "clients (1, 2, ...), or with a decimal point a share of the clients asked (0.8, up to 1.0); later answers "
        "are stragglers'. Default: the server waits for all answers or the deadline",
    )
    between_rounds_s: float = Field(
        0.0,
        ge=0,
        le=1e9,
        description="Seconds from the end of a round, completed or skipped, to the next, in which clients may come "
        "back online",
    )
    disconnects: Literal["visible", "invisible"] = Field(
        "visible",
        description="Time at which the server notices a dropout. visible (default): at once, as from a closed "
        "connection; invisible: at the stage's deadline, as behind a mobile network",
    )

    @property
    def work_is_modelled(self) -> bool:
        """Whether work takes modelled time only, without measuring or waiting."""
        return self.compute == "modelled" and self.clock == "virtual"

    @field_validator("costs", mode="before")
    @classmethod
    def _from_file(cls, costs: Any) -> Any:
        if not isinstance(costs, str):
            return costs
        try:
            return read_costs(Path(costs))
        except TestbedError as error:
            raise ValueError(str(error)) from None

    @field_validator("costs")
    @classmethod
    def _operations_are_known(cls, costs: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(costs) - set(REFERENCE_COSTS))
        if unknown:
            raise ValueError(f"unknown operation {unknown[0]!r}; allowed: {', '.join(sorted(REFERENCE_COSTS))}")
        return costs


class Cluster(Section):
    """Processes and machines of the run; with modelled compute no result depends on them."""

    hosts: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="Client host processes of a run; auto: one per CPU, divided among simultaneous runs"
    )
    clients_per_host: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="Clients per host process, from which hosts: auto derives the number of processes. Unset: one "
        "process per CPU",
    )
    gpus_per_host: Literal["auto"] | Annotated[float, Field(ge=0)] = Field(
        "auto", description="GPUs per host, or a share of a GPU; auto: the cluster's GPUs are divided equally"
    )
    parallel_runs: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="Points of a sweep that run at the same time; auto: as many as CPUs and memory allow"
    )
    address: str | None = Field(
        None, description="Address of a running Ray cluster, e.g. auto or HEAD:6379. Unset: Ray on this machine"
    )
    network: Literal["ray", "in-process"] = Field(
        "ray",
        description="ray (default): clients in host processes; in-process: everything in one process, for debugging, "
        "without Ray and with plain stack traces",
    )

    @model_validator(mode="after")
    def _one_number_of_hosts(self) -> "Cluster":
        if self.clients_per_host is not None and self.hosts != "auto":
            raise ValueError("clients_per_host: needs hosts: auto; leave out one of the two")
        return self


OBSERVERS = ("csv", "tensorboard", "mlflow", "wandb")
"""Names of observers; `testbed.running.observers.catalogue` has their classes."""
NamedObserver = str | dict[str, Any]


def observer_and_options(entry: NamedObserver) -> tuple[str, dict[str, Any]]:
    """Return the name of an observer and its options."""
    if isinstance(entry, str):
        return entry, {}
    return str(entry["name"]), {key: value for key, value in entry.items() if key != "name"}


class Output(Section):
    """Destination of the records."""

    directory: str | None = Field(
        None,
        min_length=1,
        description="Run directory, or a URI such as s3://bucket/path; the command's --out overrides it. Unset: --out "
        "is required",
    )

    observers: list[NamedObserver] = Field(
        default_factory=list,
        exclude_if=lambda observers: not observers,
        description="Observers that also get each round, as names or {name: NAME, OPTION: VALUE}: "
        f"{', '.join(OBSERVERS)}, or package.module:Class (--observe adds more). Default: none",
    )

    @field_validator("observers", mode="before")
    @classmethod
    def _entries(cls, entries: Any) -> Any:
        """Accept a single observer without a list."""
        return [entries] if isinstance(entries, str | dict) else entries

    @field_validator("observers")
    @classmethod
    def _observers_are_known(cls, entries: list[NamedObserver]) -> list[NamedObserver]:
        for entry in entries:
            if isinstance(entry, dict) and not isinstance(entry.get("name"), str):
                raise ValueError("an entry must be a name, or {name: NAME, OPTION: VALUE}")
            name, _ = observer_and_options(entry)
            if name not in OBSERVERS and not re.match(PLUGIN_NAME, name):
                hint = did_you_mean(name, OBSERVERS)
                raise ValueError(f"unknown {name!r}; {hint}allowed: {', '.join(OBSERVERS)}, or package.module:Class")
        names = [observer_and_options(entry)[0] for entry in entries]
        if len(set(names)) < len(names):
            raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is listed twice; remove one")
        return entries

    @field_validator("directory", mode="before")
    @classmethod
    def _without_secrets(cls, directory: Any) -> Any:
        if isinstance(directory, str | Path):
            return str(path_or_uri(directory))
        return directory


_Round = Annotated[int, Field(ge=1)]


# Unlike `Output`, this section must not change when a run is resumed: its records would have gaps.
class RecordsSection(Section):
    """Records besides the tables of the rounds."""

    clients: bool = Field(
        True,
        description="Whether to record the table of the clients' properties (link, device, samples), about 300 MB for "
        "10^7 clients",
    )
    aggregates: Literal["none", "all"] | tuple[_Round, _Round] = Field(
        "none",
        description="Rounds in which the model and the mean update are recorded, as a server sees them and `testbed "
        "attack` needs them: none (default), all, or [first, last]. 12 bytes per parameter and round",
    )

    @field_validator("aggregates", mode="before")
    @classmethod
    def _one_of_three(cls, rounds: Any) -> Any:
        if isinstance(rounds, list | tuple) and len(rounds) != 2:
            raise ValueError(f"{list(rounds)}; allowed: none, all, or two rounds, [first, last]")
        return tuple(rounds) if isinstance(rounds, list) else rounds  # strict validation takes no list for a tuple

    def check(self, rounds: int) -> None:
        """Raise `ValueError` for rounds that the run does not have."""
        if isinstance(self.aggregates, tuple) and not self.aggregates[0] <= self.aggregates[1] <= rounds:
            first, last = self.aggregates
            raise ValueError(f"aggregates: [{first}, {last}]; allowed: 1 <= first <= last <= rounds = {rounds}")

    def keeps(self, round_number: int) -> bool:
        """Return whether this round's model and mean update are recorded."""
        if isinstance(self.aggregates, tuple):
            return self.aggregates[0] <= round_number <= self.aggregates[1]
        return self.aggregates == "all"
