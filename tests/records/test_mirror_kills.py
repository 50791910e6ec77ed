"""Records at a URI: a process killed at any upload or download loses nothing, and another machine goes on."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RunError
from testbed.records import RunDirectory
from testbed.records.mirror import local_copy_for_reading, local_staging_dir
from testbed.records.store import Store
from testbed.records.uploads import Mirror
from tests.records.mirrored import Killed, contents, cut_off, live, remote_names


@pytest.fixture
def kill_at_every_upload(
    machine: Callable[[str], None], undisturbed: dict[str, Any], finished_names: set[str],
) -> Callable[..., int]:  # fmt: skip
    """Kill a run when it begins its first upload, its second, ...; returns how many there were."""

    def trials(place: str, every: int = 1) -> int:
        for uploads in itertools.count(0, every):
            uri = place.format(f"run-{uploads}")
            machine(f"first-{uploads}")
            path = local_staging_dir(uri)
            with pytest.MonkeyPatch.context() as patched:
                cut_off(patched, uploads)
                try:
                    live(path)
                    died = False
                except Killed:
                    died = True
            machine(f"second-{uploads}")
            if "experiment.yaml" in remote_names(uri):  # readers see a whole number of rounds meanwhile
                there = local_copy_for_reading(uri)
                rounds = RunDirectory(there).table("rounds")["round"].to_pylist()
                expected = [row for row in undisturbed["exchanges"] if row["round"] <= len(rounds)]
                assert rounds == list(range(1, len(rounds) + 1))
                assert RunDirectory(there).table("exchanges").to_pylist() == expected
            path = local_staging_dir(uri)
            live(path)
            assert contents(path) == undisturbed
            assert remote_names(uri) == finished_names
            machine(f"third-{uploads}")
            assert contents(local_copy_for_reading(uri)) == undisturbed
            if not died:
                return uploads
        raise AssertionError

    return trials


def test_a_kill_at_any_upload_and_another_machine_comes_to_the_same_result(
    tmp_path: Path, kill_at_every_upload: Callable[..., int]
) -> None:
    # experiment, clients, 3 x (4 tables, checkpoint), 4 merged tables, summary, log, the parts
    assert kill_at_every_upload((tmp_path / "remote").as_uri() + "/{}") == 24


def test_the_same_at_an_object_store(s3: str, kill_at_every_upload: Callable[..., int]) -> None:
    assert kill_at_every_upload(f"s3://results/{uuid.uuid4()}/{{}}?{s3}", every=5) == 25


def test_a_killed_pull_is_begun_again(
    uri: str,
    tmp_path: Path,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
) -> None:
    live(local_staging_dir(uri), 2, finish=False)
    real = Store.copy_to
    for copies in range(12):
        machine(f"pulls-{copies}")
        count = itertools.count(1)

        def dying(self: Store, *arguments: Any, copies: int = copies, count: Iterator[int] = count) -> None:
            if next(count) > copies:
                raise Killed
            real(self, *arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Store, "copy_to", dying)
            try:
                path = local_staging_dir(uri)
                died = False
            except Killed:
                died = True
        path = local_staging_dir(uri)
        assert RunDirectory(path).checkpoint().round_number == 2
        assert RunDirectory(path).table("rounds").num_rows == 2
        if not died:
            break
    assert copies == 11  # experiment, clients, checkpoint, 2 x 4 tables
    live(path)
    assert contents(path) == undisturbed


def test_a_coordinator_that_dies_when_its_checkpoint_is_up_is_replaced_without_looking(
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
    finished_names: set[str],
) -> None:
    path = local_staging_dir(uri)
    real = Mirror.remember

    def dying(self: Mirror, memory: Any) -> None:
        if memory.same is not None:
            raise Killed
        real(self, memory)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Mirror, "remember", dying)
        with pytest.raises(Killed):
            live(path)
    assert "checkpoint.npz" in remote_names(uri)
    live(path)  # the same directory, and nobody called `local_staging_dir`
    assert contents(path) == undisturbed
    assert remote_names(uri) == finished_names


def test_nothing_is_merged_that_is_not_at_the_uri(uri: str, machine: Callable[[str], None]) -> None:
    path = local_staging_dir(uri)
    real = Store._write

    def failing(self: Store, name: str, content: Any) -> None:
        if name.startswith("parts/round-000003"):
            raise OSError("AWS Error SLOW_DOWN")
        real(self, name, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", failing)
        with pytest.raises(RunError, match="SLOW_DOWN"):
            live(path)
    assert len(list(path.glob("parts/round-000003/*.parquet"))) == 4
    assert not (path / "rounds.parquet").exists()
