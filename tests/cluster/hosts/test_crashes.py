"""A bug in code of the user's own, on Ray: one line that says where, and a run that goes on once it is mended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from benchmarks import faulty_code
from benchmarks.faults import identical, undisturbed
from cluster.hosts.session import RaySession, connect
from testbed.errors import CodeCrashed
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

pytestmark = pytest.mark.ray
OWN: dict[str, Any] = {
    "name": "crashing", "seed": 5, "population": 6, "rounds": 3,
    "workload": {"dataset": "benchmarks.faulty_code:Learning"},
    "selection": {"protocol": "benchmarks.faulty_code:Selecting", "participants": 5},
    "aggregation": {"protocol": "benchmarks.faulty_code:Summing"},
    "availability": {"model": "benchmarks.faulty_code:There"},
    "links": {"latency_ms": 2},
    "time": {"deadline_s": 5},
}  # fmt: skip


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A Ray whose processes see what the environment names when it starts."""
    ray.shutdown()
    yield monkeypatch
    ray.shutdown()


def run_on_ray(described: Experiment, path: Path) -> RunRecords:
    """Run it, or resume it, on a Ray of its own."""
    if not path.exists():
        RunDirectory.create(path, described.plain())
    connect(None)
    try:
        with RaySession(None, 2) as session:
            session.run(described, 0, path, lambda progress: None)
    finally:
        ray.shutdown()
    return RunRecords(path)


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_a_clients_bug_ends_the_run_which_goes_on_once_it_is_mended(
    clock: str, ray_here: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    described = Experiment.model_validate(OWN | {"time": {"clock": clock, "deadline_s": 600}})
    ray_here.setenv(faulty_code.AT, "train")
    with pytest.raises(CodeCrashed) as ended:
        run_on_ray(described, tmp_path / "run")
    said = str(ended.value)
    assert said.startswith("client 2 crashed in round 2 at train: ZeroDivisionError: a bug (")
    assert "faulty_code.py, line" in said
    assert "\n" not in said
    assert "in train" in ended.value.trace
    assert RunRecords(tmp_path / "run").rounds["outcome"].tolist() == ["completed"]
    ray_here.delenv(faulty_code.AT)
    mended = run_on_ray(described, tmp_path / "run")
    whole = undisturbed(described, tmp_path / "whole")
    assert mended.model is not None
    assert whole.model is not None
    assert mended.model.tobytes() == whole.model.tobytes()
    assert clock == "wall" or identical(mended, whole)


@pytest.mark.parametrize("place", ["select", "presence"])
def test_the_servers_bug_says_where_too(place: str, ray_here: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray_here.setenv(faulty_code.AT, place)
    with pytest.raises(
        CodeCrashed, match=r"the server's side of round 1 crashed: ZeroDivisionError: a bug \("
    ) as ended:
        run_on_ray(Experiment.model_validate(OWN), tmp_path / "run")
    assert f"in {place}" in ended.value.trace


def test_dropped_crashes_are_the_same_events_on_ray_and_without(ray_here: pytest.MonkeyPatch, tmp_path: Path) -> None:
    described = Experiment.model_validate(OWN | {"on_crash": "drop"})
    ray_here.setenv(faulty_code.AT, "train")
    here, there = undisturbed(described, tmp_path / "here"), run_on_ray(described, tmp_path / "there")
    assert (here.events["kind"] == "crash").sum() == 2
    assert here.events.equals(there.events)
    assert identical(here, there)
