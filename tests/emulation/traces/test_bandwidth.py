"""Bandwidth files: the meaning of a rate, and messages for invalid files."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.bandwidth import BandwidthTraces, bandwidth_of
from testbed.emulation.traces.series import BANDWIDTH, read_series
from tests.emulation.traces.conversions import refused


def read_bandwidth(path: Path) -> BandwidthTraces:
    return bandwidth_of(read_series(path, BANDWIDTH))


@pytest.mark.parametrize("separator", [" ", "\t", ",", ", ", "   "])
def test_a_rate_holds_until_the_next_time_and_the_last_for_the_median_step(tmp_path: Path, separator: str) -> None:
    rows = [("100.5", "2.0"), ("101.5", "0"), ("103.5", "1e-1"), ("104.5", "16")]
    lines = [separator.join(row) for row in rows]
    (tmp_path / "a.log").write_bytes(("\r\n".join(["# seconds Mbit/s", *lines[:2], "", *lines[2:]])).encode())
    traces = read_bandwidth(tmp_path / "a.log")
    assert traces.offsets.tolist() == [0, 4]
    assert traces.time_s.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert traces.rate_bytes_s.tolist() == [250_000.0, 0.0, 12_500.0, 2_000_000.0]
    assert traces.period_s.tolist() == [5.0]


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name, rate in (("b.txt", 2), ("a.log", 1), ("c", 3)):
        (tmp_path / name).write_text(f"0 {rate}\n1 {rate}\n")
    for other in ("README.md", ".hidden", "LICENSE"):
        (tmp_path / other).write_text("no trace")
    (tmp_path / "deeper").mkdir()
    traces = read_bandwidth(tmp_path)
    assert traces.offsets.tolist() == [0, 2, 4, 6]
    assert (traces.rate_bytes_s[::2] / 125_000).tolist() == [1.0, 2.0, 3.0]
    assert traces.period_s.tolist() == [2.0] * 3


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 1e6)), min_size=2, max_size=20))
def test_numbers_are_read_as_python_reads_them(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, float]]
) -> None:
    times = np.cumsum([step for step, _ in steps]).tolist()
    path = tmp_path_factory.mktemp("bandwidth") / "a.log"
    path.write_text("".join(f"{time}\t{rate}\n" for time, (_, rate) in zip(times, steps, strict=True)))
    traces = read_bandwidth(path)
    begins = [time - times[0] for time in times]
    assert traces.time_s.tolist() == begins
    assert traces.rate_bytes_s.tolist() == [rate * 125_000 for _, rate in steps]
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(begins))
    middle = len(gaps) // 2
    median = gaps[middle] if len(gaps) % 2 else (gaps[middle - 1] + gaps[middle]) / 2
    assert traces.period_s.tolist() == pytest.approx([begins[-1] + median])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 -2\n", "row 2: rate -2.0 Mbit/s; it must be from 0"),
        ("0 1\n1 nan\n", "row 2: rate nan Mbit/s"),
        ("0 1\n1 inf\n", "row 2: rate inf Mbit/s"),
        ("0 1\n1 1e300\n", "row 2: rate 1e+300 Mbit/s"),
        ("nan 1\n1 2\n", "row 1: time nan; it must be seconds, at most 1e+12 from 0"),
        ("0 1\n1e300 2\n", "row 2: time 1e+300; it must be seconds"),
        ("0 1\n# a remark\n\n5 2\n4 3\n", "row 5: time 4.0 is earlier than the one before, 5.0"),
        ("1\n2\n", "row 1: 1 value; each line needs two numbers, seconds and Mbit/s"),
        ("0 1 2\n", "row 1: 3 values; each line needs two numbers"),
        ("0 1\n1 fast\n", "row 2: 'fast' is not a number"),
        ("", "no rows"),
        ("# nothing\n\n", "no rows"),
        ("0 1\n", "a single row"),
        ("-1e12 1\n0 1\n1e-9 1\n", "times from -1000000000000.0 to 1e-09 too close for float64"),
        ("0 1\n1e-9 1\n2e-9 1\n1e12 1\n", "times from 0.0 to 1000000000000.0 too close for float64"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_bad_file_is_named_with_its_row(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.log").write_text("0 1\n1 1\n")
    (tmp_path / "b.log").write_text(text)
    for path in (tmp_path / "b.log", tmp_path):
        assert refused(read_bandwidth, path).startswith(f"{tmp_path / 'b.log'}: {message}")


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    assert refused(read_bandwidth, tmp_path).startswith(f"{tmp_path}: no bandwidth traces in this directory")
    assert (
        refused(read_bandwidth, tmp_path / "a.log")
        == f"{tmp_path / 'a.log'}: cannot be read: No such file or directory"
    )
    (tmp_path / "a.log").write_bytes(b"\xff\xfe\x00\x01" * 1000)
    assert refused(read_bandwidth, tmp_path / "a.log").startswith(f"{tmp_path / 'a.log'}: not a text file (UTF-8)")


def test_the_published_3g_traces(shared: Path) -> None:
    folder = shared / "traces" / "bandwidth-3g"
    traces = read_bandwidth(folder)
    files = sorted(folder.glob("*.log"))
    assert len(traces) == len(files) == 40
    for file, begin, end, period in zip(files, traces.offsets, traces.offsets[1:], traces.period_s, strict=False):
        table = np.loadtxt(file)
        assert (traces.time_s[begin:end] == table[:, 0] - table[0, 0]).all()
        assert (traces.rate_bytes_s[begin:end] == table[:, 1] * 125_000).all()
        assert 0.9 < period - traces.time_s[end - 1] < 1.2
