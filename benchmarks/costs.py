"""The unit costs behind modelled compute: the reference table beside this machine.

    python -m benchmarks.costs

`time.costs` in an experiment takes the measured column, for virtual times like this machine's. The headline compares
the sums of both columns weighted like one participant of a round with 70 participants and the FEMNIST CNN.
"""

import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from testbed.aggregation.quantisation import Quantisation
from testbed.cost import REFERENCE_COSTS
from testbed.crypto import masks, prf, sealing, shamir, vrf
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.signatures import SigningKey, verify
from testbed.messages import Vector, decode, encode
from testbed.parties.summing import float_total, ring_total
from testbed.selection.lotto import Lot

DIMENSION = 1_018_174
PEERS, THRESHOLD = 70, 49


def seconds_per_call(call: Callable[[], object], calls: int) -> float:
    """Median over five batches of `calls` calls."""
    batches = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        batches.append((time.perf_counter() - began) / calls)
    return statistics.median(batches)


def measured_costs() -> dict[str, float]:
    """Seconds per unit of every operation in the reference table, on this machine."""
    seed, message = os.urandom(32), os.urandom(80)
    signing, secret = SigningKey.from_seed(seed), vrf.SecretKey.from_seed(seed)
    own, peer = PrivateKey.from_seed(seed), PrivateKey.from_seed(os.urandom(32))
    signature = signing.sign(b"benchmark", message)
    proof = secret.prove(message)[1]
    nonce = bytes(12)
    sealed = sealing.seal(seed, nonce, message, b"")
    points = list(range(1, PEERS + 1))
    shares = shamir.share(seed, THRESHOLD, points, seed)[:THRESHOLD]
    weights = shamir.LagrangeWeights(points[:THRESHOLD])
    keys = np.frombuffer(os.urandom(32 * 10_000), np.uint8).reshape(-1, 32)
    delta = np.random.default_rng(0).normal(0, 0.1, DIMENSION).astype(np.float32)
    rounding = np.random.default_rng(1)
    lanes = np.zeros(DIMENSION, np.uint32)
    quantisation = Quantisation(1.0, 16, 32)
    ring, floats = [Vector(lanes, 32)] * 8, [Vector(delta, 0)] * 8
    lot = Lot(1, seed, bytes(64), bytes(80))
    many = [os.urandom(32) for _ in range(8)]
    return {
        "ed25519.generate": seconds_per_call(lambda: SigningKey.from_seed(seed), 200),
        "ed25519.sign": seconds_per_call(lambda: signing.sign(b"benchmark", message), 200),
        "ed25519.verify": seconds_per_call(lambda: verify(signing.public, b"benchmark", message, signature), 200),
        "vrf.generate": seconds_per_call(lambda: vrf.SecretKey.from_seed(seed), 200),
        "vrf.output": seconds_per_call(lambda: secret.output(message), 200),
        "vrf.prove": seconds_per_call(lambda: secret.prove(message), 200),
        "vrf.verify": seconds_per_call(lambda: vrf.verify(secret.public, message, proof), 200),
        "hmac": seconds_per_call(lambda: prf.evaluate_many(keys, message), 3) / len(keys),
        "x25519.generate": seconds_per_call(lambda: PrivateKey.from_seed(seed), 200),
        "x25519.agree": seconds_per_call(lambda: own.agree(peer.public, b"benchmark"), 200),
        "aead.seal": seconds_per_call(lambda: sealing.seal(seed, nonce, message, b""), 500),
        "aead.open": seconds_per_call(lambda: sealing.open_sealed(seed, nonce, sealed, b""), 500),
        "shamir.share.term": seconds_per_call(lambda: shamir.share(seed, THRESHOLD, points, seed), 50)
        / (PEERS * THRESHOLD),
        "shamir.reconstruct.term": seconds_per_call(lambda: weights.reconstruct(shares), 200) / THRESHOLD,
        "mask.element": seconds_per_call(lambda: masks.add_masks(lanes, many, [1] * 8, 32), 2) / (8 * DIMENSION),
        "quantise.element": seconds_per_call(lambda: quantisation.encode(delta, 20, rounding), 3) / DIMENSION,
        "ring.add.element": seconds_per_call(lambda: ring_total(ring), 3) / (8 * DIMENSION),
        "float.add.element": seconds_per_call(lambda: float_total(floats, [20] * 8), 2) / (8 * DIMENSION),
        "train.parameter_example": training_cost(),
        "message": seconds_per_call(lambda: decode(Lot, encode(lot)), 500),
    }


def training_cost() -> float:
    """Seconds per parameter and example of the FEMNIST CNN's local training, one thread."""
    import workloads
    from testbed.experiment.workload import Workload

    workload = workloads.build(
        Workload(dataset="synthetic-femnist", samples_per_client=225, batch_size=20), population=10, seed=1
    )
    model = workload.initial_model()
    client = int(np.argmax(workload.sample_counts))
    examples = int(workload.sample_counts[client])
    workload.train(client, model, 1)
    return seconds_per_call(lambda: workload.train(client, model, 1), 2) / (workload.dimension * examples)


def participant_seconds(costs: dict[str, float]) -> float:
    """One participant's compute in a round of 70 with SecAgg, Lotto and 225 examples."""
    counts = {
        "ed25519.verify": 3 * PEERS, "vrf.prove": 1, "vrf.verify": PEERS, "x25519.agree": 2 * PEERS,
        "aead.seal": PEERS, "aead.open": PEERS, "shamir.share.term": 2 * PEERS * THRESHOLD,
        "mask.element": PEERS * DIMENSION, "quantise.element": DIMENSION, "train.parameter_example": 225 * DIMENSION,
    }  # fmt: skip
    return sum(costs[name] * count for name, count in counts.items())


def main() -> None:
    """Run the benchmark from the command line."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    measured = measured_costs()
    rows = [
        {"operation": name, "measured_s": measured[name], "reference_s": reference, "ratio": measured[name] / reference}
        for name, reference in REFERENCE_COSTS.items()
    ]
    seconds, reference = participant_seconds(measured), participant_seconds(dict(REFERENCE_COSTS))
    emit(
        {"seconds": seconds, "floor_seconds": reference, "ratio": seconds / reference},
        rows,
        options.format == "json",
    )


if __name__ == "__main__":
    main()
