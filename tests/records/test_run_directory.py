"""Run directories: creating, finding and reading them; contents of the tables."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from testbed.errors import RunError
from testbed.experiment.reading import read_yaml
from testbed.experiment.schema import Experiment, validated
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunDirectory, RunRecords, find_runs
from testbed.records.arrays import Checkpoint
from testbed.records.schemas import SCHEMAS
from tests.messages_named import naming
from tests.records.rounds import expected_rows, record_round


def test_a_run_reads_the_same_while_it_goes_on_and_when_it_is_finished(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "twice", "provenance": {"label": "point"}})
    for number in (1, 2, 3, 4):
        record_round(directory, number)
    going_on = {table: RunRecords(run_path).frame(table) for table in SCHEMAS}
    directory.finish()
    records = RunRecords(run_path)
    for table in SCHEMAS:
        assert records.frame(table).equals(going_on[table]), table
        assert directory.table(table).schema.equals(SCHEMAS[table])
        assert pq.read_table(run_path / f"{table}.parquet").to_pylist() == expected_rows(table, 4)
    assert records.rounds["outcome"].tolist() == ["completed", "skipped", "completed", "completed"]
    assert records.exchanges["outcome"].isin(OUTCOMES).all()
    assert records.exchanges["received_s"].isna().sum() == 4
    assert len(records.participation) == 6
    assert len(records.events) == 2
    assert records.label == "point"
    assert records.wall_s == 8.0
    assert records.model.tolist() == [4.0] * 4


def test_a_run_without_a_finished_round_has_empty_tables(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "fresh"})
    directory.finish()
    records = RunRecords(run_path)
    assert all(len(records.frame(table)) == 0 for table in SCHEMAS)
    assert list(records.rounds.columns) == SCHEMAS["rounds"].names
    assert records.model is None
    assert records.wall_s == 0
    assert records.label == "fresh"


def test_a_run_never_overwrites_what_is_there(tmp_path: Path, run_path: Path) -> None:
    RunDirectory.create(run_path, {"name": "first"})
    with pytest.raises(RunError, match=naming("run", "--out", "--resume")):
        RunDirectory.create(run_path, {"name": "second"})
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("all of it")
    with pytest.raises(RunError, match=naming("not an empty directory", "--out")):
        RunDirectory.create(other, {})
    with pytest.raises(RunError, match=naming("not an empty directory", "--out")):
        RunDirectory.create(other / "thesis.tex", {})
    with pytest.raises(RunError, match=naming("directory", "Not a directory")):
        RunDirectory.create(other / "thesis.tex" / "run", {})
    empty = tmp_path / "empty"
    empty.mkdir()
    RunDirectory.create(empty, {})
    assert yaml.safe_load((run_path / "experiment.yaml").read_text()) == {"name": "first"}


def test_reopening_needs_a_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match=naming("no run", "experiment.yaml", "--resume")):
            RunDirectory.reopen(path)
        with pytest.raises(RunError, match="no run here"):
            RunRecords(path)


def test_runs_are_found_below_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a", "deep/er"):
        RunDirectory.create(tmp_path / "runs" / name, {"name": name})
    assert [records.label for records in find_runs(tmp_path)] == ["a", "b", "deep/er"]
    assert [records.label for records in find_runs(tmp_path / "runs" / "a")] == ["a"]
    (tmp_path / "none").mkdir()
    with pytest.raises(RunError, match="no runs here"):
        find_runs(tmp_path / "none")
    with pytest.raises(RunError, match="no such directory"):
        find_runs(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["", "- a list", "a: [", "just words", "\x00"])
def test_a_damaged_experiment_is_one_line(run_path: Path, content: str) -> None:
    RunDirectory.create(run_path, {"name": "good"})
    (run_path / "experiment.yaml").write_text(content)
    with pytest.raises(RunError, match=r"experiment\.yaml: cannot be read") as error:
        RunRecords(run_path).experiment  # noqa: B018
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["1e-3", "5", "true", "null", "2024-01-01", "1.5", "Ünï cödé", "a: b # c", "-"])
def test_an_experiment_survives_being_written_and_read_again(run_path: Path, name: str) -> None:
    experiment = Experiment.model_validate(
        {
            "name": name, "seed": 2**70, "time": {"deadline_s": 1e-5, "stage_deadlines": {"check-in": 1e30}},
            "selection": {"protocol": "lotto-client-centric", "signatures": 7, "over_selection": 1.1},
            "workload": {"dataset": "their.module:Data", "options": {"nothing": None, "text": "1e5", "list": [1, {}]}},
        }
    )  # fmt: skip
    RunDirectory.create(run_path, experiment.plain())
    assert validated(read_yaml(run_path / "experiment.yaml"), "here") == experiment
    assert RunRecords(run_path).experiment["name"] == name


def test_the_summary_is_one_flat_object(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {})
    directory.write_summary({"rounds_completed": 3, "final_accuracy": None})
    directory.write_summary({"rounds_completed": 4, "final_accuracy": 0.5})
    assert json.loads((run_path / "summary.json").read_text()) == {"rounds_completed": 4, "final_accuracy": 0.5}


def test_a_checkpoint_comes_back_as_it_was(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {})
    assert directory.checkpoint() is None
    record_round(directory, 3)
    checkpoint = directory.checkpoint()
    assert (checkpoint.round_number, checkpoint.now_s, checkpoint.wall_s) == (3, 4.0, 6.0)
    assert checkpoint.model.dtype == np.float32
    assert checkpoint.participations.dtype == np.int64


def test_a_run_directory_that_goes_away_stops_the_run(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "gone"})
    record_round(directory, 1)
    shutil.rmtree(run_path)
    with pytest.raises(RunError, match=naming("run directory", "deleted")):
        record_round(directory, 2)
    assert not run_path.exists()


def test_what_a_run_leaves_that_never_began_is_not_in_the_way(run_path: Path) -> None:
    run_path.mkdir()
    (run_path / ".experiment.yaml.writing").write_text("name: ha")
    (run_path / ".lock").touch()
    assert RunDirectory.create(run_path, {"name": "now"}).table("rounds").num_rows == 0


def test_a_checkpoint_holds_what_selection_remembers_and_one_without_still_loads(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, {"name": "remembering"})
    memory = {
        "utility": np.linspace(0, 1, 5),
        "known": np.array([True, False]),
        "model": np.arange(3),
        "n/1": np.int64(7),
    }
    state = Checkpoint(1, 2.0, np.zeros(4, np.float32), np.zeros(3, np.int64), 1.0, memory)
    directory.append_round({}, state)
    found = directory.checkpoint()
    assert found is not None
    assert found.memory.keys() == memory.keys()
    for name, value in memory.items():
        assert np.array_equal(found.memory[name], value)
        assert found.memory[name].dtype == np.asarray(value).dtype
    assert found.model.tolist() == [0.0] * 4  # a a name of the protocol cannot hide other arrays
    with np.load(run_path / "checkpoint.npz") as stored:
        earlier = {name: stored[name] for name in stored.files if "/" not in name}
    np.savez(run_path / "checkpoint.npz", **earlier)  # as an earlier version wrote it
    found = directory.checkpoint()
    assert found is not None
    assert found.memory == {}
    assert found.participations.tolist() == [0, 0, 0]


def test_the_runs_of_a_sweep_are_found_in_its_order(tmp_path: Path) -> None:
    for name, point in {"b": 1, "a": 3, "c": 2}.items():
        RunDirectory.create(tmp_path / "sweep" / name, {"provenance": {"point": point}})
    for name in ("z", "y"):  # not of a sweep, or of an earlier version
        RunDirectory.create(tmp_path / name, {"provenance": {}})
    found = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert found == ["y", "z", "sweep/b", "sweep/c", "sweep/a"]
