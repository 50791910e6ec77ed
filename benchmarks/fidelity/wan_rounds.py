"""Whole rounds of Lotto with SecAgg: on the virtual clock, and over the wire between processes.

Eight clients, 100 ms away, at 44 Mbit/s, 100 Mbit/s at the server, a model of 100,000 parameters, modelled compute.
The experiment has a seed, so every process makes the same keys and the same directory for itself. The clients connect
before the first round, outside of the clock; the model is told that there is no handshake.
"""

import asyncio
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fidelity.measuring import FRAME_BYTES, Clients
from benchmarks.fidelity.wan_measuring import CONNECTING_S, handling_s
from benchmarks.fidelity.wire import Line
from benchmarks.fidelity.wire_star import WireStar
from testbed.arrays import Ids
from testbed.engine.federation import Federation
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.network.emulated import EmulatedNetwork
from testbed.network.live.server import LiveNetwork
from testbed.parties.host import LocalHosts
from testbed.workload.contract import Evaluation, LocalUpdate

CLIENTS, PARTICIPANTS = 8, 6
RTT_MS, MBIT_S, SERVER_MBIT_S = 100.0, 44.0, 100.0
ROUNDS = 3
PARAMETERS = 100_000
PROTOCOLS = ("lotto-client-centric", "lotto-server-centric")
ALGORITHMS = ("cubic", "bbr")
PAUSES_S = (0.0, 3.0)
SEED = 18


@dataclass(frozen=True)
class RoundTimes:
    """One round: which, and its seconds."""

    name: str
    predicted_s: float
    measured_s: float
    behind_s: float

    @property
    def error(self) -> float:
        """Of the round's time."""
        return self.predicted_s / self.measured_s - 1

    def row(self) -> dict[str, object]:
        """For the table."""
        return {
            "round": self.name,
            "computed s": round(self.predicted_s, 4),
            "measured s": round(self.measured_s, 4),
            "error %": round(100 * self.error, 1),
            "behind s": round(self.behind_s, 4),
        }


class Guessing:
    """A workload of a chosen size that costs next to nothing: an update is noise."""

    dimension = PARAMETERS
    sample_counts: Ids = np.full(CLIENTS, 10)

    def initial_model(self) -> npt.NDArray[np.float32]:
        """See `Workload`."""
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """See `Workload`."""
        noise = np.random.default_rng((client, round_number)).uniform(-0.01, 0.01, self.dimension)
        return LocalUpdate(noise.astype(np.float32), 10, 1.0, 10)

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """See `Workload`."""
        return None


def experiment(protocol: str, algorithm: str, pause_s: float, handled_s: float) -> dict[str, Any]:
    """Return the experiment; `handled_s` is this machine's part of a stage, which the computed side has as latency."""
    return {
        "name": "wan", "seed": SEED, "rounds": ROUNDS, "population": CLIENTS,
        "workload": {"dataset": "digits"},
        "selection": {"protocol": protocol, "participants": PARTICIPANTS},
        "aggregation": {"protocol": "secagg", "threshold": 0.6},
        "links": {
            "down_mbit_s": MBIT_S, "up_mbit_s": MBIT_S, "latency_ms": RTT_MS / 2 + 500 * handled_s,
            "server_down_mbit_s": SERVER_MBIT_S, "server_up_mbit_s": SERVER_MBIT_S,
            "transport": {
                "preset": "tcp", "congestion_control": algorithm, "connection": "persistent",
                "handshake": "none", "per_message_bytes": FRAME_BYTES,
            },
        },
        "time": {"compute": "modelled", "deadline_s": 120, "between_rounds_s": pause_s},
    }  # fmt: skip


def in_this_process(described: dict[str, Any]) -> tuple[Federation, LocalHosts]:
    """The federation on the virtual clock, and its clients."""
    federation = federation_in_process(Plan(Experiment.model_validate(described), 0), Guessing(), None)
    network = federation.network
    assert isinstance(network, EmulatedNetwork)
    assert isinstance(network.hosts, LocalHosts)
    return federation, network.hosts


def compared_rounds(star: WireStar, clients: Clients, *, quick: bool) -> list[RoundTimes]:
    """All rounds of all settings; of one setting if it is to be `quick`."""
    handled_s = handling_s(star, clients, CLIENTS, "warm")
    settings = list(itertools.product(PROTOCOLS, ALGORITHMS, PAUSES_S))
    found: list[RoundTimes] = []
    for protocol, algorithm, pause_s in settings[:1] if quick else settings:
        line = Line(MBIT_S, MBIT_S, RTT_MS / 2000)
        star.set(dict.fromkeys(range(CLIENTS), line), SERVER_MBIT_S, SERVER_MBIT_S)
        star.congestion_control(algorithm)
        described = experiment(protocol, algorithm, pause_s, handled_s)
        computed = asyncio.run(_rounds(in_this_process(described)[0]))
        real = asyncio.run(_live_rounds(star, clients, described))
        for number, ((predicted_s, _), (measured_s, behind_s)) in enumerate(zip(computed, real, strict=True), 1):
            name = f"{protocol}, {algorithm}, {pause_s:g} s between rounds: {number}"
            found.append(RoundTimes(name, predicted_s, measured_s, behind_s))
    return found


async def _rounds(federation: Federation) -> Sequence[tuple[float, float]]:
    """Seconds of each round without the pause before it, and by how much the machine was behind."""
    found = []
    while not federation.finished:
        began_s = federation.network.now_s
        if federation.state.round_number:
            began_s += federation.plan.experiment.time.between_rounds_s
        await federation.run_next_round()
        found.append((federation.network.now_s - began_s, federation.network.behind_s))
    return found


async def _live_rounds(star: WireStar, clients: Clients, described: dict[str, Any]) -> Sequence[tuple[float, float]]:
    local, hosts = in_this_process(described)
    live = functools.partial(LiveNetwork, listen_host=star.address(), throttled=False)
    federation = Federation(local.plan, hosts, local.workload, local.directory, None, network=live)
    network = federation.network
    assert isinstance(network, LiveNetwork)
    address = await network.open()
    clients.join(address.host, address.port, address.token, CLIENTS, experiment=described)
    await network.wait_for_clients(CLIENTS, CONNECTING_S)
    try:
        return await _rounds(federation)
    finally:
        await network.close()
        await asyncio.to_thread(clients.hear, "done", CLIENTS)
