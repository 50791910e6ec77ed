"""Phones of FLASH: cached ready times (`cached_timers.json`), and event logs (`state_traces.json`).

A phone is ready, or available, while locked, on wifi and charging.

- Times are the phone's local time, so the time of day is known; all phones share one clock.
- Time 0 of the trace is the midnight before the first recording begins; the horizon is whole days. Time of day is
  therefore `time % 86400`.
- Few recordings last as long as the data set; see `collector` for the time outside. FLASH repeats each recording, which
  keeps the time of day; that is the default here.

Source:
    Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data (WWW
    2021).
"""

import math
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from testbed.emulation.traces.conversion.collector import DAY_S, Collected, Counts, Outside, seconds
from testbed.emulation.traces.conversion.json_documents import read_object
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import shown
from testbed.errors import TraceError

_TIMERS = "phone intervals are {device: {isSuccess, trace_start, trace_end, ready_time: [[from, until], ...]}}"
_KEYS = ("isSuccess", "trace_start", "trace_end", "ready_time")
_EVENTS = 'FLASH event logs are {device: {"messages": "2020-01-29 21:29:56\\tscreen_lock\\n..."}}'
_FORMAT = "%Y-%m-%d %H:%M:%S"
_REFERENCE = datetime(2020, 1, 2)

_CHARGING, _WIFI, _LOCKED = 1, 2, 4
_AVAILABLE = _CHARGING | _WIFI | _LOCKED
_SETS = {"battery_charged_on": _CHARGING, "wifi": _WIFI, "screen_lock": _LOCKED}
_CLEARS = {
    "battery_charged_off": _CHARGING,
    "screen_unlock": _LOCKED,
    **dict.fromkeys(("2g", "3g", "4g", "5g", "unknown"), _WIFI),
}
_WITHOUT_EFFECT = ("screen_on", "screen_off")

Event = tuple[float, str]


def convert_timers(path: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    """Return the trace in a `cached_timers.json`, also in the data of FLHetBench.

        {"681": {"isSuccess": true, "trace_start": 2410196.0, "trace_end": 2928596.0,
                 "ready_time": [[2413687.0, 2413697.0], ...]}, ...}

    Times are seconds since 2020-01-02 00:00:00 (FLASH, `models/timer.py`, `refer_time`). Phones with a log that FLASH
    could not use have `isSuccess` false. A recording is a whole number of days. FLASH considers a phone ready at both
    ends of an interval; the trace's intervals are half-open, and those of length zero are dropped and counted.

    Args:
        path: the file.
        outside: the state of a phone outside its own recording.

    Returns:
        The trace, its clients numbered as the devices are (in order of appearance if a name is not a number), and the
            counts: devices in the file, unusable by reason, never online, kept; intervals in the file, dropped by
            reason, kept.

    Raises:
        TraceError: not such a file, or no usable phone.
    """
    collected = Collected(str(path))
    for name, timer in read_timers(path).items():
        if timer.unusable:
            collected.unusable(timer.unusable)
            continue
        device = collected.device(name, *timer.recorded)
        for from_s, until_s in timer.online:
            collected.online(device, from_s, until_s)
    return collected.trace(outside, *collected.whole_days())


class Timer(NamedTuple):
    """A phone of a `cached_timers.json`.

    Attributes:
        unusable: the reason if the phone cannot be used; else empty.
        recorded: begin and end of the recording, in seconds since 2020-01-02.
        online: intervals in which the phone was ready, likewise, as in the file.
    """

    unusable: str
    recorded: tuple[float, float]
    online: list[tuple[float, float]]


def read_timers(path: Path) -> dict[str, Timer]:
    """Read the phones in a `cached_timers.json`, by name; raise `TraceError` if it is not such a file."""
    timers = {}
    for name, entry in read_object(path, _TIMERS).items():
        where = f"{path}: device {shown(name)}"
        if missing := [key for key in _KEYS if key not in entry]:
            raise TraceError(f"{where}: no {missing[0]}; {_TIMERS}")
        if not isinstance(entry["ready_time"], list):
            raise TraceError(f"{where}: ready_time is not a list; {_TIMERS}")
        begin_s, end_s = seconds(entry["trace_start"]), seconds(entry["trace_end"])
        unusable = ""
        if not entry["isSuccess"]:
            unusable = "not_successful"
        elif not entry["ready_time"]:
            unusable = "no_ready_time"
        elif not 0 < end_s - begin_s < float("inf"):
            unusable = "no_recording"
        ready = [] if unusable else entry["ready_time"]
        online = [
            _ends(interval, f"{where}: ready_time: interval {place}") for place, interval in enumerate(ready, start=1)
        ]
        timers[name] = Timer(unusable, (begin_s, end_s), online)
    return timers


def _ends(interval: Any, where: str) -> tuple[float, float]:
    if not isinstance(interval, list) or len(interval) != 2:
        raise TraceError(f"{where}: not a pair [from, until]; correct it")
    return seconds(interval[0]), seconds(interval[1])


def convert_events(path: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    r"""Return the trace in a `state_traces.json`.

        {"681": {"guid": ..., "model": "CPH1801", "messages": "2020-01-29 21:29:56\\tscreen_off\\n..."}, ...}

    `messages` has one event per line, time and event separated by a tab. FLASH's own parser (`models/timer.py`,
    github.com/PKU-Chengxu/FLASH) defines the events:

    - `battery_charged_on`, `battery_charged_off`: charging or not;
    - `wifi`; `2G`, `3G`, `4G`, `5G`, `Unknown`: on wifi or not;
    - `screen_lock`, `screen_unlock`: locked or not; FLASH calls locked idle;
    - `screen_on`, `screen_off`, and battery levels (`87.0%`): no effect on availability.

    Nothing holds before the first event. As in that parser, a line that does not parse makes the phone unusable. Three
    differences, each counted: an unknown event ends the interval and resets the phone's state (there, too, but then the
    program ends); events out of order are sorted; a phone that is available at its last event was available up to then
    (there this last interval is lost).

    Args:
        path: the file.
        outside: the state of a phone outside its own recording, which goes from its first event to its last; the
            recording is repeated after a whole number of days.

    Returns:
        The trace, its clients numbered as the devices are (in order of appearance if a name is not a number), and the
            counts: those of `convert_timers`, and events in the file, unknown and out of order.

    Raises:
        TraceError: not such a file, or no usable phone.
    """
    collected = Collected(str(path))
    counts = collected.counts
    counts |= {"events": 0, "events_unknown": 0, "events_out_of_order": 0, "intervals_open_at_the_end": 0}
    for name, entry in read_object(path, _EVENTS).items():
        if not isinstance(entry.get("messages"), str):
            raise TraceError(f"{path}: device {shown(name)}: no messages; {_EVENTS}")
        events = _events(entry["messages"])
        if events is None:
            collected.unusable("does_not_parse")
            continue
        counts["events"] += len(events)
        counts["events_out_of_order"] += sum(later < earlier for (earlier, _), (later, _) in pairwise(events))
        # Stable: events of one second stay in the order of the log.
        events.sort(key=lambda event: event[0])
        if not events or events[0][0] == events[-1][0]:
            collected.unusable("no_recording")
            continue
        begin_s, end_s = events[0][0], events[-1][0]
        if outside == "repeat":  # after whole days, so that repetition keeps the time of day
            end_s = begin_s + math.ceil((end_s - begin_s) / DAY_S) * DAY_S
        _replay(collected, collected.device(name, begin_s, end_s), events)
    if counts["events"] and counts["events_unknown"] == counts["events"]:
        raise TraceError(f"{path}: not one of the {counts['events']} events is known; {_EVENTS}")
    return collected.trace(outside, *collected.whole_days())


def _replay(collected: Collected, device: int, events: list[Event]) -> None:
    """Follow the phone's state from event to event, and add its intervals."""
    state, since = 0, None
    for time_s, event in events:
        if event in _SETS:
            state |= _SETS[event]
        elif event in _CLEARS:
            state &= ~_CLEARS[event]
        elif event not in _WITHOUT_EFFECT and not event.endswith("%"):
            collected.counts["events_unknown"] += 1
            state = 0
        if state == _AVAILABLE and since is None:
            since = time_s
        elif state != _AVAILABLE and since is not None:
            collected.online(device, since, time_s)
            since = None
    if since is not None:
        collected.counts["intervals_open_at_the_end"] += 1
        collected.online(device, since, events[-1][0])


def _events(messages: str) -> list[Event] | None:
    """Return (seconds since the reference, event in lower case) per line; None if a line does not parse."""
    events = []
    try:
        for line in messages.split("\n"):
            if not line.strip():
                continue
            time, event = line.strip().split("\t")
            event = event.strip().lower()
            if event.endswith("%"):
                # Only to refuse a damaged level, as FLASH's parser does.
                float(event[:-1])
            events.append(((_time(time.strip()) - _REFERENCE).total_seconds(), event))
    except ValueError:
        return None
    return events


def _time(text: str) -> datetime:
    if len(text) == 19 and text[10] == " " and text.isascii():
        return datetime.fromisoformat(text)  # ten times as fast, and there are millions
    return datetime.strptime(text, _FORMAT)
