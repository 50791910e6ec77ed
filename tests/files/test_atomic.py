"""Files that are there completely or not at all, whoever else writes them."""

import threading
from pathlib import Path

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
