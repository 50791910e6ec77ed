"""Runs on real Ray actors: the same results after the loss of any process. Without losses: test_same_on_ray.py."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import ray

from benchmarks.faults import undisturbed
from cluster.hosts.connection import connect
from cluster.hosts.session import RaySession
from testbed.engine.federation import RunProgress
from testbed.errors import ClusterError, ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords
from testbed.records.log import RunLog

pytestmark = pytest.mark.ray
shares_ray = pytest.mark.usefixtures("ray_here")
TABLES = ("rounds", "exchanges", "participation")


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Small, but with everything that could depend on where clients live, and hosts start quickly."""
    return Experiment.model_validate(
        {
            "name": "on-ray", "seed": 5, "rounds": 4, "population": 12,
            "workload": {"dataset": "benchmarks.breaking:Means"},
            "selection": {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 2},
            "aggregation": {"protocol": "secagg", "threshold": 0.6},
            "availability": {"dropout": {"rate": 0.15}},
            "time": {"compute": "modelled", "deadline_s": 5},
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def reference(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> RunRecords:
    """The same experiment in this process."""
    return undisturbed(experiment, tmp_path_factory.mktemp("reference") / "run")


def assert_same(run: Path, reference: RunRecords) -> None:
    """Tables and model, bit for bit."""
    records = RunRecords(run)
    for table in TABLES:
        assert records.frame(table).equals(reference.frame(table)), table
    assert records.model is not None
    assert reference.model is not None
    assert records.model.tobytes() == reference.model.tobytes()
    assert (reference.rounds["outcome"] == "completed").any()


def once(condition: Callable[[RunProgress], bool], action: Callable[[], None]) -> Callable[[RunProgress], None]:
    """A progress callback that acts the first time the condition holds."""
    done: list[bool] = []

    def on_progress(progress: RunProgress) -> None:
        if not done and condition(progress):
            done.append(True)
            action()

    return on_progress


@shares_ray
def test_a_killed_host_is_replaced_and_the_result_is_the_same(
    experiment: Experiment, reference: RunRecords, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, experiment.plain())
    with RaySession(None, 2) as session:

        def kill() -> None:
            os.kill(ray.get(session.coordinator.host_processes.remote())[1], signal.SIGKILL)

        session.run(experiment, 0, run, once(lambda progress: progress.round_number >= 2, kill))
    assert_same(run, reference)
    events = RunRecords(run).events
    assert (events["kind"] == "restart").sum() == 1
    assert events[events["kind"] == "restart"]["party"].item() == "host:1"


@shares_ray
def test_without_a_seed_a_killed_host_ends_the_run_resumably(experiment: Experiment, tmp_path: Path) -> None:
    unseeded = experiment.model_copy(update={"seed": None})
    run = tmp_path / "run"
    RunDirectory.create(run, unseeded.plain())
    with RaySession(None, 1) as session:

        def kill() -> None:
            os.kill(ray.get(session.coordinator.host_processes.remote())[0], signal.SIGKILL)

        with pytest.raises(ClusterError, match="--resume"):
            session.run(unseeded, 7, run, once(lambda progress: progress.round_number >= 2, kill))
    recorded = len(RunRecords(run).rounds)
    assert recorded >= 1
    with RaySession(None, 1) as session:
        session.run(unseeded, 7, run, lambda progress: None)
    assert RunRecords(run).rounds["round"].tolist() == [1, 2, 3, 4]


@shares_ray
def test_a_killed_coordinator_is_replaced_and_goes_on_from_the_checkpoint(
    experiment: Experiment, reference: RunRecords, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, experiment.plain())
    with RaySession(None, 2) as session:

        def kill() -> None:
            ray.kill(session.coordinator, no_restart=True)

        session.run(experiment, 0, run, once(lambda progress: progress.round_number >= 3, kill))
    assert_same(run, reference)
    events = RunRecords(run).events
    assert events[events["party"] == "coordinator"]["kind"].tolist() == ["resume", "restart"]
    assert [entry["event"] for entry in RunLog(run).read()].count("coordinator-restarted") == 1


@shares_ray
def test_a_coordinator_that_never_gets_anywhere_is_not_restarted_for_ever(
    experiment: Experiment, reference: RunRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.hosts.session.MAXIMUM_RESTARTS", 1)
    run = tmp_path / "run"
    RunDirectory.create(run, experiment.plain())
    with RaySession(None, 1) as session:
        kill_at_once = lambda progress: ray.kill(session.coordinator, no_restart=True)  # noqa: E731
        with pytest.raises(ClusterError, match="--resume"):
            session.run(experiment, 0, run, kill_at_once)
    with RaySession(None, 1) as session:
        session.run(experiment, 0, run, lambda progress: None)
    assert_same(run, reference)


@shares_ray
def test_a_killed_pki_is_noticed_when_it_is_needed(
    experiment: Experiment, reference: RunRecords, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, experiment.plain())
    with RaySession(None, 2) as session:

        def kill() -> None:
            ray.kill(session.pki, no_restart=True)
            os.kill(ray.get(session.coordinator.host_processes.remote())[0], signal.SIGKILL)

        session.run(experiment, 0, run, once(lambda progress: progress.round_number >= 2, kill))
    assert_same(run, reference)
    events = RunRecords(run).events
    assert "the PKI's process died" in events[events["kind"] == "restart"]["detail"].str.cat()


@shares_ray
def test_closing_a_session_ends_a_run_in_another_thread(experiment: Experiment, tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, experiment.plain())
    session = RaySession(None, 1)

    def close(progress: RunProgress) -> None:
        thread = threading.Thread(target=session.close)
        thread.start()
        thread.join()

    with pytest.raises(ClusterError, match="closed"):
        session.run(experiment, 0, run, close)


@shares_ray
def test_errors_inside_actors_arrive_typed(experiment: Experiment, tmp_path: Path) -> None:
    too_wide = experiment.aggregation.model_copy(update={"bits": 16})
    broken = experiment.model_copy(update={"aggregation": too_wide})
    with RaySession(None, 1) as session, pytest.raises(ExperimentError, match=r"aggregation\.bits"):
        session.run(broken, 0, None, lambda progress: None)


def test_ray_client_is_refused_with_an_alternative(no_ray: None) -> None:
    with pytest.raises(ClusterError, match="testbed submit"):
        connect("ray://127.0.0.1:10001")


def test_an_address_without_a_cluster_is_one_line(no_ray: None) -> None:
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1") as caught:
        RaySession("127.0.0.1:1", 1)
    assert "\n" not in str(caught.value)


def test_the_model_changes(reference: RunRecords) -> None:
    assert reference.model is not None
    assert np.abs(reference.model).max() > 0
