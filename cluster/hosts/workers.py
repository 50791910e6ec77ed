"""Runs on Ray: each worker has its own actors on the shared cluster."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cluster.hosts import connection, placement, session
from cluster.hosts.session import RaySession
from testbed.engine.federation import RunProgress
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
        stack: resources that end with the run.

    Raises:
        ClusterError: no cluster there, or Ray cannot be started.
    """
    if connection.connect(address, on_retry):
        stack.callback(connection.disconnect)
    raise_if_stopped()  # a stop inside one of Ray's callbacks was dropped
    return JoinedHosts(stack)


@dataclass(frozen=True)
class OpenSession:
    """A session, and the cluster section and number of hosts that it fits."""

    session: RaySession
    requirements: tuple[Cluster, int]


@dataclass(frozen=True)
class WorkerShares:
    """Division of the joined cluster among points.

    Attributes:
        cpus: CPUs of the whole cluster.
        workers: number of points that run at the same time.
    """

    cpus: int
    workers: int

    @classmethod
    def among(cls, cluster: Cluster, points: int) -> "WorkerShares":
        """Return as many workers as there is room for, at most one for each point."""
        cpus = session.cpus()
        workers = placement.runs_at_a_time(cluster, points, cpus, session.memory_bytes()) if points > 1 else 1
        return cls(cpus, workers)

    def requirements(self, experiment: Experiment) -> tuple[Cluster, int]:
        """Return the cluster section and the number of hosts of a point."""
        hosts = placement.hosts_for(experiment.cluster, experiment.population, self.cpus, self.workers)
        return experiment.cluster, hosts

    def start(self, experiment: Experiment) -> OpenSession:
        """Start a session for a point; raise as `RaySession`."""
        cluster, hosts = requirements = self.requirements(experiment)
        return OpenSession(
            RaySession(cluster.address, hosts, cluster.gpus_per_host, sessions=self.workers), requirements
        )


class JoinedHosts:
    """Hosts on the cluster that this process has joined; see `RemoteHosts`.

    The first session checks the experiments with their data and then belongs to the first worker. The coordinator
    imports torch anyway, so that a check there needs no torch in this process.

    Args:
        stack: see `join`.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._checking: OpenSession | None = None

    def start_checking(self, experiment: Experiment, points: int) -> None:
        self._checking = WorkerShares.among(experiment.cluster, points).start(experiment)
        self._stack.callback(self._checking.session.close)

    def notes_of(self, run: PlannedRun, name: str) -> list[str]:
        assert self._checking is not None, "start_checking comes first"
        return self._checking.session.check(located(run.point.experiment), run.simulation_seed, name)

    def workers(
        self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun], cluster: Cluster, points: int
    ) -> list["RayWorker"]:
        shares = WorkerShares.among(cluster, points)
        first = RayWorker(observer, open_run, shares, self._checking)
        return [first, *(RayWorker(observer, open_run, shares) for _ in range(shares.workers - 1))]


class RayWorker(PointWorker):
    """A worker with its own actors, which are kept while points need the same number of hosts.

    Args:
        observer, open_run: see `PointWorker`.
        shares: division of the cluster among workers.
        first_session: a session to begin with.
    """

    def __init__(
        self,
        observer: Observer,
        open_run: Callable[[PlannedRun], OpenRun],
        shares: WorkerShares,
        first_session: OpenSession | None = None,
    ) -> None:
        super().__init__(observer, open_run)
        self._shares = shares
        self._open_session = first_session
        self._turn = threading.Lock()

    def close(self) -> None:
        """End the actors, and any run on them."""
        super().close()
        self._release()

    def _release(self) -> None:
        with self._turn:
            session_slot, self._open_session = self._open_session, None
        if session_slot is not None:
            session_slot.session.close()

    def _prepare(self, run: PlannedRun) -> None:
        session_slot = self._open_session
        # Starting actors takes seconds, so points with the same needs share them.
        if session_slot is not None and session_slot.requirements == self._shares.requirements(run.point.experiment):
            return
        self._release()
        session_slot = self._shares.start(run.point.experiment)
        with self._turn:
            # `close` may have run while the session started, and found nothing to end.
            if not self._closed.is_set():
                self._open_session = session_slot
                return
        session_slot.session.close()
        raise ClusterError("stopped while the hosts were started; rerun with --resume")

    def _run_rounds(self, run: PlannedRun, opened: OpenRun, on_progress: OnProgress) -> None:
        session_slot = self._open_session
        if session_slot is None:  # closed at the same moment
            raise ClusterError("stopped before its first round; rerun with --resume")

        def unless_closed(progress: RunProgress) -> None:
            if self._closed.is_set():
                raise ClusterError("stopped; rerun with --resume")
            on_progress(progress)

        located_experiment = located(run.point.experiment).model_copy(
            update={"provenance": {"modules": dict(run.modules)}}
        )
        experiment = with_digests(located_experiment, opened.files, opened.former_rounds)
        session_slot.session.run(experiment, run.simulation_seed, opened.records.path, unless_closed)
