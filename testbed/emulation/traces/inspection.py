"""Traces of any kind: told apart by their content, and described in numbers."""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.arrays import Floats
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, BandwidthTraces, read_bandwidth
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import FATES, Schedule
from testbed.errors import TraceError

Counts = npt.NDArray[np.int64]

_GRID = 1000
Facts = dict[str, float | int]


def describe(trace: AvailabilityTrace) -> Facts:
    """A trace in numbers.

    A *stretch* is what is left of intervals when those that touch are joined. Offline stretches are those between
    two online stretches of the same client; what lies before the first and after the last is not counted, because
    nobody knows how long it went on. `online_fraction_least` and `..._most` are over the moments of a grid of 1000
    equal steps, the mean is exact.

    Returns:
        `clients`, `clients_never_online`, `clients_always_online`, `intervals`, `stretches`, `begin_s`, `end_s`,
        `horizon_s`, `online_stretch_mean_s`, `online_stretch_median_s`, `offline_stretch_mean_s`,
        `offline_stretch_median_s` (NaN when there is none), `online_fraction_mean`, `online_fraction_least`,
        `online_fraction_most`; times in seconds.
    """
    device, begin, until = trace.stretches()
    online = until - begin
    same = device[1:] == device[:-1]
    offline = (begin[1:] - until[:-1])[same]
    first, last = trace.horizon
    _, count = availability_over_time(trace, _GRID)
    return {
        "clients": len(trace),
        "clients_never_online": len(trace.never_online),
        "clients_always_online": int(((begin == first) & (until == last)).sum()),
        "intervals": len(trace.online_from_s),
        "stretches": len(online),
        "begin_s": first,
        "end_s": last,
        "horizon_s": trace.horizon_s,
        "online_stretch_mean_s": _mean(online),
        "online_stretch_median_s": _median(online),
        "offline_stretch_mean_s": _mean(offline),
        "offline_stretch_median_s": _median(offline),
        "online_fraction_mean": float(online.sum() / trace.horizon_s / len(trace)),
        "online_fraction_least": float(count.min() / len(trace)),
        "online_fraction_most": float(count.max() / len(trace)),
    }


def availability_over_time(trace: AvailabilityTrace, points: int) -> tuple[Floats, Counts]:
    """How many clients are online at equally spaced moments.

    Args:
        trace: the trace.
        points: number of moments, at least 1; the first is the begin of the horizon, the last one step before its
            end.

    Returns:
        `(points,)` float64 seconds of the trace's own time, and `(points,)` int64 clients online, exactly.
    """
    begin, end = trace.horizon
    moments = begin + (end - begin) * np.arange(points) / points
    return moments, _begun(trace.online_from_s, moments) - _begun(trace.online_until_s, moments)


def _begun(times: Floats, moments: Floats) -> Counts:
    """`(m,)` how many of `times` lie at or before each of the ascending `moments`."""
    at = np.searchsorted(moments, times, "left")  # the first moment that is not before the time
    return np.cumsum(np.bincount(at, minlength=len(moments) + 1))[: len(moments)]


def describe_bandwidth(traces: BandwidthTraces) -> Facts:
    """Bandwidth traces in numbers; every second of every trace counts the same.

    Returns:
        `traces`, `steps`, `seconds` (of all traces together), `seconds_shortest`, `seconds_longest`, `mean_mbit_s`,
        `least_mbit_s`, `p5_mbit_s`, `p25_mbit_s`, `median_mbit_s`, `p75_mbit_s`, `p95_mbit_s`, `most_mbit_s` (rates
        at or below which the link is for that share of the time), `share_at_zero` (of the time).
    """
    rate = traces.rate_bytes_s / BYTES_PER_MBIT
    following = np.append(traces.time_s[1:], 0.0)
    following[traces.offsets[1:] - 1] = traces.period_s
    lasts = following - traces.time_s
    order = np.argsort(rate, kind="stable")
    passed = np.cumsum(lasts[order])
    seconds = float(passed[-1])

    def percentile(share: float) -> float:
        return float(rate[order][min(int(np.searchsorted(passed, share * seconds)), len(rate) - 1)])

    return {
        "traces": len(traces.period_s),
        "steps": len(rate),
        "seconds": seconds,
        "seconds_shortest": float(traces.period_s.min()),
        "seconds_longest": float(traces.period_s.max()),
        "mean_mbit_s": float((rate * lasts).sum() / seconds),
        "least_mbit_s": float(rate.min()),
        "p5_mbit_s": percentile(0.05),
        "p25_mbit_s": percentile(0.25),
        "median_mbit_s": percentile(0.5),
        "p75_mbit_s": percentile(0.75),
        "p95_mbit_s": percentile(0.95),
        "most_mbit_s": float(rate.max()),
        "share_at_zero": float(lasts[rate == 0].sum() / seconds),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else float("nan")


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
