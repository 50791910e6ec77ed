"""Cost tables: what each operation of the reference table costs on this machine, measured, and such tables as files.

A file is a YAML mapping of operations to seconds per unit; operations that it leaves out keep their reference cost::

    ed25519.sign: 1.6e-05
    mask.element: 6.0e-10
"""

import io
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import numpy as np
import yaml

from testbed.aggregation.quantisation import Quantisation
from testbed.crypto import encryption, masks, prf, shamir, vrf
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.signatures import SigningKey, verify
from testbed.emulation.compute.cost import REFERENCE_COSTS, thread_cpu_s
from testbed.errors import ExperimentError
from testbed.files import plain_yaml
from testbed.files.atomic import atomic_write
from testbed.messages import Vector, decode, encode
from testbed.parties.sums import float_total, ring_total
from testbed.privacy.mechanisms.encoding import rounded
from testbed.privacy.mechanisms.gaussian import with_noise
from testbed.privacy.mechanisms.noise import Noise
from testbed.selection.lotto.messages import ParticipantEntry

DIMENSION = 1_018_174  # parameters of the FEMNIST CNN
PEERS, THRESHOLD = 70, 49
TRAINING = "train.parameter_example"
_LEAST_BATCH_S = 0.02  # of CPU time: a thousand times what reading the clock costs
_PACKAGES = ("numpy", "cryptography", "pynacl", "gmpy2", "torch")

Work = tuple[Callable[[], object], float]
"""A call, and how many units of its operation it does."""


def measured_costs(
    training: Callable[[], Work], repeat: int = 5, doing: Callable[[str], None] = lambda operation: None
) -> dict[str, float]:
    """Seconds of this thread's CPU time for one unit of every operation of the reference table.

    CPU time is what measured compute counts, too; other programs on the machine disturb it little.

    Args:
        training: prepares local training, which needs a workload and so is not the testbed's own.
        repeat: batches of calls for each operation, of which the median counts.
        doing: is called with each operation before it is measured.
    """
    costs = {}
    for operation, prepare in (*_operations(), (TRAINING, training)):
        doing(operation)
        call, units = prepare()
        costs[operation] = seconds_per_call(call, repeat) / units
    return {operation: costs[operation] for operation in REFERENCE_COSTS}


def seconds_per_call(call: Callable[[], object], repeat: int) -> float:
    """The median CPU time of a call over `repeat` batches, each of enough calls to be measured."""
    calls, spent_s = 1, _batch(call, 1)  # the first call of all fills caches
    while (spent_s := _batch(call, calls)) < _LEAST_BATCH_S:
        calls = max(2 * calls, min(100 * calls, math.ceil(calls * _LEAST_BATCH_S / max(spent_s, 1e-9))))
    return statistics.median([spent_s, *(_batch(call, calls) for _ in range(repeat - 1))]) / calls


def _batch(call: Callable[[], object], calls: int) -> float:
    began = thread_cpu_s()
    for _ in range(calls):
        call()
    return thread_cpu_s() - began


def _operations() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every operation but training, with what prepares it."""
    seed, message, nonce = os.urandom(32), os.urandom(80), bytes(12)
    signing, secret = SigningKey.from_seed(seed), vrf.SecretKey.from_seed(seed)
    own, peer = PrivateKey.from_seed(seed), PrivateKey.from_seed(os.urandom(32))
    signature = signing.sign(b"calibration", message)
    proof = secret.prove(message)[1]
    sealed = encryption.seal(seed, nonce, message, b"")
    points = list(range(1, PEERS + 1))
    shares = shamir.share(seed, THRESHOLD, points, seed)[:THRESHOLD]
    weights = shamir.LagrangeWeights(points[:THRESHOLD])
    keys = np.frombuffer(os.urandom(32 * 10_000), np.uint8).reshape(-1, 32)
    rounding = np.random.default_rng(1)
    delta = np.random.default_rng(0).normal(0, 0.1, DIMENSION).astype(np.float32)
    words = np.zeros(DIMENSION, np.uint32)
    quantisation = Quantisation(1.0, 16, 32)
    noise = Noise(noise_multiplier=1.0)
    share, encoding = noise.share(PEERS, DIMENSION, seed), noise.encoding(DIMENSION, 32)
    padded, fixed = np.zeros(encoding.length + 1, np.uint32), np.zeros(encoding.length, np.int64)
    ring, floats = [Vector(words, 32)] * 8, [Vector(delta, 0)] * 8
    many = [os.urandom(32) for _ in range(8)]
    entry = ParticipantEntry(1, seed, bytes(64), bytes(80))
    work: dict[str, Work] = {
        "ed25519.generate": (lambda: SigningKey.from_seed(seed), 1),
        "ed25519.sign": (lambda: signing.sign(b"calibration", message), 1),
        "ed25519.verify": (lambda: verify(signing.public, b"calibration", message, signature), 1),
        "vrf.generate": (lambda: vrf.SecretKey.from_seed(seed), 1),
        "vrf.output": (lambda: secret.output(message), 1),
        "vrf.prove": (lambda: secret.prove(message), 1),
        "vrf.verify": (lambda: vrf.verify(secret.public, message, proof), 1),
        "hmac": (lambda: prf.evaluate_many(keys, message), len(keys)),
        "sha256.byte": (lambda: floats[0].digest(anew=True), floats[0].packed_bytes),
        "x25519.generate": (lambda: PrivateKey.from_seed(seed), 1),
        "x25519.agree": (lambda: own.agree(peer.public, b"calibration"), 1),
        "aead.seal": (lambda: encryption.seal(seed, nonce, message, b""), 1),
        "aead.open": (lambda: encryption.open_sealed(seed, nonce, sealed, b""), 1),
        "shamir.share.term": (lambda: shamir.share(seed, THRESHOLD, points, seed), PEERS * THRESHOLD),
        "shamir.reconstruct.term": (lambda: weights.reconstruct(shares), THRESHOLD),
        "mask.element": (lambda: masks.add_masks(words, many, [1] * 8, 32), 8 * DIMENSION),
        "quantise.element": (lambda: quantisation.encode(delta, 20, rounding), DIMENSION),
        "rotate.element": (lambda: encoding.rotated(delta, 38, seed), encoding.length),
        "round.element": (lambda: rounded(fixed, 38, seed), encoding.length),
        "noise.element": (lambda: share.add_to(padded), encoding.length),
        "ring.add.element": (lambda: ring_total(ring), 8 * DIMENSION),
        "float.add.element": (lambda: float_total(floats, [20] * 8), 8 * DIMENSION),
        "gaussian.element": (lambda: with_noise(delta, 1.0, seed), DIMENSION),
        "message": (lambda: decode(ParticipantEntry, encode(entry)), 1),
    }
    for operation, (call, units) in work.items():
        yield operation, lambda call=call, units=units: (call, units)  # type: ignore[misc]  # has defaults


def participant_seconds(costs: Mapping[str, float]) -> float:
    """One participant's compute in a round of 70 with SecAgg, client-centric Lotto and 225 examples of FEMNIST."""
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


# -- files --------------------------------------------------------------------------------------------------------


def write_costs(path: Path, costs: Mapping[str, float]) -> None:
    """Write a cost table, with comments that say when and on which machine it was measured.

    It is written under a temporary name and renamed. Raises `ExperimentError` when the file cannot be written.
    """
    with atomic_write(path, lambda reason: ExperimentError(f"{path}: cannot be written: {reason}")) as file:
        file.write(_as_yaml(costs).encode())


def _as_yaml(costs: Mapping[str, float]) -> str:
    text = io.StringIO()
    text.write(
        "# Seconds per unit of each operation, measured by `testbed calibrate`; for an experiment's time.costs.\n"
    )
    text.write(f"# {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {_processor()}, {os.cpu_count()} CPUs\n")
    text.write(f"# {', '.join(_versions())}\n")
    for operation, seconds in costs.items():
        text.write(f"{operation}: {seconds:.4e}\n")
    return text.getvalue()


def read_costs(path: Path) -> dict[str, float]:
    """The cost table in a file: seconds per unit of some or all operations.

    Raises:
        ExperimentError: one line: no such file, not a mapping in YAML, an operation that no table has, a cost that is
            no finite number or negative.
    """
    try:
        table = plain_yaml.read(path)
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: not a text file (UTF-8)") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ExperimentError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise ExperimentError(f"{path}: a cost table maps operations to seconds; `testbed calibrate` writes one")
    return {_known(path, operation): _cost(path, operation, cost) for operation, cost in table.items()}


def _known(path: Path, operation: object) -> str:
    if operation not in REFERENCE_COSTS:
        raise ExperimentError(f"{path}: unknown operation {operation!r}; allowed: {', '.join(sorted(REFERENCE_COSTS))}")
    return str(operation)


def _cost(path: Path, operation: object, cost: object) -> float:
    try:
        # YAML 1.1 takes 1e-5, without a point, for a string.
        seconds = float(cost) if isinstance(cost, str | int | float) and not isinstance(cost, bool) else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ExperimentError(f"{path}: {operation}: {cost!r} is not a number of seconds, finite and at least 0")
    return seconds


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _versions() -> Iterator[str]:
    yield f"{platform.system()} {platform.machine()}"
    yield f"Python {platform.python_version()}"
    for package in _PACKAGES:
        try:
            yield f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
