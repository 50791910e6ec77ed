"""Results of user-defined workloads do not depend on the number of threads of a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cluster.hosts.session import RaySession
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

DESCRIBED = {
    "name": "threads", "seed": 4, "rounds": 2, "population": 4,
    "workload": {"dataset": "benchmarks.own_torch:LongSums"},
    "selection": {"participants": 3},
    "aggregation": {"protocol": "plain"},
}  # fmt: skip


def in_a_process_with(threads: int, out: Path) -> bytes:
    """The model of the run without Ray, in a process of its own with this number of threads."""
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(DESCRIBED))
    command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(out), "--network", "in-process", "-q"]
    number = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    subprocess.run(command, env=os.environ | number, check=True, capture_output=True)
    return model_of(out)


def model_of(out: Path) -> bytes:
    records = RunRecords(out)
    assert records.rounds["outcome"].tolist() == ["completed"] * 2
    assert records.model is not None
    return records.model.tobytes()


@pytest.fixture(scope="module")
def with_two(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model where there are two threads to be had."""
    return in_a_process_with(2, tmp_path_factory.mktemp("two") / "run")


def test_any_number_of_threads_gives_the_same_bits(with_two: bytes, tmp_path: Path) -> None:
    assert in_a_process_with(1, tmp_path / "one") == with_two


@pytest.mark.ray
def test_ray_gives_the_same_bits_as_a_process_with_more_threads(
    with_two: bytes, ray_here: None, tmp_path: Path
) -> None:
    described = Experiment.model_validate(DESCRIBED)
    RunDirectory.create(tmp_path / "run", described.plain())
    with RaySession(None, 1) as session:
        session.run(described, 0, tmp_path / "run", lambda progress: None)
    assert model_of(tmp_path / "run") == with_two
