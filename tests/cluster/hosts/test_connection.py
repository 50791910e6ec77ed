"""Joining and starting Ray: slow attempts are repeated or ended, in one line with advice."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray._private.node
import ray._private.services

from cluster.hosts import connection
from cluster.hosts.connection import STARTS, connect
from testbed.errors import ClusterError
from testbed.signals import stopping_on_signals
from tests.messages_named import naming

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("no_ray")]

TIMED_OUT = (
    "The current node timed out during startup. This could happen because some of the raylet failed to startup or the "
    "GCS has become overloaded.\nmore of it"
)  # an `Exception` of no class of its own (ray/_private/node.py)


class HalfMadeNode(ray._private.node.Node):
    """A node of a failed start, with processes already started."""

    ended: list[tuple[bool, bool]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise Exception(TIMED_OUT)

    def kill_all_processes(self, check_alive: bool = True, allow_graceful: bool = False, wait: bool = False) -> None:
        self.ended.append((check_alive, allow_graceful))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """Set the outcomes of the next attempts to start Ray: an error, or success."""
    outcomes: list[Exception | None] = []

    def init(**options: Any) -> None:
        error = outcomes.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr(ray, "init", init)
    return outcomes


def test_a_start_that_times_out_is_tried_again(starts: list[Exception | None]) -> None:
    starts += [Exception(TIMED_OUT), None]
    told: list[str] = []
    assert connect(None, told.append)
    assert not starts
    (line,) = told
    assert line.startswith(f"starting Ray again, attempt 2 of {STARTS} (The current node timed out during startup.")
    assert "\n" not in line


def test_a_node_that_takes_long_to_appear_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks for it for 30 s; a longer wait is one question to it."""
    answers: list[str] = ["the node", "not yet", "not yet"]

    def look(gcs_address: str, node_id: str) -> str:
        if answers[-1] != "the node":
            raise RuntimeError(answers.pop())
        return answers[-1]

    monkeypatch.setattr(ray._private.services, "get_node", look)
    monkeypatch.setattr(connection, "_POLL_S", 0)
    asked: list[Any] = [ray._private.services.get_node]
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(ray._private.services.get_node("a", "b")))
    assert connect(None)
    assert asked == [look, "the node"]
    assert ray._private.services.get_node is look
    answers += ["never"] * (STARTS + 1)
    monkeypatch.setattr(connection, "START_PATIENCE_S", -1.0)
    with pytest.raises(ClusterError, match="attempts failed: never"):
        connect(None)
    assert len(answers) == 2


def test_a_raylet_that_has_died_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a busy machine it aborts after 15 s: the next attempt begins at once."""
    raylet = tmp_path / "raylet"
    raylet.symlink_to("/bin/true")

    def look(gcs_address: str, node_id: str) -> Any:
        children.append(subprocess.Popen([raylet]))
        os.waitid(os.P_PID, children[-1].pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not forgotten
        raise RuntimeError("not yet")

    children: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(ray._private.services, "get_node", look)
    monkeypatch.setattr(connection, "START_PATIENCE_S", 1e9)
    monkeypatch.setattr(ray, "init", lambda **options: ray._private.services.get_node("a", "b"))
    with pytest.raises(ClusterError, match="attempts failed: not yet"):
        connect(None)
    assert len(children) == STARTS
    for child in children:
        child.wait()


def test_failed_starts_end_in_one_line_with_advice(starts: list[Exception | None]) -> None:
    starts += [Exception(TIMED_OUT)] * (STARTS + 1)
    with pytest.raises(ClusterError) as ended:
        connect(None)
    assert len(starts) == 1
    line = str(ended.value)
    assert line.startswith(f"Ray cannot be started here, {STARTS} attempts failed: The current node timed out")
    assert line.endswith("try again later, or run with --network in-process")
    assert "\n" not in line


def test_a_start_with_a_wrong_setting_is_not_repeated(starts: list[Exception | None]) -> None:
    starts += [ValueError("num_cpus is no number"), None]
    with pytest.raises(ClusterError, match=naming("Ray", "num_cpus is no number")):
        connect(None)
    assert len(starts) == 1


def test_the_processes_of_a_start_that_failed_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    HalfMadeNode.ended = []
    monkeypatch.setattr(ray, "init", lambda **options: HalfMadeNode())
    with pytest.raises(ClusterError):
        connect(None)
    assert HalfMadeNode.ended == [(False, False)] * STARTS


# -- addresses of clusters that have gone ------------------------------------------------------------------------------


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own client, which would try for minutes, is not reached; nor is a cluster that runs on this machine."""

    def init(**options: Any) -> None:
        raise AssertionError("Ray was asked to connect")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray._private.services, "find_gcs_addresses", set)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address with a silent listener, like the head of a cluster that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def refusal(address: str) -> str:
    with pytest.raises(ClusterError) as ended:
        connect(address)
    assert "\n" not in str(ended.value)
    return str(ended.value)


def test_a_stale_address_in_the_environment(unasked: None, closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", closed)
    line = refusal("auto")
    assert line.startswith(f"no Ray cluster at '{closed}': Connection refused; is the head running?")
    assert line.endswith("(from RAY_ADDRESS; unset it, or give --address HEAD:6379)")


def test_a_stale_address_of_the_last_cluster_here(unasked: None, closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray._private.services, "find_bootstrap_address", lambda temp_dir: closed)
    line = refusal("auto")
    assert line.startswith(f"no Ray cluster at '{closed}': Connection refused")
    assert line.endswith("(the last one that was started on this machine; give --address HEAD:6379)")


def test_no_cluster_at_all(unasked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray._private.services, "find_bootstrap_address", lambda temp_dir: None)
    assert refusal("auto").startswith("no Ray cluster at 'auto': none runs on this machine; start one")


@pytest.mark.parametrize("variable", [True, False])
def test_a_silent_head_times_out(unasked: None, silent: str, variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_S", 0.2)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", silent)
    line = refusal("auto" if variable else silent)
    assert line.startswith(f"no Ray cluster at '{silent}': ")
    assert "within 0.2 s" in line
    assert ("RAY_ADDRESS" in line) == variable


def test_a_dashboards_address_in_the_environment(unasked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    assert "a dashboard's address" in refusal("auto")
    assert "from RAY_ADDRESS" in refusal("auto")


# -- signals -----------------------------------------------------------------------------------------------------------


def test_sigterm_is_answered_without_a_dump_of_ray(capfd: pytest.CaptureFixture[str]) -> None:
    """Ray's handler in C++, which `ray.init` sets, prints the stacks of the process before the testbed's is called."""
    with pytest.raises(KeyboardInterrupt), stopping_on_signals():  # noqa: PT012   # the signal must arrive inside connect()
        assert connect(None)
        assert connect(None) is False
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)
    assert "SIGTERM" not in capfd.readouterr().err


PYTHON_PROCESSES = ("start_monitor", "start_log_monitor", "start_api_server")


@pytest.mark.parametrize("extras", ["0", "1"])
def test_processes_that_a_local_run_does_not_use_are_left_out(monkeypatch: pytest.MonkeyPatch, extras: str) -> None:
    """They start if Ray is started in another way, or if they are asked for."""
    node = ray._private.node.Node
    began: list[str] = []
    for name in PYTHON_PROCESSES:
        monkeypatch.setattr(node, name, lambda self, name=name, **options: began.append(name))

    def start_all(**options: Any) -> None:
        made = node.__new__(node)
        made.start_monitor()
        made.start_log_monitor()
        made.start_api_server(include_dashboard=False, raise_on_failure=False)

    monkeypatch.setattr(ray, "init", start_all)
    monkeypatch.setenv(connection.RAY_EXTRAS, extras)
    assert connect(None)
    assert began == (list(PYTHON_PROCESSES) if extras == "1" else [])
    began.clear()
    start_all()
    assert began == list(PYTHON_PROCESSES)
