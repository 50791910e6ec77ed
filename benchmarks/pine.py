"""How long one aggregation by `pine` takes, all clients on one host of this process.

    python -m benchmarks.pine --clients 100 --dimension 1000000 --dropouts 10

Timed is the aggregation, from the verification key to the mean. The floor is the work that no implementation of
the construction with these parameters can avoid, in the same process: for each client, the helper's shares
expanded, both shares hashed twice, the random vectors and their products, the squared norm and the polynomials
of its proofs; for each report, the same of the aggregators, which query the proofs; and the sums. Both in CPU seconds.
"""

import numpy as np

from benchmarks.one_shot import seconds
from benchmarks.report import arguments, emit
from benchmarks.secagg import measured
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine
from testbed.crypto import field64, linear_proofs
from testbed.crypto.pine import CHECKS, PineVdaf
from testbed.crypto.ternary_products import ternary_products
from testbed.crypto.xof import XofHmacSha256Aes128, elements


def floor_s(parameters: PineParameters, survivors: int, dimension: int) -> dict[str, float]:
    """Return CPU seconds of the unavoidable operations, by operation; clients that leave have done nothing."""
    vdaf, seed = parameters.vdaf(dimension), bytes(32)
    vector = parameters.encode(np.random.default_rng(0).uniform(-1, 1, dimension).astype(np.float32))
    share = elements(XofHmacSha256Aes128(seed, b""), vdaf.measurement_length)
    words = share.view(np.uint8).data
    entries = XofHmacSha256Aes128(seed, b"").read(vdaf.entries_bytes)
    bits = vdaf.circuits[0].magnitude(vector)
    each = {
        "expand": (2, seconds(lambda: elements(XofHmacSha256Aes128(seed, b""), vdaf.measurement_length))),
        "hash": (8, seconds(lambda: XofHmacSha256Aes128(seed, b"", words))),
        "random vectors": (3, seconds(lambda: XofHmacSha256Aes128(seed, b"").read(vdaf.entries_bytes))),
        "products, client": (1, seconds(lambda: ternary_products(vector, bits, entries, CHECKS))),
        "products, aggregator": (2, seconds(lambda: ternary_products(share[: vdaf.dimension], 64, entries, CHECKS))),
        "subtract, add": (3, seconds(lambda: field64.add(share, share))),
        "prove": (1, _proofs_s(vdaf)),
        "query": (2, _queries_s(vdaf)),
    }
    return {name: survivors * times * spent for name, (times, spent) in each.items()}


def _proofs_s(vdaf: PineVdaf) -> float:
    """The wires between the points, and the gadget at both; of each proof."""
    spent = 0.0
    for circuit in vdaf.proven:
        shape = linear_proofs.points(circuit), circuit.gadget.arity
        wires = np.random.default_rng(1).integers(0, field64.PRIME, shape, np.uint64)
        spent += seconds(lambda wires=wires: field64.at_points_between(wires))  # type: ignore[misc]
        spent += 2 * seconds(lambda wires=wires, circuit=circuit: circuit.gadget(wires))  # type: ignore[misc]
    return spent


def _queries_s(vdaf: PineVdaf) -> float:
    """A product of each wire's points and their sum; of each proof."""
    spent = 0.0
    for circuit in vdaf.proven:
        shape = linear_proofs.points(circuit), circuit.gadget.arity
        wires = np.random.default_rng(2).integers(0, field64.PRIME, shape, np.uint64)
        spent += seconds(lambda wires=wires: field64.total(field64.multiply(wires, wires[:, :1])))  # type: ignore[misc]
    return spent


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--dropouts", type=int, default=10, help="of them, which leave before their report arrives")
    parser.add_argument("--norm-bound", type=float, default=1000.0, help="above all updates' norms, which are random")
    parser.add_argument("--fraction-bits", type=int, default=14)
    options = parser.parse_args()
    protocol = Pine(parameters := PineParameters(norm_bound=options.norm_bound, fraction_bits=options.fraction_bits))
    parameters.check(options.clients)
    clients, dimension, dropouts = options.clients, options.dimension, options.dropouts
    run = measured(protocol, clients, dimension, dropouts, hosts=1, told=True, compute="modelled")
    floor = floor_s(parameters, clients - dropouts, dimension)
    vdaf = parameters.vdaf(dimension)
    result = {
        "clients": clients, "dimension": dimension, "dropouts": dropouts,
        "seconds": run.cpu_s, "floor_seconds": sum(floor.values()), "ratio": run.cpu_s / sum(floor.values()),
        "wall_s": run.seconds, "peak_bytes": run.peak_bytes, "error": run.error,
        "leader_share_bytes": vdaf.leader_bytes, "prepare_bytes": vdaf.prepare_bytes,
        "bytes_down": run.bytes_down, "bytes_up": run.bytes_up,
        **{f"floor: {name}": spent for name, spent in floor.items()},
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
