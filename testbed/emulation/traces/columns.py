"""Columns of numbers from tables of devices: CSV, Parquet, or JSON as in published data sets.

A row is a device. CSV begins with a line of names. JSON is a list of objects, or an object of named objects; each
object is a row, and numbers may be strings (AI-Benchmark's ``"CPU_F_AI_Score": "3744"``). A row without a value in a
requested column (absent, null, or an empty cell) is left out: not every phone was measured in every way.
"""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.text_files import check_not_empty, reading, shown
from testbed.errors import TraceError, reason
from testbed.files import limits

_SUFFIXES = (".csv", ".parquet", ".json")
_NAMES_SHOWN = 20

Row = Sequence[Any]


@dataclass(frozen=True)
class Columns:
    """Some columns of a table.

    Attributes:
        values: `(c, m)` float64, finite: c columns of the m rows that have a value in all of them.
        rows: `(m,)` int64: row numbers in the file, from 1, without the header.
    """

    values: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]


def column_names(path: Path) -> list[str]:
    """Return the column names of a table (JSON: the keys of its objects); raise `TraceError` as `read_columns` does."""
    names, _ = _opened(Path(path))
    return names


def read_columns(path: Path, names: Sequence[str]) -> Columns:
    """Read columns of a table.

    Args:
        path: a CSV, Parquet or JSON file.
        names: names of the columns to read.

    Raises:
        TraceError: one line with file and row: no such file, another kind of file, no such column (the message lists
            the columns of the file), a value that is not a finite number, or no row with a value in all columns.
    """
    path = Path(path)
    available, rows = _opened(path)
    for name in names:
        if name not in available:
            others = [*map(shown, available[:_NAMES_SHOWN]), *(["…"] if len(available) > _NAMES_SHOWN else [])]
            raise TraceError(f"{path}: no column {shown(name)}; there are {', '.join(others) or 'none'}")
    places = [available.index(name) for name in names]
    values: list[list[float]] = []
    numbers: list[int] = []
    for count, row in enumerate(rows, start=1):
        cells = [row[place] for place in places]
        if any(cell is None or (isinstance(cell, str) and not cell.strip()) for cell in cells):
            continue
        values.append([_number(path, count, name, cell) for name, cell in zip(names, cells, strict=True)])
        numbers.append(count)
    if not values:
        raise TraceError(f"{path}: no row has a value in {', '.join(map(shown, names))}; the table needs at least one")
    return Columns(np.array(values, np.float64).T.copy(), np.array(numbers, np.int64))


def _opened(path: Path) -> tuple[list[str], Iterable[Row]]:
    if path.suffix not in _SUFFIXES:
        raise TraceError(f"{path}: a table of devices is a file that ends in {', '.join(_SUFFIXES)}")
    with reading(path, "a table of devices was expected"):
        check_not_empty(path, "a row per device")
        return {".csv": _csv_rows, ".parquet": _parquet_rows, ".json": _json_rows}[path.suffix](path)


def _csv_rows(path: Path) -> tuple[list[str], Iterable[Row]]:
    # utf-8-sig: spreadsheets begin their files with a byte order mark.
    with open(path, encoding="utf-8-sig", newline="") as file:
        names, *rows = [cells for cells in csv.reader(limits.lines(file, limits.TRACE_BYTES)) if cells] or [[]]
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(names):
            raise row_error(str(path), number, f"{len(cells)} values; the header has {len(names)}")
    return _distinct(path, [name.strip() for name in names]), rows


def _parquet_rows(path: Path) -> tuple[list[str], Iterable[Row]]:
    import pyarrow as pa

    from testbed.files import parquet as parquet_files

    try:
        with pa.OSFile(str(path)) as source:
            parquet_files.verified(path)
            table = parquet_files.read_opened(source, as_objects=True)
        return _distinct(path, table.column_names), zip(*(column.to_pylist() for column in table.columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: not a Parquet file, or truncated: {reason(error)}") from None


def _json_rows(path: Path) -> tuple[list[str], Iterable[Row]]:
    text = limits.text(path, limits.TRACE_BYTES, "utf-8-sig")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not JSON, or truncated: {reason(error)}") from None
    records = list(data.values()) if isinstance(data, dict) else data
    if not isinstance(records, list):
        raise TraceError(f"{path}: a table in JSON is a list of objects, or an object of objects, one per device")
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise row_error(str(path), number, "not an object; a table in JSON has an object for each device")
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, ([record.get(name) for name in names] for record in records)


def _distinct(path: Path, names: list[str]) -> list[str]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise TraceError(f"{path}: the column {shown(name)} stands twice")
    return names


def _number(path: Path, row: int, name: str, cell: Any) -> float:
    number = math.nan
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        try:
            # AI-Benchmark's scores carry the numbers of footnotes: "76206 1,6".
            number = float(cell.split()[0] if isinstance(cell, str) and path.suffix == ".json" else cell)
        except (ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise row_error(str(path), row, f"{name} is {shown(cell)}; it must be a finite number")
    return number
