"""Tables in chunks: the same rows as in one piece, whole rounds together, one chunk in memory at a time."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.errors import RunError
from testbed.records import RunDirectory, RunRecords, reader
from testbed.records import tables as streaming
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import read_chunks, recorded_files, write_merged
from tests.records.rounds import expected_rows, record_round

ROUNDS = 9

Recorder = Callable[[RunDirectory, int], None]
Rows = Callable[[str, int], list[dict]]


@pytest.fixture(params=["parts", "merged", "both"], scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of nine rounds: going on, finished, or finished after five and resumed."""
    path = tmp_path_factory.mktemp("recorded") / "run"
    directory = RunDirectory.create(path, {})
    for number in range(1, ROUNDS + 1):
        record_round(directory, number)
        if (request.param == "merged" and number == ROUNDS) or (request.param == "both" and number == 5):
            directory.finish()
    return path


@pytest.fixture
def run(recorded: Path, run_path: Path) -> RunDirectory:
    """A copy of that run, which a test may change."""
    shutil.copytree(recorded, run_path)
    return RunDirectory(run_path)


def files(run: RunDirectory, name: str) -> list[Path]:
    return recorded_files(run.path, name, run.checkpoint())


@pytest.mark.parametrize("rows", [1, 4, 7, 1000])
@pytest.mark.parametrize("name", SCHEMAS)
def test_all_rows_in_order_and_rounds_whole(
    run: RunDirectory, name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "ROWS", max(rows, 4))
    found = list(read_chunks(files(run, name), name))
    assert [row for part in found for row in part.to_pylist()] == expected_rows(name, ROUNDS)
    rounds = [set(part["round"].to_pylist()) for part in found]
    assert sum(map(len, rounds)) == len(set().union(*rounds))  # no round is in two
    for part in found:
        assert part.schema.equals(SCHEMAS[name])


def test_a_stretch_is_about_as_long_as_asked(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "ROWS", 6)
    lengths = [len(part) for part in read_chunks(files(run, "exchanges"), "exchanges")]
    assert len(lengths) > 2
    assert max(lengths) <= 9  # a round has three rows


def test_only_the_columns_that_are_wanted(run: RunDirectory) -> None:
    wanted = ["round", "transport_up", "outcome"]
    found = [row for part in read_chunks(files(run, "exchanges"), "exchanges", wanted) for row in part.to_pylist()]
    assert found == [{key: row[key] for key in wanted} for row in expected_rows("exchanges", ROUNDS)]


def test_merged_tables_hold_what_one_piece_would(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "ROWS", 8)
    for name in SCHEMAS:
        with (tmp_path / name).open("wb") as file:
            write_merged(file, files(run, name), name, {b"key": b"value"})
        table = pq.read_table(tmp_path / name)
        assert table.to_pylist() == expected_rows(name, ROUNDS)
        assert table.schema.metadata[b"key"] == b"value"


def test_a_damaged_file_is_named(run: RunDirectory) -> None:
    last = files(run, "exchanges")[-1]
    last.write_bytes(last.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"exchanges.parquet.*damaged or incomplete|not a table"):
        list(read_chunks([last], "exchanges"))


def test_frames_in_stretches_are_the_frame(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RunRecords(run.path)
    for module in (streaming, reader):
        monkeypatch.setattr(module, "ROWS", 8)
    parts = RunRecords(run.path)
    found = list(parts.exchanges_in_stretches())
    assert len(found) > 1
    rows = [row for part in found for row in pa.Table.from_pandas(part, preserve_index=False).to_pylist()]
    assert rows == pa.Table.from_pandas(whole.exchanges, preserve_index=False).to_pylist()
    assert "exchanges" not in parts.__dict__  # was not read in one piece
    ours, theirs = parts.exchanges_of_participants, whole.exchanges_of_participants
    assert len(ours) == 2 * (ROUNDS - 1)
    assert ours.astype({"stage": str, "outcome": str}).equals(theirs.astype({"stage": str, "outcome": str}))


def test_merging_takes_no_more_memory_for_more_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "ROWS", 20_000)
    part = tmp_path / "part.parquet"
    columns = [words() if pa.types.is_dictionary(field.type) else pa.array([0] * 10_000).cast(field.type)
               for field in SCHEMAS["exchanges"]]  # fmt: skip
    peaks = []
    for rounds in (4, 40):
        names = []
        for number in range(rounds):
            columns[0] = pa.array([number] * 10_000, pa.int32())
            names.append(part.with_name(f"{rounds}-{number}.parquet"))
            pq.write_table(pa.table(columns, schema=SCHEMAS["exchanges"]), names[-1])
        pool = pa.default_memory_pool()
        before = pool.bytes_allocated()
        most = 0
        for chunk in read_chunks(names, "exchanges"):
            most = max(most, pool.bytes_allocated() - before)
            del chunk
        peaks.append(most)
    assert peaks[1] < 2 * peaks[0]


def words() -> pa.Array:
    return pa.array(["check-in"] * 10_000).cast(SCHEMAS["exchanges"].field("stage").type)
