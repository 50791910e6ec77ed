"""`testbed validate` refuses everything that `testbed run` refuses before its first round without data."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli import main

BASE: dict[str, Any] = {
    "seed": 1, "rounds": 2, "population": 20, "workload": {"dataset": "digits", "model": "logistic"},
    "time": {"compute": "modelled"}, "cluster": {"network": "in-process"},
}  # fmt: skip
NOISY = {"protocol": "secagg", "weights": "equal", "noise": {"noise_multiplier": 1000.0, "scale": 2.0**20}}


@pytest.mark.parametrize(
    "keys",
    [
        {"aggregation": {"protocol": "secagg", "weights": "equal", "bits": 18}},
        {"privacy": {"budget": 3.0}},
        {"aggregation": NOISY},
        {"adversary": {"dishonest": 2, "clients": ["skip-noise"]}},
        {"population": 22, "selection": {"protocol": "batch-partition", "participants": 8, "privacy": 4},
         "aggregation": {"protocol": "secagg", "threshold": 5}},
        {"aggregation": {"protocol": "plain"}, "availability": {"dropout": {"rate": 0.1, "stage": "secagg/unmask"}}},
        {"adversary": {"dishonest": 2}, "availability": {"dropout": {"rate": 0.5, "stage": "adversary/hand-over"}}},
    ],
)  # fmt: skip
def test_run_and_validate_refuse_with_the_same_message(
    keys: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "refused.yaml"
    file.write_text(yaml.safe_dump(BASE | keys))
    said = []
    for command in (["validate", str(file)], ["run", str(file), "--out", str(tmp_path / "out"), "--quiet"]):
        assert main(command) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert said[0].count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_there_are_named_with_their_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {
        "workload": {"dataset": "femnist", "path": "data/femnist"},
        "availability": {"model": "trace", "path": "/no/such/trace.csv"},
        "links": {"down_mbit_s": {"trace": "traces/3g"}, "up_mbit_s": 5.0},
        "devices": {"model": "table", "path": "phones.csv", "column": "latency"},
        "selection": {"protocol": "random", "recorded": "schedule.csv"},
    }
    (tmp_path / "missing.yaml").write_text(yaml.safe_dump(BASE | keys))
    assert main(["validate", "missing.yaml"]) == 2
    here = " (relative paths count from the working directory)"
    assert sorted(capsys.readouterr().err.splitlines()) == sorted(
        f"error: missing.yaml: {key}: {path}: no such file or folder{'' if path.startswith('/') else here}"
        for key, path in [
            ("workload.path", "data/femnist"), ("availability.path", "/no/such/trace.csv"),
            ("links.down_mbit_s.trace", "traces/3g"), ("devices.path", "phones.csv"),
            ("selection.recorded", "schedule.csv"),
        ]
    )  # fmt: skip
    (tmp_path / "missing.yaml").write_text(yaml.safe_dump(BASE | {"time": {"compute": "modelled", "costs": "no.yaml"}}))
    assert main(["validate", "missing.yaml"]) == 2
    assert "time.costs: no.yaml: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("1,7,,participant\n1,7,secagg/maskedinput,dropped\n", "unknown stage 'secagg/maskedinput'; did you mean "),
        ("1,7,nowhere/stage,dropped\n", "unknown stage 'nowhere/stage'; allowed: "),
        ("1,20,,offline\n", "20"),
        ("1,7,lotto/participants,dropped\n", ""),
    ],
)
def test_a_schedule_is_an_instruction_and_is_read(
    rows: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages of other protocols are none of this run's, and mean what docs/how-to/replay-dropouts.md says."""
    schedule, file = tmp_path / "schedule.csv", tmp_path / "scheduled.yaml"
    schedule.write_text(f"round,client,stage,fate\n{rows}")
    file.write_text(yaml.safe_dump(BASE | {"availability": {"model": "schedule", "path": str(schedule)}}))
    assert main(["validate", str(file)]) == (2 if says else 0)
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith(f"error: {file}: {schedule}: ") or not says


def test_a_population_that_memory_cannot_hold_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(yaml.safe_dump(BASE | {"population": 7_500_000}))
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 250_000)
    assert main(["validate", str(file)]) == 0
    assert not capsys.readouterr().err
    file.write_text(yaml.safe_dump(BASE | {"population": 12_500_000}))
    assert main(["validate", str(file)]) == 0
    error = " ".join(capsys.readouterr().err.split())
    assert "population: 12,500,000 clients take at least 1 GB of memory, and this machine has 1" in error


def test_a_population_too_large_to_plan_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "endless.yaml"
    lotto = {"selection": {"protocol": "lotto-server-centric"}, "population": 10**12}
    file.write_text(yaml.safe_dump(BASE | lotto))
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr().err
    assert "population: 1,000,000,000,000 clients take at least 90,000 GB" in said
    assert said.count("\n") == 1
