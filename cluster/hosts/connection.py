"""Connecting to Ray, or starting it here; what Ray says when something is wrong, as the testbed's errors."""

import logging
import os
import socket
import traceback

import ray
import ray._private.worker
from ray.exceptions import RayActorError, RayError, RayTaskError

from testbed.errors import ClusterError, TestbedError

CONNECT_TIMEOUT_S = 5.0


def connect(address: str | None) -> bool:
    """Connect to Ray, or start it here; whether it was started here.

    Args:
        address: a running cluster ("auto", "HEAD:6379", "HOST:PORT"); None starts Ray on this machine.

    Raises:
        ClusterError: no cluster there, a missing token, or Ray could not be started.
    """
    from cluster.jobs import authentication

    if ray.is_initialized():
        return False
    if address is not None:
        _check(address)
        if authentication.asks_for_token(address):
            authentication.use_token()
            if refusal := authentication.refused(address):  # at once; Ray would try for a while and say less
                raise ClusterError(refusal)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)  # greetings are not results
    ray._private.worker._worker_logs_enabled = False  # or each process that dies has a page on standard output
    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    try:
        if address is None:
            ray.init(  # "local": without an address Ray would join whatever cluster was started here last
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                runtime_env=environment,
            )
            return True
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)
    except (KeyboardInterrupt, SystemExit):  # what has been started goes at once, and not when it notices
        ray.shutdown()
        raise
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"no Ray cluster at {address!r}" if address is not None else "Ray cannot be started here"
        advice = authentication.advice(str(error))
        raise ClusterError(f"{where}: {advice or str(error).strip().splitlines()[0]}") from None
    return False


def disconnect() -> None:
    """Leave Ray; stops it when `connect` has started it."""
    ray.shutdown()


def cpus() -> int:
    """CPUs of the whole cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def memory_bytes() -> int:
    """Memory that the whole cluster gives to workers."""
    return int(ray.cluster_resources().get("memory", 0))


def typed(error: RayError) -> TestbedError:
    """The testbed's error inside one of Ray's, or a `ClusterError` that says what Ray says."""
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


def _check(address: str) -> None:
    """Raise `ClusterError` for Ray Client, and when nothing listens at HOST:PORT: Ray would keep trying for minutes."""
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address}: Ray Client keeps the run's driver away from the cluster and cannot record there; use "
            "`testbed submit EXPERIMENT.yaml --address http://HEAD:8265`, or run on a node with --address auto"
        )
    if address.startswith(("http://", "https://")):
        raise ClusterError(f"{address}: a dashboard's address; give HEAD:6379, or use `testbed submit`")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local": Ray finds out quickly itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {error.strerror or error}; is the head running?") from None
