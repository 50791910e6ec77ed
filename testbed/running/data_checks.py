"""Check runs with their data before anything runs: in this process, or by a coordinator on Ray."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.crashes import locating_crashes
from testbed.engine.data_checks import notes_of
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, TraceError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.sections import Cluster
from testbed.running.more_rounds import check_budget_left
from testbed.running.observers import Observer
from testbed.running.preparation import PlannedRun
from testbed.running.validation import memory_error, memory_warning, warnings
from testbed.workload import building

Check = Callable[[PlannedRun, RunPlan, str], list[str]]
"""Checks a run with its data and returns the notes; the last argument begins the lines of errors."""


def checked_on_ray(runs: Sequence[PlannedRun]) -> bool:
    """Return whether the check with data may run on Ray's workers.

    It may for runs on Ray that share workers and have no user-defined code. Checks for more rounds need the records,
    which are on this machine.
    """
    if any(run.has_more_rounds for run in runs):
        return False
    experiments = [run.point.experiment for run in runs]
    return len(group_by_resources(runs)) == 1 and all(
        point.cluster.network == "ray" and point.workload.is_built_in and not any(plugin_classes(point))
        for point in experiments
    )


def checked_here() -> Check:
    """Return a check in this process; consecutive runs with the same workload build it once."""
    built: list[tuple[Any, Any]] = []

    def check(run: PlannedRun, plan: RunPlan, where: str) -> list[str]:
        key = (run.point.experiment.workload, run.point.experiment.population, plan.seed)
        if not built or built[0][0] != key:
            built.clear()
            built.append((key, building.build(*key)))
        if run.has_more_rounds:
            check_budget_left(plan, built[0][1], run.path)
        return notes_of(plan, built[0][1])

    return check


def check_with_data(
    runs: Sequence[PlannedRun], plans: Sequence[RunPlan], where: str, observer: Observer, check: Check
) -> None:
    """Check the runs with their data before anything runs.

    Runs with the same workload and seed are checked consecutively, so that their data are built once. A note that holds
    for several runs is reported once.

    Args:
        runs: the runs.
        plans: the plan of each run.
        where: prefix of error lines.
        observer: gets the notes as warnings.
        check: the check of one run.

    Raises:
        ExperimentError: a run cannot run with its data.
    """
    notes: dict[int, list[str]] = {}
    for place in _by_workload(runs, plans):
        run = runs[place]
        with refusing_as(run, where):
            notes[place] = check(run, plans[place], run.point.where(where))
    reported: set[str] = set()
    for place, run in enumerate(runs):
        for line in [*notes[place], *filter(None, [memory_warning(run.point.experiment.population)])]:
            if line not in reported:
                observer.warned(run, line)
            reported.add(line)
    for line in warnings(name for run in runs for _, name in plugin_classes(run.point.experiment)):
        observer.warned(runs[0], line)


def _by_workload(runs: Sequence[PlannedRun], plans: Sequence[RunPlan]) -> list[int]:
    """Return the positions of the runs, grouped by workload in the order of their first run."""
    groups: list[tuple[Any, list[int]]] = []
    for place, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        key = (run.point.experiment.workload, run.point.experiment.population, plan.seed)
        places = next((places for other, places in groups if other == key), None)
        if places is None:
            groups.append((key, places := []))
        places.append(place)
    return [place for _, places in groups for place in places]


@contextlib.contextmanager
def refusing_as(run: PlannedRun, where: str) -> Iterator[None]:
    """Attribute errors inside to the preparation of this run, and prefix their lines with its place.

    Args:
        run: the run.
        where: prefix of error lines.
    """
    place = run.point.where(where)
    try:
        with locating_crashes(f"{place}: its preparation", then=""):
            yield
    except (ExperimentError, TraceError) as error:
        raise ExperimentError("\n".join(f"{place}: {line}" for line in str(error).splitlines())) from error
    except MemoryError:
        raise ExperimentError(f"{place}: {memory_error(run.point.experiment.population)}") from None


def group_by_resources(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Group the runs that share workers: those with the same cluster section and clock, in their order."""
    groups: dict[tuple[Cluster, str], list[PlannedRun]] = {}
    for run in runs:
        experiment = run.point.experiment
        groups.setdefault((experiment.cluster, experiment.time.clock), []).append(run)
    return list(groups.values())
