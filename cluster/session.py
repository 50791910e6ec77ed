"""A session on Ray: connect or start it, make the actors once, run experiments one after the other on them."""

import logging
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.actors import ClientHost, Coordinator, PKIActor
from testbed.errors import ClusterError, TestbedError
from testbed.experiment.schema import Experiment
from testbed.federation import Progress

PROGRESS_EVERY_S = 0.2
CONNECT_TIMEOUT_S = 5.0


class RaySession:
    """Actors on a Ray cluster, ready to run experiments.

    Args:
        address: a running cluster ("auto", "HEAD:6379", "HOST:PORT"); None starts Ray here, and stops it at
            the end.
        hosts: number of host actors, or "auto": one per CPU.

    Raises:
        ClusterError: no cluster at `address`, or Ray could not be started.
    """

    def __init__(self, address: str | None, hosts: int | str) -> None:
        self._owns_ray = connect(address)
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        count = cpus if hosts == "auto" else int(hosts)
        share = min(1.0, cpus / count)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        host = ray.remote(ClientHost).options(num_cpus=share * 0.99, scheduling_strategy="SPREAD", max_restarts=0)
        self.hosts = [host.remote() for _ in range(count)]
        self.pki = ray.remote(PKIActor).options(num_cpus=0, scheduling_strategy=here).remote()
        self.coordinator = (
            ray.remote(Coordinator)
            .options(num_cpus=0, scheduling_strategy=here, max_concurrency=8)
            .remote(self.hosts, self.pki)
        )

    def __enter__(self) -> "RaySession":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors; stop Ray if this session has started it."""
        for actor in (self.coordinator, self.pki, *self.hosts):
            ray.kill(actor, no_restart=True)
        if self._owns_ray:
            ray.shutdown()

    def run(
        self,
        experiment: Experiment,
        simulation_seed: int,
        directory: Path | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Run (or go on with) one experiment to its end; `directory` is an existing run directory.

        Raises the `TestbedError` that ended it; what was recorded before stays.
        """
        path = None if directory is None else str(directory.resolve())
        finished = self._wait(self.coordinator.prepare.remote(experiment, simulation_seed, path), on_progress)
        while not finished:
            finished = self._wait(self.coordinator.run_next_round.remote(), on_progress)
        self._wait(self.coordinator.finish.remote(), on_progress)

    def _wait(self, reference: Any, on_progress: Callable[[Progress], None]) -> Any:
        """The result of a call, showing progress while it runs; Ray's errors become the testbed's."""
        try:
            while True:
                ready, _ = ray.wait([reference], timeout=PROGRESS_EVERY_S)
                progress = ray.get(self.coordinator.progress.remote())
                if progress is not None:
                    on_progress(progress)
                if ready:
                    break
            return ray.get(reference)
        except RayError as error:
            raise typed(error) from None


def typed(error: RayError) -> TestbedError:
    """The testbed's error inside one of Ray's, or a `ClusterError` that says what Ray says."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TestbedError):
        return cause
    if isinstance(error, RayActorError):
        return ClusterError("the coordinator died (killed, or out of memory?); go on with --resume")
    line = "".join(traceback.format_exception_only(cause or error)).strip().splitlines()[-1]  # without Ray's wrapping
    return ClusterError(f"{type(error).__name__}: {line}; go on with --resume")


def connect(address: str | None) -> bool:
    """Connect to Ray, or start it; whether it was started here. Raises `ClusterError`."""
    if ray.is_initialized():
        return False
    if address is not None:
        _answers(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)  # greetings are not results
    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    try:
        if address is None:
            ray.init(
                include_dashboard=False, log_to_driver=False, logging_level="error", configure_logging=False,
                runtime_env=environment,
            )  # fmt: skip
            return True
        ray.init(address=address, log_to_driver=False, logging_level="error", runtime_env=environment)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"no Ray cluster at {address!r}" if address is not None else "Ray cannot be started here"
        raise ClusterError(f"{where}: {str(error).strip().splitlines()[0]}") from None
    return False


def _answers(address: str) -> None:
    """Raise `ClusterError` when nothing listens at HOST:PORT; Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local": Ray finds out quickly itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {error.strerror or error}; is the head running?") from None
