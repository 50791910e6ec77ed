"""What a piece of protocol work costs: charges, and the table that turns them into seconds.

Protocol code says what it does, `meter("ed25519.verify", 70)`, at the place where it does it. With *measured*
compute the counts are ignored and thread CPU time is used; with *modelled* compute they are multiplied with a
cost table, so that the same input gives the same virtual times, bit for bit, on any machine.
"""

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType

from testbed.errors import ExperimentError

# Seconds for one unit on the reference machine (one core of a server CPU with AVX-512 and AES-NI): medians of
# `testbed calibrate`; `element` is one ring or float element, `parameter_example` one
# model parameter times one training example (forward, backward and step).
REFERENCE_COSTS: Mapping[str, float] = MappingProxyType(
    {
        "ed25519.generate": 15e-6,
        "ed25519.sign": 16e-6,
        "ed25519.verify": 42e-6,
        "vrf.generate": 18e-6,
        "vrf.output": 93e-6,
        "vrf.prove": 0.20e-3,
        "vrf.verify": 0.30e-3,
        "hmac": 0.8e-6,
        "sha256.byte": 0.52e-9,
        "x25519.generate": 28e-6,
        "x25519.agree": 33e-6,
        "aead.seal": 1.3e-6,
        "aead.open": 1.3e-6,
        "shamir.share.term": 67e-9,
        "shamir.reconstruct.term": 0.25e-6,
        "mask.element": 0.60e-9,
        "quantise.element": 4.1e-9,
        "rotate.element": 19e-9,
        "round.element": 4e-9,
        "noise.element": 11e-9,
        "ring.add.element": 0.28e-9,
        "float.add.element": 1.8e-9,
        "gaussian.element": 29e-9,
        "train.parameter_example": 0.33e-9,
        "message": 0.4e-6,
    }
)


@dataclass
class Meter:
    """What a stretch of work did.

    Attributes:
        counts: units per operation.
        parallel_s: seconds that this work waited for other threads on its behalf, on a machine where each has a core
            of its own (measured compute only).
        pki_bytes_up, pki_bytes_down: bytes exchanged with the PKI meanwhile.
    """

    counts: dict[str, float] = field(default_factory=dict)
    parallel_s: float = 0.0
    pki_bytes_up: int = 0
    pki_bytes_down: int = 0


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


def meter(operation: str, count: float = 1) -> None:
    """Count `count` units of `operation` on the work that is being metered (nothing happens if none is)."""
    current = _meter.get()
    if current is not None:
        current.counts[operation] = current.counts.get(operation, 0) + count


def meter_parallel(seconds: float) -> None:
    """Add the CPU seconds of the busiest of the threads for which this one waited (measured compute)."""
    current = _meter.get()
    if current is not None:
        current.parallel_s += seconds


def meter_pki(*, bytes_up: int, bytes_down: int) -> None:
    """Count an exchange with the PKI that happened inside a handler."""
    current = _meter.get()
    if current is not None:
        current.pki_bytes_up += bytes_up
        current.pki_bytes_down += bytes_down


class _Metering(AbstractContextManager[Meter]):
    """A class, not a generator: one that is given up half-way (a run that is interrupted) leaves nothing to finish."""

    def __enter__(self) -> Meter:
        meter = Meter()
        self._token = _meter.set(meter)
        return meter

    def __exit__(self, *exception: object) -> None:
        _meter.reset(self._token)


def metered() -> AbstractContextManager[Meter]:
    """Collect what is metered inside the block; an outer block does not see them."""
    return _Metering()


@dataclass(frozen=True)
class ComputeModel:
    """Turns metered work into seconds on the reference machine.

    Args:
        measured: use thread CPU time; else the cost table.
        costs: seconds per unit of each operation.
    """

    measured: bool
    costs: Mapping[str, float]

    def modelled_s(self, counts: Mapping[str, float]) -> float:
        """Seconds for `counts` by the table; an operation that the table lacks is an `ExperimentError`, not zero."""
        unknown = sorted(counts.keys() - self.costs.keys())
        if unknown:
            raise ExperimentError(
                f"time.compute: the cost table has no {unknown[0]!r}, which this run meters; "
                f"meter operations that it has, or set time.compute to measured"
            )
        return math.fsum(count * self.costs[operation] for operation, count in sorted(counts.items()))

    def seconds(self, meter: Meter, cpu_s: float) -> float:
        """Seconds of a stretch of work that took `cpu_s` of this thread's CPU time."""
        return cpu_s + meter.parallel_s if self.measured else self.modelled_s(meter.counts)


def thread_cpu_s() -> float:
    """CPU time of this thread in seconds."""
    return time.thread_time()
