"""Online intervals in any CSV file: which columns hold client, begin and end, and in which unit, is said by arguments.

Clients may be named by numbers, which are kept, or by anything else: then all are numbered in order of appearance.
Rows may be in any order; overlapping ones are merged, empty and reversed ones dropped; all of that is counted.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from testbed.emulation.traces.conversion.collector import Collected, Counts, shown
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError

Unit = Literal["s", "ms", "min", "h"]
_SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


def convert(
    path: Path, client_column: str, from_column: str, until_column: str, unit: Unit = "s"
) -> tuple[AvailabilityTrace, Counts]:
    """The trace in a CSV file with a line of column names.

    Args:
        path: the file.
        client_column, from_column, until_column: names of the columns.
        unit: of the times.

    Returns:
        the trace, times as in the file but in s, and the counts of devices and intervals seen, dropped and kept.

    Raises:
        TraceError: not such a file, a column is missing, a time is not a number, or nobody is ever online.
    """
    collected = Collected(str(path))
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            _collect(collected, csv.reader(file), (client_column, from_column, until_column), _SECONDS[unit])
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not a text file; CSV was expected") from None
    except csv.Error as error:
        raise TraceError(f"{path}: not CSV: {error}") from None
    return collected.trace()


def _collect(collected: Collected, lines: Iterator[list[str]], columns: tuple[str, str, str], seconds: float) -> None:
    where = collected.where
    names = [name.strip() for name in next(lines, [])]
    for column in columns:
        if column not in names:
            found = ", ".join(map(shown, names[:8])) or "none (an empty file?)"
            raise TraceError(f"{where}: no column {shown(column)}; its columns are {found}")
    client, begin, end = (names.index(column) for column in columns)
    devices: dict[str, int] = {}
    row = 0
    for cells in lines:
        if not cells:
            continue
        row += 1
        if len(cells) != len(names):
            raise TraceError(f"{where}: row {row}: {len(cells)} values, not {len(names)}; correct it")
        name = cells[client].strip()
        if not name:
            raise TraceError(f"{where}: row {row}: no client; correct it")
        device = devices.get(name)
        if device is None:
            device = devices[name] = collected.device(name)
        from_s, until_s = _number(cells[begin]) * seconds, _number(cells[end]) * seconds
        if not (math.isfinite(from_s) and math.isfinite(until_s)):
            wrong = cells[end] if math.isfinite(from_s) else cells[begin]
            raise TraceError(f"{where}: row {row}: {shown(wrong)} is not a time; correct it")
        collected.online(device, from_s, until_s)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
