"""Bits that flip in recorded tables: none gives other numbers than were recorded."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.cli import main
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import RunError
from testbed.files import parquet as parquet_files
from testbed.records import RunDirectory, RunRecords
from testbed.records.schemas import SCHEMAS
from testbed.running.status import status
from tests.records.rounds import expected_rows, record_round

ROUNDS = 3


@pytest.fixture
def finished(run_path: Path) -> Path:
    """A run with merged tables."""
    directory = RunDirectory.create(run_path, {"name": "damaged", "rounds": ROUNDS, "population": 3})
    for number in range(1, ROUNDS + 1):
        record_round(directory, number)
    directory.finish()
    return run_path


def flipped(content: bytes, bit: int) -> bytes:
    """`content` with one bit changed."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_flipped_bit_gives_other_values(finished: Path, name: str) -> None:
    """One bit of every seventh byte of a table, page headers and footer included."""
    file = finished / f"{name}.parquet"
    whole, expected = file.read_bytes(), expected_rows(name, ROUNDS)
    unnoticed = 0
    for byte in range(0, len(whole), 7):
        file.write_bytes(flipped(whole, 8 * byte + byte % 8))
        try:
            rows = RunDirectory(finished).table(name).to_pylist()
        except RunError:
            continue
        unnoticed += 1
        assert rows == expected
    assert unnoticed <= 16  # in the key of the digest, which then is none


def test_without_a_digest_some_do(tmp_path: Path) -> None:
    """Why pages with checksums are not enough: what the digest is for."""
    table = pa.table({"a": pa.array([None, 1.5, 2.5] * 20), "b": pa.array(range(60), pa.int32())})
    file = tmp_path / "t.parquet"
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    whole, expected, different = file.read_bytes(), table.to_pylist(), 0
    for byte in range(4, len(whole) - 8):
        file.write_bytes(flipped(whole, 8 * byte + byte % 8))
        try:
            rows = parquet_files.read_table(file, table.schema).to_pylist()
        except (OSError, pa.ArrowException, ValueError):
            continue
        different += rows != expected
    assert different


@pytest.mark.parametrize("merged", [True, False])
def test_status_and_stretches_notice_too(finished: Path, merged: bool) -> None:
    if not merged:
        record_round(RunDirectory.reopen(finished), ROUNDS + 1)
    folder = finished if merged else finished / "parts" / f"round-{ROUNDS + 1:06d}"
    for name in ("events", "rounds", "exchanges"):
        file = folder / f"{name}.parquet"
        whole = file.read_bytes()
        file.write_bytes(flipped(whole, 8 * len(whole) - 1000))
        with pytest.raises(RunError, match="damaged"):
            list(RunRecords(finished).exchanges_in_stretches()) if name == "exchanges" else status(finished)
        file.write_bytes(whole)
    assert status(finished).rounds_done == ROUNDS + (not merged)


def test_runs_without_digests_are_read_and_that_is_said_once(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "runs" / "new")
    for name in ("old", "older"):
        shutil.copytree(finished, tmp_path / "runs" / name)
        for file in (tmp_path / "runs" / name).glob("*.parquet"):
            pq.write_table(pq.read_table(file), file)
    assert RunDirectory(tmp_path / "runs" / "old").table("rounds").to_pylist() == expected_rows("rounds", ROUNDS)
    assert main(["dropouts", str(tmp_path / "runs" / "new")]) == 0
    assert "digest" not in capsys.readouterr().err
    assert main(["dropouts", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().err.count("note: 2 of 3 runs") == 1


def test_a_table_that_is_read_and_written_again_has_no_digest(finished: Path) -> None:
    """Nor a wrong one."""
    file = finished / "rounds.parquet"
    pq.write_table(pq.read_table(file).slice(0, 2), file)
    assert not parquet_files.verified(file)
    assert len(RunDirectory(finished).table("rounds")) == 2


def test_the_digest_is_found_behind_long_metadata(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [1]}).replace_schema_metadata({"long": "x" * (3 << 20)})
    with path.open("wb") as file:
        parquet_files.write_table(table, file)
    assert parquet_files.verified(path)
    path.write_bytes(flipped(path.read_bytes(), 8 * 40))
    with pytest.raises(pa.ArrowInvalid):
        parquet_files.verified(path)


def test_foreign_files_are_read_with_their_page_checksums(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    table = pa.table({"round": [1] * 50, "client": list(range(50)), "stage": ["train"] * 50, "fate": ["dropped"] * 50})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    place = content.index((7).to_bytes(8, "little") + (8).to_bytes(8, "little"))
    path.write_bytes(flipped(content, 8 * place))
    with pytest.raises(Exception, match="CRC"):
        Schedule.read(path)
