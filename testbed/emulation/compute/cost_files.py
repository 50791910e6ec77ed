"""Cost tables as files: YAML mappings of operations to seconds per unit.

Operations that a file leaves out keep their reference cost::

    ed25519.sign: 1.6e-05
    mask.element: 6.0e-10
"""

import io
import math
import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import yaml

from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.errors import ExperimentError
from testbed.files import plain_yaml
from testbed.files.atomic import atomic_write

_PACKAGES = ("numpy", "cryptography", "pynacl", "gmpy2", "torch")


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
