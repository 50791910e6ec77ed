"""A Ray cluster of network namespaces of this machine, with counted and limited traffic between its nodes.

Every node has an address, a temporary directory and processes of its own; node 0 is the head. They share this machine's
processors, memory and files. Ray's authentication is off in there, since nothing outside can reach it. Needs root (see
`benchmarks.fidelity.namespaces`).
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fidelity.namespaces import (
    INTERFACE,
    Counters,
    Star,
    Unavailable,
    check_available,
    run,
    throttle_client,
    throttle_server,
)
from testbed.errors import ClusterError

ROOT = Path(__file__).resolve().parents[1]
PORT = 6379
START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 10.0
STORE_BYTES = 300_000_000

_STARTED = "Ray runtime started."
_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1


class RayStar:
    """Ray nodes around a bridge; a context manager that ends every process it has started.

    Args:
        nodes: how many, the head among them.
        mbit_s: rate of each node's link, each way; None: no limit.
        cpus_per_node: number of cores that each node announces.
        environment: variables for all processes, beside this process's own.

    Raises:
        Unavailable: this machine or user cannot make namespaces with limited links, or Ray did not start in them.
    """

    def __init__(
        self,
        nodes: int,
        mbit_s: float | None,
        cpus_per_node: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes = nodes
        self.address = f"{Star.address()}:{PORT}"
        """Ray's address, for drivers in the head's namespace."""
        self._star = Star(nodes - 1)
        self._mbit_s = mbit_s
        self._cpus = cpus_per_node
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._environment = own | {
            "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), own.get("PYTHONPATH")))),
        } | dict(environment or {})  # fmt: skip
        self._started: list[subprocess.Popen[str]] = []

    def namespace(self, node: int) -> str:
        """Name of a node's network namespace."""
        return self._star.server if node == 0 else self._star.client(node - 1)

    def ip(self, node: int) -> str:
        """A node's IPv4 address."""
        return self._star.address(None if node == 0 else node - 1)

    def __enter__(self) -> "RayStar":
        check_available()
        if shutil.which("nsenter") is None:
            raise Unavailable("nsenter not found: install Debian's package util-linux")
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._star)
            # Below /tmp: Ray's sockets have paths of at most 107 bytes.
            self.folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            undo.callback(self._end_all)
            for node in range(self.nodes):  # Ray takes for its own the address that would reach the world
                run("ip", "-n", self.namespace(node), "route", "add", "default", "dev", INTERFACE)
            if self._mbit_s is not None:
                throttle_server(self._star, self._star.clients, self._mbit_s, self._mbit_s)
                for number in range(self._star.clients):
                    throttle_client(self._star, number, self._mbit_s, self._mbit_s)
            self._wait_until_started([self._start(0)])
            self._wait_until_started([self._start(node) for node in range(1, self.nodes)])
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    # -- nodes -----------------------------------------------------------------------------------------------

    def _start(self, node: int) -> tuple[int, subprocess.Popen[str]]:
        head = ("--head", f"--port={PORT}", "--include-dashboard=false")
        place = head if node == 0 else (f"--address={self.address}",)
        with open(self._output(node), "w") as output:
            process = self._popen(
                node, sys.executable, "-m", "ray.scripts.scripts", "start", *place,
                f"--node-ip-address={self.ip(node)}", f"--num-cpus={self._cpus}",
                f"--object-store-memory={STORE_BYTES}",
                f"--temp-dir={self.folder / str(node)}", "--disable-usage-stats", "--block",
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return node, process

    def _output(self, node: int) -> Path:
        return self.folder / f"node-{node}.txt"

    def _wait_until_started(self, starting: list[tuple[int, subprocess.Popen[str]]]) -> None:
        give_up_s = time.monotonic() + START_TIMEOUT_S
        for node, process in starting:
            while _STARTED not in self._output(node).read_text():
                if process.poll() is not None or time.monotonic() > give_up_s:
                    said = " ".join(self._output(node).read_text().split())[-800:]
                    raise Unavailable(f"Ray did not start as node {node}: {said or 'it says nothing'}")
                time.sleep(_POLL_S)

    def processes(self, node: int) -> list[int]:
        """Process ids of all that runs on a node, drivers included."""
        return [int(line) for line in run("ip", "netns", "pids", self.namespace(node)).split()]

    def kill(self, node: int) -> None:
        """A node loses power: SIGKILL to each of its processes."""
        give_up_s = time.monotonic() + END_TIMEOUT_S
        while (left := self.processes(node)) and time.monotonic() < give_up_s:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for child in self._started:
                child.poll()  # collects those that were ours
            time.sleep(_POLL_S)
        if left:
            raise Unavailable(f"processes {left} of node {node} do not end")

    def cut(self, node: int) -> None:
        """A node loses its network: its cable is pulled out."""
        run("ip", "-n", self._star.bridge, "link", "set", self._port(node), "down")

    def join(self, node: int) -> None:
        """The cable of a node that was `cut` is plugged in again."""
        run("ip", "-n", self._star.bridge, "link", "set", self._port(node), "up")

    def _port(self, node: int) -> str:
        return self._star.server_port if node == 0 else self._star.port(node - 1)

    def traffic(self) -> list[Counters]:
        """Return the traffic of each node's interface since it was made, without traffic within a node."""
        found = []
        for node in range(self.nodes):
            shown = run("ip", "-n", self.namespace(node), "-s", "-j", "link", "show", INTERFACE)
            sent, received = (json.loads(shown)[0]["stats64"][way] for way in ("tx", "rx"))
            found.append(Counters(sent["bytes"], received["bytes"], sent["packets"], received["packets"]))
        return found

    # -- drivers ---------------------------------------------------------------------------------------------

    def driver(self, *command: str) -> subprocess.Popen[str]:
        """Start a command on the head, with pipes for its input, output and errors (text)."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self._popen(0, *command, **pipes)

    def run(self, *command: str, timeout_s: float) -> str:
        """Run a command on the head and return its output.

        Raises:
            ClusterError: it failed, with the end of its output, or took longer than `timeout_s`.
        """
        process = self.driver(*command)
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise ClusterError(f"{command[0]} took longer than {timeout_s:.0f} s: {errors[-800:]}") from None
        if process.returncode:
            raise ClusterError(f"{command[0]} ended with {process.returncode}: {errors.strip()[-2000:]}")
        return output

    def _popen(self, node: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.namespace(node)}", *command],
            text=True, cwd=ROOT, env=self._environment, start_new_session=True, preexec_fn=_end_with_parent, **options,
        )  # fmt: skip
        self._started.append(process)
        return process

    def _end_all(self) -> None:
        for process in reversed(self._started):
            if process.poll() is None:
                process.terminate()
        give_up_s = time.monotonic() + END_TIMEOUT_S
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, give_up_s - time.monotonic()))
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        for node in range(self.nodes):
            self.kill(node)


def _end_with_parent() -> None:
    """In the child: SIGTERM when the thread that has started it dies; `ray start --block` then ends its node."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
