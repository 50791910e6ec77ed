"""Schedules: written by hand, written and read back, and one line for everything that cannot be."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.schedule import COLUMNS, DROPPED, FATES, OFFLINE, PARTICIPANT, Schedule
from testbed.errors import TraceError
from tests.messages_named import naming

HEAD = ",".join(COLUMNS) + "\n"
STAGES = ["check-in", "train", "secagg/masked-input", 'odd, "quoted"']

rows_of_one = st.tuples(st.integers(1, 6), st.integers(0, 9)).flatmap(
    lambda key: st.one_of(
        st.just((*key, "", "participant")),
        st.tuples(*map(st.just, key), st.sampled_from(["", *STAGES]), st.just("offline")),
        st.tuples(*map(st.just, key), st.sampled_from(STAGES), st.just("dropped")),
    )
)
valid_rows = st.lists(rows_of_one, max_size=40, unique_by=lambda row: (row[0], row[1], row[3] == "participant"))


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_hand_written_file_may_have_comments_blank_lines_spaces_and_any_order(tmp_path: Path) -> None:
    lines = ["\ufeff# dropouts", "", "client, fate, stage, round", " 7, dropped, train, 2", "", "# and"]
    text = "\n".join([*lines, "3,offline,,1", "7,participant,,2", ""])
    schedule = Schedule.read(written(tmp_path / "s.csv", text))
    assert list(schedule.rows()) == [(1, 3, "", "offline"), (2, 7, "", "participant"), (2, 7, "train", "dropped")]
    assert schedule.fate.tolist() == [OFFLINE, PARTICIPANT, DROPPED]
    assert (len(schedule), schedule.last_round) == (3, 2)
    assert schedule.participants(2).tolist() == [7]
    assert schedule.participants(1).tolist() == schedule.participants(99).tolist() == []


@given(rows=valid_rows)
def test_written_records_are_read_in_order(rows: list[tuple], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("schedules")
    schedule = Schedule.from_rows(rows)
    expected = sorted(rows, key=lambda row: (row[0], row[1], row[3] != "participant"))
    assert list(schedule.rows()) == expected
    for name in ("s.csv", "s.parquet"):
        schedule.write(folder / name)
        assert list(Schedule.read(folder / name).rows()) == expected
    for number in range(1, 8):
        chosen = [client for at, client, _, fate in expected if (at, fate) == (number, "participant")]
        assert schedule.participants(number).tolist() == chosen
    assert sorted(path.name for path in folder.iterdir()) == ["s.csv", "s.parquet"]  # no temporary file is left


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the columns must be round,client,stage,fate; found none (an empty file?)"),
        ("round,client,fate\n1,2,offline\n", "the columns must be round,client,stage,fate; found 'round', 'client', "),
        (HEAD + "1,2,,offline\n1,3,,away\n", "row 2: unknown fate 'away'; allowed: participant, offline, dropped"),
        (HEAD + "0,2,,offline\n", "row 1: round '0'; it must be from 1 to 10000000"),
        (HEAD + "1,-2,,offline\n", "row 1: client '-2'; it must be from 0 to 1099511627776"),
        (HEAD + "1,99999999999999999999999,,offline\n", "row 1: client '99999999999999999999999'; it must be"),
        (HEAD + "1.5,2,,offline\n", "row 1: round '1.5' is not a whole number"),
        (HEAD + "nan,2,,offline\n", "row 1: round 'nan' is not a whole number"),
        (HEAD + "1,2,,offline\n1,,,offline\n", "row 2: client '' is not a whole number"),
        (HEAD + "1,2,train,participant\n", "row 1: a participant has no stage, not 'train'; leave the column empty"),
        (HEAD + "1,2,,dropped\n", "row 1: dropped at no stage; name it, or write 'offline' for the whole round"),
        (HEAD + "1,2,a\x07b,dropped\n", "row 1: 'a\\x07b' cannot be the name of a stage"),
        (HEAD + "1,2,,offline\n1,3,,offline\n1,2,a,dropped\n", "row 3: client 2 is offline in round 1 already (row 1)"),
        (HEAD + "4,2,,participant\n4,2,,participant\n", "row 2: client 2 takes part in round 4 already (row 1)"),
        (HEAD + "1,2,offline\n", "row 1: 3 values, not 4"),
        (HEAD + '1,2,"train,dropped\n', "not CSV: unexpected end of data"),
        (b"\xff\xfe\x00PAR1", "not a text file"),
    ],
)  # fmt: skip
def test_a_bad_csv_is_one_line_with_its_place(text: str | bytes, what: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s.csv", text)
    with pytest.raises(TraceError) as error:
        Schedule.read(path)
    assert str(error.value).startswith(f"{path}: {what}")
    assert len(str(error.value).splitlines()) == 1


def test_the_first_of_several_duplicates_is_named() -> None:
    rows = [(2, 1, "", "offline"), (1, 1, "", "offline"), (1, 1, "train", "dropped"), (2, 1, "", "offline")]
    with pytest.raises(TraceError, match=naming("mine: row 3", "client 1", "offline", "round 1", "row 2")):
        Schedule.from_rows(rows, "mine")


def test_bad_parquet_files(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    Schedule.from_rows([(number, 2, "train", "dropped") for number in range(1, 500)]).write(good)
    whole = good.read_bytes()
    for name, content in (("truncated", whole[: len(whole) // 2]), ("empty", b""), ("garbage", bytes(range(256)) * 9)):
        with pytest.raises(TraceError, match=naming("Parquet", "truncated")) as error:
            Schedule.read(written(tmp_path / f"{name}.parquet", content))
        assert len(str(error.value).splitlines()) == 1
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"client": [1], "online_from_s": [0.0], "online_until_s": [1.0]}), other)
    with pytest.raises(TraceError, match=naming("round,client,stage,fate", "'client', 'online_from_s'")):
        Schedule.read(other)
    pq.write_table(
        pa.table({"round": [1, None], "client": [1, 2], "stage": ["", None], "fate": ["offline"] * 2}), other
    )
    with pytest.raises(TraceError, match=naming("row 2", "round 'None'")):
        Schedule.read(other)


def test_files_that_are_not_there_or_not_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing\.csv: cannot be read: No such file"):
        Schedule.read(tmp_path / "missing.csv")
    (tmp_path / "folder.parquet").mkdir()
    for path in (tmp_path / "folder.parquet", tmp_path / "missing.parquet"):
        with pytest.raises(TraceError, match=naming(path)) as error:
            Schedule.read(path)
        assert len(str(error.value).splitlines()) == 1
    for action in (Schedule.read, Schedule.from_rows([]).write):
        with pytest.raises(TraceError, match=naming("s.txt", ".csv or .parquet")):
            action(tmp_path / "s.txt")
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        Schedule.from_rows([]).write(tmp_path / "no" / "s.csv")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.csv"
    Schedule.from_rows([(1, 2, "", "offline")]).write(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TraceError, match=naming("s.csv", "No space left on device")):
        Schedule.from_rows([(3, 4, "", "offline")]).write(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.csv"]


def test_the_population_must_have_the_clients() -> None:
    schedule = Schedule.from_rows([(1, 4, "", "offline"), (3, 5, "", "participant")], "f.csv")
    schedule.check_population(6)
    with pytest.raises(TraceError, match=naming("f.csv", "client 5", "round 3", "0 to 4")):
        schedule.check_population(5)


def test_fates_have_the_numbers_of_their_names() -> None:
    assert [FATES[code] for code in (PARTICIPANT, OFFLINE, DROPPED)] == ["participant", "offline", "dropped"]
    assert Schedule.from_rows([]).round.dtype == np.int64
