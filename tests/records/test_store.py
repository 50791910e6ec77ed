"""Records at a URI: permanent failures are reported at once, temporary ones retried, and no secret is repeated."""

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment
from testbed.files.names import is_uri
from testbed.records import RunDirectory
from testbed.records.mirror import local_copy_for_reading, local_staging_dir
from testbed.records.store import Store
from tests.messages_named import naming
from tests.records.mirrored import contents, live, remote_names


def test_what_is_a_uri() -> None:
    assert is_uri("s3://bucket/path")
    assert is_uri("file:///tmp")
    assert not is_uri("runs/monday")
    assert not is_uri("C:\\runs")
    assert not is_uri(Path("s3://bucket"))
    assert local_staging_dir("runs/monday") == local_copy_for_reading(Path("runs/monday")) == Path("runs/monday")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://KEY:SECRET@bucket/path", "credentials before the host"),
        ("s3://SECRET@bucket/path", "credentials before the host"),
        ("s3://KEY:SEC/RET@bucket/path", "AWS_PROFILE"),
        ("hdfs://me:SECRET@host/path", "credentials before the host"),
        ("s3://bucket/path?access_key=SECRET", "the parameter access_key"),
        ("s3://bucket/path?region=x&secret_key=SECRET", "in the environment"),
        ("s3://bucket/path?session_token=SECRET", "session_token"),
        ("abfs://c@account/path?sig=SECRET", "the parameter sig"),
        ("s3://bucket?surprise=1", "surprise"),
        ("s3://", "names no bucket"),
        ("nowhere://host/path", "nowhere"),
        (Path("s3://bucket/path"), "lost a slash"),
    ],
)
def test_a_uri_that_cannot_be_used(uri: str | Path, says: str, machine: Callable[[str], None]) -> None:
    for use in (local_staging_dir, local_copy_for_reading):
        with pytest.raises(ExperimentError, match=says) as error:
            use(uri)
        assert "\n" not in str(error.value)
        assert "SEC" not in str(error.value).replace("AWS_SECRET_ACCESS_KEY", "")


def test_secrets_in_an_experiment_are_refused_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("output: {directory: 's3://KEY:SECRET@bucket'}\n")
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr()
    assert "output.directory" in said.err
    assert "KEY:SEC" not in said.out + said.err
    assert (
        Experiment.model_validate({"output": {"directory": "s3://b/x?region=r"}}).output.directory
        == "s3://b/x?region=r"
    )


def test_no_such_bucket_and_no_server_are_one_line(s3: str, machine: Callable[[str], None]) -> None:
    with pytest.raises(RunError, match=naming("NO_SUCH_BUCKET", "create the bucket")) as error:
        local_staging_dir(f"s3://nothing-here/run?{s3}")
    assert "\n" not in str(error.value)
    with pytest.raises(RunError, match="no runs here"):
        local_copy_for_reading(f"s3://results/{uuid.uuid4()}?{s3}")


def test_a_place_with_other_things_is_refused(uri: str, tmp_path: Path, machine: Callable[[str], None]) -> None:
    other = tmp_path / "remote" / "run" / "photos" / "cat.png"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"meow")
    with pytest.raises(RunError, match=naming("not empty", "no run", "--out")):
        local_staging_dir(uri)
    with pytest.raises(RunError, match="no runs here"):
        local_copy_for_reading(uri)
    assert remote_names(uri) == {"photos/cat.png"}


@pytest.mark.parametrize(("failures", "passes"), [(2, True), (1000, False)])
def test_failures_that_may_pass_are_tried_again_and_not_for_ever(
    failures: int,
    passes: bool,
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
) -> None:
    path = local_staging_dir(uri)
    live(path, 1, finish=False)
    count = itertools.count(1)
    real = Store._write

    def failing(self: Store, *arguments: Any) -> None:
        if next(count) <= failures:
            raise OSError("AWS Error SLOW_DOWN during PutObject operation: please (Request ID: x)")
        real(self, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", failing)
        if passes:
            live(path)
        else:
            with pytest.raises(
                RunError, match=naming("cannot write", "AWS Error SLOW_DOWN", "please", "--resume")
            ) as error:
                live(path)
            assert "\n" not in str(error.value)
            assert RunDirectory(path).checkpoint().round_number == 3  # recorded, and not lost
            assert RunDirectory(path).table("rounds").num_rows == 3
    live(local_staging_dir(uri))
    machine("b")
    assert contents(local_copy_for_reading(uri)) == undisturbed


def test_a_refusal_is_not_tried_again(uri: str, machine: Callable[[str], None]) -> None:
    count = itertools.count(1)

    def refusing(self: Store, *arguments: Any) -> None:
        next(count)
        raise OSError("AWS Error ACCESS_DENIED during PutObject operation: no")

    path = local_staging_dir(uri)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", refusing)
        with pytest.raises(RunError, match=naming("credentials", "AWS_ACCESS_KEY_ID")):
            RunDirectory.create(path, {"name": "x"})
    assert next(count) == 2


def test_two_that_write_the_same_file_at_once_leave_one_of_them_whole(tmp_path: Path) -> None:
    store, other = (Store(f"file://{tmp_path}") for _ in range(2))
    move = store._fs.move

    class BetweenWritingAndRenaming:
        """The other one writes the same file when this one is about to rename its own."""

        def __getattr__(self, name: str) -> Any:
            return getattr(other._fs, name)

        def move(self, place: str, path: str) -> None:
            other.put("parts/rounds.parquet", b"theirs")
            move(place, path)

    store._fs = BetweenWritingAndRenaming()
    store.put("parts/rounds.parquet", b"ours")
    assert store.read("parts/rounds.parquet") == b"ours"
    assert list(store.files()) == ["parts/rounds.parquet"]


def test_what_cannot_be_renamed_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}")
    (tmp_path / "rounds.parquet").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        store.put("rounds.parquet", b"ours")
    assert list(store.files()) == []
