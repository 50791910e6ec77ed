"""Checks of an experiment before anything runs, without its data: the checks of `testbed validate`.

`testbed run` makes the same checks before its first round, and then those that need the data (`execution`). The
user's own classes are imported only on request; otherwise dependent checks are skipped, which the output says.
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
    """The result of a validation, with the parts that were not checked.

    Attributes:
        imported: key and name of each user-defined class, and its file (None: no file).
        not_imported: key and name of the classes that were not imported.
        not_started: key and name of Flower apps, which only a run starts.
        warnings: a line each.
        notes: settings of the points that differ from what the file suggests; a line each.
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
    for entries in {
        repr(observers): observers for observers in (point.experiment.output.observers for point in points)
    }.values():
        try:
            made_observers(entries, where, import_classes=import_classes)
        except ExperimentError as error:
            lines.append(str(error))
    for point in points:
        names = plugin_classes(point.experiment)
        checked.not_imported += (
            [] if import_classes else [named for named in names if named not in checked.not_imported]
        )
        started = (code for code in named_code(point.experiment) if code not in (*names, *checked.not_started))
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
    check_points(
        [(point.where(where), point.experiment) for point in points], lambda experiment: stages[id(experiment)]
    )
    # Without its class, a protocol's stages are unknown, and a schedule cannot be compared with them.
    if None not in stages.values():
        _check_schedules(points, {stage for names in stages.values() for stage in names or ()}, where)
    checked.warnings = warnings(name for _, name in checked.imported)
    checked.warnings += [
        f"not runnable on this machine: {line}" for line in missing_extras([point.experiment for point in points])
    ]
    too_large = {point.where(where): memory_warning(point.experiment.population) for point in points}
    checked.warnings += [f"{place}: {line}" for place, line in too_large.items() if line]
    checked.warnings += merged(foreseen, where, len(points))
    checked.notes = notes(points)
    return checked


def notes(points: Sequence[Point]) -> list[str]:
    """Return the settings of the points that differ from what the file suggests, a line each.

    Args:
        points: all points of the experiment.
    """
    lines = [str(setting) for point in points for setting in point.left_out]
    for point in points:
        experiment = point.experiment
        lines += asynchronous.notes(experiment.asynchronous, experiment.links, experiment.aggregation)
    return list(dict.fromkeys(lines))


BYTES_PER_CLIENT = 90
"""At least: what a round takes of memory for each client that is not asked to train (docs/explanation/scale.md)."""


def memory_warning(population: int) -> str:
    """Return the warning that this many clients do not fit into this machine's memory; empty if they may fit.

    Args:
        population: number of clients n.
    """
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needs = population * BYTES_PER_CLIENT
    if needs <= has:
        return ""
    return (
        f"population: {population:,} clients take at least {needs / 1e9:,.0f} GB of memory, and this machine has "
        f"{has / 1e9:,.0f}; take fewer, or a machine with more"
    )


def memory_error(population: int) -> str:
    """Return the error line for an experiment whose parts did not fit into memory.

    Args:
        population: number of clients n.
    """
    return memory_warning(population) or f"population: there is no memory left for {population:,} clients"


def check_addresses(experiments: Sequence[Experiment], where: str) -> None:
    """Raise `ExperimentError` if the points of a sweep use different clusters.

    Args:
        experiments: the points.
        where: prefix of error lines.
    """
    addresses = {experiment.cluster.address for experiment in experiments if experiment.cluster.network == "ray"}
    if len(addresses) > 1:
        raise ExperimentError(f"{where}: sweep: cluster.address: the points of a sweep run on one cluster, give one")


def check_extras(experiments: Sequence[Experiment], where: str) -> None:
    """Raise `MissingExtraError` if this machine lacks extras that the experiments need.

    Args:
        experiments: the points.
        where: prefix of error lines.
    """
    if lines := missing_extras(experiments):
        raise MissingExtraError("\n".join(f"{where}: {line}" for line in lines))


def missing_extras(experiments: Sequence[Experiment]) -> list[str]:
    """Return a line for each extra that running the experiments here needs and that is not installed.

    Args:
        experiments: the points.
    """
    on_ray = any(experiment.cluster.network == "ray" for experiment in experiments)
    ray = first_missing("ray", "psutil") if on_ray else None
    dataset = next((experiment.workload.dataset for experiment in experiments if experiment.workload.is_built_in), None)
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
    """Raise `ExperimentError` if a plan cannot run with any data.

    Args:
        plan: the run's plan.
    """
    plan.aggregation_parameters.check_weights(plan.maximum_participants, 1)
    plan.aggregation_parameters.check_before_data(plan.maximum_participants)
    check_budget(plan)


def check_plugin_classes(experiment: Experiment, plan: RunPlan | None) -> None:
    """Import the user-defined classes that an experiment names beside its protocols, and check their options.

    Args:
        experiment: one point.
        plan: its plan; None if its protocols are not imported.

    Raises:
        ExperimentError: no such class, an option that it does not declare, or impossible links or factors.
    """
    workload, availability = experiment.workload, experiment.availability
    if workload.own:
        building.check_own(workload)
    if isinstance(availability, UserDefinedAvailability):
        kind = plugin_class(availability.model, "availability.model")
        plugin_options.check_callable(kind, availability.model, "availability", availability.options, 3)
    devices = [experiment.devices, *(kind.devices for kind in experiment.classes.values())]
    if plan is not None and any(model is not None and ":" in model.model for model in devices):
        plan.speed_factors()
    if plan is not None and experiment.links.model is not None:
        plan.links()


def warnings(names: Iterable[str]) -> list[str]:
    """Return a line for each file that a class may have been meant to come from but does not, and for hidden packages.

    Args:
        names: ``package.module:Name`` of the classes.
    """
    modules = dict.fromkeys(name.partition(":")[0] for name in names)
    lines = sources.foreign_packages()
    for module in modules:
        used = sources.source_of(module)
        lines += [f"{other}: not used, module {module} is {used or 'built in'}" for other in sources.hidden(module)]
    return lines


def _plan(experiment: Experiment, import_classes: bool) -> RunPlan | None:
    """Return the plan of a point; None if its protocols are not imported.

    Plug-in misbehaviours are left out unless classes are imported.
    """
    if import_classes:
        return RunPlan(experiment, 0)
    if stages_of(experiment) is None:
        return None
    # A plan would import user-defined misbehaviours, which the user has not allowed.
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
