"""Joining a Ray cluster, or starting Ray on this machine: bounded in time, with errors in one line.

Ray gives the processes that it starts half a minute to appear, and on a machine with too much to do they take longer.
A start has more patience as long as Ray's raylet lives. (The raylet gives its own agents 15 s, in whatever way
it is configured, and then aborts.) A start that fails is tried again. A cluster is asked whether it is there before
Ray's own client connects, which would try for minutes.
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
_PERMANENT_ERRORS = (ValueError, TypeError, ImportError)


def connect(address: str | None, on_retry: Callable[[str], None] = lambda line: None) -> bool:
    """Connect to Ray, or start it here.

    Args:
        address: a running cluster ("auto", "HEAD:6379", "HOST:PORT"); None starts Ray on this machine.
        on_retry: called with one line before Ray is started once more.

    Returns:
        whether Ray was started here.

    Raises:
        ClusterError: no cluster there, a missing token, or Ray could not be started.
    """
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)  # greetings are not results
    ray._private.worker._worker_logs_enabled = False  # or each process that dies has a page on standard output
    if address is None:
        _start(on_retry)
        return True
    _join(*_resolved(address))
    return False


def disconnect() -> None:
    """Leave Ray; stops it when `connect` has started it."""
    ray.shutdown()
    _unwatch()


# -- a cluster that runs already ---------------------------------------------------------------------------------------


def _resolved(address: str) -> tuple[str, str]:
    """The address that "auto" stands for, and words that say where it was found; raises `ClusterError`."""
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
    """Connect to the cluster at `address`; `origin` ends the lines of errors with where the address is from."""
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
    """Raise `ClusterError` for an address of another kind, and when no Ray cluster answers at HOST:PORT.

    Ray itself would keep trying for minutes, e.g. at the address of a cluster that has gone.
    """
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address}: Ray Client keeps the run's driver away from the cluster and cannot record there; use "
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
            f"no Ray cluster at {address!r}: something listens there, and does not answer as the head of a cluster "
            f"within {ANSWER_TIMEOUT_S:g} s{origin}"
        )


# -- a Ray of this process ---------------------------------------------------------------------------------------------


def _start(on_retry: Callable[[str], None]) -> None:
    """Start Ray on this machine, at most `STARTS` times; raises `ClusterError`."""
    for attempt in range(1, STARTS + 1):
        try:
            _start_once()
        except KeyboardInterrupt as stopped:  # what has been started goes at once, and not when it notices
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
        f"Ray cannot be started here, {STARTS} attempts failed: {why}; if the machine has too much to do or too little "
        "memory, try again later, or run with --network in-process"
    )


def _start_once() -> None:
    # Inherited by the processes that Ray starts here. As `runtime_env`, Ray would start each actor in a process
    # made for it, half a second later, instead of in one of those that wait.
    with (
        _environment_variable("OMP_NUM_THREADS", "1"),
        _keep_sigterm_handler(),
        _patience(),
        _without_unused_processes(),
    ):
        ray.init(  # "local": without an address Ray would join whatever cluster was started here last
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
    which Ray starts even with ``include_dashboard=False``, for usage statistics. Each imports Ray, together a tenth of
    the CPU time of a short run. `RAY_EXTRAS` keeps them.
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
    """Wait up to `START_PATIENCE_S` for a node that has been started to be known; Ray itself gives up after 30 s."""
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

    ray._private.services.get_node = get_node_patiently
    try:
        yield
    finally:
        ray._private.services.get_node = get_node


def _dead_raylets() -> set[int]:
    """Process ids of raylets that this process has started and that have ended, but are not forgotten yet."""
    dead: set[int] = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "raylet" and child.status() == psutil.STATUS_ZOMBIE:
                dead.add(child.pid)
    return dead


_watchers: "list[subprocess.Popen[bytes]]" = []  # one: that of the last Ray that was started here


def _watch() -> None:
    """Have the agents of the Ray that has just been started ended with this process, in whatever way it ends."""
    _unwatch()
    if (node := ray._private.worker._global_node) is None:
        return
    session = os.path.basename(node.get_session_dir_path())
    with contextlib.suppress(OSError):  # without it they end by themselves, a minute later
        _watchers.append(leftovers.watch(session, os.path.dirname(ray.__file__)))


def _unwatch() -> None:
    while _watchers:
        watcher = _watchers.pop()
        assert watcher.stdin is not None
        watcher.stdin.close()
        threading.Thread(target=watcher.wait, daemon=True).start()  # or it would stay as a zombie


def _end_failed_start(error: BaseException) -> None:
    """End what a start that failed has left: Ray forgets the node whose making raised, and its processes live on."""
    ray.shutdown()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, ray._private.node.Node):
            with contextlib.suppress(Exception):  # half made; the processes end with this one in any case
                node.kill_all_processes(check_alive=False, allow_graceful=False)


def _error_text(error: Exception) -> str:
    """The first line of an error of Ray's, or what to do about a token."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return authentication.advice(str(error)) or reason(lines[0])


@contextlib.contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process for a while."""
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

    Ray's two handlers in Python leave by `SystemExit` from wherever Ray is, and one of eleven was never heard of again.
    Its handler in C++ prints stacks as after a crash before it calls the handler that was there before. Setting that
    one again replaces it.
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
