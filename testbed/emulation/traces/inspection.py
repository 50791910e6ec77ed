"""Inspection of traces: recognition of the kind by content, and summary statistics."""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.arrays import Floats
from testbed.emulation.traces.interval_files import COLUMNS
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import FATES, Schedule
from testbed.emulation.traces.series import BANDWIDTH, RateSeries, Rows, kind_of, read_series
from testbed.errors import TraceError
from testbed.files import limits

Counts = npt.NDArray[np.int64]

_GRID = 1000
_PERCENTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
_NAMES = {"bandwidth": ("", "_mbit_s"), "latency": ("", "_ms"), "loss": ("share_lost_", "")}
Facts = dict[str, float | int]


def describe(trace: AvailabilityTrace) -> Facts:
    """Return summary statistics of an availability trace.

    A *stretch* is an interval after joining all intervals that touch. An offline stretch lies between two online
    stretches of the same client; the times before the first and after the last do not count, because their length is
    unknown. `online_fraction_least` and `..._most` are computed at the moments of a grid of 1000 equal steps; the mean
    is exact.

    Fractions refer to a device's own recording. At the moments of the grid, recordings that are shorter than the
    horizon are repeated.

    Returns:
        `clients`, `clients_never_online`, `clients_always_online`, `clients_recorded_in_part` (of the horizon),
        `intervals`, `stretches`, `begin_s`, `end_s`, `horizon_s`, `recording_shortest_s`, `recording_longest_s`,
        `online_stretch_mean_s`, `online_stretch_median_s`, `offline_stretch_mean_s`, `offline_stretch_median_s` (NaN if
        there is none), `online_fraction_mean`, `online_fraction_least`, `online_fraction_most`; times in seconds.
    """
    device, begin, until = trace.stretches()
    online = until - begin
    same = device[1:] == device[:-1]
    offline = (begin[1:] - until[:-1])[same]
    first, last = trace.horizon
    recorded_s = trace.recorded_until_s - trace.recorded_from_s
    watched_from: Floats | float = first
    watched_until: Floats | float = last
    if trace.has_own_recordings:
        watched_from, watched_until = trace.recorded_from_s[device], trace.recorded_until_s[device]
    _, count = availability_over_time(trace.laid_out(), _GRID)
    return {
        "clients": len(trace),
        "clients_never_online": len(trace.never_online),
        "clients_always_online": int(((begin == watched_from) & (until == watched_until)).sum()),
        "clients_recorded_in_part": int((recorded_s != trace.horizon_s).sum()),
        "intervals": len(trace.online_from_s),
        "stretches": len(online),
        "begin_s": first,
        "end_s": last,
        "horizon_s": trace.horizon_s,
        "recording_shortest_s": float(recorded_s.min()),
        "recording_longest_s": float(recorded_s.max()),
        "online_stretch_mean_s": _mean(online),
        "online_stretch_median_s": _median(online),
        "offline_stretch_mean_s": _mean(offline),
        "offline_stretch_median_s": _median(offline),
        "online_fraction_mean": float((online / (watched_until - watched_from)).sum() / len(trace)),
        "online_fraction_least": float(count.min() / len(trace)),
        "online_fraction_most": float(count.max() / len(trace)),
    }


def availability_over_time(trace: AvailabilityTrace, points: int) -> tuple[Floats, Counts]:
    """Return the number of online clients at equally spaced moments.

    Args:
        trace: the trace.
        points: number of moments, at least 1; the first is the beginning of the horizon, the last one step before its
            end.

    Returns:
        `(points,)` float64 seconds of the trace's own time, and `(points,)` int64 clients online, exactly.
    """
    begin, end = trace.horizon
    moments = begin + (end - begin) * np.arange(points) / points
    return moments, _begun(trace.online_from_s, moments) - _begun(trace.online_until_s, moments)


def _begun(times: Floats, moments: Floats) -> Counts:
    """Return the `(m,)` number of `times` at or before each of the ascending `moments`."""
    at = np.searchsorted(moments, times, "left")  # the first moment that is not before the time
    return np.cumsum(np.bincount(at, minlength=len(moments) + 1))[: len(moments)]


def describe_series(series: RateSeries) -> Facts:
    """Return summary statistics of bandwidth, latency or loss traces; every second of every trace has the same weight.

    Returns:
        `traces`, `steps`, `seconds` (of all traces together), `seconds_shortest`, `seconds_longest`, then in the unit
            of their kind (`_mbit_s`, `_ms`, or a share of loss) `mean`, `least`, `p5`, `p25`, `median`, `p75`, `p95`,
            `most` (percentiles over time), `share_at_zero` (of the time), and `repeated_times`,
            `traces_with_repeated_times`: rows with the time of the row before, which are averaged.
    """
    offsets, time_s, value, period_s = series.offsets, series.time_s, series.value, series.period_s
    following = np.append(time_s[1:], 0.0)
    following[offsets[1:] - 1] = period_s
    # Weights: percentiles are over time, not over rows.
    lasts = following - time_s
    order = np.argsort(value, kind="stable")
    passed = np.cumsum(lasts[order])
    seconds = float(passed[-1])
    before, after = _NAMES[series.kind.name]

    def percentile(share: float) -> float:
        return float(value[order][min(int(np.searchsorted(passed, share * seconds)), len(value) - 1)])

    measures = {
        "mean": float((value * lasts).sum() / seconds),
        "least": float(value.min()),
        **{name: percentile(share) for name, share in _PERCENTILES.items()},
        "most": float(value.max()),
    }
    return {
        "traces": len(series),
        "steps": len(value),
        "seconds": seconds,
        "seconds_shortest": float(period_s.min()),
        "seconds_longest": float(period_s.max()),
        **{f"{before}{name}{after}": value for name, value in measures.items()},
        "share_at_zero": float(lasts[value == 0].sum() / seconds),
        "repeated_times": int(series.repeated.sum()),
        "traces_with_repeated_times": int((series.repeated > 0).sum()),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else float("nan")


Traced = AvailabilityTrace | RateSeries | Schedule


def open_trace(path: Path, rows: Rows = "until-next") -> Traced:
    """Open the trace in a file or directory.

    A file with a column `fate` is a schedule. Any other Parquet file, and a text file with a column that only
    availability traces have, is an availability trace. Other text files, and directories, hold the kind that their
    first line names (bandwidth, latency or loss), else bandwidth.

    Args:
        path: the file or directory.
        rows: the meaning of a row of bandwidth, latency or loss.

    Raises:
        TraceError: no such kind, or damaged; the message is that of the kind that the content resembles.
    """
    if path.is_dir():
        return read_series(path, kind_of(path) or BANDWIDTH, rows)
    names = _column_names(path)
    if "fate" in names:
        return Schedule.read(path)
    if path.suffix == ".parquet" or names & {"client", "online_from_s", "online_until_s"}:
        return AvailabilityTrace.read(path)
    try:
        return read_series(path, kind_of(path) or BANDWIDTH, rows)
    except TraceError as error:
        if not any(word.isidentifier() for word in names):
            raise
        raise TraceError(
            f"{path}: the columns are {', '.join(sorted(names))}; an availability trace has client, online_from_s, "
            "online_until_s, a schedule round, client, stage, fate, bandwidth two numbers in each row"
        ) from error


def trace_in(path: Path) -> str:
    """Return the kind of a file in the testbed's own format: an availability trace or a schedule; else ""."""
    names = _column_names(path)
    if names == set(COLUMNS):
        return "an availability trace"
    return "a schedule" if "fate" in names else ""


def facts(traced: Traced) -> Facts:
    """Return the summary statistics of a trace; see `describe`, `describe_series` and `describe_schedule`."""
    if isinstance(traced, AvailabilityTrace):
        return describe(traced)
    if isinstance(traced, RateSeries):
        return describe_series(traced)
    return describe_schedule(traced)


def names_of(traced: Traced) -> dict[int, str]:
    """Return the names of a trace's clients, or of the traces of a folder, by their numbers; may be empty."""
    if isinstance(traced, AvailabilityTrace):
        return dict(sorted(traced.names.items()))
    return dict(enumerate(traced.names)) if isinstance(traced, RateSeries) and len(traced) > 1 else {}


def describe_schedule(schedule: Schedule) -> Facts:
    """Return summary statistics of a schedule.

    Returns:
        `rounds` (the last round of the schedule), `clients` (in any row), the number of rows per fate, and
        `lost_from_...`: the number of rows offline or dropped per stage (`whole_round` for rows without a stage).
    """
    facts: Facts = {"rounds": schedule.last_round, "clients": len(np.unique(schedule.client))}
    facts |= {f"rows_{fate}": int((schedule.fate == code).sum()) for code, fate in enumerate(FATES)}
    lost = schedule.fate != FATES.index("participant")
    number = np.bincount(schedule.stage[lost], minlength=len(schedule.stages))
    return facts | {
        f"lost_from_{stage or 'whole_round'}": int(count)
        for stage, count in zip(schedule.stages, number, strict=True)
        if count
    }


def _column_names(path: Path) -> set[str]:
    """Return the column names of a file; unreadable files have none here, and their reader reports the error."""
    try:
        limits.check_regular(path)
        if path.suffix == ".parquet":
            return set(pq.read_schema(path).names)
        with open(path, encoding="utf-8-sig", newline="") as file:
            # Bounded, as the file may be anything, with lines of any length.
            lines = (line for line in iter(lambda: file.readline(1 << 16), "") if line.strip())
            first = next((line for line in lines if not line.startswith("#")), "")
        return {name.strip() for name in next(csv.reader([first]), [])}
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException):
        return set()
