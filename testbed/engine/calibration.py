"""Calibration: the cost of each operation of the reference cost table on this machine, measured by running it."""

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import msgspec
import numpy as np

from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.update_arithmetic import sorted_columns, squared_distances
from testbed.crypto import edwards25519, encryption, feldman, field64, masks, packed_sums, prf, prime_field, shamir, vrf
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.packed_sums import Packing
from testbed.crypto.prime_field import ELEMENT_BYTES
from testbed.crypto.ring_lwe import PRIMES, gaussian, products, public_polynomials
from testbed.crypto.signatures import SigningKey, verify
from testbed.crypto.ternary_products import ternary_products
from testbed.crypto.xof import XofHmacSha256Aes128, elements
from testbed.emulation.compute.cost import REFERENCE_COSTS, thread_cpu_s
from testbed.messages import ClientId, Key32, Message, Vector, decode, encode
from testbed.network.sums import float_total, ring_total
from testbed.privacy.encoding import rounded
from testbed.privacy.gaussian import with_noise
from testbed.privacy.matrix.buffered import Buffers
from testbed.privacy.matrix.strategy import BufferedStrategy
from testbed.privacy.noise import Noise

DIMENSION = 1_018_174  # parameters of the FEMNIST CNN
PEERS, THRESHOLD = 70, 49
TRAINING = "train.parameter_example"
_LEAST_BATCH_S = 0.02  # CPU time of a batch: a thousand times the cost of reading the clock


class _SignedEntry(Message, frozen=True):
    """A message of typical size: as one row of a list of participants."""

    client: ClientId
    key: Key32
    output: Annotated[bytes, msgspec.Meta(min_length=32, max_length=64)]
    proof: Annotated[bytes, msgspec.Meta(max_length=80)]


Work = tuple[Callable[[], object], float]
"""A call, and how many units of its operation it does."""


def measured_costs(
    training: Callable[[], Work], repeat: int = 5, doing: Callable[[str], None] = lambda operation: None
) -> dict[str, float]:
    """Measure the CPU time of one unit of every operation of the reference table that can run here.

    Operations of an extra that is not installed are left out; runs use the reference table's cost for them.
    Measured compute counts CPU time, too; other programs on the machine disturb it little.

    Args:
        training: prepares local training, which needs a workload and so is not part of the testbed.
        repeat: batches of calls per operation, of which the median counts.
        doing: called with the name of each operation before it is measured.

    Returns:
        Seconds of this thread's CPU time, by operation.
    """
    costs = {}
    for operation, prepare in (*_operations(), (TRAINING, training)):
        doing(operation)
        call, units = prepare()
        costs[operation] = seconds_per_call(call, repeat) / units
    return {operation: costs[operation] for operation in REFERENCE_COSTS if operation in costs}


def seconds_per_call(call: Callable[[], object], repeat: int) -> float:
    """Return the median CPU time of a call, in seconds, over batches that are long enough to be measured.

    Args:
        call: the operation.
        repeat: number of batches.
    """
    calls, spent_s = 1, _batch(call, 1)  # the first call of all fills caches
    while (spent_s := _batch(call, calls)) < _LEAST_BATCH_S:
        # At most 100 times as many: the first batches of a fast operation measure little more than the clock.
        calls = max(2 * calls, min(100 * calls, math.ceil(calls * _LEAST_BATCH_S / max(spent_s, 1e-9))))
    # The median: a batch that was interrupted must not count.
    return statistics.median([spent_s, *(_batch(call, calls) for _ in range(repeat - 1))]) / calls


def _batch(call: Callable[[], object], calls: int) -> float:
    began = thread_cpu_s()
    for _ in range(calls):
        call()
    return thread_cpu_s() - began


def _operations() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Yield every operation except training, with the function that prepares it."""
    seed, message, nonce = os.urandom(32), os.urandom(80), bytes(12)
    signing, secret = SigningKey.from_seed(seed), vrf.SecretKey.from_seed(seed)
    own, peer = PrivateKey.from_seed(seed), PrivateKey.from_seed(os.urandom(32))
    signature = signing.sign(b"calibration", message)
    proof = secret.prove(message)[1]
    sealed = encryption.seal(seed, nonce, message, b"")
    points = list(range(1, PEERS + 1))
    shares = shamir.share(seed, THRESHOLD, points, seed)[:THRESHOLD]
    weights = shamir.LagrangeWeights(points[:THRESHOLD])
    polynomial = feldman.polynomial(feldman.random_scalar(seed), THRESHOLD, seed)
    scalar, base_multiple = polynomial[0], edwards25519.multiply_base(polynomial[1])
    keys = np.frombuffer(os.urandom(32 * 10_000), np.uint8).reshape(-1, 32)
    delta = np.random.default_rng(0).normal(0, 0.1, DIMENSION).astype(np.float32)
    words = np.zeros(DIMENSION, np.uint32)
    quantisation = Quantisation(1.0, 16, 32)
    noise = Noise(noise_multiplier=1.0)
    share, encoding = noise.share(PEERS, DIMENSION, seed), noise.encoding(DIMENSION, 32)
    padded, fixed = np.zeros(encoding.length + 1, np.uint32), np.zeros(encoding.length, np.int64)
    ring, floats = [Vector(words, 32)] * 8, [Vector(delta, 0)] * 8
    many = [os.urandom(32) for _ in range(8)]
    code = MaskCode(DIMENSION, THRESHOLD, PEERS // 2)
    piece = bytes(ELEMENT_BYTES * code.piece_length)
    packing, packed = Packing(27), np.zeros(DIMENSION, np.uint32)
    coefficients, mask_key = packing.coefficients(DIMENSION), packed_sums.key_of(seed)
    residues = len(PRIMES) * coefficients
    public_polynomials(seed, -(-coefficients // DEGREE))
    hidden, errors = products(mask_key, seed, coefficients), gaussian(seed, coefficients)
    updates = list(np.random.default_rng(1).normal(0, 0.1, (100, 20_000)).astype(np.float32))
    blt = BufferedStrategy(1, Buffers((0.9, 0.5, 0.1), (0.1, 0.2, 0.3)))
    row, state = np.ones(DIMENSION), blt.beginning(DIMENSION)
    residue = elements(XofHmacSha256Aes128(seed, b""), DIMENSION)
    entries = XofHmacSha256Aes128(seed, b"entries").read(PEERS * -(-DIMENSION // 4))
    entry = _SignedEntry(1, seed, bytes(64), bytes(80))
    work: dict[str, Work] = {
        "ed25519.generate": (lambda: SigningKey.from_seed(seed), 1),
        "ed25519.sign": (lambda: signing.sign(b"calibration", message), 1),
        "ed25519.verify": (lambda: verify(signing.public, b"calibration", message, signature), 1),
        "vrf.generate": (lambda: vrf.SecretKey.from_seed(seed), 1),
        "vrf.output": (lambda: secret.output(message), 1),
        "vrf.prove": (lambda: secret.prove(message), 1),
        "vrf.verify": (lambda: vrf.verify(secret.public, message, proof), 1),
        "hmac": (lambda: prf.evaluate_many(keys, message), len(keys)),
        # Anew, as a vector keeps its digest.
        "sha256.byte": (lambda: floats[0].digest(anew=True), floats[0].packed_bytes),
        "x25519.generate": (lambda: PrivateKey.from_seed(seed), 1),
        "x25519.agree": (lambda: own.agree(peer.public, b"calibration"), 1),
        "edwards25519.multiply": (lambda: edwards25519.multiply(scalar, base_multiple), 1),
        "edwards25519.multiply_base": (lambda: edwards25519.multiply_base(scalar), 1),
        "edwards25519.add": (lambda: edwards25519.add(base_multiple, base_multiple), 1),
        "scalar.multiply": (lambda: feldman.share_at(polynomial, PEERS), THRESHOLD - 1),
        "aead.seal": (lambda: encryption.seal(seed, nonce, message, b""), 1),
        "aead.open": (lambda: encryption.open_sealed(seed, nonce, sealed, b""), 1),
        "aead.byte": (lambda: encryption.seal(seed, nonce, piece, b""), len(piece)),
        "shamir.share.term": (lambda: shamir.share(seed, THRESHOLD, points, seed), PEERS * THRESHOLD),
        "shamir.reconstruct.term": (lambda: weights.reconstruct(shares), THRESHOLD),
        "mask.element": (lambda: masks.add_masks(words, many, [1] * 8, 32), 8 * DIMENSION),
        "quantise.element": (lambda: quantisation.encode(delta, 20, seed), DIMENSION),
        "rotate.element": (lambda: encoding.rotated(delta, 38, seed), encoding.length),
        "round.element": (lambda: rounded(fixed, 38, seed), encoding.length),
        "noise.element": (lambda: share.add_to(padded), encoding.length),
        "ring.add.element": (lambda: ring_total(ring), 8 * DIMENSION),
        "float.add.element": (lambda: float_total(floats, [20] * 8), 8 * DIMENSION),
        "field.multiply": (lambda: code.coded(seed, tuple(points)), PEERS * code.needed * code.piece_length),
        "field.add.element": (lambda: prime_field.total([words] * 8), 8 * DIMENSION),
        "ring_lwe.multiply": (lambda: products(mask_key, seed, coefficients), residues),
        "ring_lwe.error": (lambda: gaussian(seed, coefficients), coefficients),
        "ring_lwe.add": (lambda: packing.add(hidden, packed, errors), residues + len(PRIMES) * DIMENSION),
        "float.multiply": (lambda: squared_distances(updates), len(updates) ** 2 * len(updates[0])),
        "sort.element": (lambda: sorted_columns(updates, 0), sorted_columns(updates, 0).size),
        "correlate.element": (lambda: blt.correlate(row, state, 0), (blt.vectors + 1) * DIMENSION),
        "xof.byte": (lambda: XofHmacSha256Aes128(seed, b"").read(1 << 20), 1 << 20),
        "field64.multiply": (lambda: field64.multiply(residue, residue), len(residue)),
        "field64.add": (lambda: field64.add(residue, residue), len(residue)),
        "ternary.element": (lambda: ternary_products(residue, 64, entries, PEERS), PEERS * len(residue)),
        "gaussian.element": (lambda: with_noise(delta, 1.0, seed), DIMENSION),
        "message": (lambda: decode(_SignedEntry, encode(entry)), 1),
    }
    if masks.is_installed("aegis-256x4"):
        aegis: Work = (lambda: masks.add_masks(words, many, [1] * 8, 32, "aegis-256x4"), 8 * DIMENSION)
        work["mask.element.aegis"] = aegis
    for operation, (call, units) in work.items():
        yield operation, lambda call=call, units=units: (call, units)  # type: ignore[misc]  # has defaults


def participant_seconds(costs: Mapping[str, float]) -> float:
    """Return one participant's compute, in seconds, in a reference round.

    The round has 70 participants with SecAgg, client-centric Lotto and 225 examples of FEMNIST.

    Args:
        costs: seconds by operation.
    """
    counts = {
        "ed25519.verify": 3 * PEERS,
        "vrf.prove": 1,
        "vrf.verify": PEERS,
        "x25519.agree": 2 * PEERS,
        "aead.seal": PEERS,
        "aead.open": PEERS,
        "shamir.share.term": 2 * PEERS * THRESHOLD,
        "mask.element": PEERS * DIMENSION,
        "quantise.element": DIMENSION,
        TRAINING: 225 * DIMENSION,
    }
    return math.fsum(costs[operation] * count for operation, count in counts.items())
