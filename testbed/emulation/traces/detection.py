"""Traces of any kind, told apart by their content, and described in numbers."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.emulation.traces.bandwidth import BandwidthTraces, read_bandwidth
from testbed.emulation.traces.inspection import Facts, describe, describe_bandwidth
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import FATES, Schedule
from testbed.errors import TraceError

Traced = AvailabilityTrace | BandwidthTraces | Schedule


def open_trace(path: Path) -> Traced:
    """The trace in a file or directory.

    A directory holds bandwidth traces. A file with a column `fate` is a schedule; any other Parquet file, and a text
    file with a column that only availability traces have, is one of those; other text files are bandwidth.

    Raises:
        TraceError: it is none of these, or damaged; the message is that of the kind it looks like.
    """
    if path.is_dir():
        return read_bandwidth(path)
    names = _column_names(path)
    if "fate" in names:
        return Schedule.read(path)
    if path.suffix == ".parquet" or names & {"client", "online_from_s", "online_until_s"}:
        return AvailabilityTrace.read(path)
    try:
        return read_bandwidth(path)
    except TraceError as error:
        if not any(word.isidentifier() for word in names):
            raise
        raise TraceError(
            f"{path}: the columns are {', '.join(sorted(names))}; an availability trace has client, online_from_s, "
            "online_until_s, a schedule round, client, stage, fate, bandwidth two numbers in each row"
        ) from error


def facts(traced: Traced) -> Facts:
    """A trace in numbers: see `describe`, `describe_bandwidth` and `describe_schedule`."""
    if isinstance(traced, AvailabilityTrace):
        return describe(traced)
    if isinstance(traced, BandwidthTraces):
        return describe_bandwidth(traced)
    return describe_schedule(traced)


def describe_schedule(schedule: Schedule) -> Facts:
    """A schedule in numbers.

    Returns:
        `rounds` (the last that it knows), `clients` (mentioned in any row), a count of rows per fate, `lost_from_...`
        a count of rows offline or dropped per stage (`whole_round` where there is none).
    """
    found: Facts = {"rounds": schedule.last_round, "clients": len(np.unique(schedule.client))}
    found |= {f"rows_{fate}": int((schedule.fate == code).sum()) for code, fate in enumerate(FATES)}
    lost = schedule.fate != FATES.index("participant")
    number = np.bincount(schedule.stage[lost], minlength=len(schedule.stages))
    return found | {
        f"lost_from_{stage or 'whole_round'}": int(count)
        for stage, count in zip(schedule.stages, number, strict=True)
        if count
    }


def _column_names(path: Path) -> set[str]:
    """The names of the columns, as far as a file has them; anything unreadable is left to its reader to explain."""
    try:
        if path.suffix == ".parquet":
            return set(pq.read_schema(path).names)
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = (line for line in iter(lambda: file.readline(1 << 16), "") if line.strip())
            first = next((line for line in lines if not line.startswith("#")), "")
        return {name.strip() for name in next(csv.reader([first]), [])}
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException):
        return set()
