"""`testbed compare --target`: time to accuracy on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.analysis.recorded import synthetic_run
from tests.fingerprints import fingerprint

Call = Callable[..., Any]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two protocols, ten evaluated rounds each; both end between 75% and 85%."""
    for protocol in ("random", "batch-partition"):
        synthetic_run(tmp_path / "sweep" / protocol, protocol, sweep={"selection.protocol": protocol})
    return tmp_path / "sweep"


def test_targets_stand_below_the_overhead_table(call: Call, sweep: Path) -> None:
    plain, asked = call("compare", sweep), call("compare", sweep, "--target", "60%", "--target", "best")
    assert (plain.code, asked.code, plain.err, asked.err) == (0, 0, "", "")
    assert plain.out.count("Time to accuracy") == 1
    assert ", the best that every run reaches\n" in plain.out
    assert asked.out.count("Time to accuracy") == 2
    assert asked.out.split("Time to")[0] == plain.out.split("Time to")[0]
    smoothed = call("compare", sweep, "--smooth", 3)
    assert ", the best that every run reaches, mean of 3 evaluations\n" in smoothed.out


def test_for_programs(call: Call, sweep: Path) -> None:
    heads = call("compare", sweep, "--format", "csv").out.splitlines()[0].split(",")
    assert "round_s" in heads
    assert "target" not in heads
    lines = call("compare", sweep, "--format", "csv", "--target", "60%").out.splitlines()
    assert len(lines) == 3
    assert "time_to_target_s_half_width" in lines[0].split(",")
    found = json.loads(call("compare", sweep, "--format", "json", "--target", "60%").out)
    assert [(row["target"], row["reached"], row["seeds"]) for row in found["targets"]] == [("accuracy>=0.6", 1, 1)] * 2
    assert all(row["time_to_target_s"] > 0 for row in found["targets"])
    assert json.loads(call("compare", sweep, "--format", "json").out)["targets"][0]["is_default"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "80"), "error: target accuracy 80: an accuracy is a share, at most 1; did you mean 80%?"),
        (
            ("--target", "accuracy>=80"),
            "error: target accuracy 80: an accuracy is a share, at most 1; did you mean 80%?",
        ),
        (
            ("--target", "accurcy>0.8"),
            "error: target 'accurcy>0.8': unknown metric 'accurcy'; did you mean 'accuracy'?",
        ),
        (("--target", "perplexity<90"), "error: target perplexity ≤ 90: "),
        (("--target", "loss<0.5"), "error: target loss ≤ 0.5: "),
    ],
)
def test_bad_input_is_one_line(call: Call, sweep: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = call("compare", sweep, *arguments)
    assert (ended.code, ended.out, len(ended.errors)) == (2, "", 1)
    assert ended.errors[0].startswith(said)


def test_without_evaluations_there_is_no_table_and_asking_for_one_is_refused(call: Call, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "run", rounds=2, accuracy_every=None)
    plain = call("compare", tmp_path / "run")
    assert (plain.code, plain.err, "Time to" in plain.out) == (0, "", False)
    asked = call("compare", tmp_path / "run", "--target", "best")
    assert asked.code == 2
    assert "accuracy was never measured; set workload.training to real" in asked.errors[0]


def test_other_workloads_are_compared_when_asked(call: Call, sweep: Path) -> None:
    file = sweep / "random" / "experiment.yaml"
    file.write_text(file.read_text() + "workload: {dataset: spirals}\n")
    asked = call("compare", sweep, "--target", "60%")
    assert asked.code == 2
    assert "--across-workloads" in asked.errors[0]
    plain = call("compare", sweep)
    assert plain.code == 0
    assert "Time to" not in plain.out
    assert plain.errors[0].startswith("note: no time to accuracy: the runs are evaluated on different data")
    assert call("compare", sweep, "--target", "60%", "--across-workloads").code == 0


def test_a_run_that_ends_at_its_target_says_so_everywhere(
    call: Call, written: Callable[..., Path], tmp_path: Path
) -> None:
    file, out = written(rounds=60, targets=["40%", "loss<0.001"], stop_at={"accuracy": "88%"}), tmp_path / "out"
    ended = call("run", file, "--out", out)
    assert ended.code == 0
    rounds = len(pd.read_parquet(out / "rounds.parquet"))
    assert 1 < rounds < 60
    assert "stopped: target: accuracy ≥ 88 % reached (" in ended.err
    before = fingerprint(out)
    again = call("run", file, "--out", out, "--resume")
    assert again.code == 0
    assert again.errors[0].startswith(f"small: stopped before, after round {rounds} of 60: target: accuracy ≥ 88 %")
    assert fingerprint(out) == before
    assert "stopped   target: accuracy ≥ 88 %" in call("status", out).out

    summary = json.loads((out / "summary.json").read_text())
    assert summary["stopped"].startswith("target: accuracy ≥ 88 % reached")
    assert (summary["reached.accuracy>=0.4"], summary["reached.loss<=0.001"]) == (True, False)
    assert 0 < summary["time_to_target_s.accuracy>=0.4"] <= summary["virtual_s"]
    assert summary["rounds_to_target.accuracy>=0.4"] <= rounds
    assert summary["client_bytes_to_target.accuracy>=0.4"] >= summary["server_bytes_to_target.accuracy>=0.4"] > 0
    assert summary["time_to_target_s.loss<=0.001"] is None

    compared = call("compare", out).out
    assert "Stopped at the target, before the last of the planned rounds: small." in compared
    assert "Unfinished" not in compared
    assert "Time to accuracy ≥ 40 %\n" in compared  # what the experiment names, not the best
    assert "Time to loss ≤ 0.001\n" in compared
    (row,) = json.loads(call("compare", out, "--format", "json").out)["rows"]
    assert (row["stopped"], row["stopped_at"]) == (1, "target")

    other = call("run", written(rounds=60, stop_at={"accuracy": 0.9}), "--out", out, "--resume")
    assert other.code == 2
    assert "stop_at.accuracy" in other.errors[0]
