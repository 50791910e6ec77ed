"""cluster/submit.py as run by the head: base of relative paths, output, exit codes. Without Ray."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testbed.records import RunRecords
from tests.repository import ROOT

SCRIPT = ROOT / "cluster" / "submit.py"
PROJECT = SCRIPT.parents[1]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory as the launch files leave it, with an experiment."""
    (tmp_path / "sortition-testbed" / "examples").mkdir(parents=True)
    tiny = {
        "name": "tiny", "seed": 3, "rounds": 2, "population": 8, "workload": {"dataset": "benchmarks.breaking:Means"},
        "selection": {"participants": 4}, "aggregation": {"protocol": "plain"}, "cluster": {"network": "in-process"},
    }  # fmt: skip
    (tmp_path / "sortition-testbed" / "examples" / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    return tmp_path


def started(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """The script, started in another directory than the project's."""
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(
        command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_paths_count_from_the_project_and_every_round_has_a_line(home: Path) -> None:
    script = started(home, "examples/tiny.yaml", "--out", "runs/tiny")
    output, _ = script.communicate(timeout=120)
    assert script.returncode == 0, output
    assert [line for line in output.splitlines() if "round 2/2 completed" in line]
    assert "records: runs/tiny" in output
    assert len(RunRecords(home / "sortition-testbed/runs/tiny").rounds) == 2


def test_an_address_that_is_given_is_kept_and_errors_end_with_the_code_of_the_command(home: Path) -> None:
    script = started(home, "examples/tiny.yaml", "--network", "ray", "--address", "127.0.0.1:1")
    output, _ = script.communicate(timeout=120)
    assert script.returncode == 3
    assert "no Ray cluster at '127.0.0.1:1'" in output
    script = started(home, "examples/none.yaml")
    output, _ = script.communicate(timeout=120)
    assert script.returncode == 2
    assert "examples/none.yaml" in output


def test_a_lost_connection_stops_the_run_and_it_can_be_resumed(home: Path) -> None:
    long = ("examples/tiny.yaml", "--out", "runs/long", "--set", "rounds=100000")
    script = started(home, *long)
    assert script.stdout is not None
    for line in script.stdout:
        if "round 1/" in line:
            script.send_signal(signal.SIGHUP)
            break
    rest, _ = script.communicate(timeout=120)
    assert script.returncode == 129, rest
    assert "--resume" in rest
    assert len(list((home / "sortition-testbed/runs/long").glob("checkpoint*"))) == 1
