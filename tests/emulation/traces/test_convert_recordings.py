"""Converting recordings that were not made at once: spot instances, the Failure Trace Archive, state cases, tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.emulation.availability.clocked import TracedAvailability
from testbed.emulation.traces.conversion import csv_intervals, failure_archive, flash, flhetbench, spot
from testbed.emulation.traces.inspection import describe
from testbed.emulation.traces.intervals import AvailabilityTrace
from tests.emulation.traces.conversions import refused, rows

DAY, HOUR = 86_400.0, 3600.0
TAB = "event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time event_end_reason"


def reachable_share(trace: AvailabilityTrace, over_s: float, points: int = 2000) -> float:
    """Of all devices together, in a run that goes on for `over_s`."""
    devices = np.arange(len(trace))
    model = TracedAvailability(trace, devices, np.zeros(len(trace)), repeat=True)
    asked = (np.arange(points) + 0.5) * over_s / points
    return float(np.mean([model.presence(1, "train", now, devices).reachable.mean() for now in asked]))


# -- spot instances -------------------------------------------------------------------------------------------------


def write_spot(path: Path, data: Any, gap_s: Any = 600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data}))
    return path


def test_recordings_of_two_and_of_forty_five_days_keep_their_availability(tmp_path: Path) -> None:
    """Both are there half of their time; one horizon for both would say a quarter."""
    for name, days in (("short", 2), ("long", 45)):
        write_spot(tmp_path / "zones" / f"{name}.json", [1, 0] * (days * 72))
    trace, counts = spot.convert(tmp_path / "zones")
    assert counts["files"] == counts["devices_kept"] == 2
    assert counts["devices_recorded_for_a_part_of_the_horizon"] == 1
    assert trace.names == {0: "long", 1: "short"}
    assert trace.horizon == (0.0, 45 * DAY)
    facts = describe(trace)
    assert facts["online_fraction_mean"] == 0.5
    assert facts["clients_recorded_in_part"] == 1
    assert (facts["recording_shortest_s"], facts["recording_longest_s"]) == (2 * DAY, 45 * DAY)
    for over_days in (2, 45, 90):
        assert reachable_share(trace, over_days * DAY, over_days * 144) == pytest.approx(0.5)
    offline, _ = spot.convert(tmp_path / "zones", "offline")
    assert describe(offline)["online_fraction_mean"] == pytest.approx((0.5 + 0.5 * 2 / 45) / 2)


def test_recordings_are_stored_in_parquet_and_repeated_in_csv(tmp_path: Path) -> None:
    write_spot(tmp_path / "zones" / "a.json", [1, 0, 0], 10)
    write_spot(tmp_path / "zones" / "b.json", [0, 1, 0, 0, 0, 0, 0, 0], 10)
    trace, _ = spot.convert(tmp_path / "zones")
    trace.write(tmp_path / "kept.parquet")
    kept = AvailabilityTrace.read(tmp_path / "kept.parquet")
    assert rows(kept) == rows(trace) == [(0, 0, 10), (1, 10, 20)]
    assert kept.names == {0: "a", 1: "b"}
    assert kept.recorded_until_s.tolist() == [30, 80]
    trace.write(tmp_path / "laid.csv")
    assert rows(AvailabilityTrace.read(tmp_path / "laid.csv")) == [(0, 0, 10), (0, 30, 40), (0, 60, 70), (1, 10, 20)]
    assert rows(trace.laid_out()) == rows(AvailabilityTrace.read(tmp_path / "laid.csv"))


def test_several_instances_are_as_many_devices(tmp_path: Path) -> None:
    trace, _ = spot.convert(write_spot(tmp_path / "zone.json", [0, 2, 1, 3], 5))
    assert trace.names == {0: "zone#0", 1: "zone#1", 2: "zone#2"}
    assert rows(trace) == [(0, 5, 20), (1, 5, 10), (1, 15, 20), (2, 15, 20)]


def test_a_zone_that_is_never_there_is_kept(tmp_path: Path) -> None:
    write_spot(tmp_path / "zones" / "a.json", [0, 0])
    write_spot(tmp_path / "zones" / "b.json", [0, 1])
    trace, counts = spot.convert(tmp_path / "zones")
    assert trace.never_online.tolist() == [0]
    assert counts["devices_never_online"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no positive metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "no positive metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 600}, "data": []}', "no data"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, 0.5]}', "row 2: 0.5 is no number of instances"),
        ('{"metadata": {"gap_seconds": 600}, "data": [true]}', "row 1: True is no number of instances"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0]}', "no device is ever online"),
        ("{", "not JSON (line 1"),
    ],
)
def test_bad_spot_traces_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert said in refused(spot.convert, tmp_path / "a.json")
    (tmp_path / "a.json").unlink()
    assert "no .json files below this folder" in refused(spot.convert, tmp_path)


# -- the Failure Trace Archive --------------------------------------------------------------------------------------


def event(node: Any, kind: int, begin: Any, end: Any, component: int = 1) -> str:
    return f"9\t{component}\t{node}\t1\tnode{node}\t{kind}\t{begin}\t{end}\t0"


NOON = 1_700_049_600  # 2023-11-15 12:00 UTC
EVENTS = [
    event(7, 1, NOON, NOON + 600),
    event(7, 0, NOON + 600, NOON + 1000),
    event(3, 1, NOON + 3600, NOON + 3700),
    event(3, 2, NOON + 3700, NOON + 3800),
    event(3, 0, NOON + 3800, NOON + 4600),
    event(5, 0, NOON, NOON + 50),
    event(3, 1, NOON + 4600, "NULL"),
]


@pytest.mark.parametrize("head", ["\t".join(TAB.split()), f"# a remark\n# {TAB}", "#" + "\t".join(TAB.split()), None])
def test_events_become_intervals_and_recordings(head: str | None, tmp_path: Path) -> None:
    (tmp_path / "event_trace.tab").write_text("\n".join([*([head] if head else []), *EVENTS]) + "\n")
    trace, counts = failure_archive.convert(tmp_path)
    noon = 12 * HOUR
    assert rows(trace) == [(3, noon + 3600, noon + 3700), (7, noon, noon + 600)]
    assert trace.never_online.tolist() == [5]
    assert trace.recorded_from_s.tolist() == [noon + 3600, noon, noon]
    assert trace.recorded_until_s.tolist() == [noon + 4600, noon + 50, noon + 1000]
    assert trace.horizon == (noon, noon + 4600)
    assert (counts["events"], counts["events_of_other_types"], counts["events_without_an_end"]) == (7, 1, 1)
    facts = describe(trace)
    assert facts["online_fraction_mean"] == pytest.approx((0.1 + 0.6 + 0) / 3)


def test_doubled_tabs_lose_no_event(tmp_path: Path) -> None:
    """As in the copy of the archive in SDC-Lab/ReliableCloudSim: 38 of its 43,325 rows have 13 or 14 cells."""
    path = tmp_path / "event_trace.tab"
    path.write_text("\n".join([TAB, *EVENTS]))
    trace, _ = failure_archive.convert(path)
    doubled = EVENTS[0].replace(f"\t{NOON}", f"\t   \t\t{NOON}\t", 1), EVENTS[4].replace("\t0\t", "\t \t0\t \t", 1)
    path.write_text("\n".join([TAB, doubled[0], *EVENTS[1:4], doubled[1], *EVENTS[5:]]))
    again, counts = failure_archive.convert(path)
    assert rows(again) == rows(trace)
    assert again.recorded_until_s.tolist() == trace.recorded_until_s.tolist()
    assert (counts["events_with_doubled_tabs"], counts["events_without_an_end"]) == (2, 1)
    path.write_text("\n".join([TAB, *(event.rpartition("\t")[0] for event in EVENTS)]))  # without the reason
    again, counts = failure_archive.convert(path)
    assert rows(again) == rows(trace)
    assert counts["events_with_doubled_tabs"] == 0


def test_components_are_distinguished(tmp_path: Path) -> None:
    lines = [event(1, 1, 0, 5), event(1, 1, 0, 9, component=2), event(2, 1, 0, 5), event(4, 1, 3, 3)]
    (tmp_path / "event_trace.tab").write_text("\n".join(["\t".join(TAB.split()), *lines]))
    trace, counts = failure_archive.convert(tmp_path / "event_trace.tab")
    assert trace.names == {0: "1:1", 1: "1:2", 2: "2"}
    assert counts["devices_unusable_no_recording"] == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (event(1, 1, "soon", 5), "row 1: 'soon' is not a time"),
        (event(1, 1, 9, 5), "row 1: an event from 9 until 5; swap the two"),
        ("1\t2\t3\t4", "row 1: 4 values"),
        (event(1, 1, 5, 9) + "\t7", "row 1: 10 values, not 9"),
        (event(1, 1, NOON, NOON + 9).replace("\tnode1", ""), f"row 1: the event_type '{NOON}'"),
        ("1\t1\t1\t1\tnode1\t1\t1700000000\t\t1700000600", "row 1: no event_stop_time, and a time in the next column"),
        ("", "no events"),
    ],
)
def test_bad_event_traces_are_one_line(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "event_trace.tab").write_text("\t".join(TAB.split()) + "\n" + line + "\n")
    assert said in refused(failure_archive.convert, tmp_path)
    (tmp_path / "event_trace.tab").write_text("a\tb\n")
    assert "no column event_type" in refused(failure_archive.convert, tmp_path)


# -- state cases ----------------------------------------------------------------------------------------------------

TIMERS = {
    "37": {"isSuccess": True, "trace_start": 9 * HOUR, "trace_end": 9 * HOUR + DAY, "ready_time": [[36_000, 39_600]]},
    "5": {"isSuccess": True, "trace_start": DAY, "trace_end": 3 * DAY, "ready_time": [[DAY + 60, DAY + 120]]},
    "9": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
}


def write_case(folder: Path, case: Any) -> tuple[Path, Path]:
    (folder / "case.json").write_text(json.dumps(case))
    (folder / "timers.json").write_text(json.dumps(TIMERS))
    return folder / "case.json", folder / "timers.json"


def test_clients_of_a_state_case_follow_their_phones(tmp_path: Path) -> None:
    trace, counts = flhetbench.convert(*write_case(tmp_path, ["5", "37", 37, "9"]))
    assert trace.clients.tolist() == [0, 1, 2, 3]
    assert trace.names == {0: "5", 1: "37", 2: "37", 3: "9"}
    assert rows(trace) == [(0, DAY + 60, DAY + 120), (1, 36_000, 39_600), (2, 36_000, 39_600)]
    assert trace.never_online.tolist() == [3]
    assert (counts["phones"], counts["devices_without_a_recording"]) == (3, 1)
    model = TracedAvailability(trace, np.arange(4), np.zeros(4), repeat=True)
    for day in range(10):  # phone 37 is there from 10 to 11 each day, phone 5 each second day
        there = model.presence(1, "train", day * DAY + 10.5 * HOUR, np.arange(4)).reachable
        assert there.tolist() == [False, True, True, False]
        assert model.presence(1, "train", day * DAY + 90, np.arange(4)).reachable[0] == (day % 2 == 1)


def test_numbers_of_clients_are_places_even_if_phones_have_numbers(tmp_path: Path) -> None:
    trace, _ = flhetbench.convert(*write_case(tmp_path, ["37", "5"]))
    assert trace.names == {0: "37", 1: "5"}


def test_bad_state_cases_are_one_line(tmp_path: Path) -> None:
    for case, said in (
        (["37", "38"], "client 1: no phone '38' in"),
        (["38"], "client 0: no phone '38' in"),
        ({}, "no list of phones"),
        ([[1]], "no list of phones"),
        (["9"], "not one of its phones has a recording"),
    ):
        assert said in refused(flhetbench.convert, *write_case(tmp_path, case))


def test_the_published_state_case(shared: Path) -> None:
    case = shared / "traces" / "formats" / "flhetbench-state-case1.json"
    timers = shared / "traces" / "availability-phones" / "cached_timers.json"
    if not case.exists():
        pytest.skip("no state case here")
    trace, counts = flhetbench.convert(case, timers)
    phones = json.loads(case.read_text())
    assert len(trace) == len(phones) == counts["devices"]
    assert [trace.names[client] for client in range(len(trace))] == phones
    origin = flash.read_timers(timers)
    first = min(origin[phone].recorded[0] for phone in phones) // DAY * DAY
    model = TracedAvailability(trace, np.arange(len(trace)), np.zeros(len(trace)), repeat=True)
    for now in np.linspace(1000.5, 40 * DAY - 999.5, 60):  # as bench/timer.py has it: modulo the phone's own recording
        expected = []
        for phone in phones:
            begin, end = origin[phone].recorded
            at = (now + first - begin) % (end - begin) + begin
            expected.append(any(since <= at < until for since, until in origin[phone].online))
        assert model.presence(1, "train", now, np.arange(len(trace))).reachable.tolist() == expected


def test_the_published_spot_trace(shared: Path) -> None:
    path = shared / "traces" / "formats" / "spot-us-west-2a_v100_1.json"
    if not path.exists():
        pytest.skip("no spot trace here")
    trace, _ = spot.convert(path)
    data = np.array(json.loads(path.read_text())["data"])
    assert describe(trace)["online_fraction_mean"] == pytest.approx(data.mean())
    assert reachable_share(trace, 600.0 * len(data), len(data)) == pytest.approx(data.mean())


# -- tables of intervals --------------------------------------------------------------------------------------------

NAMES = ("phone", "begin", "end")


def test_columns_that_say_when_a_client_was_watched(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("phone;begin;end;since;to\na;0;5;0;10\nb;30;60;30;100\na;8;9;0;10\n")
    trace, counts = csv_intervals.convert(tmp_path / "log.csv", *NAMES, recorded_columns=("since", "to"))
    assert trace.names == {0: "a", 1: "b"}
    assert trace.recorded_from_s.tolist() == [0, 30]
    assert trace.recorded_until_s.tolist() == [10, 100]
    assert trace.horizon == (0, 100)
    assert describe(trace)["online_fraction_mean"] == pytest.approx((0.6 + 30 / 70) / 2)
    assert counts["devices_recorded_for_a_part_of_the_horizon"] == 2
    offline, _ = csv_intervals.convert(
        tmp_path / "log.csv", *NAMES, recorded_columns=("since", "to"), outside="offline"
    )
    assert describe(offline)["online_fraction_mean"] == pytest.approx((6 + 30) / 100 / 2)


def test_without_them_short_devices_are_counted_and_may_repeat(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("phone,begin,end\na,0,1\na,3,4\nb,0,50\nb,60,100\n")
    trace, counts = csv_intervals.convert(tmp_path / "log.csv", *NAMES)
    assert counts["devices_seen_for_less_than_half_the_horizon"] == 1
    assert trace.recorded_until_s.tolist() == [100, 100]
    repeated, _ = csv_intervals.convert(tmp_path / "log.csv", *NAMES, outside="repeat")
    assert repeated.recorded_until_s.tolist() == [4, 100]
    assert rows(repeated) == rows(trace)
    assert reachable_share(repeated, 100.0) == pytest.approx((0.5 + 0.9) / 2, abs=0.01)


def test_dates_count_from_midnight(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "phone,begin,end\na,2024-05-01T10:00:00+02:00,2024-05-01T09:00Z\na,2024-05-02T00:00Z,2024-05-02T01:00Z\n"
    )
    trace, _ = csv_intervals.convert(tmp_path / "log.csv", *NAMES)
    assert rows(trace) == [(0, 8 * HOUR, 9 * HOUR), (0, 24 * HOUR, 25 * HOUR)]


# -- the recordings themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (([0.0, 0.0], [4.0, 10.0]), "row 1: outside of its recording, from 0.0 until 4.0"),
        (([0.0, 5.0], [10.0, 5.0]), "client 1: a recording from 5.0 until 5.0; it must have a length"),
        (([0.0, 0.0], [10.0, 11.0]), "client 1: a recording from 0.0 until 11.0"),
    ],
)
def test_recordings_that_cannot_be(recorded: Any, said: str) -> None:
    def make() -> AvailabilityTrace:
        return AvailabilityTrace.from_rows([0], [2], [5], horizon=(0, 10), clients=[0, 1], recorded=recorded)

    assert said in refused(make)


@pytest.mark.parametrize("damaged", ["[[0], [1], [2], [3]]", "[[0], [1], []]", "7", '[["x"], [1], [2]]'])
def test_damaged_metadata_is_one_line(damaged: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    AvailabilityTrace.from_rows([0], [2], [5]).write(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.replace_schema_metadata({"testbed.recorded_s": damaged}), tmp_path / "a.parquet")
    assert "the file's metadata is damaged" in refused(AvailabilityTrace.read, tmp_path / "a.parquet")
