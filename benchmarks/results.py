"""Files of results: what `python -m benchmarks` writes and `python -m benchmarks.compare` reads.

``{"works": {name: {"seconds": ..., "floor_seconds": ..., "ratio": ..., "command": ..., "git_commit": ..., ...}}}``.
Each row says where it is from, as a file may hold rows of several runs.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from testbed.errors import TestbedError
from testbed.files.atomic import atomic_write
from testbed.running.open_runs import provenance

FAILED = "failed"
"""The key of a row that has no figures, and says why."""

Results = dict[str, dict[str, object]]


def origin() -> dict[str, object]:
    """Of which code, and on which machine, figures are: flat, for every row."""
    known = provenance()
    versions, machine = known["versions"], known["machine"]
    return {
        "version": versions["testbed"], "git_commit": known["git_commit"], "python": versions["python"],
        "processor": machine["processor"], "cpus": machine["cpus"], "measured": known["started"],
    }  # fmt: skip


def kept(file: Path) -> Results:
    """The rows of a file, by name.

    Raises:
        TestbedError: if there is no such file, or it is none of ours.
    """
    try:
        works = json.loads(file.read_text(encoding="utf-8"))["works"]
        rows = {str(name): dict(row) for name, row in works.items()}
        for row in rows.values():
            _check(row)
    except FileNotFoundError:
        raise TestbedError(f"{file}: no such file; `python -m benchmarks --out {file}` makes it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise TestbedError(f"{file}: not a file that `python -m benchmarks` wrote") from None
    return rows


def _check(row: Mapping[str, object]) -> None:
    """Figures, or a reason why there are none; and the command.

    Raises:
        KeyError, TypeError: if one is not there, or is something else.
    """
    if not isinstance(row["command"], str):
        raise TypeError
    if FAILED not in row and not all(
        isinstance(row[key], (int, float)) for key in ("seconds", "floor_seconds", "ratio")
    ):
        raise TypeError


def write(file: Path, results: Results) -> None:
    """Write the rows whole, or leave the file as it was.

    Raises:
        TestbedError: if it cannot be written.
    """
    with atomic_write(file, lambda why: TestbedError(f"{file}: cannot be written: {why}")) as out:
        out.write(json.dumps({"works": results}, indent=1).encode() + b"\n")
