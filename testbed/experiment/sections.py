"""Sections of an experiment: which protocols it names, time, cluster, output, records; others are their packages'."""

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
    """A user-defined selection protocol; further keys are handed to it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _ClassName

    def supply(self, population: int, online: float) -> Supply | None:
        """See `SelectionParameters.supply`."""
        return None


class UserDefinedAggregation(AggregationParameters):
    """A user-defined aggregation protocol; further keys are handed to it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _ClassName

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the defaults of built-in protocols: the class may have others."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key in self.model_fields_set}


def _section(built_in: Iterable[Any], own: Any, default: Any) -> Any:
    """The union of the parameters of the protocols built in, told apart by their names, and of a user-defined class."""
    tagged = [Annotated[kind, Tag(_name(kind))] for kind in built_in]
    return Annotated[
        Union[*tagged, Annotated[own, Tag(USER_DEFINED)]], Discriminator(alternative_by("protocol", _name(default)))
    ]


def _name(parameters: Any) -> str:
    return str(parameters.model_fields["protocol"].default)


if TYPE_CHECKING:  # what all of them have; the unions themselves are made of what the catalogues list
    SelectionSection = SelectionParameters
    AggregationSection = AggregationParameters
else:
    SelectionSection = _section(selections.PROTOCOLS, UserDefinedSelection, selections.DEFAULT)
    AggregationSection = _section(aggregations.PROTOCOLS, UserDefinedAggregation, aggregations.DEFAULT)


_COSTS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}, {"type": "string"}]}
)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Time(Section):
    """The clock."""

    former_defaults: ClassVar[Mapping[str, Any]] = {"disconnects": "invisible"}
    """Defaults of earlier versions, which secrets leave out."""

    clock: Literal["virtual", "wall"] = Field(
        "virtual",
        description="virtual: time is computed from links and devices, not waited for; wall: live mode, the real bytes "
        "go through throttled sockets and everything is waited for",
    )
    compute: Literal["measured", "modelled"] = Field(
        "modelled",
        description="Compute time: a cost table (modelled: the same bits anywhere), or thread CPU time of the real "
        "work on this one (measured); on the wall clock, too, it is waited for",
    )
    costs: Annotated[dict[str, Annotated[float, Field(ge=0)]], _COSTS_SCHEMA] = Field(
        default_factory=dict,
        description="Seconds per unit that replace entries of the reference cost table (modelled), or a file of them "
        "as `testbed calibrate` writes it",
    )
    deadline_s: float = Field(60.0, gt=0, description="Seconds that a stage lasts at most")
    stage_deadlines: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="Stages with a deadline of their own, e.g. {lotto/announce: 5}"
    )
    stage_quorums: dict[str, Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="Stages in which the server goes on when enough have answered (over-commitment): a whole number of "
        "clients (1, 2, ...), or a share of those asked with a decimal point (0.8, up to 1.0); the others are late",
    )
    between_rounds_s: float = Field(
        0.0,
        ge=0,
        le=1e9,
        description="Seconds from the end of a round, skipped ones too, to the next; clients may come back",
    )
    disconnects: Literal["visible", "invisible"] = Field(
        "visible",
        description="How the server learns that a client has gone. visible: at once, as from a closed connection; "
        "invisible: only by its silence until the stage's deadline, as behind a mobile network",
    )

    @property
    def work_is_modelled(self) -> bool:
        """Nobody measures or waits for how long work takes here."""
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
    """Where the run happens; no result depends on it (with modelled compute)."""

    hosts: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="Client host processes of a run; auto: one per CPU, shared among runs at the same time"
    )
    clients_per_host: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Clients that a host process holds; with hosts: auto this sets their number"
    )
    gpus_per_host: Literal["auto"] | Annotated[float, Field(ge=0)] = Field(
        "auto", description="GPUs, or the share of one, that a host gets; auto: the cluster's GPUs are divided equally"
    )
    parallel_runs: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="Points of a sweep that run at the same time; auto: as CPUs and memory allow"
    )
    address: str | None = Field(None, description="A running Ray cluster, e.g. auto or HEAD:6379; none: local Ray")
    network: Literal["ray", "in-process"] = Field(
        "ray",
        description="in-process runs everything in this process, for debugging: no Ray, plain stack traces",
    )

    @model_validator(mode="after")
    def _one_number_of_hosts(self) -> "Cluster":
        if self.clients_per_host is not None and self.hosts != "auto":
            raise ValueError("clients_per_host: goes with hosts: auto alone; leave out one of the two")
        return self


OBSERVERS = ("csv", "tensorboard", "mlflow", "wandb")
"""Names of observers; their classes are `testbed.running.observers.catalogue`'s."""
NamedObserver = str | dict[str, Any]


def observer_and_options(entry: NamedObserver) -> tuple[str, dict[str, Any]]:
    """The name of an observer, and its options."""
    if isinstance(entry, str):
        return entry, {}
    return str(entry["name"]), {key: value for key, value in entry.items() if key != "name"}


class Output(Section):
    """What becomes of the records."""

    directory: str | None = Field(
        None,
        min_length=1,
        description="Run directory, or a URI such as s3://bucket/path (the command's --out goes before)",
    )

    observers: list[NamedObserver] = Field(
        default_factory=list,
        exclude_if=lambda observers: not observers,
        description="Where each round is written, too: names, or {name: NAME, OPTION: VALUE}; "
        f"{', '.join(OBSERVERS)}, or package.module:Class (--observe adds to them)",
    )

    @field_validator("observers", mode="before")
    @classmethod
    def _entries(cls, entries: Any) -> Any:
        """One alone is a list of one."""
        return [entries] if isinstance(entries, str | dict) else entries

    @field_validator("observers")
    @classmethod
    def _observers_are_known(cls, entries: list[NamedObserver]) -> list[NamedObserver]:
        for entry in entries:
            if isinstance(entry, dict) and not isinstance(entry.get("name"), str):
                raise ValueError("an entry is a name, or {name: NAME, OPTION: VALUE}")
            name, _ = observer_and_options(entry)
            if name not in OBSERVERS and not re.match(PLUGIN_NAME, name):
                hint = did_you_mean(name, OBSERVERS)
                raise ValueError(f"unknown {name!r}; {hint}allowed: {', '.join(OBSERVERS)}, or package.module:Class")
        names = [observer_and_options(entry)[0] for entry in entries]
        if len(set(names)) < len(names):
            raise ValueError(f"duplicate {next(name for name in names if names.count(name) > 1)}")
        return entries

    @field_validator("directory", mode="before")
    @classmethod
    def _without_secrets(cls, directory: Any) -> Any:
        if isinstance(directory, str | Path):
            return str(path_or_uri(directory))
        return directory


_Round = Annotated[int, Field(ge=1)]


# Unlike `Output`, which says where, it must stay as it is when a run is resumed: its records would have gaps.
class RecordsSection(Section):
    """What is recorded beside the tables of the rounds."""

    clients: bool = Field(
        True, description="The table of what each client is like; 10^7 clients have 300 MB, which false saves"
    )
    aggregates: Literal["none", "all"] | tuple[_Round, _Round] = Field(
        "none",
        description="Rounds whose model and mean update the records keep, what a server sees and `testbed attack` "
        "needs: none, all, or [first, last]; 12 bytes a parameter and round",
    )

    @field_validator("aggregates", mode="before")
    @classmethod
    def _one_of_three(cls, rounds: Any) -> Any:
        if isinstance(rounds, list | tuple) and len(rounds) != 2:
            raise ValueError(f"{list(rounds)}; allowed: none, all, or [first, last], two rounds")
        return tuple(rounds) if isinstance(rounds, list) else rounds  # strict validation takes no list for a tuple

    def check(self, rounds: int) -> None:
        """`ValueError` for rounds that the run does not have."""
        if isinstance(self.aggregates, tuple) and not self.aggregates[0] <= self.aggregates[1] <= rounds:
            first, last = self.aggregates
            raise ValueError(f"aggregates: [{first}, {last}]; allowed: 1 <= first <= last <= rounds = {rounds}")

    def keeps(self, round_number: int) -> bool:
        """Whether this round is asked for."""
        if isinstance(self.aggregates, tuple):
            return self.aggregates[0] <= round_number <= self.aggregates[1]
        return self.aggregates == "all"
