"""A run may be killed at any write, and its disk may fill up at any byte: nothing recorded is lost or doubled."""

import errno
import functools
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import RunError
from testbed.files import atomic, parquet
from testbed.records import RunDirectory, RunRecords, tables
from testbed.records.schemas import SCHEMAS
from tests.messages_named import naming
from tests.records.rounds import expected_rows, record_round
from tests.thoroughness import THOROUGH

ROUNDS, MORE_ROUNDS = 2, 3


class Killed(BaseException):
    """The process is gone: nothing after this line runs, not even a handler of errors."""


def whole_life(path: Path) -> None:
    """Run (or resume) two rounds, finish, extend the run by one, finish."""
    if not (path / "experiment.yaml").exists():
        shutil.rmtree(path, ignore_errors=True)  # killed before the run existed: the user starts it again
        RunDirectory.create(path, {"name": "life"})
    directory = RunDirectory.reopen(path)
    for rounds in (ROUNDS, MORE_ROUNDS):
        for number in range(last_round(directory) + 1, rounds + 1):
            record_round(directory, number)
        directory.finish()
    directory.write_summary({"rounds": MORE_ROUNDS})


def last_round(directory: RunDirectory) -> int:
    checkpoint = directory.checkpoint()
    return 0 if checkpoint is None else checkpoint.round_number


def assert_holds(path: Path, rounds: int) -> None:
    """Every table has the rows of exactly these rounds, once, in their order; the model fits."""
    records = RunRecords(path)
    for table in SCHEMAS:
        found = tables.read_table(path, table, RunDirectory(path).checkpoint()).to_pylist()
        assert found == expected_rows(table, rounds), table
        assert len(records.frame(table)) == len(found)
    if rounds:
        assert records.model.tolist() == [rounds] * 4


def killed_at(kill: int, monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> bool:
    """Run a call and kill it at the k-th change of the disk's names; return whether it got that far."""
    steps = itertools.count(1)

    def dying(real: Callable[..., Any], *, half: bool = False) -> Callable[..., Any]:
        def call(*arguments: Any, **keys: Any) -> Any:
            if next(steps) == kill:
                if half and os.path.isdir(arguments[0]):  # rmtree: some files are gone, others are not
                    files = sorted(file for file in Path(arguments[0]).rglob("*") if file.is_file())
                    for file in files[: (len(files) + 1) // 2]:
                        file.unlink()
                raise Killed
            return real(*arguments, **keys)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(shutil, "rmtree", dying(shutil.rmtree, half=True))
        patched.setattr(Path, "mkdir", dying(Path.mkdir))
        try:
            what()
        except Killed:
            return True
    return False


def test_a_kill_at_any_write_loses_at_most_the_round_it_was_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kill in itertools.count(1):
        path = tmp_path / f"killed-{kill}"
        died = killed_at(kill, monkeypatch, functools.partial(whole_life, path))
        if died and (path / "experiment.yaml").exists():
            assert_holds(path, last_round(RunDirectory(path)))
        whole_life(path)
        assert_holds(path, MORE_ROUNDS)
        assert not (path / "parts").exists()
        assert not list(path.rglob(".*.writing"))
        if not died:
            break
    assert kill > 27  # experiment, 3 x (folder, 4 tables, checkpoint), 2 x (4 tables, parts), summary


def test_two_kills_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second kill during the clean-up of files left by the first."""
    for first, second in itertools.product(range(4, 31, 2 if THOROUGH else 5), (1, 3, 6)):
        path = tmp_path / f"killed-{first}-{second}"
        killed_at(first, monkeypatch, functools.partial(whole_life, path))
        killed_at(second, monkeypatch, functools.partial(whole_life, path))
        if (path / "experiment.yaml").exists():
            assert_holds(path, last_round(RunDirectory(path)))
        whole_life(path)
        assert_holds(path, MORE_ROUNDS)


def test_a_round_without_its_checkpoint_does_not_count_and_is_written_anew(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "crash"})
    record_round(directory, 1)
    before = (run_path / "checkpoint.npz").read_bytes()
    record_round(directory, 2)
    (run_path / "checkpoint.npz").write_bytes(before)
    (tables.part_of(run_path, 2) / "rounds.parquet").write_bytes(b"half a fi")
    assert_holds(run_path, 1)
    record_round(RunDirectory.reopen(run_path), 2)
    assert_holds(run_path, 2)


# -- the disk is full ---------------------------------------------------------------------------------------------


class FullDisk:
    """A file on a disk that takes only a number of further bytes."""

    def __init__(self, file: Any, left: list[int]) -> None:
        self._file = file
        self._left = left

    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B"))
        if size > self._left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._left[0] -= size
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def open_on_full_disk(left: list[int], path: Path, mode: str, **more: Any) -> FullDisk:
    return FullDisk(open(path, mode, **more), left)


@pytest.mark.filterwarnings("error")
def test_a_full_disk_is_one_line_and_the_run_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    for space in itertools.count(0, 1700 if THOROUGH else 4300):
        path = tmp_path / f"space-{space}"
        left = [space]
        with monkeypatch.context() as patched:
            patched.setattr(atomic, "open", functools.partial(open_on_full_disk, left), raising=False)
            try:
                whole_life(path)
            except RunError as error:
                line = str(error)
            else:
                written = space - left[0]
                break
        assert "\n" not in line
        assert "cannot write: No space left on device" in line
        assert "--resume" in line
        assert not list(path.rglob(".*.writing"))
        if (path / "experiment.yaml").exists():
            assert_holds(path, last_round(RunDirectory(path)))
        whole_life(path)
        assert_holds(path, MORE_ROUNDS)
    assert written > 15_000


def test_no_permission_is_one_line(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(run_path, {"name": "locked"})

    def refuse(*arguments: Any, **keys: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match="cannot write: Permission denied"):
        record_round(directory, 1)
    with pytest.raises(RunError, match=naming("cannot create the directory", "Permission denied")):
        RunDirectory.create(run_path.with_name("another"), {})


# -- damage that the testbed has not done -------------------------------------------------------------------------


def test_what_is_missing_or_damaged_is_said_and_never_read_as_empty(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "damaged"})
    for number in (1, 2, 3):
        record_round(directory, number)
    part = tables.part_of(run_path, 2) / "exchanges.parquet"
    whole = part.read_bytes()
    for damage in (lambda: part.unlink(), lambda: part.write_bytes(whole[:100]), lambda: part.write_bytes(b"")):
        damage()
        with pytest.raises(RunError, match=naming("'exchanges'", "damaged")) as error:
            RunRecords(run_path).exchanges  # noqa: B018
        assert "\n" not in str(error.value)
        assert len(RunRecords(run_path).rounds) == 3
        with pytest.raises(RunError):
            directory.finish()
    part.write_bytes(whole)
    directory.finish()
    record_round(directory, 4)
    (tables.part_of(run_path, 4) / "exchanges.parquet").unlink()
    with pytest.raises(RunError, match=naming("'exchanges'", "damaged")):
        RunRecords(run_path).exchanges  # noqa: B018
    (run_path / "events.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(RunError, match="damaged") as error:
        RunRecords(run_path).events  # noqa: B018
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 half a zip"])
def test_a_damaged_checkpoint_is_one_line(run_path: Path, content: bytes) -> None:
    directory = RunDirectory.create(run_path, {"name": "damaged"})
    record_round(directory, 1)
    (run_path / "checkpoint.npz").write_bytes(content)
    with pytest.raises(RunError, match="damaged checkpoint") as error:
        directory.checkpoint()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, b"", b"junk", b"PK\x03\x04 half a zip"])
@pytest.mark.parametrize("rounds", [2, 5])
def test_the_checkpoint_before_stands_in(rounds: int, content: bytes | None, run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "damaged"})
    for number in range(1, rounds + 1):
        record_round(directory, number)
    lose(run_path / "checkpoint.npz", content)
    reopened = RunDirectory.reopen(run_path)
    assert last_round(reopened) == rounds - 1
    assert ("is missing" if content is None else "damaged checkpoint") in reopened.lost
    assert_holds(run_path, rounds - 1)
    record_round(reopened, rounds)
    assert_holds(run_path, rounds)
    assert not RunDirectory.reopen(run_path).lost
    lose(run_path / "checkpoint.npz", content)  # the previous checkpoint was not replaced by the damaged one
    assert last_round(RunDirectory.reopen(run_path)) == rounds - 1


@pytest.mark.parametrize("content", [None, b"junk"])
def test_without_any_checkpoint_a_run_with_records_does_not_begin_anew(content: bytes | None, run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "damaged"})
    for number in (1, 2):
        record_round(directory, number)
    for name in ("checkpoint.npz", "checkpoint-previous.npz"):
        lose(run_path / name, content)
    for read in (RunDirectory.reopen(run_path).checkpoint, lambda: RunRecords(run_path)):
        with pytest.raises(RunError, match=naming("round 2", "cannot be resumed")) as error:
            read()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, b"junk"])
def test_a_finished_run_has_its_last_checkpoint_twice(content: bytes | None, run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "finished"})
    for number in (1, 2, 3):
        record_round(directory, number)
    directory.finish()
    lose(run_path / "checkpoint.npz", content)
    assert_holds(run_path, 3)
    record_round(RunDirectory.reopen(run_path), 4)
    assert_holds(run_path, 4)
    for name in ("checkpoint.npz", "checkpoint-previous.npz"):
        lose(run_path / name, content)
    with pytest.raises(RunError, match=naming("cannot be resumed")):
        RunDirectory.reopen(run_path).checkpoint()


def lose(file: Path, content: bytes | None) -> None:
    """The file is gone (None), or holds something else."""
    if content is None:
        file.unlink()
    else:
        file.unlink(missing_ok=True)  # not in place: it may be a link
        file.write_bytes(content)


def test_a_checkpoint_that_lacks_something_is_damaged(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "damaged"})
    record_round(directory, 1)
    np.savez(run_path / "checkpoint.npz", round_number=1)
    with pytest.raises(RunError, match="damaged checkpoint"):
        directory.checkpoint()
    np.savez(run_path / "checkpoint.npz", round_number=np.array([{}], object))
    with pytest.raises(RunError, match="damaged checkpoint"):  # pickled objects are not loaded
        directory.checkpoint()


def test_a_run_that_is_finished_while_it_is_read(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has seen no merged table and goes for the parts, which by then have gone into the table."""
    directory = RunDirectory.create(run_path, {"name": "live"})
    for number in (1, 2, 3):
        record_round(directory, number)
    real = parquet.read_table
    finished: list[bool] = []

    def slow(*arguments: Any, **keys: Any) -> Any:
        if not finished:
            finished.append(True)
            directory.finish()
        return real(*arguments, **keys)

    checkpoint = directory.checkpoint()
    monkeypatch.setattr(parquet, "read_table", slow)
    assert tables.read_table(run_path, "rounds", checkpoint).to_pylist() == expected_rows("rounds", 3)


def test_threads_that_write_the_same_file_take_turns(tmp_path: Path) -> None:
    path, open_first = tmp_path / "file", threading.Event()

    def second() -> None:
        open_first.wait(60)
        with atomic.atomic_write(path, RuntimeError) as file:
            file.write(b"second")

    thread = threading.Thread(target=second)
    thread.start()
    with atomic.atomic_write(path, RuntimeError) as file:
        file.write(b"fi")
        open_first.set()
        thread.join(0.2)  # not for ever: it is to wait for this one
        file.write(b"rst")
    assert path.read_bytes() in (b"first", b"second")
    thread.join(60)
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
