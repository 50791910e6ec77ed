"""How long one aggregation by `one-shot` takes, all clients on one host of this process.

    python -m benchmarks.one_shot --clients 100 --dimension 1000000 --dropouts 10 --bits 27
    python -m benchmarks.one_shot --clients 1000 --dimension 100000 --dropouts 100 --bits 31

Timed is the aggregation, from the one question to clients to the mean. The floor is the work that no implementation of
the construction with these parameters can avoid, in the same process: each client's errors and products of polynomials
(the transform of the key, a product with each public polynomial, a transform back), their addition to the elements,
shares, sealing and opening all of them, and summing; the server's sum and its own products. Both in CPU seconds of one
thread.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from benchmarks.secagg import measured
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.crypto import encryption
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.packed_sums import key_of
from testbed.crypto.prime_field import total
from testbed.crypto.ring_lwe import gaussian, products, public_polynomials


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of one call, the median."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return sorted(found)[times // 2]


def floor_s(parameters: OneShotParameters, survivors: int, dimension: int, members: int) -> float:
    """Return CPU seconds of the unavoidable operations, one after the other; clients that leave have done nothing."""
    seed, packing, code = bytes(32), parameters.packing, parameters.code_for(members)
    count, points = packing.coefficients(dimension + 1), tuple(range(1, members + 1))
    public_polynomials(seed, -(-count // 4096))
    key, elements = key_of(seed), np.zeros(dimension + 1, np.uint32)
    masks = products(key, seed, count)
    shares = code.shared(key.astype(np.uint32), seed, points)
    one, other = PrivateKey.from_seed(seed), PrivateKey.from_seed(b"o" * 32)

    def client() -> None:
        key_of(seed)
        products(key, seed, count)
        packing.add(masks, elements, gaussian(seed, count))
        code.shared(key.astype(np.uint32), seed, points)

    def pair() -> None:
        for _ in range(100):
            sealed = encryption.seal(seed, bytes(12), shares[0].tobytes(), b"")
            encryption.open_sealed(seed, bytes(12), sealed, b"")
            one.agree_with(other, b"floor")

    summed = np.zeros(masks.size, np.uint64)

    def server() -> None:
        products(key, seed, count)
        for _ in range(survivors):
            np.add(summed, masks.reshape(-1), out=summed)

    pairs_s = seconds(pair) / 100 * survivors * members
    sums_s = members * seconds(lambda: total([shares[0]] * survivors))
    return survivors * seconds(client) + pairs_s + sums_s + seconds(server, 1)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--dropouts", type=int, default=10, help="of them, which leave before their input arrives")
    parser.add_argument("--members", type=int, default=60, help="members of the committee; all of them answer")
    parser.add_argument("--bits", type=int, default=27, help="of a sum's coordinate")
    options = parser.parse_args()
    members = min(options.members, options.clients - options.dropouts)
    committee = {"selection": "given", "members": tuple(range(members))}
    protocol = OneShot(parameters := OneShotParameters(committee=committee, bits=options.bits))
    parameters.check(options.clients)
    clients, dimension, dropouts = options.clients, options.dimension, options.dropouts
    run = measured(protocol, clients, dimension, dropouts, hosts=1, told=True, compute="modelled")
    floor = floor_s(parameters, clients - dropouts, dimension, members)
    code = parameters.code_for(members)
    result = {
        "clients": clients, "dimension": dimension, "dropouts": dropouts, "members": members,
        "needed": code.needed, "private": code.private, "bits": options.bits, "together": parameters.packing.together,
        "seconds": run.cpu_s, "floor_seconds": floor, "ratio": run.cpu_s / floor, "wall_s": run.seconds,
        "peak_bytes": run.peak_bytes, "error": run.error, "bytes_down": run.bytes_down, "bytes_up": run.bytes_up,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
