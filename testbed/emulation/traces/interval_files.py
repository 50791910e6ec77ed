"""Availability traces as Parquet and CSV files: reading in batches, checks of each row, and writing.

Both have exactly the columns ``client, online_from_s, online_until_s``. Parquet's metadata hold more facts (`extent`),
for which CSV has no place.
"""

import contextlib
import csv
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.extent import Extent, of_metadata
from testbed.emulation.traces.text_files import check_not_empty, reading, shown
from testbed.errors import TraceError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files
from testbed.files.atomic import atomic_write

COLUMNS = ("client", "online_from_s", "online_until_s")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CheckedRows:
    """The result of `RowCheck`: k clients, with their intervals one after the other.

    Attributes:
        clients: `(k,)` int64 ascending.
        offsets: `(k + 1,)` int64; the intervals of `clients[i]` are `offsets[i]:offsets[i + 1]`.
        online_from_s: `(total,)` float64 seconds.
        online_until_s: `(total,)` float64 seconds.
    """

    clients: Ids
    offsets: Ids
    online_from_s: Floats
    online_until_s: Floats


class RowCheck:
    """A check of rows that come in batches in the order of the file; each row is compared with the row before.

    Besides the times (16 bytes a row) the check stores one number per client and batch, so that a file is never in
    memory as a whole with all its columns.

    Args:
        where: name of the source in messages, e.g. the file's.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.rows = 0
        self._from, self._until = _Growing(), _Growing()
        self._clients: list[Ids] = []
        self._counts: list[Ids] = []
        self._last: tuple[int, float, float] | None = None

    def add(self, client: npt.ArrayLike, online_from_s: npt.ArrayLike, online_until_s: npt.ArrayLike) -> None:
        """Add the next rows as three `(m,)` columns; raise `TraceError` for the first invalid row."""
        columns = [np.asarray(column) for column in (client, online_from_s, online_until_s)]
        if any(column.shape != columns[0].shape or column.ndim != 1 for column in columns):
            raise TraceError(f"{self.where}: the columns differ in length; each row needs {', '.join(COLUMNS)}")
        for name, column in zip(COLUMNS, columns, strict=True):
            if column.dtype.kind not in "iuf" and len(column):
                raise TraceError(f"{self.where}: column {name} does not hold numbers ({column.dtype})")
        if not len(columns[0]):
            return
        begin, until = (column.astype(np.float64, copy=False) for column in columns[1:])
        ids, no_id = _whole(columns[0])
        self._check(columns[0], ids, no_id, begin, until)
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        self._clients.append(ids[first])
        self._counts.append(np.diff(np.append(first, len(ids))))
        self._from.extend(begin)
        self._until.extend(until)
        self._last = int(ids[-1]), float(begin[-1]), float(until[-1])
        self.rows += len(ids)

    def finish(self) -> CheckedRows:
        """Return all rows; raise `TraceError` if there are none. The check must not be used afterwards."""
        if not self.rows:
            raise TraceError(f"{self.where}: no intervals; an availability trace needs at least one row")
        clients, counts = np.concatenate(self._clients), np.concatenate(self._counts)
        first = np.flatnonzero(np.append(True, clients[1:] != clients[:-1]))  # a client may go on in the next batch
        offsets = np.append(0, np.cumsum(np.add.reduceat(counts, first)))
        return CheckedRows(clients[first], offsets.astype(np.int64), self._from.finish(), self._until.finish())

    def _check(self, client: npt.NDArray[Any], ids: Ids, no_id: Mask, begin: Floats, until: Floats) -> None:
        follows = np.append(self._last is not None, np.ones(len(ids) - 1, np.bool_))
        last_id, last_begin, last_until = self._last or (0, 0.0, 0.0)
        id_before, begin_before = np.append(last_id, ids[:-1]), np.append(last_begin, begin[:-1])
        until_before = np.append(last_until, until[:-1])
        same = follows & (ids == id_before)
        # A row with several faults is reported with the first fault of this list.
        faults: list[tuple[Mask, Callable[[int], str]]] = [
            (no_id, lambda at: f"client {client[at]} is not a whole number"),
            (ids < 0, lambda at: f"client {ids[at]} is negative; clients are numbered from 0"),
            (~np.isfinite(begin), lambda at: f"online_from_s is {begin[at]}; it must be a finite number of seconds"),
            (~np.isfinite(until), lambda at: f"online_until_s is {until[at]}; it must be a finite number of seconds"),
            (until < begin, lambda at: f"reversed interval: from {begin[at]} until {until[at]}; swap the two"),
            (until == begin, lambda at: f"empty interval: from {begin[at]} until {until[at]}; leave it out"),
            (
                follows & (ids < id_before),
                lambda at: f"client {ids[at]} comes after client {id_before[at]}; sort by client, then online_from_s",
            ),
            (
                same & (begin < begin_before),
                lambda at: (
                    f"begins at {begin[at]}, before the row above ({begin_before[at]}); sort by client, "
                    "then online_from_s"
                ),
            ),
            (
                same & (begin < until_before),
                lambda at: (
                    f"overlaps the row above: begins at {begin[at]}, that one lasts until {until_before[at]}; "
                    "join the two"
                ),
            ),
        ]
        faulty_rows = [(int(mask.argmax()), rank) for rank, (mask, _) in enumerate(faults) if mask.any()]
        if faulty_rows:
            # The first row of the file, then the first fault of the list.
            at, rank = min(faulty_rows)
            raise row_error(self.where, self.rows + at + 1, faults[rank][1](at))


def row_error(where: str, row: int, problem: str) -> TraceError:
    """Return the error for one row.

    Args:
        where: the source, e.g. the file.
        row: row number, from 1 without the header.
        problem: the fault and its remedy.
    """
    return TraceError(f"{where}: row {row}: {problem}")


def _whole(column: npt.NDArray[Any]) -> tuple[Ids, Mask]:
    """Return the column as int64, and a mask of values that are not whole numbers within int64."""
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            # Compared as floats: int64's largest number has no float64, and casting above it gives nonsense.
            bad = ~((np.abs(column) < 2.0**63) & (column == np.floor(column)))
        return np.where(bad, 0, column).astype(np.int64), bad
    bad = column > np.iinfo(np.int64).max if column.dtype == np.uint64 else np.zeros(len(column), np.bool_)
    return np.where(bad, 0, column).astype(np.int64), bad


class _Growing:
    """An array that grows in place; joining batches at the end would need twice the memory."""

    def __init__(self) -> None:
        self._values = np.empty(0)
        self._length = 0

    def extend(self, values: Floats) -> None:
        length = self._length + len(values)
        if length > len(self._values):
            # Grows by a quarter: doubling would take too much memory for the largest traces.
            self._values.resize(max(length, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._length : length] = values
        self._length = length

    def finish(self) -> Floats:
        """Return the values; no values can be added afterwards."""
        self._values.resize(self._length, refcheck=False)
        return self._values


BATCH_ROWS = 1 << 18
_CSV_BLOCK_BYTES = 1 << 22
_LONGEST_LINE = 1 << 16
_SMALL: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
_SCHEMA = pa.schema([("client", pa.int64()), ("online_from_s", pa.float64()), ("online_until_s", pa.float64())])
_WHOLE = re.compile(r"\s*[-+]?[0-9]+\s*")

Columns = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


def check_suffix(path: Path) -> None:
    """Raise `TraceError` unless the path is that of a Parquet or CSV file."""
    if path.suffix not in (".parquet", ".csv"):
        raise TraceError(f"{path}: an availability trace is a file that ends in .parquet or .csv")


def read_extent(path: Path) -> Extent:
    """Return the extent in the metadata of a file, empty for CSV; raise `TraceError` if it cannot be read."""
    _check_readable(path)
    if path.suffix == ".csv":
        return Extent()
    with _readable_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
    return of_metadata(metadata, path)


def read_batches(path: Path) -> Iterator[Columns]:
    """Return the three columns in batches of bounded size, in the order of the file.

    Args:
        path: a ``.parquet`` or ``.csv`` file.

    Raises:
        TraceError: one line: no such file, wrong columns, a value that is missing or not a number (with its row), or a
            file that is empty, truncated or of another kind.
    """
    _check_readable(path)
    return _parquet_batches(path) if path.suffix == ".parquet" else _csv_batches(path)


def _check_readable(path: Path) -> None:
    check_suffix(path)
    with reading(path, "an availability trace was expected"):
        check_not_empty(path, f"the columns {', '.join(COLUMNS)}")


def _check_names(path: Path, names: Iterable[str]) -> None:
    names = list(names)
    if sorted(names) != sorted(COLUMNS):
        more = ", …" if len(names) > 8 else ""
        present = ", ".join(map(shown, names[:8])) + more
        raise TraceError(f"{path}: the columns must be {', '.join(COLUMNS)}; found {present}")


@contextlib.contextmanager
def _readable_parquet(path: Path) -> Iterator[Any]:
    try:
        parquet_files.verified(path)
        # No read-ahead: it would hold a whole row group, which in a foreign file may be the whole file.
        with pa.OSFile(str(path)) as source, parquet_files.opened(source, **_SMALL) as file:
            _check_names(path, file.schema_arrow.names)
            parquet_files.check_rows(file)
            yield file
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"{path}: not a Parquet file, or truncated: {reason(error)}") from None


def _parquet_batches(path: Path) -> Iterator[Columns]:
    with _readable_parquet(path) as file:
        for name, kind in zip(file.schema_arrow.names, file.schema_arrow.types, strict=True):
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise TraceError(f"{path}: column {name} holds {kind}; it must hold numbers")
        row = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=list(COLUMNS)):
            missing = {name: _first_missing(batch.column(name)) for name in COLUMNS}
            name = min(missing, key=lambda name: missing[name])
            yield _arrays(batch.slice(0, missing[name]))
            if missing[name] < len(batch):
                raise row_error(str(path), row + missing[name] + 1, f"{name} is missing")
            row += len(batch)


def _first_missing(column: pa.Array) -> int:
    """Return the position of the first null; the length if there is none."""
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) if column.null_count else len(column)


def _arrays(batch: pa.RecordBatch) -> Columns:
    client, begin, until = (batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS)
    return client, begin, until


def _csv_batches(path: Path) -> Iterator[Columns]:
    # One thread and small blocks: memory stays bounded, and a fault leaves the rows before it countable.
    reading = pa.csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK_BYTES)
    kinds = pa.csv.ConvertOptions(column_types=_SCHEMA, null_values=[])
    rows = 0
    try:
        limits.check_size(path, limits.TRACE_BYTES)
        with pa.OSFile(str(path)) as source, pa.csv.open_csv(source, reading, convert_options=kinds) as file:
            _check_names(path, file.schema.names)
            for batch in file:
                yield _arrays(batch)
                rows += len(batch)
    except limits.TooLarge as why:
        raise TraceError(f"{path}: {why}; write it as .parquet") from None
    except (pa.ArrowException, OSError) as error:
        yield from _rows_before_fault(path, rows)
        raise TraceError(f"{path}: not CSV: {reason(error)}") from None


def _rows_before_fault(path: Path, begin: int) -> Iterator[Columns]:
    """Yield the rows of a CSV file after row `begin` and before the first unreadable row; then raise `TraceError`.

    Slow, row by row: for files that the fast reader refused without naming the row.
    """
    good: list[tuple[int, float, float]] = []
    fault: TraceError | None = None
    try:
        unreadable = reading(path, "write the trace as CSV again, or as .parquet")
        with unreadable, open(path, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(_lines(file))
            names = next(lines, [])
            _check_names(path, names)
            order = [names.index(name) for name in COLUMNS]
            for row, cells in enumerate((cells for cells in lines if cells), start=1):
                if len(cells) != len(COLUMNS):
                    raise row_error(str(path), row, f"{len(cells)} values, not {len(COLUMNS)}: {', '.join(names)}")
                numbers = _numbers(path, row, [cells[place] for place in order])
                if row > begin:
                    good.append(numbers)
                if len(good) == BATCH_ROWS:
                    yield _columns(good)
                    good.clear()
    except TraceError as error:
        fault = error
    if good:
        yield _columns(good)
    if fault is not None:
        raise fault


def _columns(rows: list[tuple[int, float, float]]) -> Columns:
    client, begin, until = zip(*rows, strict=True)
    return np.array(client, np.int64), np.array(begin), np.array(until)


def _numbers(path: Path, row: int, cells: list[str]) -> tuple[int, float, float]:
    for name, cell in zip(COLUMNS, cells, strict=True):
        if not cell.strip():
            raise row_error(str(path), row, f"{name} is missing")
        if name == "client" and not _WHOLE.fullmatch(cell):
            raise row_error(str(path), row, f"client {shown(cell)} is not a whole number")
        try:
            float(cell)
        except ValueError:
            raise row_error(str(path), row, f"{name} {shown(cell)} is not a number") from None
    if abs(float(cells[0])) >= 2.0**63:
        raise row_error(str(path), row, f"client {cells[0].strip()[:40]} is too large a number")
    return int(cells[0]), float(cells[1]), float(cells[2])


def _lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file; an overlong line comes in pieces, so that it never fills the memory."""
    while line := file.readline(_LONGEST_LINE):
        yield line


def write_batches(path: Path, batches: Iterable[tuple[Ids, Floats, Floats]], extent: Extent) -> None:
    """Write rows as Parquet or CSV, by the suffix; CSV leaves out the extent.

    Args:
        path: the file, written under a temporary name and then renamed.
        batches: columns client, online_from_s, online_until_s.
        extent: metadata of the trace.

    Raises:
        TraceError: another suffix, or the file cannot be written.
    """
    check_suffix(path)
    tables = (pa.record_batch(list(columns), schema=_SCHEMA) for columns in batches)
    with atomic_write(path, lambda reason: TraceError(f"{path}: cannot be written: {reason}")) as file:
        if path.suffix == ".csv":
            file.write((",".join(COLUMNS) + "\n").encode())
            with pa.csv.CSVWriter(file, _SCHEMA, write_options=pa.csv.WriteOptions(include_header=False)) as writer:
                for table in tables:
                    writer.write_batch(table)
            return
        schema = _SCHEMA.with_metadata(extent.metadata())
        with parquet_files.writer(file, schema, use_dictionary=["client"]) as writer:
            for table in tables:
                writer.write_batch(table)
