"""Real Ray actors change no result, for any number of hosts: one session runs experiments of several kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import undisturbed
from cluster.hosts.connection import connect
from cluster.hosts.session import RaySession
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]
LOTTO: dict[str, Any] = {
    "name": "on-ray", "seed": 5, "rounds": 4, "population": 12,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 2},
    "aggregation": {"protocol": "secagg", "threshold": 0.6},
    "availability": {"dropout": {"rate": 0.15}},
    "time": {"compute": "modelled", "deadline_s": 5},
}  # fmt: skip
DP_SGD = LOTTO | {
    "workload": {"dataset": "digits", "model": "cnn", "test_samples": 50},
    "selection": {"protocol": "bernoulli", "client_rate": 0.4},
    "aggregation": {
        "protocol": "dp-sgd-random-participation", "sample_rate": 0.3, "clip": 1.0, "sigma": 1.0, "momentum": 0.9,
    },
}  # fmt: skip
LIVE: dict[str, Any] = {
    "name": "live-on-ray", "seed": 5, "rounds": 2, "population": 12,
    "workload": {"dataset": "benchmarks.breaking:Means"},
    "selection": {"protocol": "random", "participants": 5},
    "aggregation": {"protocol": "secagg", "threshold": 0.6},
    "links": {"latency_ms": 5},
}  # fmt: skip


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 3], ids="{}-hosts".format)
def session(request: pytest.FixtureRequest) -> Iterator[RaySession]:
    """The hosts on which all experiments here run."""
    connect(None)
    with RaySession(None, request.param) as session:
        yield session


def run_on(session: RaySession, experiment: Experiment, path: Path) -> RunRecords:
    """The run on these hosts."""
    RunDirectory.create(path, experiment.plain())
    session.run(experiment, 0, path, lambda progress: None)
    return RunRecords(path)


def assert_same_model(run: RunRecords, reference: RunRecords) -> None:
    """Bit for bit."""
    assert run.model is not None
    assert reference.model is not None
    assert run.model.tobytes() == reference.model.tobytes()


def assert_same(run: RunRecords, reference: RunRecords) -> None:
    """Tables and model, bit for bit."""
    assert (reference.rounds["outcome"] == "completed").any()
    for table in ("rounds", "exchanges", "participation"):
        assert run.frame(table).equals(reference.frame(table)), table
    assert len(run.events) == len(reference.events)
    assert_same_model(run, reference)


def test_lotto_and_secagg(session: RaySession, tmp_path: Path) -> None:
    experiment = Experiment.model_validate(LOTTO)
    reference = undisturbed(experiment, tmp_path / "reference")
    assert_same(run_on(session, experiment, tmp_path / "run"), reference)


def test_asynchronous(session: RaySession, tmp_path: Path) -> None:
    """Updates under way outlast a round, and hosts that forget it."""
    asynchronous = {
        "selection": {"protocol": "random", "participants": 5},
        "aggregation": LOTTO["aggregation"] | {"model_binding": "none"},
        "asynchronous": {"concurrency": 8},
        "devices": {"model": "log-normal", "median": 5000, "sigma": 1.0},
        "links": {"transport": "none"},
    }
    experiment = Experiment.model_validate(LOTTO | asynchronous)
    reference = undisturbed(experiment, tmp_path / "reference")
    run = run_on(session, experiment, tmp_path / "run")
    assert_same(run, reference)
    assert run.frame("staleness").equals(reference.frame("staleness"))
    assert reference.frame("staleness")["staleness"].max() > 0


def test_algorithms(session: RaySession, tmp_path: Path) -> None:
    """FedProx with a schedule of the learning rate, and a server optimizer."""
    workload = LOTTO["workload"] | {"proximal": 0.1, "learning_rate_schedule": {"rounds": 4, "warm_up_rounds": 2}}
    aggregation = LOTTO["aggregation"] | {"server_optimizer": {"name": "yogi"}}
    experiment = Experiment.model_validate(LOTTO | {"workload": workload, "aggregation": aggregation})
    reference = undisturbed(experiment, tmp_path / "reference")
    assert_same(run_on(session, experiment, tmp_path / "run"), reference)


@pytest.mark.parametrize(
    "sent",
    [
        {"protocol": "secagg", "threshold": 0.6, "compression": {"name": "random-k", "share": 0.3}},
        {"protocol": "plain", "compression": {"name": "top-k", "share": 0.1}},
        {"protocol": "plain", "weights": "equal", "robust": {"rule": "multi-krum", "max_dishonest": 1}},
    ],
)
def test_adapters_and_their_models(session: RaySession, sent: dict[str, Any], tmp_path: Path) -> None:
    workload = LOTTO["workload"] | {"adapters": {"rank": 2}}
    experiment = Experiment.model_validate(LOTTO | {"workload": workload, "aggregation": sent})
    reference = undisturbed(experiment, tmp_path / "reference")
    assert (reference.rounds["outcome"] == "completed").any()
    assert_same(run_on(session, experiment, tmp_path / "run"), reference)


@pytest.mark.parametrize("server", ["untrusted", pytest.param("trusted", marks=pytest.mark.slow)])
def test_dp_sgd(session: RaySession, server: str, tmp_path: Path) -> None:
    aggregation = DP_SGD["aggregation"] | {"server": server}
    experiment = Experiment.model_validate(DP_SGD | {"name": "dp-sgd-on-ray", "aggregation": aggregation})
    reference = undisturbed(experiment, tmp_path / "reference")
    assert (reference.rounds["outcome"] == "completed").all()
    assert_same(run_on(session, experiment, tmp_path / "run"), reference)


def test_live_clients_learn_the_model_of_the_virtual_clock_also_in_a_second_run(
    session: RaySession, tmp_path: Path
) -> None:
    time = {"compute": "modelled", "deadline_s": 30, "disconnects": "visible"}
    virtual, live = (
        Experiment.model_validate(LIVE | {"time": time | {"clock": clock}}) for clock in ("virtual", "wall")
    )
    reference = undisturbed(virtual, tmp_path / "virtual")
    for name in ("first", "second"):
        run = run_on(session, live, tmp_path / name)
        assert run.rounds["outcome"].tolist() == ["completed"] * 2
        assert_same_model(run, reference)
