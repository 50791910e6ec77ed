"""The six-column logs of 3G links in Norway, as published: bytes received since the line before.

    1289406399 549692 59.851754 10.781778 248069 1008

Unix time (s), a clock of the logger (ms), latitude, longitude, bytes received since the previous line, and milliseconds
since then, which is the difference in column 2. A row thus covers the interval *before* it (``interval-before``).

Source:
    Riiser et al., Commute Path Bandwidth Traces from 3G Networks: Analysis and Applications (MMSys 2013), "Log format".
"""

from pathlib import Path

import numpy as np

from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.series import BANDWIDTH, Steps, check_row, steps_from_rows
from testbed.emulation.traces.text_files import is_number, shown, text_lines
from testbed.errors import TraceError

_WHAT = "a 3G log has six numbers in each line: Unix time, ms, latitude, longitude, bytes, ms since the line before"


def convert(path: Path) -> tuple[Steps, Counts]:
    """Return the rate over time of a six-column log.

    A row's rate is its bytes divided by the clock's time since the row before; for the first row, by its last column.
    Rows with an unchanged clock add their bytes to the next row.

    Args:
        path: the file; also `.gz`.

    Returns:
        The steps in Mbit/s, and the counts: rows, rows without time, steps.

    Raises:
        TraceError: one line with file and row: not six numbers, a clock that goes back, negative bytes or time.
    """
    clock_ms: list[float] = []
    rates: list[float] = []
    held_bytes, first_ms, rows, still = 0.0, 0.0, 0, 0
    with text_lines(path, _WHAT) as lines:
        for row, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            rows += 1
            moment_ms, received, lasted_ms = _numbers(str(path), row, line)
            if clock_ms and moment_ms < clock_ms[-1]:
                raise row_error(str(path), row, f"the clock goes back, from {clock_ms[-1]:g} to {moment_ms:g} ms")
            lasted_ms = moment_ms - clock_ms[-1] if clock_ms else lasted_ms
            if lasted_ms <= 0:
                still += 1
                # No rate can be computed for them, but no byte may be lost.
                held_bytes += received
                continue
            # Bytes per ms times 8e-3 are Mbit/s.
            rates.append((received + held_bytes) * 8e-3 / lasted_ms)
            check_row(str(path), row, moment_ms / 1000, rates[-1], BANDWIDTH)
            held_bytes, first_ms = 0.0, first_ms or lasted_ms
            clock_ms.append(moment_ms)
    if not rates:
        raise TraceError(f"{path}: no rows; {_WHAT}")
    time_s = (np.array(clock_ms) - clock_ms[0]) / 1000
    steps = steps_from_rows(str(path), time_s, np.array(rates), "interval-before", first_ms / 1000)
    return steps, {"rows": rows, "rows_without_time": still, "steps": len(steps.time_s)}


def _numbers(where: str, row: int, line: str) -> tuple[float, float, float]:
    cells = line.replace(",", " ").split()
    if len(cells) != 6:
        raise row_error(where, row, f"{len(cells)} values; {_WHAT}")
    for cell in cells:
        if not is_number(cell):
            raise row_error(where, row, f"{shown(cell)} is not a number; {_WHAT}")
    moment_ms, received, lasted_ms = float(cells[1]), float(cells[4]), float(cells[5])
    if not 0 <= received < np.inf or not 0 <= lasted_ms < np.inf:
        raise row_error(where, row, f"{received:g} bytes in {lasted_ms:g} ms; both must be finite and at least 0")
    return moment_ms, received, lasted_ms
