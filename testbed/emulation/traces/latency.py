"""Latency matrices: one-way delays in ms, a row per client and a column per server (or possible place of a server).

CSV, Parquet or NumPy's ``.npy``. Names are optional: in CSV a header row and a first column of names, in Parquet the
names of the columns and at most one column of text::

    client,oslo,frankfurt
    bergen,6.5,19.0
    lisboa,31.0,24.5

Rows and columns without a name are named by their number, from 0.
"""

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.arrays import Floats
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.text_files import check_not_empty, is_number, reading, shown
from testbed.errors import TraceError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files

Names = tuple[str, ...]
Matrix = tuple[Floats, Names, Names]


def read_latency_matrix(path: Path) -> Matrix:
    """Read the delays in a ``.csv``, ``.parquet`` or ``.npy`` file.

    In CSV, the first row holds names if its first cell is empty or one of its cells is not a number. The first column
    holds names if the first cell of the file is empty, or if that of the first row of delays is not a number. A first
    row of one name and otherwise numbers is ambiguous and refused.

    Args:
        path: the file.

    Returns:
        `(rows, columns)` float64 milliseconds; the names of the rows; the names of the columns.

    Raises:
        TraceError: one line with file and row (from 1, without the header): not such a file, a delay that is missing,
            not a number, negative, infinite or NaN, rows that differ in length, or a repeated name.
    """
    path = Path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npy": _read_npy}
    if path.suffix not in readers:
        raise TraceError(f"{path}: a latency matrix is a file that ends in {', '.join(readers)}")
    with reading(path, "a matrix of delays was expected", "give it as .npy"):
        check_not_empty(path, "a matrix of delays in ms")
        values, rows, columns = readers[path.suffix](path)
    if not values.size:
        raise TraceError(f"{path}: no delays; the file needs a row per client and a column per server")
    bad = ~((values >= 0) & (values < np.inf))
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), bad.shape)
        problem = f"column {columns[column]!r} is {values[row, column]} ms; a delay must be finite and at least 0"
        raise row_error(str(path), int(row) + 1, problem)
    for kind, names in (("row", rows), ("column", columns)):
        if len(set(names)) < len(names):
            repeated = next(name for at, name in enumerate(names) if name in names[:at])
            raise TraceError(f"{path}: the {kind} name {repeated!r} occurs twice; rename one")
    return values, rows, columns


def _numbered(count: int) -> Names:
    return tuple(map(str, range(count)))


def _read_csv(path: Path) -> Matrix:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return _matrix_in(path, (cells for cells in csv.reader(limits.lines(file, limits.TRACE_BYTES)) if cells))


def _matrix_in(path: Path, lines: Iterator[list[str]]) -> Matrix:
    first = next(lines, [""])
    corner_is_empty = not first[0].strip()
    has_header = corner_is_empty or not all(map(is_number, first))
    # Guessing wrong would silently drop a row of delays.
    if has_header and not corner_is_empty and len(first) > 1 and all(map(is_number, first[1:])):
        raise TraceError(
            f"{path}: the first row begins with {shown(first[0])} and goes on with numbers, which could be delays or "
            "names; leave its first cell empty if they are names, or put a row of names above it"
        )
    top = next(lines, None) if has_header else first
    if top is None:
        raise TraceError(f"{path}: no row of delays; the file needs one per client")
    has_names = corner_is_empty or not is_number(top[0])
    names: list[str] = []
    values: list[Floats] = []
    for row, cells in enumerate(chain([top], lines), start=1):
        if len(cells) != len(first):
            raise row_error(str(path), row, f"{len(cells)} values; the first row of the file has {len(first)}")
        names.append(cells[0].strip() if has_names else str(row - 1))
        values.append(_delays(path, row, cells[has_names:]))
    matrix = np.array(values)
    columns = tuple(name.strip() for name in first[has_names:]) if has_header else _numbered(matrix.shape[1])
    return matrix, tuple(names), columns


def _delays(path: Path, row: int, cells: list[str]) -> Floats:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        wrong = next(cell for cell in cells if not is_number(cell))
        raise row_error(str(path), row, f"{shown(wrong)} is not a delay in ms") from None


def _read_parquet(path: Path) -> Matrix:
    try:
        with pa.OSFile(str(path)) as source:
            table = parquet_files.read_opened(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"{path}: not a Parquet file, or truncated: {reason(error)}") from None
    names: Names | None = None
    columns: list[str] = []
    values: list[Floats] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy())) + 1
            raise row_error(str(path), row, f"column {name!r} has no value")
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            columns.append(name)
            values.append(column.to_numpy().astype(np.float64))
        elif names is None and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            names = tuple(column.to_pylist())
        else:
            raise TraceError(f"{path}: column {name!r} holds {column.type}, not delays in ms")
    matrix = np.stack(values, axis=1) if values else np.empty((0, 0))
    return matrix, names or _numbered(len(matrix)), tuple(columns)


def _read_npy(path: Path) -> Matrix:
    try:
        values: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)  # the header is not believed
    except (ValueError, EOFError, MemoryError) as error:
        raise TraceError(f"{path}: not an array of numbers in NumPy's .npy, or truncated: {reason(error)}") from None
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "iuf":
        content = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else "an archive"
        raise TraceError(f"{path}: {content}; it must be a matrix of numbers, a row per client and a column per server")
    return values.astype(np.float64), _numbered(values.shape[0]), _numbered(values.shape[1])
