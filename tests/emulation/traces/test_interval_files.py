"""Availability traces as files: round trips, and messages of one line for unreadable files."""

import contextlib
import os
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces import interval_files
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError
from tests.messages_named import naming

HEADER = "client,online_from_s,online_until_s\n"
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
BOUNDS = st.lists(FINITE, min_size=2, max_size=12, unique=True)


def same(left: AvailabilityTrace, right: AvailabilityTrace) -> bool:
    names = ("clients", "offsets", "online_from_s", "online_until_s")
    return left.horizon == right.horizon and all(
        getattr(left, name).tolist() == getattr(right, name).tolist() for name in names
    )


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as raised:
        AvailabilityTrace.read(path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def small() -> AvailabilityTrace:
    return AvailabilityTrace.from_rows([0, 0, 7], [0, 300, 60], [120.5, 420, 90])


def large(rows: int = 1_000_000) -> AvailabilityTrace:
    per_client = 100
    bounds = np.random.default_rng(1).random((rows // per_client, 2 * per_client)).cumsum(axis=1)
    client = np.repeat(np.arange(rows // per_client) * 3, per_client)
    return AvailabilityTrace.from_rows(client, bounds[:, ::2].ravel(), bounds[:, 1::2].ravel())


@given(st.dictionaries(st.integers(0, 2**62), BOUNDS, min_size=1, max_size=4))
def test_written_rows_are_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, bounds: dict[int, list[float]]
) -> None:
    rows = [
        (client, begin, until)
        for client, times in sorted(bounds.items())
        for begin, until in zip(sorted(times)[::2], sorted(times)[1::2], strict=False)
    ]
    client, begin, until = zip(*rows, strict=True)
    trace = AvailabilityTrace.from_rows(np.array(client, np.int64), begin, until)
    folder = tmp_path_factory.mktemp("traces")
    for name in ("t.csv", "t.parquet"):
        trace.write(folder / name)
        assert same(AvailabilityTrace.read(folder / name), trace)


def test_parquet_keeps_the_horizon_and_clients_never_online_which_csv_has_no_place_for(tmp_path: Path) -> None:
    trace = AvailabilityTrace.from_rows([3], [10], [20.1], horizon=(0, 100), clients=[1, 9])
    trace.write(tmp_path / "t.parquet")
    assert same(AvailabilityTrace.read(tmp_path / "t.parquet"), trace)
    trace.write(tmp_path / "t.csv")
    assert same(AvailabilityTrace.read(tmp_path / "t.csv"), AvailabilityTrace.from_rows([3], [10], [20.1]))
    assert (tmp_path / "t.csv").read_text() == HEADER + "3,10,20.1\n"


def test_a_million_rows_in_batches(tmp_path: Path) -> None:
    trace = large()
    for name in ("t.parquet", "t.csv"):
        trace.write(tmp_path / name)
        batches = [len(client) for client, _, _ in interval_files.read_batches(tmp_path / name)]
        assert sum(batches) == 1_000_000
        assert max(batches) <= interval_files.BATCH_ROWS
        assert same(AvailabilityTrace.read(tmp_path / name), trace)


def test_a_bad_row_far_down_is_named(tmp_path: Path) -> None:
    trace = large()
    client = np.repeat(trace.clients, np.diff(trace.offsets))
    begin, until = trace.online_from_s.copy(), trace.online_until_s.copy()
    at = interval_files.BATCH_ROWS  # its first row is checked against the last of the batch before
    assert client[at] == client[at - 1]
    begin[at] = begin[at - 1]
    table = pa.table([client, begin, until], names=HEADER.strip().split(","))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=len(table))
    assert refused(tmp_path / "t.parquet").startswith(f"row {at + 1}: overlaps the row above")
    trace.write(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    lines[300_000] = lines[300_000].replace(",", ",x", 1)
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert refused(tmp_path / "t.csv").startswith("row 300000: online_from_s 'x")


def test_a_file_of_another_program(tmp_path: Path) -> None:
    """Other orders of columns, number types and line ends, a byte order mark, blank lines."""
    table = pa.table({"online_until_s": pa.array([2], pa.int8()), "client": [1.0], "online_from_s": [np.float32(0.5)]})
    pq.write_table(table, tmp_path / "t.parquet")
    expected = AvailabilityTrace.from_rows([1], [0.5], [2])
    assert same(AvailabilityTrace.read(tmp_path / "t.parquet"), expected)
    text = '\ufeffonline_until_s,"client",online_from_s\r\n\r\n2,1,0.5\r\n\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert same(AvailabilityTrace.read(tmp_path / "t.csv"), expected)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "no intervals"),
        ("0,1,2\n0,a,3\n", "row 2: online_from_s 'a' is not a number"),
        ("0,1,2\n1.5,1,2\n", "row 2: client '1.5' is not a whole number"),
        ("0,1,2\nx,1,2\n", "row 2: client 'x' is not a whole number"),
        ("99999999999999999999,1,2\n", "row 1: client 99999999999999999999 is too large"),
        ("0,1,2\n0,,3\n", "row 2: online_from_s is missing"),
        ("0,1,2\n0,NULL,3\n", "row 2: online_from_s 'NULL' is not a number"),
        ("0,1,2\n0,3\n", "row 2: 2 values, not 3"),
        ("0,1,2,3\n", "row 1: 4 values, not 3"),
        ("0,1,nan\n", "row 1: online_until_s is nan"),
        ("0,1,inf\n", "row 1: online_until_s is inf"),
        ("0,1,2\n\n0,5,4\n", "row 2: reversed interval"),
        ("0,4,4\n", "row 1: empty interval"),
        ("0,1,5\n0,2,6\n0,x,7\n", "row 2: overlaps the row above"),  # before the row that is not even a number
        ("-1,1,2\n", "row 1: client -1 is negative"),
    ],
)
def test_a_bad_row_of_csv(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(HEADER + rows)
    assert refused(tmp_path / "t.csv").startswith(message)


def test_wrong_columns(tmp_path: Path) -> None:
    needed = "the columns must be client, online_from_s, online_until_s; found "
    for header, found in (
        ("0,1,2\n3,4,5\n", "'0', '1', '2'"),
        ("client,online_from_s\n0,1\n", "'client', 'online_from_s'"),
        (HEADER.strip() + ",extra\n0,1,2,3\n", "'client', 'online_from_s', 'online_until_s', 'extra'"),
        ("client,client,online_from_s\n0,1,2\n", "'client', 'client', 'online_from_s'"),
        ("client,online_from_s,online_until\n0,x,2\n", "'client', 'online_from_s', 'online_until'"),
    ):
        (tmp_path / "t.csv").write_text(header)
        assert refused(tmp_path / "t.csv") == needed + found
    pq.write_table(pa.table({"client": [1], "from": [2]}), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet") == needed + "'client', 'from'"


def test_columns_of_another_type_and_missing_values_in_parquet(tmp_path: Path) -> None:
    names = HEADER.strip().split(",")
    pq.write_table(pa.table([["a"], [1.0], [2.0]], names=names), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet") == "column client holds string; it must hold numbers"
    pq.write_table(pa.table([[0, 0], [1.0, None], [2.0, 3.0]], names=names), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet") == "row 2: online_from_s is missing"
    pq.write_table(pa.table([[0, 0, None], [1.0, 0.0, 5.0], [2.0, 3.0, 6.0]], names=names), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet").startswith("row 2: begins at 0.0")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_invalid_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert refused(path) == "cannot be read: No such file or directory"
    path.mkdir()
    assert refused(path) == "cannot be read: Is a directory"
    path.rmdir()
    path.write_bytes(b"")
    assert refused(path).startswith("the file is empty")
    path.write_bytes(bytes(range(256)) * 100)
    assert refused(path).startswith(("not a text file (UTF-8)", "not a Parquet file, or truncated"))
    path.write_bytes(b"x" * 9_000_000)
    assert len(refused(path)) < 300


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(HEADER.encode() + b"0,1,2\n0,\xff\xfe,9\n")
    assert refused(tmp_path / "t.csv").startswith("not a text file (UTF-8)")


def test_truncated_parquet(tmp_path: Path) -> None:
    small().write(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for length in range(1, len(whole), 37):
        (tmp_path / "t.parquet").write_bytes(whole[:length])
        assert refused(tmp_path / "t.parquet").startswith("not a Parquet file, or truncated")


@given(st.data())
def test_a_damaged_parquet_file_is_refused_or_read_but_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    small().write(folder / "t.parquet")
    content = bytearray((folder / "t.parquet").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "t.parquet").write_bytes(content)
    with contextlib.suppress(TraceError):
        AvailabilityTrace.read(folder / "t.parquet")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("testbed.horizon_s", "{"),
        ("testbed.horizon_s", "[1]"),
        ("testbed.horizon_s", '["a", 3]'),
        ("testbed.never_online", "5"),
        ("testbed.never_online", f"[{10**30}]"),
        ("testbed.never_online", "[" * 100_000),
    ],
)
def test_damaged_metadata(tmp_path: Path, key: str, value: str) -> None:
    small().write(tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(table.replace_schema_metadata({key: value}), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet") == "the file's metadata is damaged; convert the trace again"


def test_metadata_that_cannot_be(tmp_path: Path) -> None:
    small().write(tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(table.replace_schema_metadata({"testbed.horizon_s": "[0, 100]"}), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet").startswith("the horizon 0.0 .. 100.0 must be finite and hold all intervals")
    pq.write_table(table.replace_schema_metadata({"testbed.never_online": "[-4]"}), tmp_path / "t.parquet")
    assert refused(tmp_path / "t.parquet").startswith("client -4 is negative")


def test_another_suffix_is_neither_read_nor_written(tmp_path: Path) -> None:
    message = "an availability trace is a file that ends in .parquet or .csv"
    assert refused(tmp_path / "t.json") == message
    with pytest.raises(TraceError, match=message):
        small().write(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_failed_write_leaves_the_earlier_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    small().write(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TraceError, match=naming("written", "No space left on device")):
        large(1000).write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_where_that_is_not_possible(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=naming("written", "No such file or directory")):
        small().write(tmp_path / "nowhere" / "t.csv")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TraceError, match=r"cannot be written: Is a directory"):
        small().write(tmp_path / "t.csv")
    assert stat.S_ISDIR((tmp_path / "t.csv").stat().st_mode)
    assert list(tmp_path.iterdir()) == [tmp_path / "t.csv"]
