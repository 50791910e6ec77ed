"""One whole secure aggregation, every party's work included, against the floor of its masks.

    python -m benchmarks.secagg --clients 70 --dimension 1018174 --dropouts 7

Clients live in this process: with materialised masks on one host per core (threads; the key streams of the masks are
made without Python's global lock), with symbolic ones on one.
The drop-outs leave before they send their masked input, which costs the server most. The floor is the least that any
implementation of this protocol with this PRG must do that expands its masks: the key stream of each, and its addition,
spread over the same cores in the same process. A peer for orientation: Flower 1.41's SecAgg+ takes about 60 s here.
"""

import argparse
import asyncio
import os
import resource
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.report import arguments, emit
from testbed.aggregation.contract import AggregationProtocol, AggregationRound
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.crypto.masks import Prg, aegis_256x4_writer
from testbed.crypto.remembered import Results, remembers
from testbed.emulation.availability import Presence
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.messages import Vector
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.randomness import Randomness
from testbed.training import Train, Trainer
from workloads.contract import LocalUpdate
from workloads.determinism import one_thread

CHUNK_BYTES = 1 << 18
MOST_TIMED = 5000
SAMPLES = 20  # of each client: its weight


class RandomUpdates:
    """A stand-in for training: every client has a random update, the same in every run."""

    def __init__(self, clients: int, dimension: int) -> None:
        self.dimension = dimension
        self.sample_counts = np.full(clients, SAMPLES, np.int64)
        generator = np.random.default_rng(0)
        self._deltas = [generator.uniform(-1, 1, dimension).astype(np.float32) for _ in range(min(clients, 8))]

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """The client's update; no training."""
        return LocalUpdate(self._deltas[client % len(self._deltas)], SAMPLES, 0.0, 0)

    def expected(self, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Mean of the clients' updates."""
        times = np.bincount(clients % len(self._deltas), minlength=len(self._deltas))
        return sum((count * delta.astype(np.float64) for count, delta in zip(times, self._deltas, strict=True)),
                   np.zeros(self.dimension)) / len(clients)  # fmt: skip


class LeaveBeforeInput:
    """The last `count` clients leave when they are asked for their masked input in round `last`."""

    def __init__(self, clients: int, count: int, last: int = 1) -> None:
        self._first = clients - count
        self._last = last

    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: npt.NDArray[np.int64]) -> Presence:
        """Everybody, until they leave."""
        now = round_number == self._last and stage.endswith(("/masked-input", "/report"))
        leaves = (clients >= self._first) & np.full(len(clients), now)
        return Presence.of(np.ones(len(clients), np.bool_), leaves)


@dataclass(frozen=True)
class Measured:
    """One aggregation, from advertised keys to the mean.

    Attributes:
        seconds: wall time, all parties' work included.
        cpu_s: CPU seconds of this process meanwhile, all threads together.
        peak_bytes: the most memory that this process has had so far.
        error: largest error of the mean.
        client_s: mean CPU seconds of a client.
        bytes_down, bytes_up: mean bytes that a client receives and sends.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    error: float
    client_s: float
    bytes_down: float
    bytes_up: float


def hosts_of(options: argparse.Namespace) -> int:
    """How many hosts there are: where masks stay symbols, threads wait for Python's lock longer than they compute."""
    default: int = 1 if options.masks == "symbolic" else options.cores
    return options.hosts or default


def measured(
    protocol: AggregationProtocol,
    clients: int,
    dimension: int,
    dropouts: int,
    hosts: int,
    *,
    told: bool = False,
    masks: str = "materialised",
    compute: str | None = None,
    before: int = 0,
) -> Measured:
    """Run the protocol once; the last `dropouts` clients leave before they send their input.

    `before`: number of rounds without dropouts that come first and are not measured.

    `told`: the server knows the experiment's id, and verifies signatures as the clients do. `masks`: "symbolic" or
    "materialised" (`aggregation.masks`). `compute`: "modelled", where pure functions are computed once, or "measured",
    where everybody computes everything; default: with masks that are materialised.
    """
    protocol.parameters.check_weights(clients, SAMPLES)
    one_thread()  # as in every process of a run
    workload = RandomUpdates(clients, dimension)
    randomness = Randomness(1)
    everything = compute == "measured" if compute else masks == "materialised"
    results = None if everything else Results()
    model = ComputeModel(everything, REFERENCE_COSTS)
    environment = Environment(
        population=clients,
        randomness=randomness,
        compute=model,
        directory=Directory.empty(clients),
        workload=workload,  # type: ignore[arg-type]  # clients only train
        symbolic_masks=masks == "symbolic",
        results=results,
    )
    local = LocalHosts(clients, environment, [RoleSpec(Trainer, None), *protocol.roles], hosts=hosts)
    local.register(PKI(clients, randomness))
    everybody = np.arange(clients, dtype=np.int64)
    network = EmulatedNetwork(
        local, ClientLinks.of(Links(), clients), np.ones(clients), LeaveBeforeInput(clients, dropouts, before + 1),
        Timing(60.0), model,
    )  # fmt: skip

    memory: dict[str, npt.NDArray[Any]] = {}

    async def once(number: int) -> Measured:
        await network.begin_round(number)
        question = Train(number, Vector(np.zeros(dimension, np.float32), 0))
        await network.ask(everybody, question)
        training, identity = len(network.exchanges), environment.experiment_id if told else None
        start = AggregationRound(
            number, network, everybody, everybody, environment.directory, dimension, identity, memory=memory,
            training=question,
        )  # fmt: skip
        began, began_cpu = time.perf_counter(), time.process_time()
        with remembers(results):
            aggregate = await protocol.aggregate(start)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        network.end_round()
        stages = network.exchanges[training:]
        return Measured(
            seconds, cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            float(np.abs(aggregate.mean - workload.expected(aggregate.survivors)).max()),
            *(float(sum(getattr(stage, what).sum() for stage in stages)) / clients
              for what in ("compute_s", "bytes_down", "bytes_up")),
        )  # fmt: skip

    async def all_rounds() -> Measured:
        for number in range(1, before + 1):
            await once(number)
        return await once(before + 1)

    return asyncio.run(all_rounds())


@dataclass(frozen=True)
class Floor:
    """Cost of the masks alone: wall time, and CPU seconds of all threads together."""

    seconds: float
    cpu_s: float


def floor_of(masks: int, length: int, cores: int, lane: type, prg: Prg = "aes-256-ctr") -> Floor:
    """To expand and add `masks` masks of `length` elements on `cores` threads.

    The time is that of `MOST_TIMED` masks, in proportion, where there are more: half a million take many minutes.
    """
    timed = min(masks, MOST_TIMED)
    size = length * np.dtype(lane).itemsize

    def expand(count: int) -> None:
        zeros = memoryview(bytes(CHUNK_BYTES))
        stream = np.empty(CHUNK_BYTES + 16, np.uint8)
        total: npt.NDArray[Any] = np.zeros(length, lane)
        for number in range(count):
            seed = number.to_bytes(32, "big")
            if prg == "aes-256-ctr":
                cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
            else:
                write = aegis_256x4_writer()
            for begin in range(0, size, CHUNK_BYTES):
                width = min(CHUNK_BYTES, size - begin)
                if prg == "aes-256-ctr":
                    cipher.update_into(zeros[:width], stream.data)
                else:
                    write(stream, width, begin.to_bytes(32, "little"), seed)
                part = total[begin // total.itemsize : (begin + width) // total.itemsize]
                np.add(part, stream[:width].view(lane), out=part)

    shares = [timed // cores + (worker < timed % cores) for worker in range(cores)]
    threads = [threading.Thread(target=expand, args=(share,)) for share in shares]
    began, began_cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scale = masks / timed
    return Floor((time.perf_counter() - began) * scale, (time.process_time() - began_cpu) * scale)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=70, help="participants s")
    parser.add_argument("--dimension", type=int, default=1_018_174, help="model parameters d")
    parser.add_argument("--dropouts", type=int, default=7, help="clients that leave before their masked input")
    parser.add_argument("--bits", type=int, default=32, help="ring width")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="threads of the floor")
    parser.add_argument("--hosts", type=int, help="hosts of clients, each a thread; default: one for each core, or "
                        "with symbolic masks one, as a run in one process has")  # fmt: skip
    parser.add_argument("--masks", choices=["symbolic", "materialised"], default="materialised")
    parser.add_argument("--compute", choices=["modelled", "measured"], help="measured: nobody remembers anything; "
                        "default with masks that are materialised")  # fmt: skip
    parser.add_argument("--prg", choices=["aes-256-ctr", "aegis-256x4"], default="aes-256-ctr")
    parser.add_argument("--repeat", type=int, default=3, help="times; the median pair counts")
    options = parser.parse_args()
    survivors = options.clients - options.dropouts
    masks = survivors * options.clients + survivors + options.dropouts * survivors
    lane = np.uint16 if options.bits <= 16 else np.uint32 if options.bits <= 32 else np.uint64
    rows = []
    for _ in range(options.repeat):
        floor = floor_of(masks, options.dimension + 1, options.cores, lane, options.prg)
        protocol = SecAgg(SecAggParameters(threshold=0.7, bits=options.bits, prg=options.prg))
        done = measured(
            protocol,
            options.clients,
            options.dimension,
            options.dropouts,
            hosts_of(options),
            masks=options.masks,
            compute=options.compute,
        )
        rows.append(
            {"seconds": done.seconds, "floor_seconds": floor.seconds, "ratio": done.seconds / floor.seconds,
             "cpu_seconds": done.cpu_s, "floor_cpu_seconds": floor.cpu_s,
             "peak_MB": done.peak_bytes / 1e6, "largest_error": done.error}
        )  # fmt: skip
    middle = sorted(rows, key=lambda row: row["ratio"])[len(rows) // 2]
    emit(
        {**middle, "clients": options.clients, "dimension": options.dimension, "dropouts": options.dropouts,
         "masks": masks, "emulated": options.masks, "prg": options.prg, "cores": options.cores, "bits": options.bits},
        rows,
        options.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
