"""A bug in code of the user's own, on Ray: one line that says where, and a run that goes on once it is mended."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import workloads
from benchmarks import faulty_code
from benchmarks.faults import identical, undisturbed
from cluster.hosts.connection import connect
from cluster.hosts.session import RaySession
from testbed.engine.in_process import run_in_process
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


# Nothing of it crashes where the server selects: for the tests on a Ray that has that bug, too.
DRAWN = OWN | {"selection": {"protocol": "random", "participants": 5}}


@contextlib.contextmanager
def ray_with_bugs(*places: str) -> Iterator[None]:
    """Start a Ray with processes that crash at the places named in the environment; none is left afterwards."""
    ray.shutdown()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(faulty_code.AT, " ".join(places))
        connect(None)
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(scope="module")
def bugs() -> Iterator[None]:
    """One Ray with clients that crash in training, and servers that crash in `OWN`; this process has no bug."""
    with ray_with_bugs("train", "select"):
        yield


def run_on_ray(described: Experiment, path: Path) -> RunRecords:
    """Run it from its beginning."""
    RunDirectory.create(path, described.plain())
    with RaySession(None, 2) as session:
        session.run(described, 0, path, lambda progress: None)
    return RunRecords(path)


def resumed_here(described: Experiment, path: Path) -> RunRecords:
    """Run it to its end in this process."""
    workload = workloads.build(described.workload, described.population, 5)
    run_in_process(described, workload, 0, RunDirectory.reopen(path), lambda progress: None)
    return RunRecords(path)


@pytest.mark.parametrize("clock", ["virtual", pytest.param("wall", marks=pytest.mark.slow)])
def test_a_clients_bug_ends_the_run_which_goes_on_where_it_is_mended(clock: str, bugs: None, tmp_path: Path) -> None:
    described = Experiment.model_validate(DRAWN | {"time": {"clock": clock, "deadline_s": 600}})
    with pytest.raises(CodeCrashed) as ended:
        run_on_ray(described, tmp_path / "run")
    said = str(ended.value)
    assert said.startswith("client 2 crashed in round 2 at train: ZeroDivisionError: a bug (")
    assert "faulty_code.py, line" in said
    assert "\n" not in said
    assert "in train" in ended.value.trace
    assert RunRecords(tmp_path / "run").rounds["outcome"].tolist() == ["completed"]
    mended = resumed_here(described, tmp_path / "run")
    whole = undisturbed(described, tmp_path / "whole")
    assert mended.model is not None
    assert whole.model is not None
    assert mended.model.tobytes() == whole.model.tobytes()
    assert clock == "wall" or identical(mended, whole)


def test_dropped_crashes_are_the_same_events_on_ray_and_without(
    bugs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    described = Experiment.model_validate(DRAWN | {"on_crash": "drop"})
    there = run_on_ray(described, tmp_path / "there")
    monkeypatch.setenv(faulty_code.AT, "train")
    here = undisturbed(described, tmp_path / "here")
    assert (here.events["kind"] == "crash").sum() == 2
    assert here.events.equals(there.events)
    assert identical(here, there)


def servers_bug(place: str, path: Path) -> None:
    """A run of `OWN` ends with the line that says where."""
    said = r"the server's side of round 1 crashed: ZeroDivisionError: a bug \("
    with pytest.raises(CodeCrashed, match=said) as ended:
        run_on_ray(Experiment.model_validate(OWN), path)
    assert f"in {place}" in ended.value.trace


def test_a_crash_of_the_server_also_names_its_place(bugs: None, tmp_path: Path) -> None:
    servers_bug("select", tmp_path / "run")


@pytest.mark.slow
def test_so_does_the_availability_models(tmp_path: Path) -> None:
    with ray_with_bugs("presence"):
        servers_bug("presence", tmp_path / "run")
