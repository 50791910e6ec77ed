"""Both sides of `benchmarks.fidelity`: a case on the virtual clock, and the same on the kernel's links."""

import asyncio
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fidelity.cases import COMPUTE, ROLES, Case, Leaving, Load, environment
from benchmarks.fidelity.namespaces import Counters, Namespaces, Star, set_mtu, throttle_client, throttle_server
from benchmarks.fidelity.wire_star import die_with_parent
from testbed.arrays import Floats
from testbed.emulation.links import BYTES_PER_MBIT
from testbed.emulation.links.factory import ClientLinks
from testbed.emulation.links.rates import Rates
from testbed.emulation.traces.bandwidth import BandwidthTraces
from testbed.emulation.transport.section import TCP, Transport
from testbed.messages import question_name
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.network.exchanges import Exchanges
from testbed.network.live.server import LiveNetwork
from testbed.network.live.wire import ANSWER_OVERHEAD, question_overhead
from testbed.parties.host import LocalHosts

TIMING = Timing(600.0, disconnects_visible=True)
FRAME_BYTES = (question_overhead(question_name(Load)) + ANSWER_OVERHEAD) // 2
"""Bytes that the live network puts before a message, for the transport model."""

_QUIET_S = 0.06  # longer than TCP delays an acknowledgement
_LONG_S = 1e6
_TCP_IP_HEADERS = 52  # without Ethernet's


@dataclass(frozen=True)
class Stage:
    """The result of one case, computed or measured once.

    Attributes:
        seconds: until the last answer.
        arrival_s: `(clients,)` when each answer came; NaN where none did.
        wire_bytes: on the server's interface in both directions, headers and acknowledgements included.
    """

    seconds: float
    arrival_s: Floats
    wire_bytes: float

    @classmethod
    def of(cls, exchanges: Exchanges, wire_bytes: float) -> "Stage":
        """Return the result from the exchanges that a network has recorded."""
        arrival_s = exchanges.received_s - exchanges.sent_s
        return cls(float(np.nanmax(arrival_s)), arrival_s, wire_bytes)


def median(stages: Sequence[Stage]) -> Stage:
    """The medians of several measurements of one case."""
    return Stage(
        statistics.median(stage.seconds for stage in stages),
        np.median([stage.arrival_s for stage in stages], axis=0),
        statistics.median(stage.wire_bytes for stage in stages),
    )


def transport_of(case: Case) -> Transport:
    """Return TCP with the case's packets and the live network's frames; without windows, as round trips are short."""
    near = {"congestion_control": "none", "handshake": "none"}
    sizes = {"per_message_bytes": FRAME_BYTES, "segment_bytes": case.mtu - _TCP_IP_HEADERS}
    return TCP.model_copy(update={**near, **sizes})


def links_of(case: Case, latency_s: float) -> ClientLinks:
    """The case's links as the model sees them."""
    return ClientLinks(
        _rates(case, case.down_mbit_s, case.step.down_mbit_s if case.step else 0.0),
        _rates(case, case.up_mbit_s, case.step.up_mbit_s if case.step else 0.0),
        np.full(case.clients, latency_s), case.server_down_mbit_s * BYTES_PER_MBIT,
        case.server_up_mbit_s * BYTES_PER_MBIT, transport_of(case),
    )  # fmt: skip


def _rates(case: Case, mbit_s: Sequence[float], then_mbit_s: float) -> Rates:
    bytes_s = np.array(mbit_s) * BYTES_PER_MBIT
    if case.step is None:
        return Rates.constant(bytes_s)
    steps = np.array([bytes_s[case.step.client], then_mbit_s * BYTES_PER_MBIT])
    trace = BandwidthTraces.of(np.array([0, 2]), np.array([0.0, case.step.after_s]), steps, np.array([_LONG_S]))
    followed = np.arange(case.clients) == case.step.client
    return Rates.traced(trace, np.where(followed, 0, -1), 0.0, np.where(followed, 1.0, bytes_s))


def predicted(case: Case, latency_s: float) -> Stage:
    """The case on the virtual clock."""
    hosts = LocalHosts(case.clients, environment(case.clients), ROLES)
    network = EmulatedNetwork(
        hosts, links_of(case, latency_s), np.ones(case.clients), Leaving(case.leaves), TIMING, COMPUTE
    )

    async def once() -> None:
        await network.begin_round(1)
        await network.ask(np.arange(case.clients), case.question)
        network.end_round()

    asyncio.run(once())
    one = network.exchanges[0]
    total = one.bytes_down.sum() + one.bytes_up.sum() + one.transport_down.sum() + one.transport_up.sum()
    return Stage.of(one, float(total))


class Clients:
    """The client processes of a star; a context manager. They are killed with the process that has started them."""

    def __init__(self, star: Namespaces) -> None:
        self._star = star
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Clients":
        try:
            self._start()
            self.hear("ready", self._star.clients)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        for number in range(self._star.clients):
            inside = ["ip", "netns", "exec", self._star.client(number)]
            process = subprocess.Popen(
                [*inside, sys.executable, "-m", "benchmarks.fidelity.client", str(number)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
                start_new_session=True, preexec_fn=die_with_parent,  # Ctrl-C is not for them
            )  # fmt: skip
            self._processes.append(process)

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    def join(self, host: str, port: int, token: bytes, population: int, **more: object) -> None:
        """The first `population` connect to a live network; `more` is for `client`."""
        line = json.dumps({"host": host, "port": port, "token": token.hex(), "population": population, **more})
        for process in self._processes[:population]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def hear(self, word: str, count: int) -> None:
        """Wait until the first `count` have said `word`."""
        for number, process in enumerate(self._processes[:count]):
            assert process.stdout is not None
            if (said := process.stdout.readline().strip()) != word:
                raise RuntimeError(f"client process {number} said {said!r} instead of {word!r}; its error is above")


def measured(star: Star, clients: Clients, case: Case, repeats: int, *, counted: bool = True) -> list[Stage]:
    """The case on links that `throttle` has set, several times; this process is in the server's namespace.

    Bytes are `counted` once nothing moves any more, which takes a while; or else NaN.
    """
    return asyncio.run(_measured(star, clients, case, repeats, counted))


def throttle(star: Star, case: Case) -> None:
    """Give the links of the case to the star."""
    set_mtu(star, case.mtu)
    for number, (down, up) in enumerate(zip(case.down_mbit_s, case.up_mbit_s, strict=True)):
        throttle_client(star, number, down, up, case.mtu)
    throttle_server(star, case.clients, case.server_down_mbit_s, case.server_up_mbit_s)


async def _measured(star: Star, clients: Clients, case: Case, repeats: int, counted: bool) -> list[Stage]:
    # With `throttled=False` the network does nothing to the links; it is told them for its own records only.
    network = LiveNetwork(
        links_of(case, 0.0), np.ones(case.clients), Leaving(case.leaves), TIMING, COMPUTE,
        listen_host=star.address(), throttled=False,
    )  # fmt: skip
    address = await network.open()
    clients.join(address.host, address.port, address.token, case.clients)
    stages = []
    for number in range(1, repeats + 1):
        await network.wait_for_clients(case.clients, 30)
        before = await _quiet(star)
        await network.begin_round(number)
        stepping = asyncio.ensure_future(_step(star, case))
        await network.ask(np.arange(case.clients), case.question)
        network.end_round()
        await stepping
        passed = (await _quiet(star)).since(before).total_bytes if counted else math.nan
        stages.append(Stage.of(network.exchanges[0], passed))
        if case.step is not None:
            client = case.step.client
            throttle_client(star, client, case.down_mbit_s[client], case.up_mbit_s[client])
    await network.close()
    await asyncio.to_thread(clients.hear, "done", case.clients)
    return stages


async def _step(star: Star, case: Case) -> None:
    if case.step is not None:
        step = case.step
        await asyncio.sleep(step.after_s)
        await asyncio.to_thread(throttle_client, star, step.client, step.down_mbit_s, step.up_mbit_s)


async def _quiet(star: Star) -> Counters:
    """The counters, once nothing passes any more."""
    counters = star.counters()
    while True:
        await asyncio.sleep(_QUIET_S)
        now = star.counters()
        if now == counters:
            return now
        counters = now


def idle_round_trip_s(star: Star, clients: Clients, count: int, asks: int = 11) -> float:
    """Median time of the smallest stage with `count` clients on links without limits: kernel, processes, handling."""
    smallest = Case("idle", (1e6,) * count, (1e6,) * count, 0, (0,) * count)
    return median(measured(star, clients, smallest, asks, counted=False)).seconds
