"""How long one round of `flamingo` takes, all clients on one host of this process, once the committee serves.

    python -m benchmarks.flamingo --clients 100 --dimension 1000000 --dropouts 10

Timed is the aggregation of the second round, from the reports to the mean, masks as symbols; and, beside it, that of a
first round, with the set-up. The floor is the work that no round can do without, in one process, one operation after
the other: each pair's key agreement once, each client's rounding, encryptions, signatures and shares, the members'
partial decryptions and proofs, the server's interpolations, and the masks that do not cancel. Both in CPU seconds.
"""

import os
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from benchmarks.secagg import measured
from testbed.aggregation.flamingo.graph import round_graph
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import edwards25519, encryption, feldman, masks, shamir
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.signatures import SigningKey, verify


def seconds(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def floor_s(parameters: FlamingoParameters, clients: int, survivors: int, dimension: int) -> float:
    """CPU seconds of the unavoidable operations."""
    members = parameters.committee.members_planned
    threshold = parameters.committee.threshold_for(members)
    graph = round_graph(bytes(16), 2, range(clients), parameters.density(clients))
    pairs, cut = int(graph.adjacency.sum()), len(graph.cut(range(survivors)))
    seed, message, nonce = os.urandom(32), os.urandom(80), bytes(12)
    own, peer, signing = PrivateKey.from_seed(seed), PrivateKey.from_seed(bytes(32)), SigningKey.from_seed(seed)
    scalar = feldman.random_scalar(seed)
    point, signature = edwards25519.multiply_base(scalar), signing.sign(b"floor", message)
    points = list(range(1, members + 1))
    shares = shamir.share(seed, threshold, points, seed)[:threshold]
    weights = shamir.LagrangeWeights(points[:threshold])
    delta = np.random.default_rng(0).uniform(-1, 1, dimension).astype(np.float32)
    total, many = np.zeros(dimension + 1, np.uint32), [os.urandom(32) for _ in range(4)]
    multiply, base = seconds(lambda: edwards25519.multiply(scalar, point), 300), seconds(
        lambda: edwards25519.multiply_base(scalar), 300
    )  # fmt: skip
    add = seconds(lambda: edwards25519.add(point, point), 300)
    once = {
        "agreements": (pairs / 2 + clients * members) * seconds(lambda: own.agree_with(peer, b"floor"), 300),
        "encryptions": pairs * (multiply + base + seconds(lambda: encryption.seal(seed, nonce, seed, b""), 300)),
        "signatures": pairs * seconds(lambda: signing.sign(b"floor", message), 300)
        + cut * seconds(lambda: verify(signing.public, b"floor", message, signature), 300),
        "shares": clients * seconds(lambda: shamir.share(seed, threshold, points, seed), 20)
        + survivors * seconds(lambda: weights.reconstruct(shares), 20)
        + 2 * clients * members * seconds(lambda: encryption.seal(seed, nonce, shares[0], seed), 300),
        "decryptions": members * cut * multiply + cut * threshold * (multiply + add),
        "proofs": members * cut * (multiply + add),
        "rounding": survivors * seconds(lambda: parameters.quantisation.quantised(delta, 20, seed).add_to(total), 3),
        "masks": (survivors + cut) * seconds(lambda: masks.add_masks(total, many, [1] * 4, 32), 3) / 4,
    }
    return sum(once.values())


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--dropouts", type=int, default=10, help="of them, which leave before they report")
    parser.add_argument("--members", type=int, default=60, help="of the committee")
    options = parser.parse_args()
    parameters = FlamingoParameters(committee=CommitteeSection(size=options.members))
    sizes = options.clients, options.dimension, options.dropouts
    common = {"hosts": 1, "told": True, "masks": "symbolic", "compute": "modelled"}
    first = measured(Flamingo(parameters), *sizes, **common)  # type: ignore[arg-type]  # by name
    run = measured(Flamingo(parameters), *sizes, before=1, **common)  # type: ignore[arg-type]
    floor = floor_s(parameters, options.clients, options.clients - options.dropouts, options.dimension)
    result = {
        "clients": options.clients, "dimension": options.dimension, "dropouts": options.dropouts,
        "members": options.members, "threshold": parameters.committee.threshold_for(options.members),
        "neighbours": parameters.density(options.clients).mean_neighbours, "seconds": run.cpu_s,
        "floor_seconds": floor, "ratio": run.cpu_s / floor, "wall_s": run.seconds, "first_round_seconds": first.cpu_s,
        "peak_bytes": run.peak_bytes, "error": run.error, "bytes_down": run.bytes_down, "bytes_up": run.bytes_up,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
