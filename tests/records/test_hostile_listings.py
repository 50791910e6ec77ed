"""Records at a URI with a malicious listing: nothing is written outside of the local copy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from testbed.cli import main
from testbed.errors import RunError
from testbed.files import limits
from testbed.files.names import check_name, inside
from testbed.records import store
from testbed.records.mirror import local_copy_for_reading, local_staging_dir
from testbed.records.store import Store
from tests.messages_named import naming
from tests.records.mirrored import live

BAD = [
    "../evil/experiment.yaml",
    "a/../../evil/experiment.yaml",
    "a/./experiment.yaml",
    "a//experiment.yaml",
    "./experiment.yaml",
    "a\\..\\..\\evil/experiment.yaml",
    "C:/evil/experiment.yaml",
    "c:evil/experiment.yaml",
    "a\x00b/experiment.yaml",
    "a\nb/experiment.yaml",
    "/etc/experiment.yaml",
    "experiment.yaml/",
]


class Hostile(fs.FileSystemHandler):
    """A filesystem with arbitrary listings and the same content for every file."""

    def __init__(self, names: list[str], content: bytes = b"name: evil\n") -> None:
        self.paths, self.content = [name if name.startswith("//") else f"root/{name}" for name in names], content

    def get_type_name(self) -> str:
        return "hostile"

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File, size=len(self.content), mtime_ns=1) for path in self.paths]

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        kinds = [fs.FileType.File if path in self.paths else fs.FileType.NotFound for path in paths]
        return [fs.FileInfo(path, kind, size=4, mtime_ns=1) for path, kind in zip(paths, kinds, strict=True)]

    def open_input_stream(self, path: str) -> Any:
        return pa.PythonFile(pa.BufferReader(self.content), mode="r")

    def normalize_path(self, path: str) -> str:
        return path

    def _nothing(self, *arguments: Any, **keys: Any) -> Any:
        return None

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _nothing
    move = open_append_stream = open_input_file = open_output_stream = _nothing


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, machine: Callable[[str], None]) -> Callable[..., None]:
    """Any URI is a hostile filesystem that lists these names."""

    def lists(*names: str, content: bytes = b"name: evil\n") -> None:
        made = fs.PyFileSystem(Hostile(list(names), content))
        monkeypatch.setattr(store, "_filesystem", lambda uri: (made, "root"))

    return lists


@pytest.mark.parametrize("name", BAD)
def test_a_listed_name_cannot_leave_the_copy(hostile: Callable, tmp_path: Path, name: str) -> None:
    hostile("good/experiment.yaml", name)
    with pytest.raises(RunError, match=naming("outside the directory")) as error:
        local_copy_for_reading("s3://bucket/runs")
    assert "\n" not in str(error.value)
    assert ascii(name)[1:-1].strip("/") in str(error.value).replace("'", "")
    assert not list(tmp_path.rglob("experiment.yaml"))


def test_nor_one_that_is_listed_from_elsewhere(hostile: Callable) -> None:
    hostile("//elsewhere/experiment.yaml")
    with pytest.raises(RunError, match="may lie outside"):
        local_copy_for_reading("s3://bucket/runs")


@pytest.mark.parametrize("command", ["compare", "status", "metrics"])
def test_commands_say_it_in_one_line(hostile: Callable, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    hostile("../evil/experiment.yaml")
    assert main([command, "s3://bucket/runs"]) == 3
    said = capsys.readouterr().err
    assert said == (
        "error: s3://bucket/runs: the entry '../evil/experiment.yaml' may lie outside the directory; nothing is read\n"
    )


def test_a_file_larger_than_such_a_file_is_refused(
    hostile: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(store._MOST_BYTES, "experiment.yaml", 1000)
    hostile("experiment.yaml", content=b"#" * 5000)
    with pytest.raises(RunError, match=naming("experiment.yaml:", "larger")):
        local_copy_for_reading("s3://bucket/runs")
    assert not list(tmp_path.rglob("experiment.yaml"))
    monkeypatch.setattr(limits, "YAML_BYTES", 1000)
    with pytest.raises(RunError, match="is larger"):
        Store("s3://bucket/runs").read("experiment.yaml", 1000)


def test_links_at_a_local_uri_are_not_followed_out_of_it(
    uri: str, tmp_path: Path, machine: Callable[[str], None]
) -> None:
    live(local_staging_dir(uri))
    secret = tmp_path / "secret"
    secret.write_text("mine")
    summary = tmp_path / "remote" / "run" / "summary.json"
    summary.unlink()
    summary.symlink_to(secret)
    machine("b")
    with pytest.raises(RunError, match=naming("symbolic link", "summary.json")):
        local_copy_for_reading(uri)
    assert not any(file.read_bytes() == b"mine" for file in (tmp_path / "caches").rglob("*") if file.is_file())


def test_links_in_the_copy_are_not_followed_out_of_it(hostile: Callable, tmp_path: Path) -> None:
    """A cache that somebody else could write to."""
    hostile("a/experiment.yaml")
    copy = local_copy_for_reading("s3://bucket/runs")
    for file in (copy / "a").iterdir():
        file.unlink()
    (copy / "a").rmdir()
    (tmp_path / "victim").mkdir()
    (copy / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(RunError, match=naming("symbolic link", "'a'")):
        local_copy_for_reading("s3://bucket/runs")
    assert not list((tmp_path / "victim").iterdir())


def test_names_that_are_fine(tmp_path: Path) -> None:
    for name in ("a", "a/b=1,c=2.5/rounds.parquet", "..a/b..", "ä/é.yaml", "a b"):
        check_name(name, "here")
        assert inside(tmp_path, name, "here") == tmp_path / name


def test_an_object_store_whose_keys_climb(s3: str, machine: Callable[[str], None], tmp_path: Path) -> None:
    """Keys are any text to S3: a real server lists the files written there."""
    boto3 = pytest.importorskip("boto3")
    address = s3.partition("endpoint_override=")[2].partition("&")[0]
    client = boto3.client("s3", endpoint_url=f"http://{address}", region_name="us-east-1")
    client.put_object(Bucket="results", Key="climbing/a/../../../evil/experiment.yaml", Body=b"name: evil\n")
    with pytest.raises(RunError, match=r"'a/\.\./\.\./\.\./evil/experiment\.yaml' may lie outside"):
        local_copy_for_reading(f"s3://results/climbing?{s3}")
    assert not list(tmp_path.rglob("experiment.yaml"))
