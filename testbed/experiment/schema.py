"""The experiment: one pydantic model, with the JSON schema for editors (`testbed schema`), and the points of its sweep.

An unknown name of a stage would silently have no effect, so it is refused. In a sweep the protocols, and so the stages,
may differ. A stage of dropouts must exist in each point: a point without dropouts would be compared with points that
have them. A deadline or a quorum may name a stage that only other points have.
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
RANDOM = "random"
"""Value of availability.dropout.stage: any stage after selection."""


class Experiment(Section):
    """A federation, its protocols and its surroundings, as an experiment file describes them.

    Its attributes are the keys of the file (docs/reference/configuration); instances are frozen.

    Raises:
        ExperimentError: one line per mistake, with the key, as in the command line.

    Example:
        >>> experiment = Experiment(rounds=3, population=20, selection={"participants": 5})
        >>> experiment.selection.protocol, experiment.aggregation.protocol
        ('random', 'secagg')
        >>> Experiment(rounds=0)
        Traceback (most recent call last):
        testbed.errors.ExperimentError: Experiment: rounds: should be greater than 0, not 0
    """

    name: str = Field("experiment", min_length=1, max_length=100, description="Name in tables and figures")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Seed of all randomness: the same seed, with modelled compute, gives the same bytes. Unset: "
        "protocol secrets come from the operating system",
    )
    rounds: int = Field(10, gt=0, le=10_000_000, description="Number of rounds of training")
    population: int = Field(
        100,
        gt=0,
        le=MOST_CLIENTS,
        description="Number of clients (n). `testbed validate` warns if the memory is too small for them",
    )
    on_crash: Literal["stop", "drop"] = Field(
        "stop",
        description="Reaction to a crash (a bug, not a refusal) in a client's code. stop (default): end the run, which "
        "--resume can continue; drop: the client drops out of the stage, and the tables count the crash",
    )
    targets: Annotated[tuple[TargetText, ...], Field(max_length=100), BeforeValidator(listed)] = Field(
        (),
        exclude_if=lambda targets: not targets,
        description="Targets of the model's quality, e.g. [80%, loss<0.5] or {accuracy: 0.8, macro-f1: 0.6}: tables "
        "and summary.json report when each is reached. Default: none",
    )
    stop_at: StopAt | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Target that ends the run after the first round with an evaluation that meets it. Unset: all "
        "rounds are run",
    )
    workload: WorkloadSection = Field(
        default_factory=WorkloadSection, description="Data, model and local training of the clients"
    )
    selection: SelectionSection = Field(
        default_factory=selections.DEFAULT, description="Protocol that selects each round's participants"
    )
    aggregation: AggregationSection = Field(
        default_factory=aggregations.DEFAULT, description="Protocol that aggregates the participants' updates"
    )
    links: Links = Field(default_factory=Links, description="Bandwidth, latency and transport of the clients' links")
    devices: Devices = Field(default_factory=Devices, description="Computing speed of the clients")
    classes: Annotated[dict[str, ClientClass], Field(max_length=MOST_CLASSES)] = Field(
        default_factory=dict,
        exclude_if=lambda classes: not classes,
        description="Classes of clients by name, e.g. phone-4g, each with links and devices of its own. Default: all "
        "clients follow links and devices",
    )
    availability: AvailabilitySection = Field(
        default_factory=Always, description="Model of the times at which clients are online, and dropouts"
    )
    adversary: AdversarySection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Dishonest clients, and the misbehaviours of clients and server. Unset: all parties are honest",
    )
    privacy: PrivacySection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Accounting of the privacy ledger, and a budget. Unset: defaults, if the aggregation adds noise",
    )
    asynchronous: Asynchronous | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Asynchronous rounds: clients train all the time, and a round is a buffer of updates (FedBuff). "
        "Unset: synchronous rounds, in which the server waits for its participants",
    )
    time: Time = Field(default_factory=Time, description="Clock, compute times, deadlines and quorums")
    cluster: Cluster = Field(default_factory=Cluster, description="Processes and machines of the run")
    output: Output = Field(default_factory=Output, description="Destination of the records")
    records: RecordsSection = Field(
        default_factory=RecordsSection,
        exclude_if=lambda section: section == RecordsSection(),
        description="Records besides the tables of the rounds",
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Grid of runs: dotted keys, each with a list of values. A mapping is merged into the section of "
        "its key; another protocol drops the keys that it does not have. A value with label: (for a value that is no "
        "mapping: {label: NAME, value: VALUE}) has this name in tables, figures and directories",
    )
    provenance: dict[str, Any] | None = Field(
        None, description="Versions, files and history of a run, written by the testbed into the run's directory"
    )
    _set_apart: Keys = PrivateAttr(default_factory=dict)  # keys that only some of the swept protocols have

    if not TYPE_CHECKING:  # types come from the fields

        def __init__(self, **sections):
            """Raise `ExperimentError` with one line per mistake, which names the key."""
            sections = as_plain_data(sections, "Experiment")
            fitting, apart = with_fitting_protocols(resolved(sections, "Experiment"), "Experiment")
            try:
                super().__init__(**fitting)
            except ValidationError as error:
                raise one_line_each(error, sections, type(self), "Experiment") from None
            self._set_apart = apart

        __init__.__pydantic_base_init__ = True  # pydantic skips this method for data from files, validated strictly

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
        # Set attributes of a frozen model: pydantic ignores another object returned by a validator of `__init__`.
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
        """Return the validated experiment in a YAML file; every point of a sweep is validated, too.

        Args:
            path: the file.
            overrides: e.g. ``selection.participants=20``, applied in order.

        Raises:
            ExperimentError: one line per mistake, with file and key.
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
        """Return the experiment as plain data for YAML, with every default written out."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Point:
    """One experiment of a sweep.

    Attributes:
        label: name among the points, and of the point's directory; empty without a sweep.
        values: the swept keys and their values in this point.
        experiment: the point's experiment, without a sweep.
        names: names of values (``label:``), by key.
        left_out: keys of the experiment that the point's protocols do not have.
    """

    label: str
    values: dict[str, Any]
    experiment: Experiment
    names: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    def where(self, file: str) -> str:
        """Return the beginning of error messages of this point."""
        return f"{file}: sweep point {self.label}" if self.label else file


def validated(data: dict[str, Any], where: str) -> Experiment:
    """Return the experiment that plain data describe.

    Args:
        data: the data, as YAML holds them.
        where: the file or another source; begins each line of the error.

    Raises:
        ExperimentError: one line per mistake.
    """
    fitting, apart = with_fitting_protocols(resolved(data, where), where)
    experiment = validated_as(Experiment, fitting, where)
    experiment._set_apart = apart
    return experiment


load = Experiment.load


def points(experiment: Experiment, where: str) -> Iterator[Point]:
    """Yield the experiment's points, in the order of the file.

    A value that is a mapping is merged into the section that its key names; any other value replaces the former one.

    Args:
        experiment: the experiment; without a sweep it is the only point.
        where: the file or another source, for errors.

    Raises:
        ExperimentError: an invalid point, a grid of too many points, or the same point twice.
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
    """Return the stages of all questions that built-in protocols and misbehaviours ask."""
    protocols: tuple[type[SelectionParameters] | type[AggregationParameters], ...]
    protocols = (*selections.PROTOCOLS, *aggregations.PROTOCOLS)
    declared = [stage for kind in protocols for stage in (*kind.stages, *kind.further_stages)]
    return {*declared, _ALWAYS, *(stage for kind in (*SERVER, *CLIENTS) for stage in kind.added_stages)}


def stages_of(experiment: Experiment) -> tuple[str, ...] | None:
    """Return the stages of a round, in order.

    None if a protocol is a user-defined class, which this function does not import.
    """
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
        experiments: all points of a sweep, or the only experiment, each with the beginning of its error messages.
        stages: returns the stages of a point; None: unknown, so the point is not checked.
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
        experiment: one point, with the stages of its dropouts, deadlines and quorums.
        stages: stages of its protocols, in order.
        elsewhere: stages of all points of the sweep; None: unknown, so that deadlines and quorums may name any stage of
            a built-in protocol.
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

    Stages of other protocols than the run's are valid; `ScheduledAvailability` defines their meaning.

    Args:
        stages: stages that the schedule names.
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
