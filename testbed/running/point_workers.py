"""Where points run: workers in this process or on Ray, and how many of them at the same time.

Points with the same cluster section share workers. A point that keeps a real clock (`time.clock: wall`) has the machine
to itself, because what it measures would be the others' work too; so has one that runs in this process.
"""

import asyncio
import contextlib
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.engine.federation import Progress
from testbed.engine.in_process import run_in_process
from testbed.errors import ClusterError
from testbed.experiment.schema import Cluster, Experiment
from testbed.records import RunDirectory
from testbed.running.inputs import located
from testbed.running.observers import Observer
from testbed.running.open_runs import OpenRun, name_point
from testbed.running.preparation import PlannedRun
from testbed.signals import stop_on_signals

OnProgress = Callable[[Progress], None]


def group_by_resources(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """The runs in groups that share workers: those with the same cluster section and clock, in their order."""
    groups: dict[tuple[Cluster, str], list[PlannedRun]] = {}
    for run in runs:
        experiment = run.point.experiment
        groups.setdefault((experiment.cluster, experiment.time.clock), []).append(run)
    return list(groups.values())


def requires_exclusive_access(experiment: Experiment) -> bool:
    """Whether nothing else may run beside it."""
    return experiment.cluster.network == "in-process" or experiment.time.clock == "wall"


class PointWorker(ABC):
    """Runs points to their end, one after the other; see `testbed.running.workers.Worker`.

    Args:
        observer: told how it goes; its calls must not overlap (`testbed.running.observers.Serialised`).
        open_run: opens a point's run directory.
    """

    def __init__(self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun]) -> None:
        self._observer = observer
        self._open_run = open_run
        self._closed = threading.Event()

    def run(self, run: PlannedRun) -> OpenRun:
        """Run (or go on with) a point to its end; the run is left open, to be summarised."""
        opened = None
        try:
            self._prepare(run)  # first: without a cluster there is no run, and no directory
            opened = self._open_run(run)
            self._observer.started(run, opened.outcomes)
            if len(opened.outcomes) < run.point.experiment.rounds and not run.stopped:
                self._observer.doing("preparing the clients", run)
                self._run_rounds(run, opened.records, lambda progress: self._observer.progressed(run, progress))
            else:  # stopped between its last round and its summary
                opened.records.finish()
        except BaseException as error:
            if opened is not None:
                opened.end(error, stopped=self._closed.is_set())
            name_point(error, run)
            raise
        return opened

    def close(self) -> None:
        """See `testbed.running.workers.Worker`."""
        self._closed.set()

    @abstractmethod
    def _prepare(self, run: PlannedRun) -> None:
        """Get hold of what the point runs on."""

    @abstractmethod
    def _run_rounds(self, run: PlannedRun, records: RunDirectory, on_progress: OnProgress) -> None:
        """Run the rounds that are left, and merge their records."""


class LocalWorker(PointWorker):
    """Runs points in this process."""

    def _prepare(self, run: PlannedRun) -> None:
        """Nothing: this process is there."""

    def _run_rounds(self, run: PlannedRun, records: RunDirectory, on_progress: OnProgress) -> None:
        import workloads

        experiment = run.point.experiment
        seed = run.simulation_seed if experiment.seed is None else experiment.seed
        workload = workloads.build(experiment.workload, experiment.population, seed)
        run_here = functools.partial(run_in_process, experiment, workload, run.simulation_seed, records)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run_here(on_progress)
            return
        # In a notebook this thread has an event loop already, and a loop cannot run inside another: take a thread.
        with ThreadPoolExecutor(1) as thread, _stopped_with_this_thread(on_progress) as stoppable:
            thread.submit(run_here, stoppable).result()


class RayWorker(PointWorker):
    """Runs points on actors of its own, which are kept while the points want as many hosts.

    Args:
        observer, open_run: see `PointWorker`.
        hosts: the number of hosts that a point gets.
        workers: how many of these share the cluster.
    """

    def __init__(
        self,
        observer: Observer,
        open_run: Callable[[PlannedRun], OpenRun],
        hosts: Callable[[Experiment], int],
        workers: int,
    ) -> None:
        super().__init__(observer, open_run)
        self._hosts = hosts
        self._workers = workers
        self._session: Any = None
        self._kept_for: tuple[Cluster, int] | None = None
        self._turn = threading.Lock()

    def close(self) -> None:
        """End the actors, and with them what runs on them."""
        super().close()
        self._release()

    def _release(self) -> None:
        with self._turn:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _prepare(self, run: PlannedRun) -> None:
        from cluster.hosts.session import RaySession

        cluster = run.point.experiment.cluster
        wanted = (cluster, self._hosts(run.point.experiment))
        if self._session is not None and self._kept_for == wanted:
            return
        self._release()
        session = RaySession(cluster.address, wanted[1], cluster.gpus_per_host, sessions=self._workers)
        with self._turn:
            if not self._closed.is_set():
                self._session, self._kept_for = session, wanted
                return
        session.close()
        raise ClusterError("stopped while the hosts were started; go on with --resume")

    def _run_rounds(self, run: PlannedRun, records: RunDirectory, on_progress: OnProgress) -> None:
        session = self._session
        if session is None:  # closed in this very moment
            raise ClusterError("stopped before its first round; go on with --resume")

        def unless_closed(progress: Progress) -> None:
            if self._closed.is_set():
                raise ClusterError("stopped; go on with --resume")
            on_progress(progress)

        there = located(run.point.experiment).model_copy(update={"provenance": {"modules": dict(run.modules)}})
        session.run(there, run.simulation_seed, records.path, unless_closed)


class PointWorkers:
    """Makes the workers for groups of points, and keeps the connection to Ray that they share; a context manager.

    Args:
        observer, open_run: see `PointWorker`.
    """

    def __init__(self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun]) -> None:
        self._observer = observer
        self._open_run = open_run
        self._connected = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "PointWorkers":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def for_group(self, group: Sequence[PlannedRun]) -> Sequence[PointWorker]:
        """Workers for a group of `group_by_resources`.

        Raises:
            ClusterError: Ray cannot be reached or started.
        """
        first = group[0].point.experiment
        if first.cluster.network == "in-process":
            return [LocalWorker(self._observer, self._open_run)]
        self._connect(first.cluster.address)
        from cluster.hosts import connection as connecting
        from cluster.hosts import placement

        cpus = connecting.cpus()
        count = 1
        if not requires_exclusive_access(first):
            count = placement.runs_at_a_time(first.cluster, len(group), cpus, connecting.memory_bytes())

        def hosts(experiment: Experiment) -> int:
            return placement.hosts_for(experiment.cluster, experiment.population, cpus, count)

        return [RayWorker(self._observer, self._open_run, hosts, count) for _ in range(count)]

    def _connect(self, address: str | None) -> None:
        if self._connected:
            return
        self._observer.doing("starting Ray" if address is None else f"joining Ray at {address}")
        from cluster.hosts.connection import connect, disconnect

        try:
            if connect(address):
                self._stack.callback(disconnect)
        except SystemExit:  # Ray's answer to SIGTERM while it starts
            raise KeyboardInterrupt from None
        self._connected = True
        stop_on_signals()  # Ray has put a handler of its own
        self._observer.doing("starting the hosts")


@contextlib.contextmanager
def _stopped_with_this_thread(on_progress: OnProgress) -> Iterator[OnProgress]:
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
