"""Converting bandwidth, latency and loss: mahimahi, six-column logs, columns of any table; files and folders."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.traces.conversion import csv_series, hsdpa, mahimahi
from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.conversion.series_formats import convert_all, converter, detect_format
from testbed.emulation.traces.series import BANDWIDTH, LATENCY, LOSS, Kind, Steps, read_series
from testbed.emulation.traces.text_tables import TableForm
from testbed.emulation.traces.timestamps import Timestamps
from tests.emulation.traces.conversions import refused
from tests.thoroughness import examples


def carried_bytes(steps: Steps) -> float:
    return float((steps.value * np.diff(np.append(steps.time_s, steps.period_s))).sum()) * 125_000


# -- mahimahi -------------------------------------------------------------------------------------------------------


def test_delivery_opportunities_become_rates(tmp_path: Path) -> None:
    """Two packets in the first 100 ms, none in the second, three in the last 50 ms, one of them at the very end."""
    (tmp_path / "a.down").write_text("0\n99\n205\n205\n250\n")
    steps, counts = mahimahi.convert(tmp_path / "a.down")
    assert steps.time_s.tolist() == [0.0, 0.1, 0.2]
    assert steps.period_s == 0.25
    packet_mbit = 1504 * 8 / 1e6
    assert steps.value == pytest.approx([2 * packet_mbit / 0.1, 0, 3 * packet_mbit / 0.05])
    assert counts == {"opportunities": 5, "bins": 3, "steps": 3}


def test_twelve_megabit_as_the_manual_has_it(tmp_path: Path) -> None:
    """A file that holds just "1" is one packet a millisecond."""
    (tmp_path / "12mbit").write_text("1\n")
    steps, _ = mahimahi.convert(tmp_path / "12mbit", 0.001)
    assert steps.value.tolist() == [12.032]
    assert steps.period_s == 0.001


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any), st.integers(1, 300))
def test_no_packet_is_lost_for_any_bins(tmp_path_factory: pytest.TempPathFactory, gaps: list[int], bin_ms: int) -> None:
    stamps = np.cumsum(gaps)
    path = tmp_path_factory.mktemp("mahimahi") / "trace"
    path.write_text("".join(f"{stamp}\n" for stamp in stamps))
    steps, _ = mahimahi.convert(path, bin_ms / 1000)
    assert carried_bytes(steps) == pytest.approx(1504 * len(stamps))
    assert steps.period_s == stamps[-1] / 1000
    assert (np.diff(np.append(steps.time_s, steps.period_s)) > 0).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\n5\n4\n", "row 3: 4 ms, and 5 in the row before; stamps ascend"),
        ("0\n1.5\n", "row 2: '1.5'; a mahimahi trace has a whole number of milliseconds"),
        ("0\n-1\n", "row 2: '-1'"),
        ("0\n0\n", "the last stamp must be later than 0 ms"),
        ("", "the last stamp must be later than 0 ms"),
        (f"{10**13}\n", "row 1: "),
        ("0" * 5000 + "1\n", "row 1: "),  # more digits than int() takes
    ],
)
def test_bad_mahimahi_traces_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.up").write_text(text)
    assert said in refused(mahimahi.convert, tmp_path / "a.up")
    (tmp_path / "a.up").write_text("0\n5\n")
    assert "a whole number of milliseconds (--bin" in refused(mahimahi.convert, tmp_path / "a.up", 0.0001)


# -- six-column logs ------------------------------------------------------------------------------------------------

# The lines that the data set's page shows.
PUBLISHED = """1289406399 549692 59.851754 10.781778 248069 1008
1289406400 550772 59.851864 10.781833 191698 1080
1289406401 551773 59.851964 10.781901 280579 1001
1289406402 552893 59.85206 10.781969 248971 1120
"""


def test_a_row_of_a_3g_log_covers_the_time_before_it(tmp_path: Path) -> None:
    (tmp_path / "bus.log").write_text(PUBLISHED)
    steps, counts = hsdpa.convert(tmp_path / "bus.log")
    assert steps.time_s == pytest.approx([0, 1.008, 2.088, 3.089])
    assert steps.period_s == pytest.approx(1.008 + 1.080 + 1.001 + 1.120)
    rates = [248069 / 1.008, 191698 / 1.080, 280579 / 1.001, 248971 / 1.120]
    assert (steps.value * 125_000).tolist() == pytest.approx(rates)
    assert carried_bytes(steps) == pytest.approx(248069 + 191698 + 280579 + 248971)
    assert counts == {"rows": 4, "rows_without_time": 0, "steps": 4}


def test_a_clock_that_stands_still_loses_no_bytes(tmp_path: Path) -> None:
    rows = PUBLISHED.splitlines()
    rows.insert(2, "1289406400 550772 59.85 10.78 1000 0")
    (tmp_path / "bus.log").write_text("\n".join(rows))
    steps, counts = hsdpa.convert(tmp_path / "bus.log")
    assert counts["rows_without_time"] == 1
    assert carried_bytes(steps) == pytest.approx(248069 + 191698 + 1000 + 280579 + 248971)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1 2 3 4 5", "row 5: 5 values; a 3G log has six numbers"),
        ("1 x 3 4 5 6", "row 5: 'x' is not a number"),
        ("1289406403 552892 1 2 3 4", "row 5: the clock goes back, from 552893 to 552892 ms"),
        ("1289406403 552999 1 2 -3 4", "row 5: -3 bytes in 4 ms"),
    ],
)
def test_bad_3g_logs_are_one_line(row: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bus.log").write_text(PUBLISHED + row + "\n")
    assert said in refused(hsdpa.convert, tmp_path / "bus.log")


# -- columns of tables ----------------------------------------------------------------------------------------------


def converted(path: Path, kind: Kind, of: csv_series.SeriesColumns) -> tuple[Steps, Counts]:
    """The one trace in a table, and the counts."""
    traces, counts = csv_series.convert(path, kind, of)
    (steps,) = traces.values()
    return steps, counts


def columns(value: str = "rate", unit: str = "Mbit/s", **more: Any) -> csv_series.SeriesColumns:
    return csv_series.SeriesColumns(more.pop("time", "t"), value, unit, **more)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_any_separator(separator: str, tmp_path: Path) -> None:
    lines = ["# made by hand", "t,note,rate", "0,x,1", "", "2,x,3.5", "3,x,4"]
    (tmp_path / "a.csv").write_text("\n".join(lines).replace(",", separator))
    steps, counts = converted(tmp_path / "a.csv", BANDWIDTH, columns())
    assert steps.time_s.tolist() == [0.0, 2.0, 3.0]
    assert steps.value.tolist() == [1.0, 3.5, 4.0]
    assert counts == {"rows": 3, "rows_without_a_value": 0, "rows_with_repeated_times": 0, "steps": 3}
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    assert converted(tmp_path / "a.csv.gz", BANDWIDTH, columns())[0].value.tolist() == [1.0, 3.5, 4.0]


def test_columns_by_number_and_commas_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0;1,5\n1000;2,5\n")
    steps, _ = converted(
        tmp_path / "a.csv",
        BANDWIDTH,
        columns("2", "kbit/s", time="1", time_unit="ms", rows="interval-before", form=TableForm(header=False)),
    )
    assert steps.time_s.tolist() == [0.0, 1.0]
    assert steps.value.tolist() == [0.0015, 0.0025]
    assert steps.period_s == 2.0


@pytest.mark.parametrize(
    ("kind", "unit", "factor"),
    [
        (BANDWIDTH, "bit/s", 1e-6), (BANDWIDTH, "kbit/s", 1e-3), (BANDWIDTH, "Gbit/s", 1e3), (BANDWIDTH, "B/s", 8e-6),
        (BANDWIDTH, "kB/s", 8e-3), (BANDWIDTH, "MB/s", 8), (LATENCY, "s", 1e3), (LATENCY, "us", 1e-3),
        (LOSS, "percent", 0.01), (LOSS, "probability", 1),
    ],
)  # fmt: skip
def test_units(kind: Any, unit: str, factor: float, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,rate\n0,0.5\n1,0.25\n")
    steps, _ = converted(tmp_path / "a.csv", kind, columns(unit=unit))
    assert steps.value == pytest.approx([0.5 * factor, 0.25 * factor])


def test_a_round_trip_is_twice_the_latency(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,rate\n0,80\n1,-\n2,40\n2,60\n")
    steps, counts = converted(tmp_path / "a.csv", LATENCY, columns(unit="ms", round_trip=True))
    assert steps.value.tolist() == [40.0, 25.0]
    assert steps.time_s.tolist() == [0.0, 2.0]
    assert counts == {"rows": 4, "rows_without_a_value": 1, "rows_with_repeated_times": 1, "steps": 2}


@pytest.mark.parametrize(
    ("first", "second", "apart_s"),
    [
        ("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:30Z", 30),
        ("2024-05-01 12:00:00", "2024-05-01 12:00:00.250", 0.25),
        ("2019.11.26_13.20.43", "2019.11.26_13.21.43", 60),
        ("2024-02-29", "2024-03-01", 86_400),
    ],
)
def test_dates(first: str, second: str, apart_s: float, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"t,rate\n{first},1\n{second},2\n")
    steps, _ = converted(tmp_path / "a.csv", BANDWIDTH, columns())
    assert steps.time_s == pytest.approx([0, apart_s])
    moments = Timestamps()
    assert moments.seconds(second) - moments.seconds(first) == pytest.approx(apart_s)
    assert moments.are_dates


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,rate\n0,1\n1,fast\n", "row 2: 'fast' is not a number"),
        ("t,rate\n0,1\nsoon,2\n", "row 2: 'soon' is not a time, in seconds or like 2024-05-01T12:00:00Z"),
        ("t,rate\n0,1\n2024-05-01,2\n", "row 2: the time '2024-05-01' belongs to dates"),
        ("t,rate\n2024-05-01,1\n2024-05-02T00:00Z,2\n", "belongs to dates with a zone"),
        ("t,rate\n5,1\n4,2\n", "row 2: the time '4' is before the one above"),
        ("t,rate\n0,1\n1,2,3\n", "row 2: 3 values, not 2"),
        ("t,rate\n0,1\n1,-2\n", "row 2: rate -2.0 Mbit/s; it must be from 0"),
        ("t,rate\n0,-\n1,nan\n", "not one of 2 rows has a value in column 'rate'"),
        ("t,speed\n0,1\n", "no column 'rate'; its columns are 't', 'speed'"),
        ("0,1\n1,2\n", "no line of column names: its first row begins with '0'; call the columns by number"),
        ("t,t\n0,1\n", "the column 't' occurs twice"),
        ("t,rate\n0,1\n", "a single row"),
        ("", "no rows; the file is empty"),
    ],
)
def test_bad_tables_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    line = refused(converted, tmp_path / "a.csv", BANDWIDTH, columns())
    assert line.startswith(f"{tmp_path / 'a.csv'}: ")
    assert said in line


# -- files and folders ----------------------------------------------------------------------------------------------


def test_formats_are_found_out(tmp_path: Path) -> None:
    for text, format in (("0\n1\n", "mahimahi"), (PUBLISHED, "3g-log"), ("t,r\n0,1\n", "csv"), ("0 1\n", "csv")):
        (tmp_path / "a").write_text(text)
        assert detect_format(tmp_path / "a", None, BANDWIDTH) == detect_format(tmp_path, None, BANDWIDTH) == format
        assert detect_format(tmp_path, "a*", LATENCY) == "csv"


def test_a_folder_becomes_a_folder_of_the_same_names(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    for name in ("b.up", "a.up", "a.down"):
        (source / name).write_text("0\n200\n")
    written, counts = convert_all(source, None, out, BANDWIDTH, converter(BANDWIDTH, "mahimahi"))
    assert (written, counts) == (3, {"files": 3, "opportunities": 6, "bins": 6, "steps": 3})
    assert read_series(out, BANDWIDTH).names == ("a.down.txt", "a.up.txt", "b.up.txt")
    for file in out.iterdir():
        file.unlink()
    convert_all(source, "*.up", out, BANDWIDTH, converter(BANDWIDTH, "mahimahi", bin_s=0.05))
    assert read_series(out, BANDWIDTH).names == ("a.up.txt", "b.up.txt")
    said = refused(convert_all, source, "*.log", out, BANDWIDTH, None)
    assert "none of the 3 files below it matches *.log" in said


def test_a_bad_file_in_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "a.csv").write_text("t,rate\n0,1\n1,2\n")
    (source / "b.csv").write_text("t,rate\n0,1\n1,x\n")
    convert = converter(BANDWIDTH, "csv", columns())
    assert "b.csv: row 2: 'x' is not a number" in refused(convert_all, source, None, out, BANDWIDTH, convert)
    assert not list(out.iterdir())
    (source / "b.csv").unlink()
    (source / "a.log").write_text("t,rate\n0,1\n1,2\n")
    assert "would be written as a.txt, as a.csv; rename one" in refused(
        convert_all, source, None, out, BANDWIDTH, convert
    )


# -- published files ------------------------------------------------------------------------------------------------


def test_the_published_mahimahi_traces(shared: Path) -> None:
    for direction in ("down", "up"):
        path = shared / "traces" / "formats" / f"mahimahi-ATT-LTE-driving-2016.{direction}"
        if not path.exists():
            pytest.skip("no mahimahi traces here")
        stamps = np.loadtxt(path, dtype=np.int64)
        steps, counts = mahimahi.convert(path)
        assert detect_format(path, None, BANDWIDTH) == "mahimahi"
        assert counts["opportunities"] == len(stamps)
        assert carried_bytes(steps) == pytest.approx(1504 * len(stamps))
        assert steps.period_s == stamps[-1] / 1000


def test_the_published_5g_logs(shared: Path) -> None:
    path = shared / "traces" / "formats" / "ucc-5g-driving.csv"
    if not path.exists():
        pytest.skip("no 5G logs here")
    for value, most in (("DL_bitrate", 300), ("UL_bitrate", 60)):
        steps, counts = converted(path, BANDWIDTH, columns(value, "kbit/s", time="Timestamp"))
        assert counts["rows_with_repeated_times"] == 57
        assert counts["steps"] == counts["rows"] - 57
        assert 0 < steps.value.max() < most
    said = refused(converted, path, LATENCY, columns("PINGAVG", "ms", time="Timestamp"))
    assert "not one of 615 rows has a value in column 'PINGAVG'" in said
