"""A matrix of rounds x clients: 1 where a client was there in a round, else 0.

`.csv` (one line per round, with or without a line of column names), `.npy` (a two-dimensional array of numbers or
booleans) or `.parquet` (one column per client). Client numbers are the columns' places, from 0. Round r (from 0)
lasts from r * S to (r + 1) * S for rounds of S seconds; rounds in a row become one interval.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.emulation.traces.conversion.collector import Counts, shown
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError
from testbed.files import limits
from testbed.files import parquet as parquet_files

Presence = npt.NDArray[np.bool_]
_WHAT = "a matrix has one row per round and one column per client, each value 0 or 1"
_BATCH = 4096


def convert(path: Path, round_seconds: float) -> tuple[AvailabilityTrace, Counts]:
    """The trace in a matrix of rounds x clients.

    Args:
        path: a .csv, .npy or .parquet file.
        round_seconds: how long a round lasts in s, positive.

    Returns:
        the trace, its horizon [0, rounds * round_seconds), and the counts.

    Raises:
        TraceError: not such a file, a value other than 0 and 1, or nobody is ever there.
    """
    if not 0 < round_seconds < math.inf:
        raise TraceError(f"{path}: rounds of {round_seconds:g} s; give a positive length (--round-seconds)")
    rows = _reader(path)(path)
    try:
        matrix = np.concatenate(list(rows))
    except limits.TooLarge as why:
        raise TraceError(f"{path}: {why}; split it") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error, pa.ArrowException):
        raise TraceError(f"{path}: not a {path.suffix} file, or truncated; {_WHAT}") from None
    rounds, clients = matrix.shape
    if not rounds or not clients or not matrix.any():
        raise TraceError(f"{path}: {rounds} rounds of {clients} clients, and nobody is ever there; {_WHAT}")
    # A run of ones begins where the matrix, with a round of zeros before and after it, steps up, and ends where it
    # steps down; transposed, both come in the order of clients.
    edge = np.zeros((clients, rounds + 2), np.int8)
    edge[:, 1:-1] = matrix.T
    steps = np.diff(edge, axis=1)
    client, begins = np.nonzero(steps == 1)
    _, ends = np.nonzero(steps == -1)
    trace = AvailabilityTrace.from_rows(
        client,
        begins * round_seconds,
        ends * round_seconds,
        str(path),
        horizon=(0.0, rounds * round_seconds),
        clients=np.arange(clients),
    )
    counts = {
        "rounds": rounds,
        "devices": clients,
        "devices_never_online": len(trace.never_online),
        "devices_kept": len(trace),
        "presences": int(matrix.sum()),
        "intervals_kept": len(client),
    }
    return trace, counts


def _reader(path: Path) -> Any:
    try:
        return {".csv": _csv_rows, ".npy": _npy_rows, ".parquet": _parquet_rows}[path.suffix]
    except KeyError:
        raise TraceError(f"{path}: a matrix is a file that ends in .csv, .npy or .parquet") from None


def _csv_rows(path: Path) -> Iterator[Presence]:
    values = {"0": False, "1": True}
    width, row, batch = 0, 0, []
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = limits.lines(file, limits.TRACE_BYTES)
        for cells in csv.reader(line for line in lines if line.strip()):
            words = [cell.strip() for cell in cells]
            if not width and _are_names(words):
                width = len(words)
                continue
            width = width or len(words)
            row += 1
            if len(words) != width:
                raise TraceError(f"{path}: row {row}: {len(words)} values, not {width}; {_WHAT}")
            try:
                batch.append(np.array([values[word] for word in words], np.bool_))
            except KeyError as word:
                raise TraceError(f"{path}: row {row}: {shown(word.args[0])} is not 0 or 1; {_WHAT}") from None
    yield np.stack(batch) if batch else np.zeros((0, width), np.bool_)


def _are_names(words: list[str]) -> bool:
    """Whether the first line names the columns: words only, or different numbers (and not just 0 and 1)."""
    numbers = [word for word in words if word.replace(".", "", 1).isdigit()]
    if not numbers:
        return True
    return len(numbers) == len(words) == len(set(words)) and not set(words) <= {"0", "1"}


def _npy_rows(path: Path) -> Iterator[Presence]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise TraceError(f"{path}: not a .npy file of numbers, or truncated; {_WHAT}") from None
    if not isinstance(array, np.ndarray):
        raise TraceError(f"{path}: an archive; {_WHAT}")
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise TraceError(f"{path}: {array.ndim} dimensions of {array.dtype}; {_WHAT}")
    for start in range(0, max(1, len(array)), _BATCH):
        yield _checked(path, np.asarray(array[start : start + _BATCH]), start)


def _parquet_rows(path: Path) -> Iterator[Presence]:
    start = 0
    with parquet_files.opened(path) as file:
        parquet_files.check_rows(file)
        for field in file.schema_arrow:
            if not (
                pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_boolean(field.type)
            ):
                raise TraceError(f"{path}: column {shown(field.name)} is {field.type}; {_WHAT}")
        yield np.zeros((0, len(file.schema_arrow)), np.bool_)
        for batch in file.iter_batches(_BATCH):
            columns = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in batch.columns]
            yield _checked(path, np.stack(columns, axis=1), start)
            start += batch.num_rows


def _checked(path: Path, values: npt.NDArray[Any], start: int) -> Presence:
    bad = np.argwhere((values != 0) & (values != 1))
    if len(bad):
        row, column = bad[0]
        value = values[row, column]
        raise TraceError(f"{path}: row {start + row + 1}: column {column + 1}: {value:g} is not 0 or 1; {_WHAT}")
    return values.astype(np.bool_)
