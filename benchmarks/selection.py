"""How selection grows with the population: 10^3 to 10^6 clients.

    python -m benchmarks.selection

Timed is the part that grows with n: check-in or announcement of all clients, the work of server and clients
for it, and the draw. (Mutual verification by the s participants does not grow with n; `benchmarks.round` and the demo
have it.) Server-centric and batch-partition work on a bulletin board of random keys, since only their bytes matter
here. In client-centric every client has a real key, and whether it is a candidate is computed with it, on all cores;
the first round makes the keys, too, which is timed by itself (`keys_s`). The others run on one core. Informed selection
is timed when everybody has been measured: `oort`, and the refinement that Lotto adds. The floor of the headline
(server-centric at the largest population) is a bare loop of HMAC-SHA-256 over as many keys; that of client-centric, as
a ratio `client_centric_ratio`, as many evaluations of the function's output alone, on one core.
"""

import asyncio
import hmac
import os
import time
from typing import Any

import numpy as np

from benchmarks.report import arguments, emit
from benchmarks.vrf import evaluation_seconds
from testbed.crypto.remembered import Results, remembers
from testbed.emulation.availability.models import AlwaysAvailable
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment
from testbed.parties.host import LocalHosts
from testbed.parties.pki import Directory
from testbed.randomness import Randomness
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection
from testbed.selection.contract import Selection, SelectionRound, TrainingReports
from testbed.selection.lotto.messages import ParticipantEntry
from testbed.selection.lotto.refinement import Refinement, refined
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from testbed.selection.oort import OortParameters, OortSelection

PARTICIPANTS = 100


class _DrawOnly:
    """Leaves out mutual verification, which depends on s alone."""

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """The drawn participants, unverified."""
        return Selection(np.array([entry.client for entry in entries], np.int64), candidates)


class ServerCentricDraw(_DrawOnly, ServerCentricServer):
    """Server-centric Lotto up to the draw."""


class ClientCentricDraw(_DrawOnly, ClientCentricServer):
    """Client-centric Lotto up to the draw."""


def selection_seconds(protocol: Any, population: int, rounds: int = 2) -> tuple[float, float]:
    """Wall seconds of one selection, the best of `rounds`, and how much longer the first one took."""
    randomness = Randomness(1)
    compute = ComputeModel(False, REFERENCE_COSTS)
    keys = np.random.default_rng(0).integers(0, 256, (3, population, 32), dtype=np.uint8)
    board = Directory(keys[0], keys[1], keys[2], np.ones(population, np.bool_))
    real = isinstance(protocol, ClientCentricServer)
    if real:
        board = Directory.derived(population, randomness)
    environment = Environment(
        population=population,
        randomness=randomness,
        compute=compute,
        directory=board,
        derives_identities=real,
        results=Results(),
    )
    hosts = LocalHosts(population, environment, protocol.roles)
    network = EmulatedNetwork(
        hosts, ClientLinks.of(Links(), population), np.ones(population), AlwaysAvailable(), Timing(1e6), compute
    )

    async def once(number: int) -> float:
        await network.begin_round(number)
        round_ = SelectionRound(
            number, population, network, np.zeros(population, np.int64), board, randomness, bytes(16)
        )
        if isinstance(protocol, OortSelection):
            protocol.learn(round_, reports_of_all(population))
        began = time.perf_counter()
        with remembers(environment.results):
            chosen = await protocol.select(round_)
        seconds = time.perf_counter() - began
        network.end_round()
        assert len(chosen.participants) == PARTICIPANTS
        return seconds

    seconds = [asyncio.run(once(number)) for number in range(1, rounds + 1)]
    return min(seconds), seconds[0] - min(seconds)


def reports_of_all(population: int) -> TrainingReports:
    """Return a server's knowledge of all clients after many rounds: log-normal losses, response times by Zipf's law."""
    generator = np.random.default_rng(1)
    loss = generator.lognormal(0, 0.5, population)
    latency_s = generator.permutation(np.arange(1.0, population + 1)) ** -1.2
    everybody, nobody = np.arange(population), np.empty(0, np.int64)
    return TrainingReports(everybody, np.full(population, 200), loss, loss**2, latency_s, nobody, 1.0)


def refinement_seconds(population: int, rule: Refinement, repeat: int = 3) -> float:
    """Wall seconds of one population refinement, everybody measured; the best of `repeat`."""
    reports = reports_of_all(population)
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        refined(rule, reports.latency_s, reports.quality)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def hmac_floor_seconds(population: int) -> float:
    """A bare loop of HMAC-SHA-256 over `population` keys."""
    keys = [os.urandom(32) for _ in range(population)]
    message = bytes(50)
    began = time.perf_counter()
    for key in keys:
        hmac.digest(key, message, "sha256")
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest population")
    parser.add_argument("--client-centric-up-to", type=int, default=100_000, help="largest client-centric population")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    population = 1000
    while population <= options.largest:
        server = ServerCentricDraw(ServerCentricParameters(participants=PARTICIPANTS), population)
        batch = BatchPartitionSelection(BatchPartitionParameters(participants=PARTICIPANTS, privacy=10), population)
        oort = OortSelection(OortParameters(participants=PARTICIPANTS), population)
        row: dict[str, object] = {
            "population": population,
            "server_centric_s": selection_seconds(server, population)[0],
            "batch_partition_s": selection_seconds(batch, population)[0],
            "oort_s": selection_seconds(oort, population)[0],
            "refine_or_s": refinement_seconds(population, Refinement()),
            "refine_joint_s": refinement_seconds(population, Refinement(combine="joint")),
            "client_centric_s": None,
            "keys_s": None,
            "client_centric_ratio": None,
        }
        if population <= options.client_centric_up_to:
            client = ClientCentricDraw(ClientCentricParameters(participants=PARTICIPANTS), population)
            row["client_centric_s"], row["keys_s"] = seconds, _ = selection_seconds(client, population)
            row["client_centric_ratio"] = seconds / evaluation_seconds(population)
        rows.append(row)
        population *= 10
    largest = rows[-1]
    seconds, floor = float(str(largest["server_centric_s"])), hmac_floor_seconds(int(str(largest["population"])))
    real = [row for row in rows if row["client_centric_s"] is not None]
    client_centric = (
        {key: real[-1][key] for key in ("client_centric_s", "keys_s", "client_centric_ratio")} if real else {}
    )
    emit(
        {"seconds": seconds, "floor_seconds": floor, "ratio": seconds / floor, **largest, **client_centric,
         "client_centric_population": real[-1]["population"] if real else None},
        rows,
        options.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
