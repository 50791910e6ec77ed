"""Time of a whole selection by verifiable batch partition: 10^3 to 10^5 clients, beside client-centric Lotto.

    python -m benchmarks.verifiable_batches
    python -m benchmarks.verifiable_batches --largest 10000 --privacy 5

Timed is one round of selection, from the announcement to the last signature: every client evaluates a real verifiable
random function under its own key, the members of candidate batches (aK clients) prove, the server verifies them, and
each of the K participants verifies the proofs of all others and their signatures. `server_s` and `participant_s` are
the thread CPU seconds of the server and of one participant; wall seconds are all parties' work on one core. The floor
is n evaluations of the function alone, which no protocol with a number for each client can do without.
"""

import asyncio
import time
from typing import Any

import numpy as np

from benchmarks.report import arguments, emit
from benchmarks.vrf import evaluation_seconds
from testbed.emulation.availability.models import AlwaysAvailable
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.randomness import Randomness
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.variants import ClientCentricParameters, ClientCentricServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchPartitionParameters, VerifiableBatchServer


def one_selection(protocol: Any, population: int) -> dict[str, float]:
    """Seconds of one whole selection, and the kilobytes of its messages."""
    randomness, compute = Randomness(1), ComputeModel(True, REFERENCE_COSTS)
    environment = Environment(
        population=population,
        randomness=randomness,
        compute=compute,
        directory=Directory.empty(0),
        experiment_id=bytes(16),
        batches=protocol.batches,
    )
    hosts = LocalHosts(population, environment, protocol.roles)
    hosts.register(PKI(population, randomness))
    network = EmulatedNetwork(
        hosts, ClientLinks.of(Links(), population), np.ones(population), AlwaysAvailable(), Timing(1e6), compute
    )

    async def once() -> float:
        await network.begin_round(1)
        nobody, board = np.zeros(population, np.int64), hosts.environment.directory
        round_ = SelectionRound(1, population, network, nobody, board, randomness, bytes(16))
        began = time.perf_counter()
        await protocol.select(round_)
        seconds = time.perf_counter() - began
        network.end_round()
        return seconds

    seconds = asyncio.run(once())
    by_stage = {stage.stage: stage for stage in network.exchanges}
    shown = by_stage["lotto/participants"].compute_s.mean() + by_stage["lotto/signatures"].compute_s.mean()
    traffic = sum(float(stage.bytes_up.sum() + stage.bytes_down.sum()) for stage in network.exchanges)
    return {
        "seconds": seconds, "server_s": network.server_compute_s, "participant_s": float(shown),
        "traffic_kb": traffic / 1e3, "announce_up_kb": float(by_stage["lotto/announce"].bytes_up.sum()) / 1e3,
    }  # fmt: skip


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=100_000, help="largest population")
    parser.add_argument("--participants", type=int, default=100, help="K")
    parser.add_argument("--privacy", type=int, default=5, help="T")
    parser.add_argument("--over-selection", type=float, default=2.0, help="a, for both protocols")
    options = parser.parse_args()
    terms = {"participants": options.participants, "over_selection": options.over_selection}
    rows: list[dict[str, Any]] = []
    population = 1000
    while population <= options.largest:
        batches = VerifiableBatchServer(
            VerifiableBatchPartitionParameters(privacy=options.privacy, **terms), population
        )
        lotto = ClientCentricServer(ClientCentricParameters(**terms), population)
        floor = evaluation_seconds(population)
        own = one_selection(batches, population)
        theirs = {f"lotto_{key}": value for key, value in one_selection(lotto, population).items()}
        rows.append({"population": population, "floor_seconds": floor, **own, **theirs})
        population *= 10
    largest = rows[-1]
    emit({"ratio": largest["seconds"] / largest["floor_seconds"], **largest}, rows, options.format == "json")


if __name__ == "__main__":
    main()
