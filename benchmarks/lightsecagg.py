"""How long one aggregation by `lightsecagg` takes, all clients on one host of this process.

    python -m benchmarks.lightsecagg --clients 100 --dimension 1000000 --dropouts 10

Timed is the aggregation, from the advertised keys to the mean. The floor is the work that no implementation of
the paper can avoid, in the same process: each client's uniform elements, the products of matrices that code its
mask, sealing and opening all pieces, adding masks to inputs, summing pieces and inputs, and decoding.
Both in CPU seconds of one thread.
"""

import time

from benchmarks.report import arguments, emit
from benchmarks.secagg import measured
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.crypto import encryption
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import total


def floor_s(clients: int, survivors: int, code: MaskCode) -> float:
    """CPU seconds of the unavoidable operations, one after the other."""
    seed, points, key, nonce = bytes(32), tuple(range(1, clients + 1)), bytes(32), bytes(12)
    began = time.process_time()
    coded = code.coded(seed, points)
    piece = coded[0].tobytes()
    mask = code.mask(seed)
    total([mask, mask])
    one_client_s = time.process_time() - began
    began = time.process_time()
    for _ in range(10):
        sealed = encryption.seal(key, nonce, piece, b"")
        encryption.open_sealed(key, nonce, sealed, b"")
    one_pair_s = (time.process_time() - began) / 10
    began = time.process_time()
    total([coded[0]] * survivors)
    sum_of_pieces_s = time.process_time() - began
    began = time.process_time()
    code.decoded({point: coded[i] for i, point in enumerate(points)})
    total([mask] * survivors)
    server_s = time.process_time() - began
    return clients * (one_client_s + (clients - 1) * one_pair_s) + survivors * sum_of_pieces_s + server_s


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--dropouts", type=int, default=10, help="of them, which leave before their input arrives")
    options = parser.parse_args()
    protocol = LightSecAgg(parameters := LightSecAggParameters())
    run = measured(protocol, options.clients, options.dimension, options.dropouts, hosts=1, compute="modelled")
    needed, private = parameters.threshold_for(options.clients), parameters.max_colluders_for(options.clients)
    code = MaskCode(options.dimension + 1, needed, private)
    floor = floor_s(options.clients, options.clients - options.dropouts, code)
    result = {
        "clients": options.clients, "dimension": options.dimension, "dropouts": options.dropouts, "needed": needed,
        "private": private, "seconds": run.cpu_s, "floor_seconds": floor, "ratio": run.cpu_s / floor,
        "wall_s": run.seconds, "peak_bytes": run.peak_bytes, "error": run.error, "bytes_down": run.bytes_down,
        "bytes_up": run.bytes_up,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
