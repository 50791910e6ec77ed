"""How long a VRF takes: prove, output alone, and verify, against signing and verifying with Ed25519.

The floor is one Ed25519 signature and its verification by pyca/cryptography (OpenSSL), measured in the same process,
in turn with the VRF: on the same curve, a VRF does a signature's work and more. Printed for reference, not measured
here: the pure-Python VRF published with Lotto (arXiv 2401.02880) takes 302 ms to prove and 226 ms to verify.

    python -m benchmarks.vrf [--repeat N] [--format json]
"""

import time
from collections.abc import Callable
from hashlib import sha256
from statistics import median

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.report import arguments, emit
from testbed.crypto import prf, signatures, vrf

CALLS_PER_BATCH = 20

AUTHORS_PROVE_MS = 302.0
AUTHORS_VERIFY_MS = 226.0
"""Known values for Lotto's published implementation; it is not run here."""


def medians(operations: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Milliseconds per call of each operation: the median over ``repeat`` batches.

    The operations take turns, so that a slow phase of the machine slows all of them.
    """
    batches: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(repeat):
        for name, operation in operations.items():
            started = time.perf_counter()
            for _ in range(CALLS_PER_BATCH):
                operation()
            batches[name].append((time.perf_counter() - started) / CALLS_PER_BATCH * 1e3)
    return {name: median(values) for name, values in batches.items()}


def evaluation_seconds(count: int, sample: int = 500) -> float:
    """Return the seconds of `count` evaluations of the VRF, from a sample timed here."""
    secret = vrf.SecretKey.from_seed(bytes(32))
    began = time.perf_counter()
    for number in range(sample):
        secret.output(number.to_bytes(8, "big"))
    return (time.perf_counter() - began) / sample * count


def measure(repeat: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The benchmark's result and its table."""
    seed, alpha = sha256(b"benchmark").digest(), b"testbed/lotto/selection/v1" + bytes(24)
    key, openssl, own = (
        vrf.SecretKey.from_seed(seed),
        Ed25519PrivateKey.from_private_bytes(seed),
        signatures.SigningKey.from_seed(seed),
    )
    beta, proof = key.prove(alpha)
    tai_beta, tai_proof = key.prove(alpha, vrf.Suite.TAI)
    if vrf.verify(key.public, alpha, proof) != beta or key.output(alpha) != beta:
        raise RuntimeError("the VRF does not verify its own proof: nothing to measure")
    if vrf.verify(key.public, alpha, tai_proof, vrf.Suite.TAI) != tai_beta:
        raise RuntimeError("the VRF (TAI) does not verify its own proof: nothing to measure")
    openssl_public, openssl_signature = openssl.public_key(), openssl.sign(alpha)
    own_signature = own.sign(b"benchmark", alpha)
    ms = medians(
        {
            "prove": lambda: key.prove(alpha),
            "output": lambda: key.output(alpha),
            "verify": lambda: vrf.verify(key.public, alpha, proof),
            "prove_tai": lambda: key.prove(alpha, vrf.Suite.TAI),
            "verify_tai": lambda: vrf.verify(key.public, alpha, tai_proof, vrf.Suite.TAI),
            "sign": lambda: openssl.sign(alpha),
            "verify_signature": lambda: openssl_public.verify(openssl_signature, alpha),
            "own_sign": lambda: own.sign(b"benchmark", alpha),
            "own_verify_signature": lambda: signatures.verify(own.public, b"benchmark", alpha, own_signature),
            "prf": lambda: prf.evaluate(seed, alpha),
        },
        repeat,
    )
    seconds, floor_seconds = (ms["prove"] + ms["verify"]) / 1e3, (ms["sign"] + ms["verify_signature"]) / 1e3
    result: dict[str, object] = {"seconds": seconds, "floor_seconds": floor_seconds, "ratio": seconds / floor_seconds}
    result |= {f"{name}_ms": value for name, value in ms.items()}
    result |= {
        "prove_over_sign": ms["prove"] / ms["sign"],
        "verify_over_verify_signature": ms["verify"] / ms["verify_signature"],
        "authors_prove_ms": AUTHORS_PROVE_MS,
        "authors_verify_ms": AUTHORS_VERIFY_MS,
        "authors_prove_over_prove": AUTHORS_PROVE_MS / ms["prove"],
        "authors_verify_over_verify": AUTHORS_VERIFY_MS / ms["verify"],
    }

    def row(operation: str, name: str, floor: str | None = None, authors: float | None = None) -> dict[str, object]:
        return {
            "operation": operation,
            "ms": ms[name],
            "of Ed25519": ms[name] / ms[floor] if floor else None,
            "Lotto's code, ms": authors,
            "times faster": authors / ms[name] if authors else None,
        }

    rows = [
        row("VRF prove (ELL2)", "prove", "sign", AUTHORS_PROVE_MS),
        row("VRF output, no proof (ELL2)", "output", "sign"),
        row("VRF verify (ELL2)", "verify", "verify_signature", AUTHORS_VERIFY_MS),
        row("VRF prove (TAI)", "prove_tai", "sign"),
        row("VRF verify (TAI)", "verify_tai", "verify_signature"),
        row("Ed25519 sign (OpenSSL)", "sign"),
        row("Ed25519 verify (OpenSSL)", "verify_signature"),
        row("Ed25519 sign (testbed)", "own_sign", "sign"),
        row("Ed25519 verify (testbed)", "own_verify_signature", "verify_signature"),
        row("HMAC-SHA-256", "prf"),
    ]
    return result, rows


def main() -> None:
    """Parse the options, measure, print."""
    parser = arguments("VRF against Ed25519 signatures, milliseconds per call")
    parser.add_argument("--repeat", type=int, default=50, metavar="N", help=f"batches of {CALLS_PER_BATCH} calls")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    result, rows = measure(options.repeat)
    emit(result, rows, options.format == "json")


if __name__ == "__main__":
    main()
