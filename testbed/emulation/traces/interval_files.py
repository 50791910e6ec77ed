"""Availability traces as files: Parquet and CSV, read and written a batch at a time.

Both have exactly the columns ``client, online_from_s, online_until_s``. Parquet's metadata says two things more,
which CSV has no place for: the horizon, and the clients that were never online.
"""

import contextlib
import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.interval_rows import COLUMNS, row_error
from testbed.errors import TraceError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files
from testbed.files.atomic import atomic_write

BATCH_ROWS = 1 << 18
_CSV_BLOCK_BYTES = 1 << 22
_LONGEST_LINE = 1 << 16
_SMALL: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
_SCHEMA = pa.schema([("client", pa.int64()), ("online_from_s", pa.float64()), ("online_until_s", pa.float64())])
_HORIZON, _NEVER_ONLINE = b"testbed.horizon_s", b"testbed.never_online"
_WHOLE = re.compile(r"\s*[-+]?[0-9]+\s*")

Columns = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


class Extent(NamedTuple):
    """What the rows do not say: the horizon (begin, end) in seconds, and the `(j,)` clients that were never online."""

    horizon: tuple[float, float] | None
    never_online: Ids


NOTHING_SAID = Extent(None, np.empty(0, np.int64))


def check_suffix(path: Path) -> None:
    """Raise `TraceError` unless the file is to be Parquet or CSV."""
    if path.suffix not in (".parquet", ".csv"):
        raise TraceError(f"{path}: an availability trace is a file that ends in .parquet or .csv")


def read_extent(path: Path) -> Extent:
    """What the metadata of a file says beyond its rows; nothing for CSV. Raises `TraceError`."""
    _check_readable(path)
    if path.suffix == ".csv":
        return NOTHING_SAID
    with _readable_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        horizon = json.loads(metadata.get(_HORIZON, b"null"))
        if horizon is not None:
            begin, end = map(float, horizon)
            horizon = begin, end
        never = [int(client) for client in json.loads(metadata.get(_NEVER_ONLINE, b"[]"))]
        return Extent(horizon, np.array(never, np.int64))
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise TraceError(f"{path}: the file's metadata is damaged; convert the trace again") from None


def read_batches(path: Path) -> Iterator[Columns]:
    """The three columns, in batches of bounded size, in the order of the file.

    Raises `TraceError` with one line: no such file, wrong columns, a value that is missing or no number (with its
    row), a file that is empty, truncated or something else.
    """
    _check_readable(path)
    return _parquet_batches(path) if path.suffix == ".parquet" else _csv_batches(path)


def _check_readable(path: Path) -> None:
    check_suffix(path)
    try:
        with open(path, "rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    if empty:
        raise TraceError(f"{path}: the file is empty; it needs the columns {', '.join(COLUMNS)}")


def _check_names(path: Path, names: Iterable[str]) -> None:
    names = list(names)
    if sorted(names) != sorted(COLUMNS):
        shown = [name if len(name) <= 40 else f"{name[:40]}…" for name in map(repr, names[:8])]
        more = ", …" if len(names) > 8 else ""
        raise TraceError(f"{path}: the columns must be {', '.join(COLUMNS)}; found {', '.join(shown)}{more}")


@contextlib.contextmanager
def _readable_parquet(path: Path) -> Iterator[Any]:
    try:
        parquet_files.verified(path)
        # Not buffered ahead: that would hold a whole row group, which in a foreign file may be the whole file.
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
    """The place of the first null; the length if there is none."""
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) if column.null_count else len(column)


def _arrays(batch: pa.RecordBatch) -> Columns:
    client, begin, until = (batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS)
    return client, begin, until


def _csv_batches(path: Path) -> Iterator[Columns]:
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
    """What a CSV file holds after row `begin` and before the first row that cannot be read; then raises `TraceError`.

    Row by row and slow: it is for a file that the fast reader refused without saying where.
    """
    good: list[tuple[int, float, float]] = []
    fault: TraceError | None = None
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
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
    except UnicodeDecodeError:
        fault = TraceError(f"{path}: not a text file (UTF-8); write the trace as CSV again, or as .parquet")
    except csv.Error as error:
        fault = TraceError(f"{path}: not CSV: {error}")
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
        shown = repr(cell if len(cell) <= 40 else f"{cell[:40]}…")
        if not cell.strip():
            raise row_error(str(path), row, f"{name} is missing")
        if name == "client" and not _WHOLE.fullmatch(cell):
            raise row_error(str(path), row, f"client {shown} is not a whole number")
        try:
            float(cell)
        except ValueError:
            raise row_error(str(path), row, f"{name} {shown} is not a number") from None
    if abs(float(cells[0])) >= 2.0**63:
        raise row_error(str(path), row, f"client {cells[0].strip()[:40]} is too large a number")
    return int(cells[0]), float(cells[1]), float(cells[2])


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file; one that is absurdly long comes in pieces, so that it never fills the memory."""
    while line := file.readline(_LONGEST_LINE):
        yield line


def write_batches(path: Path, batches: Iterable[tuple[Ids, Floats, Floats]], extent: Extent) -> None:
    """Write the rows as Parquet or CSV by the suffix; CSV leaves the extent out. Raises `TraceError`."""
    check_suffix(path)
    tables = (pa.record_batch(list(columns), schema=_SCHEMA) for columns in batches)
    with atomic_write(path, lambda reason: TraceError(f"{path}: cannot be written: {reason}")) as file:
        if path.suffix == ".csv":
            file.write((",".join(COLUMNS) + "\n").encode())
            with pa.csv.CSVWriter(file, _SCHEMA, write_options=pa.csv.WriteOptions(include_header=False)) as writer:
                for table in tables:
                    writer.write_batch(table)
            return
        metadata = {_HORIZON: json.dumps(extent.horizon), _NEVER_ONLINE: json.dumps(extent.never_online.tolist())}
        schema = _SCHEMA.with_metadata(metadata)
        with parquet_files.writer(file, schema, use_dictionary=["client"]) as writer:
            for table in tables:
                writer.write_batch(table)
