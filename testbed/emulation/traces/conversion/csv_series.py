"""Bandwidth, latency or loss in a column of any text table; arguments name the columns and the units.

The separator of the cells is detected. Columns of a table without a line of names are given by number, from 1
(`text_tables`). Times are numbers of a unit, or dates (`timestamps`). This reads the logs of the 5G data set of
University College Cork (Raca et al., MMSys 2020; columns `Timestamp`, `DL_bitrate` and `UL_bitrate` in kbit/s,
`PINGAVG` in ms there and back), in which some seconds have two rows and many cells are ``-``.

A table that holds several runs or clients is not one trace: their rows would be averaged. `split_column` makes a trace
of each; without it, a table in which many rows have the time of the row before is refused.
"""

from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testbed.arrays import Floats
from testbed.emulation.traces.conversion.collector import DAY_S, Counts
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.series import BANDWIDTH, LATENCY, LOSS, Kind, Rows, Steps, check_row, steps_from_rows
from testbed.emulation.traces.text_files import MISSING, is_number, shown, text_lines
from testbed.emulation.traces.text_tables import TableForm, TextTable, table_of
from testbed.emulation.traces.timestamps import Timestamps
from testbed.errors import TraceError

UNITS = {
    BANDWIDTH.name: {
        "bit/s": 1e-6,
        "kbit/s": 1e-3,
        "Mbit/s": 1.0,
        "Gbit/s": 1e3,
        "B/s": 8e-6,
        "kB/s": 8e-3,
        "MB/s": 8.0,
    },
    LATENCY.name: {"s": 1e3, "ms": 1.0, "us": 1e-3},
    LOSS.name: {"probability": 1.0, "percent": 1e-2},
}
"""Factors from each unit to the unit of the kind; k, M and G are powers of 1000."""

MOST_REPEATED, FEW_REPEATED = 0.2, 2
"""Limits up to which rows with the time of the row before are averaged by default: their share, and their number.

Loggers of phones write two rows in some seconds (9 % of Cork's); with two runs in one table it is half of the rows.
"""

MOST_TRACES = 10_000
_NO_TIMES = 0.25  # share of rows that go back in time above which a column does not hold times


@dataclass(frozen=True)
class SeriesColumns:
    """The columns of a table that hold a trace, and their meaning.

    Attributes:
        time, value: the columns' names, or numbers from 1.
        unit: unit of the values, one of `UNITS`.
        time_unit: unit of times that are numbers; None: not stated, taken as seconds.
        rows: the meaning of a row.
        round_trip: latencies are there and back; half of them is one way.
        split: the column whose values tell runs or clients apart; None: there is one run.
        average_repeated: average rows with equal times, however many there are.
        form: facts about the table from the user.
    """

    time: str
    value: str
    unit: str
    time_unit: str | None = None
    rows: Rows = "until-next"
    round_trip: bool = False
    split: str | None = None
    average_repeated: bool = False
    form: TableForm = field(default_factory=TableForm)


@dataclass
class _Readings:
    """The rows of one trace, in the order of the file.

    Attributes:
        times, values: in seconds and in the kind's unit.
        descents: number of rows with a time before that of the row above.
        first_descent: row and cell of the first of them.
        restarts: whether that time is at or before the trace's first time.
    """

    times: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    descents: int = 0
    first_descent: tuple[int, str] = (0, "")
    restarts: bool = False

    def add(self, row: int, cell: str, time_s: float, value: float) -> None:
        if self.times and time_s < self.times[-1]:
            if not self.descents:
                self.first_descent, self.restarts = (row, cell), time_s <= self.times[0]
            self.descents += 1
        self.times.append(time_s)
        self.values.append(value)


def convert(path: Path, kind: Kind, columns: SeriesColumns) -> tuple[dict[str, Steps], Counts]:
    """Return the traces in two columns of a text table; also `.gz`.

    A row without a value is left out, so that the value before it continues. Rows with equal times become one row with
    their mean.

    Args:
        path: the file.
        kind: kind of the traces.
        columns: the columns and their meaning.

    Returns:
        The steps in the kind's unit, by the value of the column that tells traces apart ("" without such a column), and
        the counts: rows, rows without a value, repeated times, steps.

    Raises:
        TraceError: one line with file and row: no such column, a first row that can be names or data, a cell that is
            not a number or time, a time before that of the row above, more repeated times than `MOST_REPEATED`, or no
            row with a value.
    """
    moments = Timestamps(columns.time_unit)
    with text_lines(path, "a table of text was expected") as lines:
        split = () if columns.split is None else (columns.split,)
        table = table_of(str(path), lines, (columns.time, columns.value), split, columns.form)
        readings, counts = _read(table, kind, columns, moments)
    try:
        moments.check()
    except ValueError as why:
        raise TraceError(f"{path}: {why}") from None
    traces: dict[str, Steps] = {}
    for name, trace_readings in readings.items():
        where = str(path) if columns.split is None else f"{path}: {columns.split} {shown(name)}"
        _check_order(where, trace_readings, columns)
        times = np.array(trace_readings.times)
        # Two runs in one table would be averaged into a link that nobody has seen.
        if not columns.average_repeated:
            _check_repeated(where, times, columns, moments)
        steps = steps_from_rows(where, times, np.array(trace_readings.values), columns.rows)
        counts["rows_with_repeated_times"] += steps.repeated
        counts["steps"] += len(steps.time_s)
        traces[name] = Steps(steps.time_s, steps.value, steps.period_s)
    return traces, counts


def _read(
    table: TextTable, kind: Kind, columns: SeriesColumns, moments: Timestamps
) -> tuple[dict[str, _Readings], Counts]:
    """Return all rows with a value, by trace, and the counts."""
    factor = UNITS[kind.name][columns.unit] * (0.5 if columns.round_trip else 1.0)
    at, of = table.places((columns.time, columns.value))
    by = None if columns.split is None else table.place(columns.split)
    readings: dict[str, _Readings] = {}
    counts = {"rows": 0, "rows_without_a_value": 0, "rows_with_repeated_times": 0, "steps": 0}
    for row, cells in table.rows:
        counts["rows"] += 1
        if cells[of].lower() in MISSING:
            counts["rows_without_a_value"] += 1
            continue
        cell = table.cell(row, cells, of)
        if not is_number(cell):
            raise row_error(table.where, row, f"{shown(cell)} is not a number")
        try:
            time_s = moments.seconds(table.cell(row, cells, at))
        except ValueError as why:
            raise row_error(table.where, row, str(why)) from None
        value = float(cell) * factor
        check_row(table.where, row, time_s, value, kind)
        name = "" if by is None else cells[by]
        if by is not None and not name:
            raise row_error(table.where, row, f"nothing in column {columns.split}, which tells the traces apart")
        if name not in readings and len(readings) == MOST_TRACES:
            raise TraceError(
                f"{table.where}: more than {MOST_TRACES:,} values in {columns.split}; split by another one"
            )
        readings.setdefault(name, _Readings()).add(row, cells[at], time_s, value)
    if not readings:
        raise TraceError(
            f"{table.where}: not one of {counts['rows']} rows has a value in column {shown(columns.value)}"
        )
    return readings, counts


def _check_order(where: str, readings: _Readings, columns: SeriesColumns) -> None:
    """Raise `TraceError` for times that go back, with a guess at the content of the table."""
    if not readings.descents:
        return
    several = "--split-column NAME makes a trace of each"
    if readings.descents > 2 and readings.descents > _NO_TIMES * len(readings.times):
        raise TraceError(
            f"{where}: column {shown(columns.time)} goes back in {readings.descents} of {len(readings.times)} rows: it "
            "does not hold times, or it holds those of several runs or clients; name the column with the times, or add "
            f"one; for several runs, {several}"
        )
    row, cell = readings.first_descent
    if readings.restarts:
        advice = f"the times begin again there: if it is another run or client, {several}; if not, sort the rows"
    else:
        advice = f"sort the rows; if they are of several runs or clients, {several}"
    raise row_error(where, row, f"the time {shown(cell)} is before the one above; {advice}")


def _check_repeated(where: str, times: Floats, columns: SeriesColumns, moments: Timestamps) -> None:
    """Raise `TraceError` if too many rows share their times to belong to one recording."""
    repeated = int((np.diff(times) == 0).sum())
    if repeated <= max(FEW_REPEATED, MOST_REPEATED * len(times)):
        return
    of_all = f"{where}: {repeated} of {len(times)} rows have the"
    if moments.are_dates and not (times % DAY_S).any():
        raise TraceError(
            f"{of_all} day of the row before, and column {shown(columns.time)} has no time of day; date and time must "
            "be in one column"
        )
    raise TraceError(
        f"{of_all} time of the row before; if they are of several runs or clients, --split-column NAME makes a trace "
        "of each; --average-repeated takes the mean of rows with one time"
    )
