"""A session on Ray: the actors of one run at a time, created once and used for one experiment after the other.

Ray's errors become the testbed's. Before a session, this process joins or starts Ray (`cluster.hosts.connection`).
"""

import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.hosts.actors import ClientHost, Coordinator
from cluster.hosts.connection import connect, disconnect
from cluster.hosts.pki import PKIActor
from cluster.hosts.placement import alive_nodes, answers, living_nodes, spread
from cluster.hosts.ray_hosts import PartyLost, start_host
from testbed.engine.federation import RunProgress
from testbed.errors import ClusterError, TestbedError
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory
from testbed.records.log import RunLog


def cpus() -> int:
    """Return the CPUs of the whole cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def memory_bytes() -> int:
    """Return the bytes of memory that the whole cluster gives to workers."""
    return int(ray.cluster_resources().get("memory", 0))


def testbed_error(error: RayError) -> TestbedError:
    """Return the testbed's error inside a Ray error, or a `ClusterError` with Ray's message."""
    cause = getattr(error, "cause", None)
    while isinstance(cause, RayTaskError):  # of an actor that another one has asked
        cause = cause.cause
    if isinstance(cause, TestbedError):
        return cause
    if isinstance(error, RayActorError) and not isinstance(error, RayTaskError):
        line = " ".join(str(error).split())[:300]
        return ClusterError(f"a process of the run was lost: {line}; rerun with --resume")
    line = "".join(traceback.format_exception_only(cause or error)).strip().splitlines()[-1]  # without Ray's wrapping
    return ClusterError(f"{type(error).__name__}: {line}; rerun with --resume")


PROGRESS_EVERY_S = 0.2
PLACING_TIMEOUT_S = 300.0  # other jobs may have to end first, or new nodes to start
MAXIMUM_RESTARTS = 3  # of the coordinator without a finished round in between


class RaySession:
    """Actors on a Ray cluster, ready to run experiments. Several sessions may exist at once, one thread each.

    Args:
        address: see `connect`; used if this process is not connected yet. Then `close` disconnects, too.
        hosts: number of host actors.
        gpus_per_host: see `cluster.hosts.placement.spread`.
        sessions: number of sessions that share the cluster: hosts reserve only their part, so that sessions do not wait
            for each other.
        coordinator_class: another coordinator, for experiments that break things on purpose.

    Raises:
        ClusterError: no cluster at `address`, or Ray could not be started.
    """

    def __init__(
        self,
        address: str | None,
        hosts: int,
        gpus_per_host: str | float = "auto",
        sessions: int = 1,
        coordinator_class: type[Coordinator] = Coordinator,
    ) -> None:
        self._disconnects = connect(address)
        self._host_class = ray.remote(ClientHost)
        self._coordinator_class = coordinator_class
        self._closed = False
        self._turn = threading.Lock()  # held while actors are started or ended
        self._placed = False
        self._importing: list[Any] = []  # calls of the hosts
        self.places = spread(living_nodes(ray.nodes()), hosts, gpus_per_host, sessions)
        self.hosts = [start_host(self._host_class, place) for place in self.places]
        self._start_coordinator()

    def _start_coordinator(self) -> None:
        # On the driver's node, as the records are written there; without CPUs, which the hosts reserve.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        # Handles are Any: Ray's types know `.remote` only of methods that its own decorator has marked.
        self.pki: Any = ray.remote(PKIActor).options(num_cpus=0, scheduling_strategy=here).remote()
        self.coordinator: Any = (
            ray.remote(self._coordinator_class)
            # Several calls at once: `progress` is answered while a round runs.
            .options(num_cpus=0, scheduling_strategy=here, max_concurrency=8)
            .remote(self.hosts, self.places, self.pki)
        )

    def __enter__(self) -> "RaySession":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors and any run on them; stop Ray if this session has started it."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            for actor in (self.coordinator, self.pki, *self.hosts):
                ray.kill(actor, no_restart=True)
        if self._disconnects:
            disconnect()

    def check(self, experiment: Experiment, simulation_seed: int, name: str) -> list[str]:
        """Check an experiment with its data, in the coordinator's process; see `Coordinator.check`.

        Meanwhile the hosts import the training packages.
        """
        self._wait_for_places()
        if not self._importing:
            self._importing = [host.import_training.remote() for host in self.hosts]
        notes: list[str] = self._wait(
            self.coordinator.check.remote(experiment, simulation_seed, name), lambda now: None
        )
        return notes

    def run(
        self,
        experiment: Experiment,
        simulation_seed: int,
        directory: Path | None,
        on_progress: Callable[[RunProgress], None],
    ) -> None:
        """Run (or resume) one experiment to its end.

        A coordinator that dies is started again and continues from the checkpoint, at most `MAXIMUM_RESTARTS` times
        without a finished round in between.

        Args:
            experiment: one point.
            simulation_seed: see `RunPlan`.
            directory: an existing run directory; None records nothing.
            on_progress: called with the progress of the run.

        Raises:
            TestbedError: the error that ended the run; the records up to then stay.
        """
        path = None if directory is None else directory.resolve()
        restarts, finished_rounds = 0, _rounds_done(path)
        interruption = ""
        while True:
            try:
                self._run(experiment, simulation_seed, path, interruption, on_progress)
                return
            except PartyLost as loss:
                self._stop_if_closed()
                self._check_own_node(loss)
                done = _rounds_done(path)
                # A coordinator that gets on may die again; without a finished round in between, something is wrong.
                restarts = 1 if done > finished_rounds else restarts + 1
                finished_rounds = done
                # Without records there is no checkpoint to continue from.
                if path is None or restarts > MAXIMUM_RESTARTS:
                    raise ClusterError(f"{loss}; see Ray's logs, and rerun with --resume") from None
                interruption = f"{loss}; the run resumed after round {done}"
                RunLog(path).write("coordinator-restarted", round=done, reason=str(loss))
                with self._turn:
                    self._stop_if_closed()
                    for actor in (self.coordinator, self.pki):
                        ray.kill(actor, no_restart=True)
                    self._start_coordinator()

    @staticmethod
    def _check_own_node(loss: PartyLost) -> None:
        """Raise `ClusterError` if the node of this process, which holds coordinator and PKI, has gone."""
        own = ray.get_runtime_context().get_node_id()
        if not any(node.node_id == own and answers(node) for node in alive_nodes(ray.nodes())):
            raise ClusterError(f"Ray on this machine has ended ({loss}); rerun with --resume") from None

    def _stop_if_closed(self) -> None:
        if self._closed:
            raise ClusterError("the session was closed; rerun with --resume")

    def _run(
        self,
        experiment: Experiment,
        simulation_seed: int,
        path: Path | None,
        interruption: str,
        on_progress: Callable[[RunProgress], None],
    ) -> None:
        self._wait_for_places()
        where = None if path is None else str(path)
        prepared = self.coordinator.prepare.remote(experiment, simulation_seed, where, interruption)
        finished = self._wait(prepared, on_progress)
        while not finished:
            finished = self._wait(self.coordinator.run_next_round.remote(), on_progress)
        self._wait(self.coordinator.finish.remote(), on_progress)

    def _wait_for_places(self) -> None:
        """Wait until the hosts have started: other jobs may use the cluster, or it may have to grow."""
        if self._placed:
            return
        waiting = [host.alive.remote() for host in self.hosts]
        give_up_s = time.monotonic() + PLACING_TIMEOUT_S
        while waiting and not self._closed:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=PROGRESS_EVERY_S)
            if waiting and time.monotonic() > give_up_s:
                raise ClusterError(
                    f"{len(waiting)} of {len(self.hosts)} hosts did not start within {PLACING_TIMEOUT_S:.0f} s: no "
                    "free CPUs or GPUs, or a very busy machine; wait for other jobs to end, or lower cluster.hosts"
                )
        self._placed = True

    def _wait(self, reference: Any, on_progress: Callable[[RunProgress], None]) -> Any:
        """Return the result of a call, showing progress while it runs; turn Ray's errors into the testbed's."""
        try:
            while True:
                ready, _ = ray.wait([reference], timeout=PROGRESS_EVERY_S)
                progress = ray.get(self.coordinator.progress.remote())
                if progress is not None:
                    on_progress(progress)
                if ready:
                    break
            return ray.get(reference)
        except RayTaskError as error:  # raised inside the coordinator
            raise testbed_error(error) from None
        except RayActorError:
            raise PartyLost("the coordinator died (killed, or out of memory?)") from None
        except RayError as error:
            raise testbed_error(error) from None


def _rounds_done(path: Path | None) -> int:
    checkpoint = None if path is None else RunDirectory(path).checkpoint()
    return 0 if checkpoint is None else checkpoint.round_number
