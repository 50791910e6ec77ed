"""Running an experiment's points into their run directories, several at the same time where there is room; comparing.

An experiment without a sweep is one run, and its directory is `out`; each point of a sweep is a run in
``out/<label>``. All points are checked before the first one starts.

Points with the same cluster section share workers. A point that keeps a real clock (`time.clock: wall`) has the machine
to itself, because what it measures would be the others' work too; so has one that runs in this process.

Code that takes seconds to import is a service (`testbed.plugins.services`), imported when it is first asked for: the
summary (pandas, scipy) at a run's end, the hosts on Ray for runs on a cluster; in-process runs do without Ray.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, TestbedError, reason
from testbed.experiment.reading import apply_override, set_key
from testbed.experiment.schema import Experiment, Point, check_points, load, points, stages_of, validated
from testbed.extras import naming_extras
from testbed.plugins.services import service
from testbed.records import RunRecords
from testbed.records.log import RunLog
from testbed.records.mirror import local_staging_dir
from testbed.running import workers
from testbed.running.data_checks import check_with_data, checked_here, checked_on_ray, group_by_resources, refusing_as
from testbed.running.notebook import NotebookProgress, RunsPath, in_notebook
from testbed.running.observers import Guarded, Observer, Serialised
from testbed.running.observers.catalogue import made as made_observers
from testbed.running.open_runs import OpenRun
from testbed.running.preparation import PlannedRun, default_directory, planned
from testbed.running.validation import check_addresses, check_extras, check_plan, notes
from testbed.running.workers import LocalWorker, PointWorker, RemoteHosts
from testbed.signals import stopping_on_signals
from testbed.workload import building


def run(
    experiment: Experiment | str | Path,
    out: str | Path | None = None,
    network: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    accept_changed_code: bool = False,
    debug: bool = False,
) -> RunsPath:
    """Run an experiment, or all points of its sweep; returns the directory with the records.

    In a notebook, progress is shown unless there is an observer, the directory shows itself as a table of what became
    of the runs, and errors are one line each.

    Args:
        experiment: the experiment, or its file.
        out: the directory, or the URI of one (s3://..., gs://..., hdfs://...); default: ``output.directory`` of the
            experiment, else ``runs/<name>``. For a URI, what is returned is the local copy.
        network: "ray" or "in-process", instead of what the experiment says.
        resume: continue the runs that are there; finished ones are left as they are, missing ones are started.
        observer: told how it goes.
        accept_changed_code: resume although your own modules have changed since the run began; the run records it.
        debug: in a notebook, show tracebacks of errors, as it does with the environment variable ``TESTBED_DEBUG``.

    Raises:
        ExperimentError: the experiment cannot be run as written, or (resume) is not the one that is there.
        RunError: a run directory exists (without resume), is in use by another run, or cannot be written.
        ClusterError: Ray cannot be reached, or lost more than the run can replace.
        KeyboardInterrupt: SIGINT or SIGTERM; the records are those of all finished rounds, resume continues with them.

    An error of one point stops the others: their finished rounds stay, and the error says which point it is of.
    """
    if not isinstance(experiment, Experiment | str | Path):
        raise ExperimentError(
            f"run: should be an Experiment, or the path of its file, not {type(experiment).__name__}; "
            "of a mapping, Experiment(**mapping) makes one"
        )
    where = str(experiment) if isinstance(experiment, str | Path) else experiment.name
    if isinstance(experiment, str | Path):
        experiment = load(Path(experiment))
    if network is not None:
        experiment = with_values(experiment, {"cluster.network": network}, where)
    directory = local_staging_dir(default_directory(experiment) if out is None else out)
    if observer is None and in_notebook():
        observer = NotebookProgress()
    try:
        run_all(
            experiment,
            directory,
            where=where,
            resume=resume,
            observer=observer,
            accept_changed_code=accept_changed_code,
        )
    except TestbedError as error:
        error.with_traceback_shown = debug
        raise
    return RunsPath(directory)


def with_values(experiment: Experiment, values: Mapping[str, Any], where: str) -> Experiment:
    """The experiment with the values of some dotted keys set; raises `ExperimentError` when it is not valid then."""
    data = experiment.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        set_key(data, key, value, where)
    return validated(data, where)


def with_overrides(experiment: Experiment, overrides: Sequence[str], where: str) -> Experiment:
    """The experiment with what ``key=value`` says set (values are YAML); raises as `with_values` does."""
    data = experiment.model_dump(mode="json", exclude_unset=True)
    for override in overrides:
        apply_override(data, override)
    return validated(data, where)


def run_all(
    experiment: Experiment,
    out: Path,
    *,
    where: str,
    resume: bool = False,
    observer: Observer | None = None,
    accept_changed_code: bool = False,
) -> list[Path]:
    """Run every point of `experiment` that is not finished; returns the run directories in the sweep's order.

    Args:
        experiment: with or without a sweep.
        out: the directory of the run, or of the sweep.
        where: begins the lines of errors; the experiment's file.
        resume, accept_changed_code: see `run`.
        observer: told how it goes.

    Raises: see `run`.
    """
    observer = observer or Observer()
    guarded = [
        Guarded(one, name, functools.partial(_note_failure, observer))
        for name, one in made_observers(experiment.output.observers, where)
    ]
    watching = Serialised(observer, *guarded)
    with stopping_on_signals():
        all_points = list(points(experiment, where))
        runs = planned(all_points, out, resume=resume, accept_changed_code=accept_changed_code)
        check_extras([run.point.experiment for run in runs if not run.rounds_finished], where)
        watching.planned(runs)
        for run in runs:
            if run.note:
                watching.warned(run, run.note)
        with WorkerPool(watching) as pool:
            unfinished = [run for run in runs if not run.rounds_finished]
            if unfinished:
                watching.doing("checking")
                _warn_of_notes(unfinished, watching)
                plans = _plans(unfinished, all_points, where)
                if on_ray := checked_on_ray([run for run in runs if not run.complete]):
                    pool.join_ray(unfinished)
                    pool.start_checking(runs)
                else:
                    with _importing_workloads(unfinished):
                        pool.join_ray(unfinished)
                check_with_data(unfinished, plans, where, watching, pool.checked if on_ray else checked_here())
            _run(runs, watching, pool)
        for one in guarded:
            if one.failures > 1:
                observer.warned(runs[-1], f"observer {one.name} failed {one.failures} times in all runs")
    return [run.path for run in runs]


def _run(runs: Sequence[PlannedRun], observer: Observer, pool: "WorkerPool") -> None:
    """Run those that are not complete and summarise each when it has ended."""
    places = {run.path: place for place, run in enumerate(runs, 1)}
    opened: list[OpenRun] = []
    ended: set[Path] = set()

    def open_run(run: PlannedRun) -> OpenRun:
        opened.append(OpenRun(run, places[run.path], len(runs)))
        return opened[-1]

    def summarised(run: PlannedRun, at_its_end: OpenRun) -> None:
        observer.doing("summarising", run)
        summary = at_its_end.finish(_summary)
        ended.add(run.path)
        observer.ended(run, summary)

    try:
        for group in group_by_resources([run for run in runs if not run.complete]):
            workers.run_all(group, pool.workers_for(group, open_run), summarised)
    finally:
        for run in opened:  # at its end, and not summarised
            run.end()
            if run.run.path not in ended:
                observer.stopped(run.run)


def _warn_of_notes(runs: Sequence[PlannedRun], observer: Observer) -> None:
    """Report each line of `notes` once, with the first run that it holds for."""
    reported: set[str] = set()
    for run in runs:
        for line in notes([run.point]):
            if line not in reported:
                observer.warned(run, line)
            reported.add(line)


def _note_failure(told: Observer, name: str, run: PlannedRun | None, error: Exception, before: int) -> None:
    """An observer that the experiment names has failed: log it, and warn of the first failure."""
    if run is not None:
        RunLog(run.path).write("observer-failed", observer=name, error=reason(error, 500))
        if not before:
            told.warned(run, f"observer {name}: {reason(error)}; the run goes on, the log has all such failures")


def _summary(run: RunRecords) -> dict[str, Any]:
    """The contents of ``summary.json`` of a finished run."""
    return dict(service("results.summary")(run))


def requires_exclusive_access(experiment: Experiment) -> bool:
    """Whether nothing else may run beside it."""
    return experiment.cluster.network == "in-process" or experiment.time.clock == "wall"


class WorkerPool:
    """Makes the workers for groups of points, and keeps the connection to Ray that they share; a context manager.

    Args:
        observer: see `PointWorker`.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._remote: RemoteHosts | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def join_ray(self, runs: Sequence[PlannedRun]) -> None:
        """Connect to Ray, or start it here, where one of the runs needs it; raises `ClusterError` when that cannot be.

        All on Ray have one address (`check_addresses`).
        """
        clusters = [run.point.experiment.cluster for run in runs]
        address = next((cluster.address for cluster in clusters if cluster.network == "ray"), None)
        if self._remote is not None or all(cluster.network == "in-process" for cluster in clusters):
            return
        with naming_extras("cluster.network: ray"):
            join = service("hosts.ray")
        self._observer.doing("starting Ray" if address is None else f"joining Ray at {address}")
        self._remote = join(address, self._stack, lambda line: self._observer.warned(runs[0], line))

    def start_checking(self, runs: Sequence[PlannedRun]) -> None:
        """Start the actors that check runs with their data (`checked`), and then run the first of them."""
        assert self._remote is not None, "join_ray comes first"
        (group,) = group_by_resources([run for run in runs if not run.complete])
        self._observer.doing("starting the hosts")
        self._remote.start_checking(group[0].point.experiment, _at_once(group))

    def checked(self, run: PlannedRun, plan: RunPlan, name: str) -> list[str]:
        """The notes of a run; see `Check`."""
        assert self._remote is not None, "start_checking comes first"
        return self._remote.notes_of(run, name)

    def workers_for(
        self, group: Sequence[PlannedRun], open_run: Callable[[PlannedRun], OpenRun]
    ) -> Sequence[PointWorker]:
        """Workers for a group of `group_by_resources`; `open_run`: see `PointWorker`.

        Raises:
            ClusterError: Ray cannot be reached or started.
        """
        first = group[0].point.experiment
        if first.cluster.network == "in-process":
            return [LocalWorker(self._observer, open_run)]
        self.join_ray(group)
        assert self._remote is not None, "join_ray joins where a run is on Ray"
        self._observer.doing("starting the hosts")
        return self._remote.workers(self._observer, open_run, first.cluster, _at_once(group))


def _at_once(group: Sequence[PlannedRun]) -> int:
    """The number of runs of a group that may share the cluster: one that must have it for itself does not."""
    return 1 if requires_exclusive_access(group[0].point.experiment) else len(group)


@contextlib.contextmanager
def _importing_workloads(runs: Sequence[PlannedRun]) -> Iterator[None]:
    """Import what the built-in workloads need (torch: a second) in another thread, as this one waits for Ray to start.

    Without Ray nobody waits, and nothing is imported. Whoever needs it and finds that it cannot be imported says so.
    """
    experiments = [run.point.experiment for run in runs]
    if not any(one.cluster.network == "ray" and one.workload.is_built_in for one in experiments):
        yield
        return
    building.one_thread()  # before torch is there
    with ThreadPoolExecutor(1) as thread:
        thread.submit(building.import_training)
        yield


def _plans(runs: Sequence[PlannedRun], all_points: Sequence[Point], where: str) -> list[RunPlan]:
    """The plans of these runs; raises, before anything is started, what the protocols' own classes can tell of them."""
    check_addresses([run.point.experiment for run in runs], where)
    plans = []
    for run in runs:
        with refusing_as(run, where):
            plans.append(RunPlan(run.point.experiment, run.simulation_seed))
            check_plan(plans[-1])
    stages = {id(plan.experiment): plan.stages for plan in plans}
    check_points(
        [(point.where(where), point.experiment) for point in all_points],
        lambda one: stages.get(id(one)) or stages_of(one),
    )
    return plans
