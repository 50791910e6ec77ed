"""Converting phones: FLASH's cached ready times, and its event logs."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.traces.conversion import flash
from testbed.errors import TraceError
from tests.emulation.traces.conversions import refused, rows
from tests.messages_named import naming
from tests.thoroughness import examples

DAY = 86_400.0
UNUSABLE: dict[str, Any] = {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []}


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def phone(start: float, end: float, *ready: list[Any]) -> dict[str, Any]:
    return {"isSuccess": True, "trace_start": start, "trace_end": end, "ready_time": list(ready)}


# -- cached ready times ---------------------------------------------------------------------------------------------


def test_real_phones(shared: Path) -> None:
    source = shared / "traces" / "availability-phones" / "cached_timers.json"
    trace, counts = flash.convert_timers(source)
    assert counts["devices"] == 1000
    assert counts["devices_unusable"] == counts["devices_unusable_not_successful"] == 290
    assert counts["devices_kept"] == len(trace) == 710
    assert counts["devices_never_online"] == len(trace.never_online) == 6
    assert counts["intervals"] == 14139
    assert counts["intervals_zero_length"] == 844
    assert counts["intervals_kept"] == 14139 - 844
    assert trace.horizon == (0.0, 13 * DAY)
    online = (trace.online_until_s - trace.online_from_s).sum() / trace.horizon_s / len(trace)
    assert online == pytest.approx(0.095, abs=0.001)  # as in the recordings themselves, 9.5%


def test_real_phones_are_ready_when_flash_says_so(shared: Path) -> None:
    """The oracle is FLASH's `Timer.ready`: the time modulo the phone's own recording, one phone after the other."""
    source = shared / "traces" / "availability-phones" / "cached_timers.json"
    document = json.loads(source.read_text())
    trace, _ = flash.convert_timers(source)
    origin = min(entry["trace_start"] for entry in document.values() if entry["isSuccess"]) // DAY * DAY
    for moment in np.linspace(1000.5, 13 * DAY - 1000.5, 40):  # between whole seconds: nowhere an end
        expected = []
        for number in trace.clients.tolist():
            entry = document[str(number)]
            length = entry["trace_end"] - entry["trace_start"]
            now = (moment + origin - entry["trace_start"]) % length + entry["trace_start"]
            expected.append(any(begin <= now < end for begin, end in entry["ready_time"]))
        assert (trace.online_until(np.arange(len(trace)), moment) > -np.inf).tolist() == expected


def test_the_time_of_day_is_kept_and_recordings_repeat(tmp_path: Path) -> None:
    ten, noon = 10 * 3600.0, 12 * 3600.0
    source = written(
        tmp_path / "timers.json",
        {
            "7": phone(5 * DAY + ten, 6 * DAY + ten, [5 * DAY + noon, 5 * DAY + noon + 60]),
            "3": phone(6 * DAY + ten, 8 * DAY + ten, [7 * DAY + noon, 7 * DAY + noon + 60]),
            "4": UNUSABLE,
        },
    )
    trace, counts = flash.convert_timers(source)
    assert trace.horizon == (0.0, 4 * DAY)
    assert rows(trace) == [
        *((3, day * DAY + noon, day * DAY + noon + 60) for day in (0, 2)),
        *((7, day * DAY + noon, day * DAY + noon + 60) for day in range(4)),
    ]
    assert counts["intervals_kept"] == 2
    assert counts["intervals_after_repeating"] == 6
    trace, _ = flash.convert_timers(source, "offline")
    assert trace.horizon == (0.0, 4 * DAY)
    assert rows(trace) == [(3, 2 * DAY + noon, 2 * DAY + noon + 60), (7, noon, noon + 60)]


def test_everything_dropped_is_counted(tmp_path: Path) -> None:
    source = written(
        tmp_path / "timers.json",
        {
            "1": phone(0, DAY, [50, 60], [10, 20], [15, 30], [40, 40], [35, 32], [DAY - 5, DAY + 5], [-9, -3]),
            "2": phone(0, DAY, [5, 5]),
            "3": phone(0, DAY),
            "4": phone(9, 9, [9, 9]),
            "5": UNUSABLE,
        },
    )
    trace, counts = flash.convert_timers(source)
    assert rows(trace) == [(1, 10.0, 30.0), (1, 50.0, 60.0), (1, DAY - 5, DAY)]
    assert trace.never_online.tolist() == [2]
    assert counts == {
        "devices": 5,
        "devices_unusable": 3,
        "devices_unusable_no_ready_time": 1,
        "devices_unusable_no_recording": 1,
        "devices_unusable_not_successful": 1,
        "intervals": 8,
        "intervals_unsorted": 3,
        "intervals_zero_length": 2,
        "intervals_reversed": 1,
        "intervals_beyond_recording": 2,
        "intervals_merged": 1,
        "intervals_kept": 3,
        "intervals_after_repeating": 3,
        "devices_never_online": 1,
        "devices_kept": 2,
    }


def test_devices_without_numbers_are_numbered_in_order(tmp_path: Path) -> None:
    ready = phone(0, DAY, [1, 2])
    trace, counts = flash.convert_timers(written(tmp_path / "t.json", {"b": ready, "007": ready, "a": ready}))
    assert trace.clients.tolist() == [0, 1, 2]
    assert counts["devices_renumbered"] == 3


INTERVAL = st.tuples(st.integers(0, 200), st.integers(0, 200)).map(list)
PHONE = st.tuples(st.integers(0, 100), st.integers(1, 150), st.lists(INTERVAL, max_size=6))  # start, length, ready


@settings(max_examples=examples(60))
@given(phones=st.lists(PHONE, min_size=1, max_size=4), data=st.data())
def test_online_exactly_when_some_interval_says_so(
    phones: list[Any], data: st.DataObject, tmp_path_factory: Any
) -> None:
    """Against a search through all intervals, at a moment of its own for each example."""
    document = {
        str(number): phone(start, start + length, *ready) for number, (start, length, ready) in enumerate(phones)
    }
    source = written(tmp_path_factory.mktemp("phones") / "t.json", document)
    if not any(
        max(begin, entry["trace_start"]) < min(end, entry["trace_end"])
        for entry in document.values()
        for begin, end in entry["ready_time"]
    ):
        with pytest.raises(TraceError, match=naming("device", "online")):
            flash.convert_timers(source)
        return
    trace, _ = flash.convert_timers(source)
    moment = data.draw(st.integers(0, int(trace.horizon_s) - 1)) + 0.5
    for place, number in enumerate(trace.clients.tolist()):
        entry = document[str(number)]
        now = (moment - entry["trace_start"]) % (entry["trace_end"] - entry["trace_start"]) + entry["trace_start"]
        expected = any(begin <= now < end for begin, end in entry["ready_time"])
        assert (trace.online_until(np.array([place]), moment) > -np.inf).item() == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "a list in JSON"),
        ("{}", "an empty object"),
        ('{"1": 5}', "device '1': a int, not an object"),
        ('{"1": {"isSuccess": true}}', "device '1': no trace_start"),
        ('{"1": {"isSuccess": true, "trace_start": 0, "trace_end": NaN, "ready_time": []}}', "NaN is not a number"),
        (json.dumps({"1": phone(0, 9, [1])}), "device '1': ready_time: interval 1: not a pair"),
        (json.dumps({"1": phone(0, 9, [1, 2], ["3", 4])}), "device '1': interval 2: a time is not a finite number"),
        (json.dumps({"1": phone(0, 9) | {"ready_time": "x"}}), "ready_time is not a list"),
        (json.dumps({"1": UNUSABLE}), "no device is ever online; devices: 1, devices unusable: 1"),
        (json.dumps({"1": phone(0, 9, [4, 4])}), "intervals zero length: 1"),
        (json.dumps({"1": phone(0, 1e-3, [0, 1e-4]), "2": phone(0, 1e12, [0, 1])}), "--outside offline"),
        ('{"1": {"isSuccess": true, "trace_start": 0, "trace_end": 9, "ready_time": [[1, 1e999]]}}', "finite"),
        ('{"1": ' + "[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
    ],
)
def test_bad_files_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "timers.json"
    path.write_text(text)
    line = refused(flash.convert_timers, path)
    assert line.startswith(f"{path}: ")
    assert said in line


def test_binary_and_missing_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    for name, said in (("binary", "not a text file"), ("absent", "cannot be read"), (".", "cannot be read")):
        with pytest.raises(TraceError, match=said):
            flash.convert_timers(tmp_path / name)


# -- event logs -----------------------------------------------------------------------------------------------------


def log(*events: tuple[str, str]) -> dict[str, str]:
    return {"model": "CPH1801", "messages": "".join(f"2020-01-{time}\t{event}\n" for time, event in events)}


NIGHT = (
    ("29 21:00:00", "screen_off"),
    ("29 21:00:00", "Unknown"),
    ("29 22:00:00", "battery_charged_on"),
    ("29 22:00:01", "87.0%"),
    ("29 23:00:00", "wifi"),
    ("29 23:30:00", "screen_lock"),  # now all three
    ("30 02:00:00", "88.0%"),
    ("30 03:00:00", "4G"),
    ("30 03:00:10", "WIFI"),
    ("30 07:00:00", "screen_on"),  # looked at, still locked
    ("30 07:00:05", "screen_unlock"),
    ("30 07:10:00", "screen_lock"),
    ("30 07:20:00", "battery_charged_off"),
    ("30 21:00:00", "90.0%"),
)


def test_available_when_locked_on_wifi_and_charging(tmp_path: Path) -> None:
    trace, counts = flash.convert_events(written(tmp_path / "t.json", {"5": log(*NIGHT)}), "offline")
    hour = 3600.0
    assert trace.horizon == (0.0, 2 * DAY)  # from midnight on the 29th
    assert rows(trace) == [
        (5, 23.5 * hour, 27 * hour),
        (5, 27 * hour + 10, 31 * hour + 5),
        (5, 31 * hour + 600, 31 * hour + 1200),
    ]
    assert counts["events"] == len(NIGHT)
    assert counts["events_unknown"] == counts["events_out_of_order"] == counts["intervals_open_at_the_end"] == 0
    trace, _ = flash.convert_events(written(tmp_path / "t.json", {"5": log(*NIGHT)}))
    assert (np.array(rows(trace))[:, 1] >= 0).all()
    assert (trace.online_until(np.array([0]), 2 * hour) > -np.inf).item()  # the one night, again and again
    assert (trace.online_until(np.array([0]), 26 * hour) > -np.inf).item()


def test_unknown_events_end_the_interval(tmp_path: Path) -> None:
    events = (*NIGHT[:6], ("30 00:00:00", "phone_off"), ("30 00:00:01", "wifi"), NIGHT[-1])
    trace, counts = flash.convert_events(written(tmp_path / "t.json", {"5": log(*events)}), "offline")
    assert rows(trace) == [(5, 23.5 * 3600, DAY)]
    assert counts["events_unknown"] == 1


def test_available_up_to_the_last_event_and_in_the_order_of_time(tmp_path: Path) -> None:
    events = (*NIGHT[:5], NIGHT[6], NIGHT[5])
    trace, counts = flash.convert_events(written(tmp_path / "t.json", {"5": log(*events)}), "offline")
    assert rows(trace) == [(5, 23.5 * 3600, 26 * 3600)]
    assert counts["intervals_open_at_the_end"] == 1
    assert counts["events_out_of_order"] == 1


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("2020-01-29 21:00:00 wifi", "does_not_parse"),
        ("2020-01-32 21:00:00\twifi", "does_not_parse"),
        ("2020-01-29 21:00:00\twifi\tagain", "does_not_parse"),
        ("2020-01-29 21:00:00\tmany%", "does_not_parse"),
        ("", "no_recording"),
        ("2020-01-29 21:00:00\twifi\n2020-01-29 21:00:00\tscreen_lock\n", "no_recording"),
    ],
)
def test_logs_that_flash_does_not_use_are_counted(messages: str, reason: str, tmp_path: Path) -> None:
    source = written(tmp_path / "t.json", {"5": log(*NIGHT), "6": {"messages": messages}})
    trace, counts = flash.convert_events(source)
    assert len(trace) == 1
    assert counts["devices"] == 2
    assert counts["devices_unusable"] == counts[f"devices_unusable_{reason}"] == 1


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"1": {"model": "x"}}, "device '1': no messages"),
        ({"1": {"messages": 5}}, "device '1': no messages"),
        ({"1": log(("29 21:00:00", "lunch"), ("29 22:00:00", "tea"))}, "not one of the 2 events is known"),
        ({"1": log(("29 21:00:00", "wifi"), ("29 22:00:00", "4G"))}, "no device is ever online"),
    ],
)
def test_bad_logs_are_one_line(document: Any, said: str, tmp_path: Path) -> None:
    assert said in refused(flash.convert_events, written(tmp_path / "t.json", document))


EVENTS = ("battery_charged_on", "battery_charged_off", "wifi", "4G", "unknown", "screen_lock", "screen_unlock", "5.0%")


@settings(max_examples=examples(60))
@given(events=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(EVENTS)), min_size=2, max_size=40))
def test_as_a_minute_by_minute_replay(events: list[Any], tmp_path_factory: Any) -> None:
    """Against setting three flags, minute by minute."""
    begin, minute, messages = datetime(2020, 1, 5), 0, ""
    state: dict[str, bool] = {}
    expected: list[Any] = []
    last = sum(wait for wait, _ in events[1:])
    for place, (wait, event) in enumerate(events):
        for _ in range(wait if place else 0):
            expected.append(len(state) == 3 and all(state.values()))
        minute += wait if place else 0
        messages += f"{begin + timedelta(minutes=minute)}\t{event}\n"
        kind = {"b": "charging", "w": "wifi", "4": "wifi", "u": "wifi", "s": "locked"}.get(event[0])
        if kind:
            state[kind] = event in ("battery_charged_on", "wifi", "screen_lock")
    source = written(tmp_path_factory.mktemp("log") / "t.json", {"1": {"messages": messages}})
    if not any(expected):
        with pytest.raises(TraceError):
            flash.convert_events(source, "offline")
        return
    trace, _ = flash.convert_events(source, "offline")
    found = [(trace.online_until(np.array([0]), 60 * now + 30) > -np.inf).item() for now in range(last)]
    assert found == expected
