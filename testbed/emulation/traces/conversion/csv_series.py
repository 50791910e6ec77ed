"""Bandwidth, latency or loss in a column of any text table: which columns, and in which units, is said by arguments.

Whatever separates the cells is found out; a table without a line of names has its columns by number, from 1. Times are
numbers of a unit, or dates (`timestamps`). So the logs of the 5G data set of University College Cork are read
(Raca et al., MMSys 2020; columns `Timestamp`, `DL_bitrate` and `UL_bitrate` in kbit/s, `PINGAVG` in ms there and back):
some seconds have two rows there, many cells are ``-``.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.series import BANDWIDTH, LATENCY, LOSS, Kind, Rows, Steps, check_row, shaped
from testbed.emulation.traces.text_files import is_number, shown, table_of, text_lines
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
"""What a number of each unit is in the kind's own; k, M and G are powers of 1000."""

_MISSING = frozenset({"", "-", "--", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class SeriesColumns:
    """Where in a table a trace is.

    Attributes:
        time, value: the columns' names, or numbers from 1.
        unit: of the values, one of `UNITS`.
        time_unit: of times that are numbers.
        rows: what a row means.
        round_trip: latencies are there and back; half of them is one way.
    """

    time: str
    value: str
    unit: str
    time_unit: str = "s"
    rows: Rows = "until-next"
    round_trip: bool = False


def convert(path: Path, kind: Kind, columns: SeriesColumns) -> tuple[Steps, Counts]:
    """The trace in two columns of a text table; also `.gz`.

    A row without a value is left out: what holds before it goes on. Rows with one time become one with their mean.

    Returns:
        The steps in the kind's unit, and the counts: rows, those without a value, repeated times, steps.

    Raises:
        TraceError: one line with file and row: no such column, what is no number or time, a time that is earlier than
            the one before, no row with a value.
    """
    factor = UNITS[kind.name][columns.unit] * (0.5 if columns.round_trip else 1.0)
    times: list[float] = []
    values: list[float] = []
    total, missing = 0, 0
    moments = Timestamps(columns.time_unit)
    with text_lines(path, "a table of text was expected") as lines:
        table = table_of(str(path), lines)
        at, of = table.place(columns.time), table.place(columns.value)
        for row, cells in table.rows:
            total += 1
            cell = table.cell(row, cells, of)
            if cell.lower() in _MISSING:
                missing += 1
                continue
            if not is_number(cell):
                raise row_error(str(path), row, f"{shown(cell)} is not a number")
            try:
                moment_s = moments.seconds(table.cell(row, cells, at))
            except ValueError as why:
                raise row_error(str(path), row, str(why)) from None
            value = float(cell) * factor
            check_row(str(path), row, moment_s, value, kind)
            if times and moment_s < times[-1]:
                raise row_error(str(path), row, f"the time {shown(cells[at])} is before the one above; sort them")
            times.append(moment_s)
            values.append(value)
    if not times:
        raise TraceError(f"{path}: not one of {total} rows has a value in column {shown(columns.value)}")
    steps = shaped(str(path), np.array(times), np.array(values), columns.rows)
    counts = {"rows": total, "rows_without_a_value": missing, "rows_with_repeated_times": steps.repeated}
    return Steps(steps.time_s, steps.value, steps.period_s), counts | {"steps": len(steps.time_s)}
