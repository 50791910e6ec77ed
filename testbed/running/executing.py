"""Running an experiment's points into their run directories, one after the other on one Ray session.

An experiment without a sweep is one run, and its directory is `out`; each point of a sweep is a run in
``out/<label>``. All points are checked before the first one starts.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ExperimentError, TraceError
from testbed.experiment.loading import load, set_key, validated
from testbed.experiment.schema import Cluster, Experiment
from testbed.experiment.sweep import points
from testbed.federation import Plan, Progress
from testbed.in_process import run_in_process
from testbed.records import RunDirectory, RunRecords, find_runs
from testbed.running.inputs import digests, located
from testbed.running.locking import held
from testbed.running.planning import PlannedRun, default_directory, planned
from testbed.running.provenance import provenance
from testbed.stopping import stop_on_signals, stopping_on_signals

if TYPE_CHECKING:
    import pandas


class Observer:
    """What a run tells those who watch it. Here every method does nothing: override what you want to hear."""

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """These will be run (or are finished already)."""

    def doing(self, what: str) -> None:
        """Something begins that may take seconds, e.g. "starting Ray"."""

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """A run starts or goes on; `outcomes` are those of its recorded rounds."""

    def progressed(self, progress: Progress) -> None:
        """The run stands there now. On Ray the same progress may come several times."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """A run has ended, and this is its summary."""


def run(
    experiment: Experiment | str | Path,
    out: str | Path | None = None,
    network: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> Path:
    """Run an experiment, or all points of its sweep; returns the directory with the records.

    Args:
        experiment: the experiment, or its file.
        out: the directory; default: ``output.directory`` of the experiment, else ``runs/<name>``.
        network: "ray" or "in-process", instead of what the experiment says.
        resume: go on with the runs that are there; finished ones are left as they are, missing ones are started.
        observer: told how it goes.

    Raises:
        ExperimentError: the experiment cannot be run as written, or (resume) is not the one that is there.
        RunError: a run directory exists (without resume), is in use by another run, or cannot be written.
        ClusterError: Ray cannot be reached, or lost more than the run can replace.
        KeyboardInterrupt: SIGINT or SIGTERM; the records are those of all finished rounds, resume goes on with them.
    """
    where = str(experiment) if isinstance(experiment, str | Path) else experiment.name
    if isinstance(experiment, str | Path):
        experiment = load(Path(experiment))
    if network is not None:
        data = experiment.model_dump(mode="json", exclude_unset=True)
        set_key(data, "cluster.network", network, where)
        experiment = validated(data, where)
    directory = default_directory(experiment) if out is None else Path(out)
    run_all(experiment, directory, where=where, resume=resume, observer=observer)
    return directory


def compare(runs: str | Path | Sequence[str | Path], baseline: str | None = None) -> "pandas.DataFrame":
    """The overhead table of the runs at or below one or several directories; see `analysis.overhead.compare`.

    Raises `RunError` when there are no runs and `ExperimentError` for a baseline that is not among them.
    """
    from analysis import overhead

    return overhead.compare(runs_below([runs] if isinstance(runs, str | Path) else runs), baseline)


def runs_below(directories: Sequence[str | Path]) -> list[RunRecords]:
    """The runs at or below the directories, each once; raises `RunError` for a directory without any."""
    found = {run.path.resolve(): run for directory in directories for run in find_runs(Path(directory))}
    return list(found.values())


def run_all(
    experiment: Experiment, out: Path, *, where: str, resume: bool = False, observer: Observer | None = None
) -> list[Path]:
    """Run every point of `experiment` that is not finished; returns the run directories in the sweep's order.

    Args:
        experiment: with or without a sweep.
        out: the directory of the run, or of the sweep.
        where: begins the lines of errors; the experiment's file.
        resume: see `run`.
        observer: told how it goes.

    Raises: see `run`.
    """
    observer = observer or Observer()
    with stopping_on_signals():
        runs = planned(list(points(experiment, where)), out, resume=resume)
        observer.planned(runs)
        unfinished = [run for run in runs if not run.rounds_finished]
        if unfinished:
            observer.doing("checking")
            _check(unfinished, where)
        with _Networks(observer) as networks:
            for planned_run in runs:
                if not planned_run.complete:
                    _execute(planned_run, networks, observer)
    return [run.path for run in runs]


def _check(runs: Sequence[PlannedRun], where: str) -> None:
    """Raise, before anything runs, what only the data and the protocols' own classes can tell."""
    import workloads

    built: tuple[Any, Any] = (None, None)
    for run in runs:
        experiment = run.point.experiment
        try:
            plan = Plan(experiment, run.simulation_seed)
            key = (experiment.workload, experiment.population, plan.seed)
            if built[0] != key:
                built = (key, workloads.build(*key))
            plan.check_sums(built[1])
            plan.read_files(built[1])
        except (ExperimentError, TraceError) as error:
            place = f"{where}: sweep point {run.point.label}" if run.point.label else where
            raise ExperimentError("\n".join(f"{place}: {line}" for line in str(error).splitlines())) from error


def _execute(run: PlannedRun, networks: "_Networks", observer: Observer) -> None:
    """Run one point to its end and summarise it."""
    from analysis.summary import summarise

    networks.ready(run.point.experiment.cluster)  # first: without a cluster there is no run, and no directory
    if not run.exists:
        RunDirectory.create(run.path, _resolved(run))
    with held(run.path):
        records = RunDirectory.reopen(run.path)
        outcomes = records.table("rounds")["outcome"].to_pylist()
        observer.started(run, outcomes)
        if len(outcomes) < run.point.experiment.rounds:
            networks.run(run.point.experiment, run.simulation_seed, records, observer.progressed)
        else:  # stopped between its last round and its summary
            records.finish()
        observer.doing("summarising")
        summary = summarise(RunRecords(run.path))
        records.write_summary(summary)
    observer.ended(run, summary)


def _resolved(run: PlannedRun) -> dict[str, Any]:
    """What a run directory's ``experiment.yaml`` holds."""
    experiment, origin = run.point.experiment, provenance()
    if experiment.seed is None:
        origin["simulation_seed"] = run.simulation_seed
    if files := digests(experiment):
        origin["files"] = files
    return experiment.plain() | {"provenance": {"label": run.label, "sweep": run.point.values, **origin}}


class _Networks:
    """Runs points in this process or on Ray; the Ray session lasts while the points want the same one."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._stack = contextlib.ExitStack()
        self._session: Any = None
        self._cluster: Cluster | None = None

    def __enter__(self) -> "_Networks":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def ready(self, cluster: Cluster) -> None:
        """Start or join Ray if the next point needs it."""
        if cluster.network == "ray":
            self._ray_session(cluster)

    def run(
        self,
        experiment: Experiment,
        simulation_seed: int,
        records: RunDirectory,
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Run (or go on with) one point to its end."""
        if experiment.cluster.network == "in-process":
            _in_process(experiment, simulation_seed, records, on_progress)
        else:
            self._ray_session(experiment.cluster).run(located(experiment), simulation_seed, records.path, on_progress)

    def _ray_session(self, cluster: Cluster) -> Any:
        if self._session is None or self._cluster != cluster:
            self._stack.close()
            self._session = None
            self._observer.doing("starting Ray" if cluster.address is None else f"joining Ray at {cluster.address}")
            from cluster.session import RaySession

            try:
                self._session = self._stack.enter_context(RaySession(cluster.address, cluster.hosts))
            except SystemExit:  # Ray's answer to SIGTERM while it starts
                raise KeyboardInterrupt from None
            self._cluster = cluster
            stop_on_signals()  # Ray has put a handler of its own
            self._observer.doing("preparing the clients")
        return self._session


def _in_process(
    experiment: Experiment, simulation_seed: int, records: RunDirectory, on_progress: Callable[[Progress], None]
) -> None:
    import workloads

    seed = simulation_seed if experiment.seed is None else experiment.seed
    workload = workloads.build(experiment.workload, experiment.population, seed)
    run_here = functools.partial(run_in_process, experiment, workload, simulation_seed, records)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run_here(on_progress)
        return
    # In a notebook this thread has an event loop already, and a loop cannot run inside another: take a thread.
    with ThreadPoolExecutor(1) as thread, _stopped_with_this_thread(on_progress) as stoppable:
        thread.submit(run_here, stoppable).result()


@contextlib.contextmanager
def _stopped_with_this_thread(on_progress: Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """`on_progress`, raising `KeyboardInterrupt` in the thread that calls it once this one is interrupted."""
    stop = threading.Event()

    def stoppable(progress: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        on_progress(progress)

    try:
        yield stoppable
    except BaseException:
        stop.set()
        raise
