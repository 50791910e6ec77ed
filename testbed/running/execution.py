"""Running an experiment's points into their run directories, in parallel if possible.

An experiment without a sweep is one run, and its directory is `out`; each point of a sweep is a run in
``out/<label>``. All points are checked before the first one starts.

Points with the same cluster section share workers. A point on a real clock (`time.clock: wall`) runs alone on the
machine, because other work would disturb its measurements. A point that runs in this process runs alone, too.

Code that takes seconds to import is a service (`testbed.plugins.services`), imported on first use: the
summary (pandas, scipy) at a run's end, and the hosts on Ray for runs on a cluster. In-process runs do not import Ray.
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
    """Run an experiment, or all points of its sweep; return the directory with the records.

    In a notebook, progress is shown unless there is an observer, the directory is displayed as a table of the runs'
    outcomes, and errors are one line each.

    Args:
        experiment: the experiment, or its file.
        out: the directory, or its URI (s3://..., gs://..., hdfs://...); default: ``output.directory`` of the
            experiment, else ``runs/<name>``.
        network: "ray" or "in-process", instead of the experiment's network.
        resume: continue existing runs; finished runs are left unchanged, missing runs are started.
        observer: notified of progress.
        accept_changed_code: resume although your own modules have changed since the run began; the run records it.
        debug: in a notebook, show tracebacks of errors, as with the environment variable ``TESTBED_DEBUG``.

    Returns:
        The directory; for a URI, its local copy.

    Raises:
        ExperimentError: the experiment cannot be run as written, or (resume) is not that of the existing run.
        RunError: a run directory exists (without resume), is in use by another run, or cannot be written.
        ClusterError: Ray cannot be reached, or lost more than the run can replace.
        KeyboardInterrupt: SIGINT or SIGTERM; the records hold all finished rounds, and resume continues from them.

    An error of one point stops the others: their finished rounds stay, and the error names the point.

    Example:
        >>> from testbed import Experiment, find_runs, run
        >>> experiment = Experiment(rounds=2, population=6, selection={"participants": 3})
        >>> directory = run(experiment, out="runs/first", network="in-process")
        >>> find_runs(directory)[0].rounds["outcome"].tolist()
        ['completed', 'completed']
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
    """Return the experiment with the values of some dotted keys replaced.

    Args:
        experiment: the experiment.
        values: new values by dotted key.
        where: prefix of error lines.

    Raises:
        ExperimentError: the result is not valid.
    """
    data = experiment.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        set_key(data, key, value, where)
    return validated(data, where)


def with_overrides(experiment: Experiment, overrides: Sequence[str], where: str) -> Experiment:
    """Return the experiment with ``key=value`` overrides applied.

    Args:
        experiment: the experiment.
        overrides: ``key=value``, with values in YAML.
        where: prefix of error lines.

    Raises:
        ExperimentError: the result is not valid.
    """
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
        Guarded(named, name, functools.partial(_note_failure, observer))
        for name, named in made_observers(experiment.output.observers, where)
    ]
    watching = Serialised(observer, *guarded)
    with stopping_on_signals():
        all_points = list(points(experiment, where))
        runs = planned(all_points, out, resume=resume, accept_changed_code=accept_changed_code)
        # Before any work: a missing package must not end a sweep after its first points.
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
        for guard in guarded:
            if guard.failures > 1:
                observer.warned(runs[-1], f"observer {guard.name} failed {guard.failures} times in all runs")
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


def _note_failure(observer: Observer, name: str, run: PlannedRun | None, error: Exception, before: int) -> None:
    """Log the failure of an observer that the experiment names, and warn of the first failure."""
    if run is not None:
        RunLog(run.path).write("observer-failed", observer=name, error=reason(error, 500))
        if not before:
            observer.warned(run, f"observer {name}: {reason(error)}; the run goes on, the log has all such failures")


def _summary(run: RunRecords) -> dict[str, Any]:
    """Return the contents of ``summary.json`` of a finished run."""
    return dict(service("results.summary")(run))


def requires_exclusive_access(experiment: Experiment) -> bool:
    """Return whether the experiment must run alone on the machine."""
    # On a real clock other work on the machine would disturb the measurements.
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
        """Return the notes of a run; see `Check`."""
        assert self._remote is not None, "start_checking comes first"
        return self._remote.notes_of(run, name)

    def workers_for(
        self, group: Sequence[PlannedRun], open_run: Callable[[PlannedRun], OpenRun]
    ) -> Sequence[PointWorker]:
        """Return the workers for a group of runs.

        Args:
            group: a group of `group_by_resources`.
            open_run: see `PointWorker`.

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
    """Return the number of runs of a group that may share the cluster; 1 if a run needs exclusive access."""
    return 1 if requires_exclusive_access(group[0].point.experiment) else len(group)


@contextlib.contextmanager
def _importing_workloads(runs: Sequence[PlannedRun]) -> Iterator[None]:
    """Import the built-in workloads' libraries (torch: 1 s) in another thread while this one waits for Ray.

    Without Ray there is no waiting, and nothing is imported. A failed import is reported where the library is used.
    """
    experiments = [run.point.experiment for run in runs]
    if not any(point.cluster.network == "ray" and point.workload.is_built_in for point in experiments):
        yield
        return
    building.one_thread()  # before torch is there
    with ThreadPoolExecutor(1) as thread:
        thread.submit(building.import_training)
        yield


def _plans(runs: Sequence[PlannedRun], all_points: Sequence[Point], where: str) -> list[RunPlan]:
    """Return the plans of these runs; raises errors of the protocols' own classes before anything starts."""
    check_addresses([run.point.experiment for run in runs], where)
    plans = []
    for run in runs:
        with refusing_as(run, where):
            plans.append(RunPlan(run.point.experiment, run.simulation_seed))
            check_plan(plans[-1])
    stages = {id(plan.experiment): plan.stages for plan in plans}
    check_points(
        [(point.where(where), point.experiment) for point in all_points],
        lambda experiment: stages.get(id(experiment)) or stages_of(experiment),
    )
    return plans
