"""`testbed run`: its files, its output, and refusals before anything runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import testbed
from testbed.experiment import Experiment
from testbed.records import RunRecords
from tests.fingerprints import fingerprint

SWEEP = {"selection": [{"protocol": "random"}, {"protocol": "batch-partition", "privacy": 2}]}
Call = Callable[..., Any]
Written = Callable[..., Path]


def test_a_run_is_the_directory_itself(call: Call, written: Written, tmp_path: Path) -> None:
    ended = call("run", written(), "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    run = RunRecords(tmp_path / "out")
    assert run.rounds["round"].tolist() == [1, 2, 3]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rounds_completed"] + summary["rounds_aborted"] + summary["rounds_skipped"] == 3
    assert "small " in ended.out  # the table
    rounds = [line for line in ended.errors if "round " in line]
    assert [line.split(",")[0].split()[2] for line in rounds] == ["1/3", "2/3", "3/3"]


def test_what_experiment_yaml_says(call: Call, ran: Written, tmp_path: Path) -> None:
    first = ran(sweep=SWEEP) / "batch-partition"
    stored = yaml.safe_load((first / "experiment.yaml").read_text())
    assert stored["selection"]["privacy"] == 2
    assert stored["links"]  # defaults are written out
    origin = stored["provenance"]
    assert origin["label"] == "batch-partition"
    assert origin["sweep"] == {"selection": {"protocol": "batch-partition", "privacy": 2}}
    assert set(origin["versions"]) == {"testbed", "python", "ray", "torch", "numpy"}
    assert origin["versions"]["testbed"] == testbed.__version__
    assert set(origin["machine"]) == {"cpus", "processor", "memory_bytes"}
    assert origin["machine"]["memory_bytes"] > 2**20
    assert origin["point"] == 2
    assert set(origin) == {
        *(
            "label",
            "point",
            "sweep",
            "written",
            "secrets",
            "versions",
            "records",
            "git_commit",
            "machine",
            "started",
            "id",
        )
    }
    ended = call("run", first / "experiment.yaml", "--out", tmp_path / "again")
    assert ended.code == 0, ended.err
    assert fingerprint(tmp_path / "again") == fingerprint(first)


def test_a_sweep_has_a_directory_per_point_and_one_table(call: Call, written: Written, tmp_path: Path) -> None:
    file = written(sweep={**SWEEP, "workload.learning_rate": [0.1, 0.01]})
    ended = call("run", file, "--out", tmp_path / "out", "--quiet")
    assert ended.code == 0, ended.err
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        f"{protocol},learning_rate={rate}" for protocol in ("batch-partition", "random") for rate in ("0.01", "0.1")
    ]
    assert "learning_rate" in ended.out
    assert ended.out.count("batch-partition") >= 4  # in both tables, for both rates


def test_flags_go_before_the_file(call: Call, written: Written, tmp_path: Path) -> None:
    file = written(
        cluster={"network": "ray", "address": "nowhere:1"}, output={"directory": str(tmp_path / "elsewhere")}
    )
    ended = call("run", file, "--out", tmp_path / "out", "--network", "in-process", "--hosts", 2, "--set", "rounds=1")
    assert ended.code == 0, ended.err
    assert not (tmp_path / "elsewhere").exists()
    stored = Experiment.load(tmp_path / "out" / "experiment.yaml")
    assert (stored.cluster.network, stored.cluster.hosts, stored.rounds) == ("in-process", 2, 1)


def test_where_records_go_by_default(
    call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", written(name="../a name/of mine", rounds=1)).code == 0
    assert (tmp_path / "runs" / "a-name-of-mine" / "summary.json").is_file()
    assert call("run", written(rounds=1, output={"directory": "chosen"})).code == 0
    assert (tmp_path / "chosen" / "summary.json").is_file()


def test_an_existing_run_is_left_alone(call: Call, written: Written, ran: Written) -> None:
    out = ran()
    before = fingerprint(out)
    line = call("run", written(seed=4), "--out", out).line(3)
    assert "already holds a run" in line
    assert fingerprint(out) == before


def test_no_point_runs_when_the_directory_of_a_later_one_exists(call: Call, written: Written, tmp_path: Path) -> None:
    (tmp_path / "out" / "batch-partition").mkdir(parents=True)
    (tmp_path / "out" / "batch-partition" / "thesis.tex").touch()
    for flags in ([], ["--resume"]):
        ended = call("run", written(sweep=SWEEP), "--out", tmp_path / "out", *flags)
        assert ended.code == 3
        assert "batch-partition: exists and is not an empty directory" in ended.err
    assert not (tmp_path / "out" / "random").exists()


def test_a_sweep_does_not_go_into_a_run_nor_a_run_into_a_sweep(
    call: Call, written: Written, ran: Written, tmp_path: Path
) -> None:
    ran("run")
    ran("sweep", sweep=SWEEP)
    for flags in ([], ["--resume"]):
        assert "holds a single run" in call("run", written(sweep=SWEEP), "--out", tmp_path / "run", *flags).err
        assert "holds the runs of a sweep" in call("run", written(), "--out", tmp_path / "sweep", *flags).err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": {"dataset": "mnist", "path": "/no/such/folder"}}, "workload.path"),
        ({"population": 4000}, "partition"),  # 1438 training samples: some clients get none
        ({"aggregation": {"protocol": "secagg", "bits": 16}}, "aggregation.bits: 4 participants with weights up to"),
        ({"sweep": {"workload": [{"dataset": "digits"}, {"dataset": "nobody.has.this:Data"}]}}, "nobody.has.this"),
    ],
)
def test_what_only_the_data_can_tell_is_told_before_anything_runs(
    changes: dict[str, Any], said: str, call: Call, written: Written, tmp_path: Path
) -> None:
    file = written(**changes)
    line = call("run", file, "--out", tmp_path / "out", "--quiet").line(2)
    assert line.startswith(f"error: {file}: ")
    assert said in line
    assert not (tmp_path / "out").exists()


def test_rounds_that_are_aborted_are_results(call: Call, written: Written, tmp_path: Path) -> None:
    everybody_leaves = {"dropout": {"rate": 1.0, "stage": "train"}}
    ended = call("run", written(availability=everybody_leaves), "--out", tmp_path / "out")
    assert ended.code == 4, ended.err  # no round completed
    assert set(RunRecords(tmp_path / "out").rounds["outcome"]) == {"aborted"}
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rounds_aborted"] == 3


def test_without_an_obvious_baseline_the_runs_are_still_done(
    call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be made is said in a line; it does not turn a run that is done into a failure."""
    from testbed.errors import ExperimentError

    def compare(runs: object, **options: object) -> None:
        raise ExperimentError("baseline random is ambiguous")

    monkeypatch.setattr("analysis.comparison.overhead.compare", compare)
    ended = call("run", written(rounds=1), "--out", tmp_path / "out")
    assert ended.code == 0
    assert "no table: baseline random is ambiguous" in ended.err


def test_nobody_answers_at_the_address(call: Call, written: Written, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = written(cluster={"address": "no-such-host.invalid:6379"})
    line = call("run", file, "--out", tmp_path / "out", "--quiet").line(3)
    assert line.startswith("error: no Ray cluster at 'no-such-host.invalid:6379'")


def test_the_notebook_does_the_same(ran: Written, written: Written, tmp_path: Path) -> None:
    from testbed import compare, run

    ran("command", sweep=SWEEP)
    file = written(sweep=SWEEP)
    directory = run(Experiment.load(file), out=tmp_path / "notebook", network="in-process")
    assert directory == tmp_path / "notebook"
    for point in ("random", "batch-partition"):
        assert fingerprint(directory / point) == fingerprint(tmp_path / "command" / point)
    assert run(file, out=directory, resume=True) == directory
    frame = compare(directory, baseline="batch-partition")
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc[frame["is_baseline"], "label"].tolist() == ["batch-partition"]


def test_compare_and_plot(call: Call, ran: Written, tmp_path: Path) -> None:
    ran("out", sweep=SWEEP)
    found = json.loads(call("compare", tmp_path / "out", "--baseline", "batch-partition", "--format", "json").out)
    assert found["baseline"] == "batch-partition"
    assert {row["label"] for row in found["rows"]} == {"random", "batch-partition"}
    unknown = call("compare", tmp_path / "out", "--baseline", "lotto")
    assert unknown.code == 2
    assert "'batch-partition'" in unknown.errors[0]
    ended = call("plot", tmp_path / "out", "--out", tmp_path / "figures")
    assert ended.code == 0, ended.err
    files = [Path(line) for line in ended.out.splitlines()]
    assert {file.suffix for file in files} == {".png", ".pdf", ".csv"}
    assert all(file.stat().st_size > 1000 for file in files if file.suffix != ".csv")


def test_a_note_names_a_point_that_it_holds_for(call: Call, written: Written, tmp_path: Path) -> None:
    sweep = {"selection.protocol": ["random", "batch-partition", "weighted-random"]}
    file = written(selection={"participants": 4, "privacy": 2}, sweep=sweep, rounds=1)
    ended = call("run", file, "--out", tmp_path / "out", "--quiet")
    assert [line for line in ended.errors if "left out in its points" in line] == [
        f"{name}: warning: {name} has no selection.privacy: left out in its points"
        for name in ("random", "weighted-random")
    ]
