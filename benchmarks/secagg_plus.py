"""One whole aggregation among neighbours, every party's work included, against the floor of its masks.

    python -m benchmarks.secagg_plus --clients 700 --dimension 1018174 --dropouts 70
    python -m benchmarks.secagg_plus --clients 200 --dropouts 20 --peer

Measured as in `benchmarks.secagg`, with the same floor: the AES-256-CTR key stream of every mask that this graph has,
and its addition, on the same cores. With `--peer`, `secagg` is measured with the same clients, beside it.
"""

import operator
import os

from benchmarks.report import arguments, emit
from benchmarks.secagg import SAMPLES, Measured, floor_of, hosts_of, measured
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import PeerGraph
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.crypto.masks import Prg, word_dtype


class Counting(SecAggPlus):
    """Counts the masks that have to be expanded."""

    graph: PeerGraph

    def peer_graph(self, round_: AggregationRound) -> PeerGraph:
        """The round's graph, kept."""
        self.graph = super().peer_graph(round_)
        return self.graph

    def masks(self, clients: int, dropouts: int) -> int:
        """Of the inputs that are sent (the last `dropouts` clients send none), and of the removal."""
        everybody, there = range(clients), range(clients - dropouts)
        of_inputs = sum(len(self.graph.peers(client, everybody)) + 1 for client in there)
        return of_inputs + len(there) + sum(len(self.graph.peers(gone, there)) for gone in everybody[len(there) :])


def row(name: str, done: Measured, masks: int, length: int, cores: int, bits: int, prg: Prg) -> dict[str, object]:
    """A line of the table; CPU seconds of both, because on a machine that others use they say more than the clock."""
    floor = floor_of(masks, length, cores, word_dtype(bits), prg)
    return {
        "protocol": name, "seconds": done.seconds, "floor_seconds": floor.seconds,
        "ratio": done.seconds / floor.seconds,
        "cpu_seconds": done.cpu_s, "floor_cpu_seconds": floor.cpu_s, "cpu_ratio": done.cpu_s / floor.cpu_s,
        "masks": masks, "client_ms": done.client_s * 1000, "client_kB_down": done.bytes_down / 1000,
        "client_kB_up": done.bytes_up / 1000, "peak_MB": done.peak_bytes / 1e6, "largest_error": done.error,
    }  # fmt: skip


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=700, help="participants s")
    parser.add_argument("--dimension", type=int, default=1_018_174, help="model parameters d")
    parser.add_argument("--dropouts", type=int, default=70, help="clients that leave before their masked input")
    parser.add_argument("--dishonest", type=float, default=0.1, help="fraction that k and t must withstand")
    parser.add_argument("--tries", type=float, default=40, help="bits of graphs that the server can try")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="threads of the floor")
    parser.add_argument("--hosts", type=int, help="hosts of clients, each a thread; default: one for each core, or "
                        "with symbolic masks one, as a run in one process has")  # fmt: skip
    parser.add_argument("--masks", choices=["symbolic", "materialised"], default="materialised")
    parser.add_argument("--prg", choices=["aes-256-ctr", "aegis-256x4"], default="aes-256-ctr")
    parser.add_argument("--repeat", type=int, default=1, help="times; the median pair counts")
    parser.add_argument("--peer", action="store_true", help="measure secagg with the same clients, too")
    options = parser.parse_args()
    s, gone, length = options.clients, options.dropouts, options.dimension + 1
    bits = max(
        32, (s * SAMPLES * 65535).bit_length()
    )  # the default, or the bits of a sum of that many weighted updates
    parameters = SecAggPlusParameters(dishonest=options.dishonest, tries=options.tries, prg=options.prg, bits=bits)
    rows = []
    for _ in range(options.repeat):
        protocol = Counting(parameters)
        done = measured(protocol, s, options.dimension, gone, hosts_of(options), told=True, masks=options.masks)
        masks = protocol.masks(s, gone)
        rows.append(row("secagg-plus", done, masks, length, options.cores, bits, options.prg))
    middle = sorted(rows, key=operator.itemgetter("ratio"))[len(rows) // 2]
    if options.peer:
        done = measured(
            SecAgg(SecAggParameters(threshold=0.7, prg=options.prg, bits=bits)),
            s,
            options.dimension,
            gone,
            hosts_of(options),
            told=True,
            masks=options.masks,
        )
        masks = (s - gone) * (s + 1 + gone)
        rows.append(row("secagg", done, masks, length, options.cores, bits, options.prg))
    chosen = parameters.neighbourhood(s)
    emit(
        {**middle, "clients": s, "dimension": options.dimension, "dropouts": gone, "neighbours": chosen.neighbours,
         "threshold": chosen.threshold, "emulated": options.masks, "prg": options.prg, "cores": options.cores,
         "bits": bits},
        rows,
        options.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
