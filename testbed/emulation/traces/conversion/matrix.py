"""A matrix of rounds x clients: 1 if a client was online in a round, else 0.

`.csv` (one line per round, with or without a line of column names), `.npy` (a two-dimensional array of numbers or
booleans) or `.parquet` (one column per client). Client numbers are the columns' positions, from 0; the names of the
columns are kept. Round r (from 0) lasts from r * S to (r + 1) * S for rounds of S seconds; consecutive rounds become
one interval.

The first column may hold the numbers or times of the rounds, as in tables written with an index: then it is not a
client, and is counted. It is an index if it has the name of an index (empty, `index`, `round`, `time`...) and holds
values other than 0 and 1, or the numbers of the rows; or, with any name, if its values ascend from row to row beyond 1.
"""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import reading, shown
from testbed.errors import TraceError
from testbed.files import limits
from testbed.files import parquet as parquet_files

Presence = npt.NDArray[np.bool_]
_WHAT = "a matrix has one row per round and one column per client, each value 0 or 1"
_BATCH = 4096
_VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
_INDEX_NAMES = frozenset(
    {"", "index", "round", "rounds", "row", "step", "t", "time", "timestamp", "date", "unnamed: 0"}
)
_PANDAS_INDEX = "__index_level_"


def convert(path: Path, round_seconds: float) -> tuple[AvailabilityTrace, Counts]:
    """Return the trace in a matrix of rounds x clients.

    Args:
        path: a .csv, .npy or .parquet file.
        round_seconds: length of a round in s, positive.

    Returns:
        The trace, its horizon [0, rounds * round_seconds), and the counts.

    Raises:
        TraceError: not such a file, a value other than 0 and 1, or no client is ever online.
    """
    if not 0 < round_seconds < math.inf:
        raise TraceError(f"{path}: rounds of {round_seconds:g} s; give a positive length (--round-seconds)")
    try:
        with reading(path, _WHAT):
            names, index, matrix = _without_index(path, *_reader(path)(path))
    except pa.ArrowException:
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
        names=dict(enumerate(names)),
    )
    counts = {
        "rounds": rounds,
        **({f"column_{index}_taken_for_an_index": 1} if index else {}),
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


Cells = npt.NDArray[Any]
Read = tuple[list[str], Cells, Presence]  # the columns' names (none: empty), the first column, and the others


def _without_index(path: Path, names: list[str], first: Cells, rest: Presence) -> tuple[list[str], str, Presence]:
    """Return the names of the clients, the name of the index ("" if there is none), and the matrix."""
    index_name = names[0] if names else "1"
    if len(first) and _is_index(index_name if names else None, first):
        return names[1:], repr(index_name or "1"), rest
    values = np.array([_VALUES.get(str(cell), -1) for cell in first], np.int8)
    if (values < 0).any():
        row = int((values < 0).argmax())
        cell = first[row]
        cell_text = shown(cell) if isinstance(cell, str) else f"{cell:g}"
        where = "" if isinstance(cell, str) else "column 1: "
        raise TraceError(f"{path}: row {row + 1}: {where}{cell_text} is not 0 or 1; {_WHAT}")
    return names, "", np.concatenate([values[:, None] == 1, rest], axis=1)


def _is_index(name: str | None, cells: Cells) -> bool:
    texts = [str(cell) for cell in cells]
    try:
        numbers = np.array(texts, np.float64)
    except ValueError:  # dates, names of rounds
        return len(set(texts)) == len(texts) and len(texts) > 1 and name is not None and name.lower() in _INDEX_NAMES
    ascends = bool((np.diff(numbers) > 0).all()) and len(numbers) > 1
    if name is not None and name.lower() in _INDEX_NAMES:
        return ascends or not np.isin(numbers, (0, 1)).all()
    return ascends and numbers[-1] > 1


def _csv_rows(path: Path) -> Read:
    width, row, names = 0, 0, []
    first: list[str] = []
    batches, batch = [], []
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = limits.lines(file, limits.TRACE_BYTES)
        for cells in csv.reader(line for line in lines if line.strip()):
            words = [cell.strip() for cell in cells]
            if not width and _are_names(words):
                width, names = len(words), words
                continue
            width = width or len(words)
            row += 1
            if len(words) != width:
                raise TraceError(f"{path}: row {row}: {len(words)} values, not {width}; {_WHAT}")
            first.append(words[0])
            try:
                batch.append(np.array([_VALUES[word] for word in words[1:]], np.bool_))
            except KeyError as word:
                raise TraceError(f"{path}: row {row}: {shown(word.args[0])} is not 0 or 1; {_WHAT}") from None
            if len(batch) == _BATCH:
                batches.append(np.stack(batch))
                batch.clear()
    batches += [np.stack(batch)] if batch else []
    rest = np.concatenate(batches) if batches else np.zeros((0, max(0, width - 1)), np.bool_)
    return names, np.array(first, object), rest


def _are_names(words: list[str]) -> bool:
    """Return whether the first line names the columns: words only (or empty, above an index), or distinct numbers."""
    numbers = [word for word in words if word.replace(".", "", 1).isdigit()]
    if not numbers:
        return True
    if not words[0] or words[0].lower() in _INDEX_NAMES:
        return True
    values = words[1:] if len(words) > 2 else words  # the first may be an index
    return len(numbers) == len(words) == len(set(words)) and not set(values) <= {"0", "1"}


def _npy_rows(path: Path) -> Read:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise TraceError(f"{path}: not a .npy file of numbers, or truncated; {_WHAT}") from None
    if not isinstance(array, np.ndarray):
        raise TraceError(f"{path}: an archive; {_WHAT}")
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise TraceError(f"{path}: {array.ndim} dimensions of {array.dtype}; {_WHAT}")
    if not array.shape[1]:
        return [], np.zeros(0), np.zeros((0, 0), np.bool_)
    parts = [
        _checked(path, np.asarray(array[start : start + _BATCH, 1:]), start)
        for start in range(0, max(1, len(array)), _BATCH)
    ]
    return [], _plain(np.asarray(array[:, 0])), np.concatenate(parts)


def _parquet_rows(path: Path) -> Read:
    start = 0
    first, parts = [np.zeros(0)], []
    with parquet_files.opened(path) as file:
        parquet_files.check_rows(file)
        fields = list(file.schema_arrow)
        fields.sort(key=lambda field: not field.name.startswith(_PANDAS_INDEX))  # pandas writes its index last
        names = [field.name for field in fields]
        for place, field in enumerate(fields):
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            text = pa.types.is_string(field.type) or pa.types.is_timestamp(field.type)
            may_be_index = place == 0 and text and _index_name(field.name) in _INDEX_NAMES
            if not (number or pa.types.is_boolean(field.type) or may_be_index):
                raise TraceError(f"{path}: column {shown(field.name)} is {field.type}; {_WHAT}")
        parts.append(np.zeros((0, max(0, len(names) - 1)), np.bool_))
        for batch in file.iter_batches(_BATCH, columns=names):
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
            first.append(_plain(columns[0]))
            if columns[1:]:
                parts.append(
                    _checked(path, np.stack([column.astype(np.float64) for column in columns[1:]], axis=1), start)
                )
            else:
                parts.append(np.zeros((batch.num_rows, 0), np.bool_))
            start += batch.num_rows
    names = [_index_name(name) for name in names]
    return names, np.concatenate([part.astype(object) for part in first]), np.concatenate(parts)


def _index_name(name: str) -> str:
    return "" if name.startswith(_PANDAS_INDEX) else name


def _plain(column: Cells) -> Cells:
    """Return numbers as float64, other cells as text."""
    return column.astype(np.float64) if column.dtype.kind in "buif" else column.astype(str).astype(object)


def _checked(path: Path, values: Cells, start: int) -> Presence:
    bad = np.argwhere((values != 0) & (values != 1))
    if len(bad):
        row, column = bad[0]
        value = values[row, column]
        raise TraceError(f"{path}: row {start + row + 1}: column {column + 2}: {value:g} is not 0 or 1; {_WHAT}")
    return values.astype(np.bool_)
