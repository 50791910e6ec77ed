"""Files of a run directory that are small, or endless, and ask for much: refused in one line, and no memory taken."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.errors import RunError
from testbed.files import limits, parquet_bounds
from testbed.files.parquet import read_opened
from testbed.records import RunDirectory, attempts, uploads
from testbed.records.arrays import stamp_of
from testbed.records.log import RunLog
from testbed.records.tables import read_chunks
from testbed.running.status import status
from tests.messages_named import naming
from tests.records.rounds import record_round


@pytest.fixture
def recorded(run_path: Path) -> Path:
    """A run after its first round."""
    directory = RunDirectory.create(run_path, {"name": "bounded", "rounds": 2, "population": 3})
    record_round(directory, 1)
    return run_path


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """The beginning of an array of this shape, without its data."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": kind, "fortran_order": False, "shape": shape})
    return made.getvalue()


def packed(name: str, content: bytes, how: int) -> bytes:
    """A zip file of one member."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        archive.writestr(name, content)
    return made.getvalue()


def bombs() -> dict[str, bytes]:
    """Checkpoints that ask for memory."""
    return {
        "shape": packed("round_number.npy", header((1 << 40,)), zipfile.ZIP_STORED),
        "shape that overflows": packed("round_number.npy", header((1 << 40, 1 << 40)), zipfile.ZIP_STORED),
        "deflated": packed("round_number.npy", header((30_000_000,)) + bytes(120_000_000), zipfile.ZIP_DEFLATED),
    }


@pytest.mark.parametrize("name", bombs())
def test_a_checkpoint_takes_no_more_memory_than_the_disk(recorded: Path, name: str) -> None:
    content = bombs()[name]
    file = recorded / "checkpoint.npz"
    file.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(RunError, match="damaged checkpoint"):
        RunDirectory(recorded).checkpoint()
    with pytest.raises(RunError, match="damaged checkpoint"):
        stamp_of(content)
    with pytest.raises(RunError, match="damaged"):
        status(recorded)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000 + 4 * len(content)


def test_members_that_lie_upon_one_another(recorded: Path) -> None:
    """A thousand names for the same bytes: the sum is more than the file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("memory/0.npy", header((100_000,)) + bytes(400_000))
        first = archive.infolist()[0]
        for number in range(1, 50):
            again = zipfile.ZipInfo(f"memory/{number}.npy")
            for name in ("file_size", "compress_size", "CRC", "header_offset"):
                setattr(again, name, getattr(first, name))
            archive.filelist.append(again)
    (recorded / "checkpoint.npz").write_bytes(made.getvalue())
    with pytest.raises(RunError, match=naming("checkpoint.npz", "damaged", "larger")):
        RunDirectory(recorded).checkpoint()


def test_lines_of_the_log_that_are_too_long_are_left_out(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_LINE_BYTES", 100)
    entry = json.dumps({"event": "x"}).encode()
    long = json.dumps({"event": "y" * 500}).encode()
    (recorded / "log.jsonl").write_bytes(b"\n".join([entry, long, b"{" * 99, entry, b"[" * 300, entry]))
    assert [one["event"] for one in RunLog(recorded).read()] == ["x", "x", "x"]


def test_a_log_and_attempts_that_are_too_large(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_BYTES", 1000)
    monkeypatch.setattr(limits, "ATTEMPTS_BYTES", 1000)
    (recorded / "log.jsonl").write_bytes(b"{}\n" * 500)
    with pytest.raises(RunError, match=naming("log.jsonl:", "larger than", "MiB")):
        RunLog(recorded).read()
    (recorded / uploads.ATTEMPTS).write_bytes(b" " * 2000)
    with pytest.raises(RunError, match=r"attempts.json: larger than"):
        attempts.read_attempts(recorded)
    (recorded / uploads.ATTEMPTS).write_bytes(b"[" * 900)
    with pytest.raises(RunError, match="damaged"):
        attempts.read_attempts(recorded)


def test_a_table_of_few_bytes_and_many_rows(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TABLE_ROWS", 10_000)
    file = recorded / "parts" / "round-000001" / "rounds.parquet"
    pq.write_table(pa.table({"round": pa.array(np.ones(1_000_000, np.int32))}), file)
    assert file.stat().st_size < 10_000
    with pytest.raises(RunError, match=naming("1000000 rows", "10000 rows")):
        RunDirectory(recorded).table("rounds")


def test_rows_are_counted_in_bytes_before_they_are_read(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The footer says it: 10 MB of Parquet may stand for 80 million rows."""
    monkeypatch.setattr(limits, "TABLE_BYTES", 8 << 20)
    file = recorded / "parts" / "round-000001" / "rounds.parquet"
    columns = {name: pa.array(np.ones(600_000)) for name in ("duration_s", "loss")}
    pq.write_table(pa.table({"round": pa.array(np.ones(600_000, np.int32)), **columns}), file)
    assert file.stat().st_size < 50_000
    taken = pa.total_allocated_bytes()
    with pytest.raises(RunError) as caught:
        RunDirectory(recorded).table("rounds")
    assert pa.total_allocated_bytes() <= taken + (1 << 20)
    (line,) = str(caught.value).splitlines()
    assert "600,000 rows, which take at least 11 MiB of memory; the limit is 8 MiB" in line
    assert "for a file that you trust set TESTBED_TABLE_GIB=1" in line
    monkeypatch.setenv(limits.TABLE_VARIABLE, "1")
    assert len(RunDirectory(recorded).table("rounds")) == 600_000


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.float64())])
def test_texts_and_lists_that_take_no_room_in_the_file(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    """A dictionary has a text of a megabyte once, and the rows have it a thousand times; the footer does not say so."""
    monkeypatch.setattr(limits, "TABLE_BYTES", 64 << 20)
    value: object = [0.0] * 4000 if pa.types.is_list(kind) else "x" * 100_000
    file = recorded / "parts" / "round-000001" / "events.parquet"
    rows = 3000
    pq.write_table(
        pa.table({"round": pa.array(np.ones(rows, np.int32)), "detail": pa.array([value] * rows, kind)}), file
    )
    assert file.stat().st_size < 1_000_000
    taken = pa.total_allocated_bytes()
    with pytest.raises(RunError, match=naming("3,000 rows", "64 MiB")):
        RunDirectory(recorded).table("events")
    assert pa.total_allocated_bytes() <= taken + (8 << 20)


def test_the_limit_is_a_number(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.TABLE_VARIABLE, "many")
    with pytest.raises(RunError, match="TESTBED_TABLE_GIB=many must be"):
        RunDirectory(recorded).table("rounds")


def test_a_round_of_too_many_rows_in_stretches(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TABLE_BYTES", 4 << 20)
    file = recorded / "exchanges.parquet"
    count = 3_000_000
    pq.write_table(
        pa.table({"round": pa.array(np.ones(count, np.int32)), "client": pa.array(np.ones(count, int))}), file
    )
    with pytest.raises(RunError, match=naming("rows", "4 MiB")):
        list(read_chunks([file], "exchanges", ["round", "client"]))


def test_fewer_rows_where_they_become_objects(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` makes a Python object of each value, which takes more memory than the table."""
    monkeypatch.setattr(limits, "TABLE_BYTES", 160 << 20)
    count = 1_000_000
    columns = {"round": pa.array(np.ones(count, np.int32)), "accuracy": pa.array(np.ones(count))}
    pq.write_table(
        pa.table({**columns, "outcome": ["completed"] * count, "reason": [""] * count}), recorded / "rounds.parquet"
    )
    with pytest.raises(RunError, match=naming("1,000,000 rows", "10 MiB")):
        status(recorded)


LARGE = pa.large_string()
WORD = "x" * 1000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([WORD] * 2000, LARGE),
        pa.array([WORD.encode()] * 2000, pa.large_binary()),
        pa.array([WORD] * 2000, pa.string_view()),
        pa.StructArray.from_arrays([pa.array([WORD] * 2000, LARGE)], ["inner"]),
        pa.array([[WORD] * 1000] * 2),
        pa.array([[("key", WORD)] * 1000] * 2, pa.map_(pa.string(), pa.string())),
    ],
    ids=lambda column: str(column.type),
)
def test_texts_are_never_written_out_to_be_measured(
    column: pa.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of other types nor those within structs and lists: 1 KB of file can stand for 8 GB."""
    file = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": column}), file, compression="zstd")
    assert file.stat().st_size < 8000
    before, read = pa.total_allocated_bytes(), list[int]()
    decoded = parquet_bounds._decoded
    monkeypatch.setattr(parquet_bounds, "_decoded", lambda part: (read.append(part.nbytes), decoded(part))[1])
    monkeypatch.setattr(limits, "table_bytes", lambda as_objects: 1_000_000)
    with pytest.raises(limits.TooLarge, match=naming("rows", "2 MiB")):
        read_opened(file)
    assert sum(read) < 100_000
    assert pa.total_allocated_bytes() - before < 200_000
    monkeypatch.setattr(limits, "table_bytes", lambda as_objects: 10_000_000)
    assert read_opened(file).num_rows == len(column)
