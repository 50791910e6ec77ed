"""Atomic files: complete or absent, also with several writers."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from testbed.files.atomic import atomic_write


def test_writers_that_know_nothing_of_each_other_take_turns(tmp_path: Path) -> None:
    """As two processes do: by another spelling of the path, the threads of one process do not find each other."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    file = tmp_path / "there" / "file"
    errors: list[str] = []

    def failed(why: str) -> Exception:
        errors.append(why)
        return RuntimeError(why)

    def write_b() -> None:
        with atomic_write(tmp_path / "link" / "file", failed) as open_file:
            open_file.write(b"b" * 10)

    other = threading.Thread(target=write_b)
    with atomic_write(file, failed) as open_file:
        open_file.write(b"a" * 5)
        other.start()
        other.join(0.3)  # it cannot end before we do
        assert not file.exists()
        open_file.write(b"a" * 5)
    other.join()
    assert not errors
    assert file.read_bytes() == b"b" * 10
    assert [one.name for one in file.parent.iterdir()] == ["file"]


def test_what_a_killed_writer_has_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".file.writing").write_bytes(b"half of something longer")
    with atomic_write(tmp_path / "file", RuntimeError) as open_file:
        open_file.write(b"whole")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"whole")]


@pytest.mark.parametrize("name", [".file.writing", "file"])
def test_a_link_in_a_foreign_directory_does_not_lead_out_of_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / "run" / name).symlink_to(precious)
    refused = name == ".file.writing"
    with contextlib.ExitStack() as stack:
        if refused:
            stack.enter_context(pytest.raises(RuntimeError))
        stack.enter_context(atomic_write(tmp_path / "run" / "file", RuntimeError)).write(b"new")
    assert precious.read_text() == "as it was"
    assert refused or (tmp_path / "run" / "file").read_bytes() == b"new"


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".file.writing")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "file", RuntimeError):
        pass


@pytest.mark.parametrize("file", [None, "file", -1])
def test_only_an_open_file_can_be_synced_in_tests_too(file: Any) -> None:
    """Tests do not wait for the disk; a call that fails for everybody else fails there as well."""
    with pytest.raises((TypeError, ValueError, OSError)):
        os.fsync(file)
