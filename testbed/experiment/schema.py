"""The experiment: one pydantic model, whose JSON schema editors use (`testbed schema`), and the points of its sweep.

A name of a stage that the protocols of an experiment do not have would silently have no effect, so it is refused. In a
sweep the protocols differ. Where clients drop out must be a stage of each point, or that point would lose nobody and be
compared with others that do. A deadline or a quorum may be of a stage that only other points have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from testbed.adversary.catalogue import CLIENTS, SERVER
from testbed.adversary.section import AdversarySection
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters, uses_symbolic_masks
from testbed.emulation.availability import Always, AvailabilitySection
from testbed.emulation.client_classes import MOST_CLASSES, ClientClass, check_classes
from testbed.emulation.devices import Devices
from testbed.emulation.links import Links
from testbed.errors import ExperimentError
from testbed.experiment.asynchronous import Asynchronous, without_unwritten
from testbed.experiment.compatibility import check_exclusions, check_reported_losses
from testbed.experiment.goals import StopAt, TargetText, check_goals, listed
from testbed.experiment.plugin_names import resolved
from testbed.experiment.reading import apply_override, grid, read_yaml, set_key
from testbed.experiment.sections import (
    AggregationSection,
    Cluster,
    Output,
    RecordsSection,
    Section,
    SelectionSection,
    Time,
)
from testbed.experiment.swept_protocols import Keys, LeftOut, hinting, leave_out, with_fitting_protocols, with_keys
from testbed.experiment.validation import as_plain_data, one_line_each, validated_as
from testbed.messages import MOST_CLIENTS
from testbed.privacy.section import PrivacySection
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters
from testbed.spelling import did_you_mean
from testbed.workload.section import WorkloadSection

_ALWAYS = "train"
_WITH_AN_ADVERSARY = "adversary/"
RANDOM = "random"  # availability.dropout.stage: any stage after selection


class Experiment(Section):
    """A federation and what to do with it."""

    name: str = Field("experiment", min_length=1, max_length=100, description="Appears in tables and pictures")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Same seed (and modelled compute): same bytes. Without: protocol secrets from the operating system",
    )
    rounds: int = Field(10, gt=0, le=10_000_000, description="Rounds of training")
    population: int = Field(
        100,
        gt=0,
        le=MOST_CLIENTS,
        description="Number of clients (n), as many as the memory holds: `testbed validate` warns where it cannot",
    )
    on_crash: Literal["stop", "drop"] = Field(
        "stop",
        description="When a client's code crashes (a bug, not a refusal): stop ends the run, which --resume resumes; "
        "drop loses the client for the stage, and the tables count the crashes",
    )
    targets: Annotated[tuple[TargetText, ...], Field(max_length=100), BeforeValidator(listed)] = Field(
        (),
        exclude_if=lambda targets: not targets,
        description="What the model is to reach, e.g. [80%, loss<0.5] or {accuracy: 0.8, macro-f1: 0.6}: the tables "
        "and summary.json say when it has",
    )
    stop_at: StopAt | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="A target that ends the run after the round whose evaluation meets it",
    )
    workload: WorkloadSection = Field(default_factory=WorkloadSection, description="What the clients learn")
    selection: SelectionSection = Field(default_factory=selections.DEFAULT, description="Who takes part")
    aggregation: AggregationSection = Field(default_factory=aggregations.DEFAULT, description="How updates become one")
    links: Links = Field(default_factory=Links, description="Bandwidth and latency")
    devices: Devices = Field(default_factory=Devices, description="How fast the clients compute")
    classes: Annotated[dict[str, ClientClass], Field(max_length=MOST_CLASSES)] = Field(
        default_factory=dict,
        exclude_if=lambda classes: not classes,
        description="Classes of clients by name, e.g. phone-4g, whose links and devices differ together",
    )
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
    asynchronous: Asynchronous | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Clients train all the time, and a round is a buffer of updates (FedBuff); none: rounds in which "
        "the server waits for its participants",
    )
    time: Time = Field(default_factory=Time, description="The clock")
    cluster: Cluster = Field(default_factory=Cluster, description="Where it runs")
    output: Output = Field(default_factory=Output, description="Where records go")
    records: RecordsSection = Field(
        default_factory=RecordsSection,
        exclude_if=lambda section: section == RecordsSection(),
        description="What is recorded beside the tables of the rounds",
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="A grid: keys (dotted) and their values; a mapping is merged into the section it names; another "
        "protocol drops the keys that it does not have; label: beside the keys of a value (or beside value:, if it is "
        "no mapping) names it in tables, figures and directories",
    )
    provenance: dict[str, Any] | None = Field(None, description="Written by the testbed into a run's directory")
    _set_apart: Keys = PrivateAttr(default_factory=dict)  # that only some of the swept protocols have

    if not TYPE_CHECKING:  # types come from the fields

        def __init__(self, **sections):
            """Raises `ExperimentError`: one line per mistake, with its key, as the command says it."""
            sections = as_plain_data(sections, "Experiment")
            fitting, apart = with_fitting_protocols(resolved(sections, "Experiment"), "Experiment")
            try:
                super().__init__(**fitting)
            except ValidationError as error:
                raise one_line_each(error, sections, type(self), "Experiment") from None
            self._set_apart = apart

        __init__.__pydantic_base_init__ = True  # pydantic's own way around: what is read is validated strictly

    @model_serializer(mode="wrap")
    def _with_keys_set_apart(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return with_keys(handler(self), self._set_apart)

    @model_validator(mode="after")
    def _fits_together(self) -> "Experiment":
        if self.sweep:
            return self  # its points are checked one by one
        ledger = self.privacy or PrivacySection()
        planned = self.aggregation.planned_for(self.rounds, ledger.delta_for(self.population))
        links = self.links
        if self.asynchronous is not None:
            links, planned = without_unwritten(links, planned)
        # The attributes set on a frozen model, before anybody has it: `Experiment(...)` takes no other result.
        object.__setattr__(self, "aggregation", planned)
        object.__setattr__(self, "links", links)
        try:
            section = "selection"
            self.selection.check(self.population)
            section = "aggregation"
            self.aggregation.check_population(self.population)
            self.aggregation.check(self.selection.participants)
            object.__setattr__(self, "aggregation", planned.planned_under(self.selection, self.population, self.rounds))
            self.aggregation.check_experiment(self.selection, self.workload)
            uses_symbolic_masks(self.aggregation, self.time.work_is_modelled)
            section = "classes"
            check_classes(self.classes, self.links, self.population)
            section = "availability"
            self.availability.check(self.population)
            section = "adversary"
            if self.adversary is not None:
                self.adversary.check(self.population, self.selection.protocol, self.aggregation.protocol)
            section = "privacy"
            check_reported_losses(ledger.report_losses, self.selection, self.aggregation)
            if ledger.canaries is not None:
                dishonest = 0 if self.adversary is None else self.adversary.number_of(self.population)
                ledger.canaries.check(self.population, self.population - dishonest)
            section = "records"
            self.records.check(self.rounds)
        except ValueError as error:
            raise ValueError(f"{section}.{error}") from None
        check_exclusions(self)
        if self.asynchronous is not None:
            self.asynchronous.check(self.population, self.selection, self.aggregation)
        check_goals(self.targets, self.stop_at, self.workload)
        return self

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Experiment":
        """The validated experiment in a YAML file, with overrides such as ``selection.participants=20`` applied.

        Every point of a sweep is validated too. Raises `ExperimentError`: one line per mistake, with file and key path.
        """
        where = str(path)
        if isinstance(overrides, str | Mapping):
            raise ExperimentError(f"{where}: overrides: should be a list such as ['rounds=3'], not {overrides!r}")
        data = read_yaml(Path(path))
        for override in overrides:
            apply_override(data, override)
        experiment = validated(data, where)
        check_points([(point.where(where), point.experiment) for point in points(experiment, where)])
        return experiment

    def plain(self) -> dict[str, Any]:
        """As plain data that YAML can hold, every default written out."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Point:
    """One experiment of a sweep.

    Attributes:
        label: names it among the points, and its directory; empty when there is no sweep.
        values: the swept keys and their values here.
        experiment: without its sweep.
        names: of the values that the sweep names, by their keys.
        left_out: keys of the experiment that this point's protocols do not have.
    """

    label: str
    values: dict[str, Any]
    experiment: Experiment
    names: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    def where(self, file: str) -> str:
        """What errors of this point begin with."""
        return f"{file}: sweep point {self.label}" if self.label else file


def validated(data: dict[str, Any], where: str) -> Experiment:
    """Plain data as an experiment; `where` (the file, or what else they come from) begins each line of the error."""
    fitting, apart = with_fitting_protocols(resolved(data, where), where)
    experiment = validated_as(Experiment, fitting, where)
    experiment._set_apart = apart
    return experiment


load = Experiment.load


def points(experiment: Experiment, where: str) -> Iterator[Point]:
    """The experiment's points, in the order of the file.

    A value that is a mapping is merged into the section that its key names; any other value replaces what is there.

    Raises:
        ExperimentError: for a point that does not hold, a grid of too many points, or the same point twice.
    """
    if not experiment.sweep:
        yield Point("", {}, experiment)
        return
    base = experiment.model_dump(mode="json", exclude_unset=True)
    base.pop("sweep")
    for point in grid(experiment.sweep, where):
        data = deepcopy(base)
        for key, value in point.values.items():
            set_key(data, key, deepcopy(value), f"{where}: sweep.{key}")
        left_out = leave_out(data, base, experiment.sweep, point.values)
        with hinting(base, experiment.sweep):
            experiment_of_point = validated(data, f"{where}: sweep point {point.label}")
        yield Point(point.label, point.values, experiment_of_point, point.names, tuple(left_out))


def known_stages() -> set[str]:
    """The stages of all questions that a built-in protocol asks, or a built-in misbehaviour."""
    protocols: tuple[type[SelectionParameters] | type[AggregationParameters], ...]
    protocols = (*selections.PROTOCOLS, *aggregations.PROTOCOLS)
    declared = [stage for kind in protocols for stage in (*kind.stages, *kind.further_stages)]
    return {*declared, _ALWAYS, *(stage for kind in (*SERVER, *CLIENTS) for stage in kind.added_stages)}


def stages_of(experiment: Experiment) -> tuple[str, ...] | None:
    """The stages of a round, in order; None where a protocol is a user-defined class, which is not imported."""
    selection, aggregation = (section.stages_of_round() for section in (experiment.selection, experiment.aggregation))
    if not selection or not aggregation:
        return None
    return (*(selection if experiment.asynchronous is None else ()), _ALWAYS, *aggregation)


def check_points(
    experiments: Sequence[tuple[str, Experiment]],
    stages: Callable[[Experiment], tuple[str, ...] | None] = stages_of,
) -> None:
    """Raise `ExperimentError` for a stage that the protocols of a point, or of all points, do not have.

    Args:
        experiments: all points of a sweep, or the one experiment, each with what its errors begin with.
        stages: of a point; None: not known, so its names are left unchecked.
    """
    stages_by_point = [stages(experiment) for _, experiment in experiments]
    everywhere = None if None in stages_by_point else {stage for several in stages_by_point for stage in several or ()}
    for (where, experiment), own in zip(experiments, stages_by_point, strict=True):
        if own is None:
            continue
        try:
            check_stages(experiment, own, everywhere)
        except ExperimentError as error:
            raise ExperimentError(f"{where}: {error}") from None


def check_stages(experiment: Experiment, stages: Iterable[str], elsewhere: Iterable[str] | None = None) -> None:
    """Raise `ExperimentError` for the name of a stage that this experiment does not have.

    Args:
        experiment: one point; what names stages (drop-out, deadlines and quorums).
        stages: of its protocols, in order.
        elsewhere: stages of the other points of its sweep; None: not known, so any stage of a built-in protocol passes
            where a deadline or a quorum names it.
    """
    stages = tuple(dict.fromkeys(stages))
    built_in = known_stages()
    if experiment.adversary is not None and experiment.adversary.server:  # an honest server asks none of them
        stages += tuple(sorted(stage for stage in built_in if stage.startswith(_WITH_AN_ADVERSARY)))
    any_point = tuple(dict.fromkeys((*stages, *sorted(built_in if elsewhere is None else elsewhere))))
    shown = stages if elsewhere is None else any_point
    dropout = experiment.availability.dropout
    if dropout.stage != RANDOM:
        _check("availability.dropout.stage", dropout.stage, stages, (RANDOM, *stages), experiment)
    if isinstance(dropout.hazard, dict) and dropout.hazard:
        for stage in dropout.hazard:
            _check("availability.dropout.hazard", stage, any_point, shown, experiment)
        if not set(stages).intersection(dropout.hazard):
            _check("availability.dropout.hazard", next(iter(dropout.hazard)), stages, stages, experiment)
    for key, named in (
        ("stage_deadlines", experiment.time.stage_deadlines),
        ("stage_quorums", experiment.time.stage_quorums),
    ):
        for stage in named:
            _check(f"time.{key}", stage, any_point, shown, experiment)


def check_schedule(stages: Iterable[str], where: str, own: Iterable[str] = ()) -> None:
    """Raise `ExperimentError` for a stage of a schedule that no protocol has.

    Those of protocols that this run does not have are no mistake: `ScheduledAvailability` says what they mean.

    Args:
        stages: that the schedule names.
        where: the schedule.
        own: stages of user-defined protocols, of all points.
    """
    all_stages = {*known_stages(), *own}
    for stage in stages:
        if stage and stage not in all_stages:
            raise ExperimentError(f"{where}: unknown stage {stage!r}; {_allowed(stage, sorted(all_stages))}")


def _check(key: str, stage: str, fitting: Iterable[str], allowed_stages: Iterable[str], experiment: Experiment) -> None:
    if stage in fitting:
        return
    allowed_stages = tuple(allowed_stages)
    if stage in known_stages():
        protocols = f"selection {experiment.selection.protocol} with aggregation {experiment.aggregation.protocol}"
        if experiment.asynchronous is not None:
            protocols += " in asynchronous rounds"
        raise ExperimentError(f"{key}: {stage!r} is no stage of {protocols}; {_allowed(stage, allowed_stages)}")
    raise ExperimentError(f"{key}: unknown stage {stage!r}; {_allowed(stage, allowed_stages)}")


def _allowed(stage: str, shown: Sequence[str]) -> str:
    return f"{did_you_mean(stage, shown)}allowed: {', '.join(shown)}"
