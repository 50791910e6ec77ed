"""What can be told of an experiment before anything runs, without its data: what `testbed validate` tells.

`testbed run` tells the same before its first round, and then what only the data can tell (`execution`). Classes of the
user's own are imported only when that is asked for; what depends on them is then not checked, which the output says.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.crashes import locating_crashes
from testbed.emulation.availability import Scheduled, UserDefinedAvailability
from testbed.emulation.traces.schedule import Schedule
from testbed.engine.foresight import foreseeable, merged
from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import check_budget
from testbed.errors import ExperimentError, TraceError
from testbed.experiment import asynchronous
from testbed.experiment.inputs import missing, named_code, plugin_classes
from testbed.experiment.schema import Experiment, Point, check_points, check_schedule, stages_of
from testbed.extras import MissingExtraError, first_missing, install_command, missing_extra
from testbed.plugins import options as plugin_options
from testbed.plugins import sources
from testbed.plugins.classes import plugin_class
from testbed.running.observers.catalogue import made as made_observers
from testbed.workload import building


@dataclass
class Checked:
    """What was looked at, and what was not.

    Attributes:
        imported: key and name of each user-defined class, and the file that it came from (None: from none).
        not_imported: key and name of those that were left alone.
        not_started: key and name of Flower apps, which only a run starts.
        warnings: a line each.
        notes: what the points have otherwise than somebody may expect from what is written; a line each.
    """

    imported: dict[tuple[str, str], Path | None] = field(default_factory=dict)
    not_imported: list[tuple[str, str]] = field(default_factory=list)
    not_started: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(points: Sequence[Point], where: str, *, import_classes: bool) -> Checked:
    """Check all points of an experiment that is loaded.

    Args:
        points: all of them.
        where: begins the lines of errors.
        import_classes: whether to import user-defined classes, and to check them too.

    Raises:
        ExperimentError: a line for each mistake.
    """
    checked = Checked()
    check_addresses([point.experiment for point in points], where)
    stages: dict[int, tuple[str, ...] | None] = {}
    foreseen: list[tuple[str, str]] = []
    lines: list[str] = []
    for entries in {repr(one): one for one in (point.experiment.output.observers for point in points)}.values():
        try:
            made_observers(entries, where, import_classes=import_classes)
        except ExperimentError as error:
            lines.append(str(error))
    for point in points:
        names = plugin_classes(point.experiment)
        checked.not_imported += [] if import_classes else [one for one in names if one not in checked.not_imported]
        started = (one for one in named_code(point.experiment) if one not in (*names, *checked.not_started))
        checked.not_started += started
        try:
            with locating_crashes(f"{point.where(where)}: its preparation", then=""):
                plan = _plan(point.experiment, import_classes)
                stages[id(point.experiment)] = stages_of(point.experiment) if plan is None else plan.stages
                if plan is not None:
                    check_plan(plan)
                foreseen += [(point.where(where), line) for line in foreseeable(point.experiment, plan)]
                if import_classes:
                    check_plugin_classes(point.experiment, plan)
                    checked.imported |= {(key, name): _file_of(name) for key, name in names}
        except (ExperimentError, TraceError) as error:
            lines += [f"{point.where(where)}: {line}" for line in str(error).splitlines()]
        except MemoryError:
            lines.append(f"{point.where(where)}: {memory_error(point.experiment.population)}")
        lines += [f"{point.where(where)}: {line}" for line in missing(point.experiment)]
    if lines:
        raise ExperimentError("\n".join(dict.fromkeys(lines)))
    check_points([(one.where(where), one.experiment) for one in points], lambda one: stages[id(one)])
    if None not in stages.values():
        _check_schedules(points, {stage for found in stages.values() for stage in found or ()}, where)
    checked.warnings = warnings(name for _, name in checked.imported)
    checked.warnings += [
        f"not runnable on this machine: {line}" for line in missing_extras([one.experiment for one in points])
    ]
    too_large = {one.where(where): memory_warning(one.experiment.population) for one in points}
    checked.warnings += [f"{place}: {line}" for place, line in too_large.items() if line]
    checked.warnings += merged(foreseen, where, len(points))
    checked.notes = notes(points)
    return checked


def notes(points: Sequence[Point]) -> list[str]:
    """What the points have otherwise than somebody may expect from what is written, a line each."""
    lines = [str(one) for point in points for one in point.left_out]
    for point in points:
        experiment = point.experiment
        lines += asynchronous.notes(experiment.asynchronous, experiment.links, experiment.aggregation)
    return list(dict.fromkeys(lines))


BYTES_PER_CLIENT = 90
"""At least: what a round takes of memory for each client that is not asked to train (docs/explanation/scale.md)."""


def memory_warning(population: int) -> str:
    """That so many clients do not fit into this machine's memory, in one line; empty where they may."""
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needs = population * BYTES_PER_CLIENT
    if needs <= has:
        return ""
    return (
        f"population: {population:,} clients take at least {needs / 1e9:,.0f} GB of memory, and this machine has "
        f"{has / 1e9:,.0f}; take fewer, or a machine with more"
    )


def memory_error(population: int) -> str:
    """The line for an experiment whose parts did not fit into memory."""
    return memory_warning(population) or f"population: there is no memory left for {population:,} clients"


def check_addresses(experiments: Sequence[Experiment], where: str) -> None:
    """Raise `ExperimentError` when the points of a sweep are to run on different clusters."""
    addresses = {one.cluster.address for one in experiments if one.cluster.network == "ray"}
    if len(addresses) > 1:
        raise ExperimentError(f"{where}: sweep: cluster.address: the points of a sweep run on one cluster, give one")


def check_extras(experiments: Sequence[Experiment], where: str) -> None:
    """Raise `MissingExtraError` where this machine lacks what the experiments need to run on it."""
    if lines := missing_extras(experiments):
        raise MissingExtraError("\n".join(f"{where}: {line}" for line in lines))


def missing_extras(experiments: Sequence[Experiment]) -> list[str]:
    """A line for each extra that running some experiments here takes and that is not installed."""
    on_ray = any(one.cluster.network == "ray" for one in experiments)
    ray = first_missing("ray", "psutil") if on_ray else None
    dataset = next((one.workload.dataset for one in experiments if one.workload.is_built_in), None)
    torch = first_missing("torch") if dataset is not None else None
    if ray and torch:
        return [f"cluster.network: ray needs ray, workload.dataset: {dataset} needs torch: {install_command('all')}"]
    lines = []
    if ray:
        lines.append(str(missing_extra(ray, "cluster.network: ray", alternative=True)))
    if torch:
        lines.append(str(missing_extra(torch, f"workload.dataset: {dataset}", alternative=True)))
    return lines


def check_plan(plan: RunPlan) -> None:
    """Raise `ExperimentError` for what cannot be run, whatever the data are."""
    plan.aggregation_parameters.check_weights(plan.maximum_participants, 1)
    plan.aggregation_parameters.check_before_data(plan.maximum_participants)
    check_budget(plan)


def check_plugin_classes(experiment: Experiment, plan: RunPlan | None) -> None:
    """Import the user-defined classes that an experiment names beside its protocols, and check their options.

    Raises:
        ExperimentError: no such class, an option that it does not declare, or links or factors that cannot be.
    """
    workload, availability = experiment.workload, experiment.availability
    if workload.own:
        building.check_own(workload)
    if isinstance(availability, UserDefinedAvailability):
        kind = plugin_class(availability.model, "availability.model")
        plugin_options.check_callable(kind, availability.model, "availability", availability.options, 3)
    devices = [experiment.devices, *(kind.devices for kind in experiment.classes.values())]
    if plan is not None and any(one is not None and ":" in one.model for one in devices):
        plan.speed_factors()
    if plan is not None and experiment.links.model is not None:
        plan.links()


def warnings(names: Iterable[str]) -> list[str]:
    """A line for each file that a class may have been meant to come from and does not, and for hidden packages."""
    modules = dict.fromkeys(name.partition(":")[0] for name in names)
    lines = sources.foreign_packages()
    for module in modules:
        used = sources.source_of(module)
        lines += [f"{other}: not used, module {module} is {used or 'built in'}" for other in sources.hidden(module)]
    return lines


def _plan(experiment: Experiment, import_classes: bool) -> RunPlan | None:
    """Its parts, without plug-in misbehaviours unless imported; None where its protocols are not to be imported."""
    if import_classes:
        return RunPlan(experiment, 0)
    if stages_of(experiment) is None:
        return None
    if experiment.adversary is not None:
        experiment = experiment.model_copy(update={"adversary": experiment.adversary.without_own()})
    return RunPlan(experiment, 0)


def _check_schedules(points: Sequence[Point], stages: Iterable[str], where: str) -> None:
    """Read each schedule once: it is an instruction like the experiment itself, and no data."""
    read: dict[Path, Schedule] = {}
    for point in points:
        section = point.experiment.availability
        if isinstance(section, Scheduled):
            try:
                if section.path not in read:
                    read[section.path] = Schedule.read(section.path)
                schedule = read[section.path]
                schedule.check_population(point.experiment.population)
                check_schedule(schedule.stages, str(section.path), stages)
            except (ExperimentError, TraceError) as error:
                raise ExperimentError(f"{point.where(where)}: {error}") from None


def _file_of(name: str) -> Path | None:
    return sources.source_of(name.partition(":")[0])
