"""Oversized or endless traces and tables: every reader refuses them in one line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.emulation.traces.columns import column_names
from testbed.emulation.traces.conversion import (
    csv_intervals,
    csv_series,
    failure_archive,
    hsdpa,
    mahimahi,
    matrix,
    spot,
)
from testbed.emulation.traces.conversion.json_documents import read_object
from testbed.emulation.traces.interval_files import read_batches
from testbed.emulation.traces.latency import read_latency_matrix
from testbed.emulation.traces.schedule import Schedule
from testbed.emulation.traces.series import BANDWIDTH, read_series
from testbed.emulation.traces.text_tables import TableForm
from testbed.errors import TraceError
from testbed.files import limits

READERS: dict[str, Callable[[Path], object]] = {
    "bandwidth.txt": lambda path: read_series(path, BANDWIDTH),
    "table.csv": column_names,
    "table.json": column_names,
    "object.json": lambda path: read_object(path, "an object"),
    "matrix.csv": lambda path: matrix.convert(path, 60.0),
    "intervals.csv": lambda path: list(read_batches(path)),
    "latency.csv": read_latency_matrix,
    "schedule.csv": Schedule.read,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [b"1" * 5000, b"1,1\n" * 2000], ids=["one line", "lines"])
def test_larger_than_the_limit(name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACE_BYTES", 1000)
    path = tmp_path / name
    path.write_bytes(b"round,client,stage,fate\n" + content if name == "schedule.csv" else content)
    with pytest.raises(TraceError, match=r"larger than|two numbers|the columns must|values|not later") as error:
        READERS[name](path)
    if name not in ("bandwidth.txt", "schedule.csv", "matrix.csv"):
        assert "larger than" in str(error.value)
    assert "\n" not in str(error.value)


WITHOUT_NAMES = TableForm(header=False)
COLUMNS = csv_series.SeriesColumns("1", "2", "Mbit/s", form=WITHOUT_NAMES)
LINES: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "mahimahi.down": (mahimahi.convert, b"1\n"),
    "bus.log": (hsdpa.convert, b"1 1 1 1 1 0\n"),
    "wide.csv": (lambda path: csv_series.convert(path, BANDWIDTH, COLUMNS), b"1,1\n"),
    "log.csv": (lambda path: csv_intervals.convert(path, "1", "2", "3", form=WITHOUT_NAMES), b"a,1,2\n"),
    "event_trace.tab": (failure_archive.convert, b"1 1 1 1 a 1 0 1 0\n"),
    "spot.json": (spot.convert, b"[1]"),
}


@pytest.mark.parametrize("name", LINES)
def test_converters_read_no_more_than_the_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACE_BYTES", 1000)
    convert, line = LINES[name]
    (tmp_path / name).write_bytes(line * 2000)
    with pytest.raises(TraceError, match="larger than"):
        convert(tmp_path / name)


def test_an_array_with_a_header_of_terabytes_is_refused(tmp_path: Path) -> None:
    for name, read in (("m.npy", READERS["matrix.csv"]), ("l.npy", read_latency_matrix)):
        with (tmp_path / name).open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
            )
        with pytest.raises(TraceError, match=r"truncated|not an array"):
            read(tmp_path / name)


def test_an_archive_is_no_matrix(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.ones((2, 2)))
    (tmp_path / "m.npz").rename(tmp_path / "m.npy")
    with pytest.raises(TraceError, match="an archive"):
        matrix.convert(tmp_path / "m.npy", 60.0)
