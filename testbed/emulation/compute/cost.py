"""Cost of protocol work: counts of operations, and the cost table that turns them into seconds.

Protocol code reports its work with `meter("ed25519.verify", 70)` where the work is done. With *measured* compute the
counts are ignored and thread CPU time is used. With *modelled* compute the counts are multiplied with a cost table, so
that the same input gives the same virtual times, bit for bit, on any machine.

A cost table is a YAML mapping of operations to seconds per unit. Operations that the file leaves out keep their
reference cost::

    ed25519.sign: 1.6e-05
    mask.element: 6.0e-10
"""

import io
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import yaml

from testbed.errors import ExperimentError
from testbed.files import limits, plain_yaml
from testbed.files.atomic import atomic_write

# Seconds for one unit on the reference machine (one core of a server CPU with AVX-512 and AES-NI): medians of
# `testbed calibrate`; `element` is one ring or float element (of a sort: one of the hundred values of a coordinate),
# `parameter_example` one model parameter times one training example (forward, backward and step).
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
        "edwards25519.multiply": 66e-6,
        "edwards25519.multiply_base": 15e-6,
        "edwards25519.add": 14e-6,
        "scalar.multiply": 2.4e-6,
        "aead.seal": 1.3e-6,
        "aead.open": 1.3e-6,
        "aead.byte": 0.25e-9,
        "shamir.share.term": 67e-9,
        "shamir.reconstruct.term": 0.25e-6,
        "mask.element": 0.60e-9,
        "mask.element.aegis": 0.19e-9,
        "quantise.element": 4.1e-9,
        "rotate.element": 19e-9,
        "round.element": 4e-9,
        "noise.element": 11e-9,
        "ring.add.element": 0.28e-9,
        "field.multiply": 0.25e-9,
        "field.add.element": 2.0e-9,
        "ring_lwe.multiply": 25e-9,
        "ring_lwe.error": 3.8e-9,
        "ring_lwe.add": 1.1e-9,
        "xof.byte": 0.13e-9,
        "field64.multiply": 11e-9,
        "field64.add": 2.2e-9,
        "ternary.element": 0.80e-9,
        "float.add.element": 1.8e-9,
        "float.multiply": 0.032e-9,
        "sort.element": 2.8e-9,
        "gaussian.element": 29e-9,
        "correlate.element": 1.5e-9,
        "train.parameter_example": 0.33e-9,
        "message": 0.4e-6,
    }
)


@dataclass
class Meter:
    """Work done inside a `metered` block.

    Attributes:
        counts: units per operation.
        parallel_s: seconds that this work waited for other threads on its behalf, on a machine with a core for each of
            them (measured compute only).
        pki_bytes_up, pki_bytes_down: bytes exchanged with the PKI.
    """

    counts: dict[str, float] = field(default_factory=dict)
    parallel_s: float = 0.0
    pki_bytes_up: int = 0
    pki_bytes_down: int = 0


# A context variable, as handlers run in several threads at a time, and each meters its own work.
_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


def meter(operation: str, count: float = 1) -> None:
    """Add units of an operation to the current meter; without a `metered` block, do nothing.

    Args:
        operation: a key of the cost table.
        count: number of units.

    Example:
        >>> with metered() as work:
        ...     meter("ed25519.verify", 70)
        >>> round(ComputeModel(measured=False, costs=REFERENCE_COSTS).modelled_s(work.counts), 6)
        0.00294
    """
    current = _meter.get()
    if current is not None:
        current.counts[operation] = current.counts.get(operation, 0) + count


def meter_parallel(seconds: float) -> None:
    """Add CPU seconds of the busiest of the threads for which this thread waited (measured compute)."""
    current = _meter.get()
    if current is not None:
        current.parallel_s += seconds


def meter_pki(*, bytes_up: int, bytes_down: int) -> None:
    """Add an exchange with the PKI inside a handler to the current meter.

    Args:
        bytes_up: bytes from the client to the PKI.
        bytes_down: bytes from the PKI to the client.
    """
    current = _meter.get()
    if current is not None:
        current.pki_bytes_up += bytes_up
        current.pki_bytes_down += bytes_down


class _Metering(AbstractContextManager[Meter]):
    """Context manager that collects the metered work.

    A class instead of a generator: an interrupted run that abandons the block leaves nothing to finish.
    """

    def __enter__(self) -> Meter:
        meter = Meter()
        self._token = _meter.set(meter)
        return meter

    def __exit__(self, *exception: object) -> None:
        _meter.reset(self._token)


def metered() -> AbstractContextManager[Meter]:
    """Collect the work that is metered inside the block; an outer block does not see this work.

    Example:
        >>> with metered() as work:
        ...     meter("hmac", 2)
        >>> work.counts
        {'hmac': 2}
    """
    return _Metering()


@dataclass(frozen=True)
class ComputeModel:
    """Conversion of metered work into seconds on the reference machine.

    Args:
        measured: use thread CPU time instead of the cost table.
        costs: seconds per unit of each operation.
    """

    measured: bool
    costs: Mapping[str, float]

    def modelled_s(self, counts: Mapping[str, float]) -> float:
        """Return the seconds of the counted operations by the cost table.

        Args:
            counts: units per operation.

        Raises:
            ExperimentError: the table lacks an operation.

        Example:
            >>> ComputeModel(measured=False, costs={"hmac": 0.5, "message": 0.25}).modelled_s({"hmac": 3, "message": 2})
            2.0
        """
        unknown = sorted(counts.keys() - self.costs.keys())
        if unknown:
            raise ExperimentError(
                f"time.compute: the cost table has no {unknown[0]!r}, which this run meters; "
                "meter operations of the table, or set time.compute to measured"
            )
        # fsum rounds once: any order of the operations gives the same bits.
        return math.fsum(count * self.costs[operation] for operation, count in sorted(counts.items()))

    def seconds(self, meter: Meter, cpu_s: float) -> float:
        """Return the seconds of metered work that took `cpu_s` of this thread's CPU time."""
        return cpu_s + meter.parallel_s if self.measured else self.modelled_s(meter.counts)


def thread_cpu_s() -> float:
    """Return the CPU time of this thread in seconds."""
    # Of this thread alone: other threads, and other programs on the machine, do not count.
    return time.thread_time()


_PACKAGES = ("numpy", "cryptography", "pynacl", "gmpy2", "torch")


def write_costs(path: Path, costs: Mapping[str, float]) -> None:
    """Write a cost table, with comments on the time and the machine of the measurement.

    Args:
        path: the file, written under a temporary name and then renamed.
        costs: seconds per unit of each operation.

    Raises:
        ExperimentError: the file cannot be written.
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
    """Read a cost table: seconds per unit of some or all operations.

    Args:
        path: a YAML file.

    Raises:
        ExperimentError: one line: no such file, not a mapping in YAML, an unknown operation, or a cost that is negative
            or not a finite number.
    """
    try:
        limits.check_regular(path)
        table = plain_yaml.read(path)
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: not a text file (UTF-8)") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ExperimentError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise ExperimentError(f"{path}: a cost table maps operations to seconds; `testbed calibrate` writes one")
    return {_checked_operation(path, operation): _cost(path, operation, cost) for operation, cost in table.items()}


def _checked_operation(path: Path, operation: object) -> str:
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
