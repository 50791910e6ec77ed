"""Points on Ray: each worker has actors of its own on the cluster that they share."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cluster.hosts import connection, placement, session
from cluster.hosts.session import RaySession
from testbed.engine.federation import Progress
from testbed.errors import ClusterError
from testbed.experiment.inputs import located, with_digests
from testbed.experiment.schema import Experiment
from testbed.experiment.sections import Cluster
from testbed.running.observers import Observer
from testbed.running.open_runs import OpenRun
from testbed.running.preparation import PlannedRun
from testbed.running.workers import OnProgress, PointWorker
from testbed.signals import raise_if_stopped


def join(address: str | None, stack: contextlib.ExitStack, on_retry: Callable[[str], None]) -> "JoinedHosts":
    """Connect to Ray, or start it here until `stack` closes.

    Args:
        address, on_retry: see `connect`.
        stack: what ends with the run.

    Raises:
        ClusterError: no cluster there, or Ray cannot be started.
    """
    if connection.connect(address, on_retry):
        stack.callback(connection.disconnect)
    raise_if_stopped()  # where Ray was in a callback, which drops exceptions
    return JoinedHosts(stack)


@dataclass(frozen=True)
class Shares:
    """How points share the cluster that this process has joined.

    Attributes:
        cpus: of the whole cluster.
        workers: how many points run at the same time.
    """

    cpus: int
    workers: int

    @classmethod
    def among(cls, cluster: Cluster, points: int) -> "Shares":
        """As many workers as there is room for, at most one for each point."""
        cpus = session.cpus()
        workers = placement.runs_at_a_time(cluster, points, cpus, session.memory_bytes()) if points > 1 else 1
        return cls(cpus, workers)

    def hosts(self, experiment: Experiment) -> int:
        """The number of hosts that a point gets."""
        return placement.hosts_for(experiment.cluster, experiment.population, self.cpus, self.workers)


class CheckingSession:
    """The session of the first worker, which checks experiments with their data before the worker runs them.

    The coordinator of a run imports torch in any case. Checked there, an experiment needs no torch in this process.

    Args:
        experiment: of the first point.
        shares: see `Shares`.
    """

    def __init__(self, experiment: Experiment, shares: Shares) -> None:
        cluster = experiment.cluster
        self.kept_for = (cluster, shares.hosts(experiment))
        self.session = RaySession(cluster.address, self.kept_for[1], cluster.gpus_per_host, sessions=shares.workers)

    def notes_of(self, run: PlannedRun, name: str) -> list[str]:
        """See `Coordinator.check`; raises what a check in this process raises."""
        return self.session.check(located(run.point.experiment), run.simulation_seed, name)


class JoinedHosts:
    """Hosts on the cluster that this process has joined; see `RemoteHosts`.

    Args:
        stack: see `join`.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._checking: CheckingSession | None = None

    def start_checking(self, experiment: Experiment, points: int) -> None:
        """See `RemoteHosts`."""
        self._checking = CheckingSession(experiment, Shares.among(experiment.cluster, points))
        self._stack.callback(self._checking.session.close)

    def notes_of(self, run: PlannedRun, name: str) -> list[str]:
        """See `RemoteHosts`."""
        assert self._checking is not None, "start_checking comes first"
        return self._checking.notes_of(run, name)

    def workers(
        self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun], cluster: Cluster, points: int
    ) -> list["RayWorker"]:
        """See `RemoteHosts`."""
        return for_points(observer, open_run, Shares.among(cluster, points), self._checking)


def for_points(
    observer: Observer,
    open_run: Callable[[PlannedRun], OpenRun],
    shares: Shares,
    checking: CheckingSession | None = None,
) -> list["RayWorker"]:
    """The workers that share a cluster; the first takes over the session that has checked the experiments."""
    workers = [RayWorker(observer, open_run, shares.hosts, shares.workers) for _ in range(shares.workers)]
    if checking is not None:
        workers[0].take_over(checking)
    return workers


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
        self._session: RaySession | None = None
        self._kept_for: tuple[Cluster, int] | None = None
        self._turn = threading.Lock()

    def take_over(self, checking: CheckingSession) -> None:
        """Begin with a session that is there."""
        self._session, self._kept_for = checking.session, checking.kept_for

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
        raise ClusterError("stopped while the hosts were started; rerun with --resume")

    def _run_rounds(self, run: PlannedRun, opened: OpenRun, on_progress: OnProgress) -> None:
        session = self._session
        if session is None:  # closed in this very moment
            raise ClusterError("stopped before its first round; rerun with --resume")

        def unless_closed(progress: Progress) -> None:
            if self._closed.is_set():
                raise ClusterError("stopped; rerun with --resume")
            on_progress(progress)

        there = located(run.point.experiment).model_copy(update={"provenance": {"modules": dict(run.modules)}})
        described = with_digests(there, opened.files, opened.former_rounds)
        session.run(described, run.simulation_seed, opened.records.path, unless_closed)
