"""Phones' ready times as FLASH caches them (`cached_timers.json`), also in the data of FLHetBench.

    {"681": {"isSuccess": true, "trace_start": 2410196.0, "trace_end": 2928596.0,
             "ready_time": [[2413687.0, 2413697.0], ...]}, ...}

Times are seconds since 2020-01-02 00:00:00, the phone's local time (FLASH, `models/timer.py`, `refer_time`); all
phones share that clock, so the time of day is known. A phone is ready while locked, on wifi and charging. Phones whose
log FLASH could not use have `isSuccess` false.

- Time 0 of the trace is the midnight before the first recording begins; the horizon is whole days. Time of day is
  therefore `time % 86400`.
- A recording is a whole number of days, but few last as long as the data set; see `collector` for what happens
  outside. FLASH repeats each recording, which keeps the time of day; that is the default here.
- FLASH calls a phone ready at both ends of an interval; the trace's intervals are half-open, and those of length zero
  are dropped and counted.

Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data (WWW 2021).
"""

from pathlib import Path
from typing import Any

from testbed.emulation.traces.conversion.collector import Collected, Counts, Outside, read_object, seconds, shown
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError

_WHAT = "phone intervals are {device: {isSuccess, trace_start, trace_end, ready_time: [[from, until], ...]}}"
_KEYS = ("isSuccess", "trace_start", "trace_end", "ready_time")


def convert(path: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    """The trace in a `cached_timers.json`.

    Args:
        path: the file.
        outside: what a phone is outside its own recording.

    Returns:
        the trace, its clients numbered as the devices are (in order of appearance if a name is not a number), and
        the counts: devices seen, unusable and why, never online, kept; intervals seen, dropped and why, kept.

    Raises:
        TraceError: not such a file, or nothing in it is usable.
    """
    collected = Collected(str(path))
    for name, entry in read_object(path, _WHAT).items():
        where = f"{path}: device {shown(name)}"
        if missing := [key for key in _KEYS if key not in entry]:
            raise TraceError(f"{where}: no {missing[0]}; {_WHAT}")
        if not isinstance(entry["ready_time"], list):
            raise TraceError(f"{where}: ready_time is not a list; {_WHAT}")
        begin_s, end_s = seconds(entry["trace_start"]), seconds(entry["trace_end"])
        if not entry["isSuccess"]:
            collected.unusable("not_successful")
        elif not entry["ready_time"]:
            collected.unusable("no_ready_time")
        elif not 0 < end_s - begin_s < float("inf"):
            collected.unusable("no_recording")
        else:
            device = collected.device(name, begin_s, end_s)
            for place, interval in enumerate(entry["ready_time"], start=1):
                collected.online(device, *_ends(interval, f"{where}: ready_time: interval {place}"))
    return collected.trace(outside, *collected.whole_days())


def _ends(interval: Any, where: str) -> tuple[float, float]:
    if not isinstance(interval, list) or len(interval) != 2:
        raise TraceError(f"{where}: not a pair [from, until]; correct it")
    return seconds(interval[0]), seconds(interval[1])
