"""Records at a URI: machines take turns, the later checkpoint wins, and each place gets missing records."""

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.errors import RunError
from testbed.records import RunDirectory, RunRecords
from testbed.records.locks import run_lock
from testbed.records.mirror import local_copy_for_reading, local_staging_dir
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS
from testbed.records.store import ABANDONED_AFTER_S, Store
from testbed.records.uploads import Mirror
from tests.messages_named import naming
from tests.records.mirrored import EXPERIMENT, Killed, contents, cut_off, live, remote_names

ROUNDS = 3  # of the run that `live` brings to its end


def test_machines_take_turns(uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]) -> None:
    live(local_staging_dir(uri), 1, finish=False)
    machine("b")
    live(local_staging_dir(uri), 2, finish=False)
    machine("a")  # whose copy is older
    path = local_staging_dir(uri)
    assert RunDirectory(path).checkpoint().round_number == 2
    live(path)
    machine("b")  # older, and in parts, while the tables are merged at the URI
    path = local_staging_dir(uri)
    assert not (path / "parts").exists()
    assert contents(path) == undisturbed
    assert json.loads((path / "summary.json").read_text()) == {"rounds": ROUNDS}


def test_what_killed_writers_left_goes_and_what_others_write_stays(uri: str, tmp_path: Path) -> None:
    live(local_staging_dir(uri), 1, finish=False)
    there = tmp_path / "remote" / "run"
    old = [".probe-0011aabb", "..probe-0011aabb-0123cdef.writing", "parts/.rounds.parquet-89abcdef.writing"]
    new = ".experiment.yaml-01234567.writing"
    others = ".notes.writing"
    for name in (*old, new, others):
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_bytes(b"half")
    for name in (*old, others):
        os.utime(there / name, (time.time() - 2 * ABANDONED_AFTER_S,) * 2)
    local_staging_dir(uri)
    assert not any((there / name).exists() for name in old)
    assert (there / new).exists()
    assert (there / others).exists()  # no writer of ours names a file so


def test_what_one_machine_tried_is_charged_on_another(
    with_noise: None,
    uri: str,
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a seed: one attempt that died before it was recorded, one whose record never reached the URI."""
    monkeypatch.setitem(EXPERIMENT, "seed", None)
    live(local_staging_dir(uri), 1, finish=False)

    def dies(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "append_round", dies)
        with pytest.raises(Killed):
            live(local_staging_dir(uri), 2)

    def fails(mirror: Mirror) -> None:
        raise RunError("no space there")

    machine("b")
    with monkeypatch.context() as patched:
        patched.setattr(Mirror, "push_rounds", fails)
        with pytest.raises(RunError, match="no space there"):
            live(local_staging_dir(uri), 2, finish=False)
    machine("c")
    live(local_staging_dir(uri))
    machine("a")
    rows = RunRecords(local_staging_dir(uri)).frame("privacy")
    took_part = RunRecords(local_staging_dir(uri)).participation.groupby("round").size()
    assert rows.groupby("round").size()[2] == 3 * took_part[2]
    assert rows.groupby("round").size()[3] == took_part[3]
    (event,) = [
        row for row in RunRecords(local_staging_dir(uri)).events.to_dict("records") if row["kind"] == "attempt-charged"
    ]
    assert "2 times before" in event["detail"]


def test_the_table_that_only_some_runs_have_comes_along(
    with_noise: None,
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
    finished_names: set[str],
) -> None:
    live(local_staging_dir(uri), 1, finish=False)
    machine("b")
    live(local_staging_dir(uri), 2, finish=False)
    machine("a")
    live(local_staging_dir(uri))
    machine("b")
    path = local_staging_dir(uri)
    assert contents(path) == undisturbed
    assert len(RunRecords(path).frame("privacy")) > 3
    assert remote_names(uri) == finished_names | {"privacy.parquet"}
    machine("c")
    assert contents(local_copy_for_reading(uri)) == undisturbed


def test_a_copy_that_is_ahead_is_pushed(
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
) -> None:
    path = local_staging_dir(uri)
    live(path, 1, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        with pytest.raises(Killed):
            live(path, 2, finish=False)
    assert local_staging_dir(uri) == path
    machine("b")
    assert RunDirectory(local_staging_dir(uri)).checkpoint().round_number == 2
    live(local_staging_dir(uri))
    assert contents(local_staging_dir(uri)) == undisturbed


def test_two_machines_at_once_are_noticed(
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
) -> None:
    first = local_staging_dir(uri)
    live(first, 1, finish=False)
    machine("b")
    second = local_staging_dir(uri)
    live(second, 2, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)  # not one file of theirs is touched
        with pytest.raises(RunError, match=naming("another machine", "--resume")) as error:
            live(first)
    assert "\n" not in str(error.value)
    assert "--resume" in str(error.value)
    live(second)
    assert contents(second) == undisturbed
    machine("a")
    assert contents(local_staging_dir(uri)) == undisturbed


def test_at_the_same_round_the_uri_wins(
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
) -> None:
    path = local_staging_dir(uri)
    live(path, 1, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        with pytest.raises(Killed):
            live(path, 2, finish=False)
    ours = (path / "checkpoint.npz").read_bytes()
    machine("b")
    live(local_staging_dir(uri), 2, finish=False)
    theirs = Store(uri).read("checkpoint.npz")
    machine("a")
    assert (local_staging_dir(uri) / "checkpoint.npz").read_bytes() == theirs != ours
    live(path)
    assert contents(path) == undisturbed


def test_what_one_machine_has_merged_comes_to_the_other(
    uri: str,
    machine: Callable[[str], None],
    undisturbed: dict[str, Any],
    finished_names: set[str],
) -> None:
    live(local_staging_dir(uri), finish=False)
    machine("b")
    assert (local_staging_dir(uri) / "parts").exists()
    machine("a")
    path = local_staging_dir(uri)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 6)  # 4 tables, summary, log; the parts stay
        with pytest.raises(Killed):
            live(path)
    assert remote_names(uri) > finished_names
    local_staging_dir(uri)  # does what is left to do
    assert remote_names(uri) == finished_names
    machine("b")
    path = local_staging_dir(uri)
    assert not (path / "parts").exists()
    assert (path / "summary.json").is_file()
    assert contents(path) == undisturbed


def test_two_machines_that_begin_at_once(uri: str, machine: Callable[[str], None]) -> None:
    first = local_staging_dir(uri)
    machine("b")
    RunDirectory.create(local_staging_dir(uri), {"name": "theirs"})
    with pytest.raises(RunError, match=naming("another machine", "--out")):
        RunDirectory.create(first, {"name": "ours"})


def test_a_run_that_was_removed_or_replaced_is_put_aside(
    uri: str, tmp_path: Path, machine: Callable[[str], None]
) -> None:
    path = local_staging_dir(uri)
    live(path)
    kept = (path / "checkpoint.npz").read_bytes()
    remote = tmp_path / "remote" / "run"
    shutil.rmtree(remote)
    assert not (local_staging_dir(uri) / "experiment.yaml").exists()
    (aside,) = path.with_name(f"{path.name}.aside").iterdir()
    assert (aside / "checkpoint.npz").read_bytes() == kept
    RunDirectory.create(local_staging_dir(uri), {"name": "first"})
    machine("b")
    shutil.rmtree(remote)
    RunDirectory.create(local_staging_dir(uri), {"name": "second"})
    machine("a")
    assert RunRecords(local_staging_dir(uri)).label == "second"


def test_reading_writes_nothing_at_the_uri_and_leaves_a_running_copy_alone(
    uri: str, machine: Callable[[str], None]
) -> None:
    path = local_staging_dir(uri)
    live(path, 2, finish=False)
    machine("b")
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        assert RunDirectory(local_copy_for_reading(uri)).table("rounds").num_rows == 2
    live(local_staging_dir(uri))
    machine("a")
    with run_lock(path):
        assert RunDirectory(local_copy_for_reading(uri)).checkpoint().round_number == 2
        with pytest.raises(RunError, match=naming("in use", "--out")):
            local_staging_dir(uri)
    assert RunDirectory(local_copy_for_reading(uri)).checkpoint().round_number == ROUNDS


def test_only_what_is_missing_is_pulled(uri: str, machine: Callable[[str], None]) -> None:
    live(local_staging_dir(uri), 2, finish=False)
    machine("b")
    path = local_staging_dir(uri)
    machine("a")
    live(local_staging_dir(uri), 3, finish=False)
    machine("b")
    copied: list[str] = []
    real = Store.copy_to
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "copy_to", lambda self, name, to: (copied.append(name), real(self, name, to))[1])
        local_staging_dir(uri)
        tables = SCHEMAS.keys() - OPTIONAL_TABLES
        assert sorted(copied) == ["checkpoint.npz", *sorted(f"parts/round-000003/{name}.parquet" for name in tables)]
        copied.clear()
        local_staging_dir(uri)
        assert copied == []
    assert RunDirectory(path).table("rounds").num_rows == 3


def test_a_local_run_has_no_mirror(tmp_path: Path) -> None:
    live(tmp_path / "plain")
    assert Mirror.of(tmp_path / "plain") is None
    assert not [file for file in (tmp_path / "plain").iterdir() if file.name.startswith(".mirror")]


SWEEP = """\
name: swept
seed: 1
rounds: 2
population: 8
workload: {dataset: digits, model: logistic}
aggregation: {protocol: plain}
time: {compute: modelled}
cluster: {network: in-process}
sweep: {selection.participants: [2, 4]}
"""


def test_a_sweep_at_an_object_store(
    s3: str, tmp_path: Path, machine: Callable[[str], None], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, finished_names: set[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swept.yaml").write_text(SWEEP)
    place = f"s3://results/{uuid.uuid4()}?{s3}"
    assert main(["run", "swept.yaml", "--out", place, "--quiet"]) == 0
    capsys.readouterr()
    points = {"participants=2", "participants=4"}
    assert remote_names(place) == {f"{point}/{name}" for point in points for name in finished_names}
    machine("reader")
    assert main(["dropouts", place, "--format", "csv"]) == 0
    table = capsys.readouterr().out
    assert all(point in table for point in points)
    assert main(["run", "swept.yaml", "--out", place, "--quiet"]) == 3
    assert re.search(naming("run", "--out", "--resume"), capsys.readouterr().err)
    assert main(["run", "swept.yaml", "--out", place, "--quiet", "--resume", "--set", "seed=2"]) == 2
    assert "this run has seed: 1" in capsys.readouterr().err
    assert main(["run", "swept.yaml", "--out", place, "--quiet", "--resume"]) == 0
