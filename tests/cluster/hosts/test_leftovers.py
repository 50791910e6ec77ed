"""A driver that is killed takes the agents of its own Ray along, and nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.hosts import leftovers
from tests.repository import ROOT

SESSION = f"session_2026-11-27_00-00-00_000001_{os.getpid()}"
WAIT_S = 60  # turns a process that lives on into a failure
WAITING = "import sys\nprint(flush=True)\nsys.stdin.read()\n"
DRIVER = """
import sys, time
from cluster.hosts import leftovers
leftovers.watch(*sys.argv[1:])
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """Stand-ins of processes on a machine with two sessions of Ray, which live until their standard input ends."""
    program, other = tmp_path / "ray" / "agent.py", tmp_path / "rays" / "agent.py"
    for file in (program, other):
        file.parent.mkdir()
        file.write_text(WAITING)
    commands = {
        "agent": [str(program), f"--session-dir=/tmp/ray/{SESSION}"],
        "agent of another session": [str(program), f"--session-dir=/tmp/ray/{SESSION}7"],
        "program that is not Ray's": [str(other), f"/tmp/ray/{SESSION}/logs/raylet.out"],
        "driver": ["-c", DRIVER, SESSION, str(program.parent)],
    }
    processes = {
        name: subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        for name, arguments in commands.items()
    }
    for process in processes.values():
        assert process.stdout is not None
        process.stdout.readline()
    for name, title, session in (
        ("agent by another name", "ray::DashboardAgent", SESSION),
        ("agent of another session by another name", "ray::DashboardAgent", SESSION + "7"),
        ("reader of a log", "cat", SESSION),
    ):
        log = tmp_path / session / "logs" / "dashboard_agent.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as output:
            processes[name] = subprocess.Popen([title], executable="/bin/cat", stdin=subprocess.PIPE, stdout=output)
        while not Path(f"/proc/{processes[name].pid}/cmdline").read_bytes():
            pass  # the kernel is about to name it
    yield processes
    for process in processes.values():
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_agents_end_with_their_driver(
    started: dict[str, "subprocess.Popen[bytes]"], number: signal.Signals | None
) -> None:
    driver, agent = started["driver"], started["agent"]
    assert agent.poll() is None
    if number is None:  # a driver that ends by itself
        assert driver.stdin is not None
        driver.stdin.close()
        driver.stdin = None
    else:
        driver.send_signal(number)
    assert agent.wait(WAIT_S) == started["agent by another name"].wait(WAIT_S) == -signal.SIGKILL
    for name in started.keys() - {"driver", "agent", "agent by another name"}:
        assert started[name].poll() is None, name


def test_only_the_agents_of_one_session_are_known(
    started: dict[str, "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    package = str(tmp_path / "ray")
    own = {started["agent"].pid, started["agent by another name"].pid}
    assert set(leftovers.processes_of(SESSION, package)) == own
    assert started["agent"].poll() is None
