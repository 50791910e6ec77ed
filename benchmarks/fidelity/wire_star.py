"""A server and clients in namespaces of their own, joined by the wire in user space (`wire`)."""

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fidelity.namespaces import INTERFACE, MTU, Namespaces, Unavailable, inside, run
from benchmarks.fidelity.wire import Line

_QUEUE_PACKETS = 20_000  # of a device, until the wire reads it: nothing is lost there
_PR_SET_PDEATHSIG = 1


class WireStar(Namespaces):
    """Joined by the wire; without limits, and with the kernel's own settings of TCP, until told otherwise."""

    _process: subprocess.Popen[str] | None = None

    def _build(self) -> None:
        names = [name for name, _ in self.ends]
        self._add(names)
        for name in names:
            inside(name, _without_memory)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fidelity.wire"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        self.order({"server": names[0], "clients": names[1:]})
        for name, address in self.ends:
            lines = [
                f"addr add {address}/24 dev {INTERFACE}",
                f"link set {INTERFACE} mtu {MTU} gso_max_segs 1 txqueuelen {_QUEUE_PACKETS} multicast off up",
                "link set lo up",
            ]
            run("ip", "-n", name, "-batch", "-", lines=lines)

    def _remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        super()._remove()

    def order(self, order: Mapping[str, object]) -> dict[str, Any]:
        """Tell the wire something (`Wire.obey`); returns its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise Unavailable("the wire has ended; its error is above")
        found: dict[str, Any] = json.loads(answer)
        return found

    def set(self, lines: Mapping[int, Line], server_down_mbit_s: float, server_up_mbit_s: float) -> None:
        """Give clients these lines and the server this link, from now on; packets under way keep theirs."""
        given = {str(number): line.as_json() for number, line in lines.items()}
        self.order({"lines": given, "server": [server_down_mbit_s, server_up_mbit_s]})

    def congestion_control(self, name: str) -> None:
        """Set the algorithm of new connections by route: a namespace may not choose each algorithm as default."""
        for namespace, address in self.ends:
            chosen = f"10.77.0.0/24 dev {INTERFACE} src {address} congctl {name}"
            run("ip", "-n", namespace, "route", "replace", *chosen.split())


def die_with_parent() -> None:
    """For `preexec_fn`: the process is killed when the one that has started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _without_memory() -> None:
    """Keep new connections from starting with the metrics of earlier ones."""
    Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1")
