"""Online intervals in any table of text; arguments name the columns of client, begin and end, and the unit.

Clients are named by numbers, which are kept, or by anything else: then all clients are numbered in order of appearance,
and the trace stores their names. Rows may be in any order. Overlapping rows are merged, empty and reversed rows
dropped, and all of these are counted. Times are numbers of a unit, or dates (`timestamps`), which count from the
midnight (UTC) before the first. Columns of a table without a line of names, such as Google's and Alibaba's, are given
by number, from 1 (`text_tables`).
"""

import math
from pathlib import Path

import numpy as np

from testbed.emulation.traces.conversion.collector import DAY_S, Collected, Counts, Outside
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import MISSING, shown, text_lines
from testbed.emulation.traces.text_tables import TableForm, TextTable, table_of
from testbed.emulation.traces.timestamps import Timestamps, TimeUnit
from testbed.errors import TraceError

Ends = tuple[float, float]
NOWHERE: Ends = (math.inf, -math.inf)


def convert(
    path: Path,
    client_column: str,
    from_column: str,
    until_column: str,
    unit: TimeUnit | None = None,
    *,
    recorded_columns: tuple[str, str] | None = None,
    outside: Outside | None = None,
    form: TableForm | None = None,
    skip_incomplete: bool = False,
) -> tuple[AvailabilityTrace, Counts]:
    """Return the trace in a table of text; also `.gz`.

    Args:
        path: the file.
        client_column, from_column, until_column: the columns, by name or by number from 1.
        unit: unit of times that are numbers; None: not stated, taken as seconds.
        recorded_columns: columns with begin and end of the client's recording, likewise.
        outside: the state of a client outside its own recording, which without `recorded_columns` goes from its first
            interval to its last. None: the recording is repeated if there are such columns, else the client is offline.
        form: facts about the table from the user.
        skip_incomplete: leave out rows without a client or a time, and count them; else they are refused.

    Returns:
        The trace, times in s (numbers as in the file), and the counts of devices and intervals in the file, dropped and
        kept.

    Raises:
        TraceError: one line with file and row: not such a file, a column is missing, a first row that can be names or
            data, a time that is invalid or seems to have another unit, or no client is ever online.
    """
    collected = Collected(str(path))
    moments = Timestamps(unit, "--unit")
    with text_lines(path, "a table of text was expected") as lines:
        times = (from_column, until_column, *(recorded_columns or ()))
        table = table_of(str(path), lines, times, (client_column,), form)
        places = table.places((client_column, from_column, until_column))
        places += [table.place(column) for column in recorded_columns or ()]
        spans, recorded = _collect(collected, table, places, moments, skip_incomplete)
    try:
        moments.check()
    except ValueError as why:
        raise TraceError(f"{path}: {why}") from None
    for device, span in (recorded if recorded_columns else spans).items():
        collected.record(device, *span)
    first = min((begin for begin, _ in (*spans.values(), *recorded.values())), default=0.0)
    origin_s = float(np.floor(first / DAY_S) * DAY_S) if moments.are_dates else 0.0
    outside = outside or ("repeat" if recorded_columns else "offline")
    if outside == "offline" and not recorded_columns:
        last = max((end for _, end in spans.values()), default=0.0)
        short = sum(end - begin < (last - first) / 2 for begin, end in spans.values())
        collected.counts["devices_seen_for_less_than_half_the_horizon"] = short
        for device in spans:
            # Not a recording: the first and last interval of a client do not tell how long it was watched.
            collected.record(device, -math.inf, math.inf)
    return collected.trace(outside, origin_s, keep_recordings=True)


def _collect(
    collected: Collected, table: TextTable, places: list[int], moments: Timestamps, skip_incomplete: bool
) -> tuple[dict[int, Ends], dict[int, Ends]]:
    """Add all rows; return, by device, the span of its intervals, and its recording, if there are recordings."""
    devices: dict[str, int] = {}
    spans: dict[int, Ends] = {}
    recorded: dict[int, Ends] = {}
    if skip_incomplete:
        collected.counts["rows_incomplete"] = 0
    for row, cells in table.rows:
        name = cells[places[0]]
        if (missing := _missing(cells, places)) is not None:
            if not skip_incomplete:
                problem = "no client" if missing == places[0] else f"no time in column {_column_text(table, missing)}"
                raise row_error(table.where, row, f"{problem}; --skip-incomplete leaves such rows out")
            collected.counts["rows_incomplete"] += 1
            continue
        device = devices.get(name)
        if device is None:
            device = devices[name] = collected.device(name)
        times = [_time(table, row, cells, place, moments) for place in places[1:]]
        collected.online(device, times[0], times[1])
        if times[1] > times[0]:
            _widen(spans, device, times[0], times[1])
        if len(times) > 2:
            _widen(recorded, device, times[2], times[3])
    return spans, recorded


def _missing(cells: list[str], places: list[int]) -> int | None:
    """Return the position of a client or time that a row lacks; clients may be named ``-`` or ``none``."""
    if not cells[places[0]]:
        return places[0]
    return next((place for place in places[1:] if cells[place].lower() in MISSING), None)


def _column_text(table: TextTable, place: int) -> str:
    return shown(table.names[place]) if table.names else str(place + 1)


def _widen(spans: dict[int, Ends], device: int, begin: float, end: float) -> None:
    first, last = spans.get(device, NOWHERE)
    spans[device] = min(first, begin), max(last, end)


def _time(table: TextTable, row: int, cells: list[str], place: int, moments: Timestamps) -> float:
    cell = table.cell(row, cells, place)
    try:
        value = moments.seconds(cell)
    except ValueError as why:
        raise row_error(table.where, row, str(why)) from None
    if not math.isfinite(value):
        raise row_error(table.where, row, f"{shown(cell)} is not a time; correct it")
    return value
