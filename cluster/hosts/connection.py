"""Joining a Ray cluster, or starting Ray on this machine: bounded in time, with errors of one line.

Ray waits half a minute for its processes to appear, and on a busy machine they take longer. A start therefore waits
longer, as long as Ray's raylet lives. (The raylet gives its own agents 15 s, with any configuration, and then
aborts.) A failed start is tried again. A cluster is probed before Ray's own client connects, which would retry for
minutes.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import ray
import ray._private.node
import ray._private.services
import ray._private.utils
import ray._private.worker

from cluster.hosts import leftovers
from cluster.jobs import authentication
from testbed.errors import ClusterError, reason

CONNECT_TIMEOUT_S = 5.0  # for the TCP connection
ANSWER_TIMEOUT_S = 20.0  # for the first answer of a head that is busy
STARTS = 4  # attempts to start Ray here
START_PATIENCE_S = 90.0  # for the processes of each to appear
RAY_EXTRAS = "TESTBED_RAY_EXTRAS"
"""Environment variable: 1 starts Ray here with all of its own processes."""
_POLL_S = 0.1
_ADDRESS_VARIABLE = "RAY_ADDRESS"
# Errors of arguments and installations, which another attempt would only repeat.
_PERMANENT_ERRORS = (ValueError, TypeError, ImportError)


def connect(address: str | None, on_retry: Callable[[str], None] = lambda line: None) -> bool:
    """Connect to Ray, or start it here.

    Args:
        address: a running cluster ("auto", "HEAD:6379", "HOST:PORT"); None starts Ray on this machine.
        on_retry: called with one line before Ray is started once more.

    Returns:
        Whether Ray was started here.

    Raises:
        ClusterError: no cluster there, a missing token, or Ray could not be started.
    """
    if ray.is_initialized():
        return False
    # Ray's coming default, without its warning: actors that reserve no GPU see the node's GPUs as they are.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)  # no greetings in the output
    ray._private.worker._worker_logs_enabled = False  # else each dead process prints a page
    if address is None:
        _start(on_retry)
        return True
    _join(*_resolved(address))
    return False


def disconnect() -> None:
    """Leave Ray; stop it if `connect` has started it."""
    ray.shutdown()
    _unwatch()


# -- a cluster that runs already ---------------------------------------------------------------------------------------


def _resolved(address: str) -> tuple[str, str]:
    """Return the address for "auto", and words on its origin for errors; raise `ClusterError`."""
    if address != "auto":
        return address, ""
    variable = os.environ.get(_ADDRESS_VARIABLE, "")
    try:
        cluster_address = ray._private.services.get_ray_address_from_environment("auto", None)
    except ConnectionError:
        advice = "start one with `ray start --head`, or give --address HEAD:6379"
        raise ClusterError(f"no Ray cluster at 'auto': none runs on this machine; {advice}") from None
    if variable and variable != "auto":
        return cluster_address, f" (from {_ADDRESS_VARIABLE}; unset it, or give --address HEAD:6379)"
    return cluster_address, " (the last one that was started on this machine; give --address HEAD:6379)"


def _join(address: str, origin: str) -> None:
    """Connect to the cluster at `address`; `origin` ends error messages with the origin of the address."""
    _check(address, origin)
    if authentication.asks_for_token(address):
        authentication.use_token()
        if refusal := authentication.refused(address):  # at once; Ray would try for a while and say less
            raise ClusterError(refusal)
    one_thread = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    try:
        with _keep_sigterm_handler():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=one_thread)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    except Exception as error:
        ray.shutdown()
        raise ClusterError(f"no Ray cluster at {address!r}: {_error_text(error)}{origin}") from None


def _check(address: str, origin: str) -> None:
    """Raise `ClusterError` for an address of another kind, or if no Ray cluster answers at HOST:PORT.

    Ray itself would retry for minutes, e.g. at the address of a cluster that has ended.
    """
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address}: with Ray Client the run's driver is outside of the cluster and cannot record there; use "
            f"`testbed submit EXPERIMENT.yaml --address http://HEAD:8265`, or run on a node with --address auto{origin}"
        )
    if address.startswith(("http://", "https://")):
        raise ClusterError(f"{address}: a dashboard's address; give HEAD:6379, or use `testbed submit`{origin}")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return  # "local": Ray finds out quickly itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClusterError(f"no Ray cluster at {address!r}: {why}; is the head running?{origin}") from None
    if not authentication.answers(address, ANSWER_TIMEOUT_S):
        raise ClusterError(
            f"no Ray cluster at {address!r}: a process listens there, but does not answer as the head of a cluster "
            f"within {ANSWER_TIMEOUT_S:g} s{origin}"
        )


# -- a Ray of this process ---------------------------------------------------------------------------------------------


def _start(on_retry: Callable[[str], None]) -> None:
    """Start Ray on this machine, in at most `STARTS` attempts; raise `ClusterError`."""
    for attempt in range(1, STARTS + 1):
        try:
            _start_once()
        except KeyboardInterrupt as stopped:  # end started processes at once
            _end_failed_start(stopped)
            raise
        except Exception as error:
            _end_failed_start(error)
            why = _error_text(error)
            if isinstance(error, _PERMANENT_ERRORS):
                raise ClusterError(f"Ray cannot be started here: {why}") from None
        else:
            _watch()
            return
        if attempt < STARTS:
            on_retry(f"starting Ray again, attempt {attempt + 1} of {STARTS} ({why})")
    raise ClusterError(
        f"Ray cannot be started here, {STARTS} attempts failed: {why}; if the machine is too busy or has too little "
        "memory, try again later, or run with --network in-process"
    )


def _start_once() -> None:
    # The processes that Ray starts here inherit the variable. With `runtime_env`, Ray would start a new process for
    # each actor, half a second later, instead of using a waiting one.
    with (
        _environment_variable("OMP_NUM_THREADS", "1"),
        _keep_sigterm_handler(),
        _patience(),
        _without_unused_processes(),
    ):
        ray.init(  # "local": without an address Ray would join the last cluster that was started here
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )


@contextlib.contextmanager
def _without_unused_processes() -> Iterator[None]:
    """Start Ray without three Python processes that a run on one machine does not use.

    They are the autoscaler's monitor, the log monitor (logs are not sent to the driver) and the dashboard's server,
    which Ray starts even with ``include_dashboard=False``, for usage statistics. Each imports Ray; together they take a
    tenth of the CPU time of a short run. `RAY_EXTRAS` keeps them.
    """
    if os.environ.get(RAY_EXTRAS, "") not in ("", "0"):
        yield
        return

    def nothing(self: Any) -> None:
        """Start nothing."""

    def no_server(self: Any, **options: Any) -> None:
        self._webui_url = ""  # as Ray sets it for a server without a dashboard

    node: Any = ray._private.node.Node
    replacements = {"start_monitor": nothing, "start_log_monitor": nothing, "start_api_server": no_server}
    originals = {name: getattr(node, name) for name in replacements}
    try:
        for name, method in replacements.items():
            setattr(node, name, method)
        yield
    finally:
        for name, method in originals.items():
            setattr(node, name, method)


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Wait up to `START_PATIENCE_S` for a started node to be known; Ray itself gives up after 30 s."""
    get_node: Callable[..., Any] = ray._private.services.get_node
    dead_before = _dead_raylets()

    def get_node_patiently(gcs_address: str, node_id: str) -> Any:
        deadline_s = time.monotonic() + START_PATIENCE_S
        while True:
            try:
                return get_node(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > deadline_s or _dead_raylets() - dead_before:
                    raise
            time.sleep(_POLL_S)

    # Ray has no setting for this limit.
    ray._private.services.get_node = get_node_patiently
    try:
        yield
    finally:
        ray._private.services.get_node = get_node


def _dead_raylets() -> set[int]:
    """Return the process ids of this process's raylets that have ended, but are not reaped yet."""
    dead: set[int] = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "raylet" and child.status() == psutil.STATUS_ZOMBIE:
                dead.add(child.pid)
    return dead


_watchers: "list[subprocess.Popen[bytes]]" = []  # one: that of the last Ray that was started here


def _watch() -> None:
    """Start a watcher that ends the agents of the new Ray when this process ends."""
    _unwatch()
    if (node := ray._private.worker._global_node) is None:
        return
    session = os.path.basename(node.get_session_dir_path())
    with contextlib.suppress(OSError):  # without the watcher the agents end by themselves, a minute later
        _watchers.append(leftovers.watch(session, os.path.dirname(ray.__file__)))


def _unwatch() -> None:
    while _watchers:
        watcher = _watchers.pop()
        assert watcher.stdin is not None
        watcher.stdin.close()
        threading.Thread(target=watcher.wait, daemon=True).start()  # or it would stay as a zombie


def _end_failed_start(error: BaseException) -> None:
    """End the processes of a failed start: Ray forgets the half-made node, and its processes live on."""
    ray.shutdown()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, ray._private.node.Node):
            with contextlib.suppress(Exception):  # half made; its processes end with this one anyway
                node.kill_all_processes(check_alive=False, allow_graceful=False)


def _error_text(error: Exception) -> str:
    """Return the first line of a Ray error, or advice about a token."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return authentication.advice(str(error)) or reason(lines[0])


@contextlib.contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process inside the block."""
    old_value = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if old_value is None:
            del os.environ[name]
        else:
            os.environ[name] = old_value


@contextlib.contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Keep the process's own handler of SIGTERM while Ray starts, and afterwards.

    Ray's two handlers in Python raise `SystemExit` wherever Ray is; one of eleven such exits was lost. Ray's handler in
    C++ prints stacks as after a crash before it calls the previous handler. Setting the process's handler again
    replaces it.
    """
    original = ray._private.utils.set_sigterm_handler
    ray._private.utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        ray._private.utils.set_sigterm_handler = original
        handler = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)
