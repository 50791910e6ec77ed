"""The experiment's schema: one pydantic model, whose JSON schema editors use (`testbed schema`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

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

from testbed.adversary.section import AdversarySection, name_of
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.aggregation.ring_elements import noise_of
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.emulation.availability import Always, AvailabilitySection
from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.emulation.compute.cost_files import read_costs
from testbed.emulation.devices import Devices
from testbed.emulation.links import Links
from testbed.errors import TestbedError
from testbed.experiment.records_section import RecordsSection
from testbed.files.uris import path_or_uri
from testbed.plugins.classes import OWN, PLUGIN_NAME, alternative_by
from testbed.privacy.section import NEEDS_LOSSES, PrivacySection
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomParameters
from testbed.workload.section import WorkloadSection

_OwnName = Annotated[str, Field(pattern=PLUGIN_NAME, description="A user-defined class, as package.module:Name")]


class OwnSelection(SelectionParameters):
    """A user-defined selection protocol; further keys are handed to it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _OwnName


class OwnAggregation(AggregationParameters):
    """A user-defined aggregation protocol; further keys are handed to it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    protocol: _OwnName

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the defaults of built-in protocols: the class may have others."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key in self.model_fields_set}


def _section(built_in: Iterable[Any], own: Any, default: str) -> Any:
    """The union of the parameters of the protocols built in, told apart by their names, and of a user-defined class."""
    tagged = [Annotated[kind, Tag(str(kind.model_fields["protocol"].default))] for kind in built_in]
    return Annotated[Union[*tagged, Annotated[own, Tag(OWN)]], Discriminator(alternative_by("protocol", default))]


if TYPE_CHECKING:  # what all of them have; the unions themselves are made of what the catalogues list
    SelectionSection = SelectionParameters
    AggregationSection = AggregationParameters
else:
    SelectionSection = _section(selections.PROTOCOLS, OwnSelection, "random")
    AggregationSection = _section(aggregations.PROTOCOLS, OwnAggregation, "secagg")


_COSTS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}, {"type": "string"}]}
)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Time(_Section):
    """The clock."""

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
        "invisible",
        description="Does the server learn at once that a client has gone, or only by its silence?",
    )

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
    def _known(cls, costs: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(costs) - set(REFERENCE_COSTS))
        if unknown:
            raise ValueError(f"unknown operation {unknown[0]!r}; allowed: {', '.join(sorted(REFERENCE_COSTS))}")
        return costs


class Cluster(_Section):
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


class Output(_Section):
    """What becomes of the records."""

    directory: str | None = Field(
        None,
        min_length=1,
        description="Run directory, or a URI such as s3://bucket/path (the command's --out goes before)",
    )

    @field_validator("directory", mode="before")
    @classmethod
    def _without_secrets(cls, directory: Any) -> Any:
        if isinstance(directory, str | Path):
            return str(path_or_uri(directory))
        return directory


class Experiment(_Section):
    """A federation and what to do with it."""

    name: str = Field("experiment", min_length=1, max_length=100, description="Appears in tables and pictures")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Same seed (and modelled compute): same bytes. Without: protocol secrets from the operating system",
    )
    rounds: int = Field(10, gt=0, le=10_000_000, description="Rounds of training")
    population: int = Field(100, gt=0, le=10_000_000, description="Number of clients (n)")
    on_crash: Literal["stop", "drop"] = Field(
        "stop",
        description="When a client's code crashes (a bug, not a refusal): stop ends the run, --resume goes on with it; "
        "drop loses the client for the stage, and the tables count the crashes",
    )
    workload: WorkloadSection = Field(default_factory=WorkloadSection, description="What the clients learn")
    selection: SelectionSection = Field(default_factory=RandomParameters, description="Who takes part")
    aggregation: AggregationSection = Field(default_factory=SecAggParameters, description="How updates become one")
    links: Links = Field(default_factory=Links, description="Bandwidth and latency")
    devices: Devices = Field(default_factory=Devices, description="How fast the clients compute")
    availability: AvailabilitySection = Field(default_factory=Always, description="Who is there")
    adversary: AdversarySection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Dishonest clients, and what they and a malicious server do; none: everybody is honest",
    )
    privacy: PrivacySection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="How the privacy ledger accounts, and a budget; none: the defaults, where noise is added at all",
    )
    time: Time = Field(default_factory=Time, description="The clock")
    cluster: Cluster = Field(default_factory=Cluster, description="Where it runs")
    output: Output = Field(default_factory=Output, description="Where records go")
    records: RecordsSection = Field(
        default_factory=RecordsSection,
        exclude_if=lambda section: section == RecordsSection(),
        description="What is recorded beyond the tables",
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="A grid: keys (dotted) and their values; a mapping is merged into the section it names; another "
        "protocol drops the keys that it does not have",
    )
    provenance: dict[str, Any] | None = Field(None, description="Written by the testbed into a run's directory")

    @model_validator(mode="after")
    def _fits_together(self) -> "Experiment":
        if self.sweep:
            return self  # its points are checked one by one
        ledger = self.privacy or PrivacySection()
        planned = self.aggregation.planned_for(self.rounds, ledger.delta_for(self.population))
        # The one attribute set on a frozen model, before anybody has it: `Experiment(...)` takes no other result.
        object.__setattr__(self, "aggregation", planned)
        try:
            section = "selection"
            self.selection.check(self.population)
            section = "aggregation"
            self.aggregation.check(self.selection.participants)
            self.aggregation.check_experiment(self.selection, self.workload)
            section = "availability"
            self.availability.check(self.population)
            section = "adversary"
            if self.adversary is not None:
                self.adversary.check(self.population, self.selection.protocol, self.aggregation.protocol)
            section = "privacy"
            self._check_reports(ledger.report_losses)
            section = "records"
            self.records.check(self.rounds)
            section = "workload"
            if self.workload.training == "simulated" and self.time.compute != "modelled":
                raise ValueError("training: simulated costs no time that could be measured; set time.compute: modelled")
        except ValueError as error:
            raise ValueError(f"{section}.{error}") from None
        return self

    def _check_reports(self, allowed: bool) -> None:
        """Losses and counts beside noise leave the clients only where the experiment says so."""
        if isinstance(self.aggregation, RandomParticipationParameters):
            if allowed:
                raise ValueError(
                    f"report_losses: clients never report any under {self.aggregation.protocol}; leave it out"
                )
            return
        if allowed or noise_of(self.aggregation) is None:
            return
        if needs := self.selection.by_losses:
            raise ValueError(f"report_losses: false, but selection.{needs} {NEEDS_LOSSES}")
        named = [] if self.adversary is None else [name_of(one) for one in self.adversary.clients]
        if "inflate-utility" in named:
            raise ValueError(
                "report_losses: false, so that no losses leave the clients, and adversary.clients: inflate-utility has "
                "none to lie about; set privacy.report_losses: true, or leave it out"
            )

    def plain(self) -> dict[str, Any]:
        """As plain data that YAML can hold, every default written out."""
        return self.model_dump(mode="json")
