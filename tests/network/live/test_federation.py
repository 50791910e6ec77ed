"""Whole federations in live mode, in this process: the model that they learn is the virtual clock's, bit for bit."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import workloads
from testbed.engine.in_process import live_in_process, run_in_process
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.network.exchanges import Exchanges
from testbed.records import RunDirectory, RunRecords
from testbed.selection.contract import TrainingReports

SEED = 5


def experiment(**sections: Any) -> Experiment:
    keys: dict[str, Any] = {
        "name": "live", "seed": SEED, "rounds": 2, "population": 12,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"protocol": "lotto-client-centric", "participants": 8},
        "aggregation": {"protocol": "secagg", "threshold": 0.6},
        "links": {"latency_ms": 2},
        "time": {"compute": "modelled", "deadline_s": 30},
    }  # fmt: skip
    for name, section in sections.items():
        keys[name] = {**keys[name], **section} if isinstance(keys.get(name), dict) else section
    keys["aggregation"] = {key: value for key, value in keys["aggregation"].items() if value is not None}
    return Experiment.model_validate(keys)


def recorded(path: Path, described: Experiment) -> RunRecords:
    records = RunDirectory.create(path, described.plain())
    workload = workloads.build(described.workload, described.population, SEED)
    run_in_process(described, workload, 0, records, lambda progress: None)
    return RunRecords(path)


@pytest.mark.parametrize(
    ("selection", "aggregation"),
    [
        ("lotto-client-centric", {}),
        ("random", {}),
        ("random", {"protocol": "plain", "weights": "equal", "robust": {"rule": "median"}}),
    ],
)
def test_live_and_virtual_runs_learn_the_same_model_from_the_same_messages(
    tmp_path: Path, selection: str, aggregation: dict[str, Any]
) -> None:
    chosen: dict[str, Any] = {"selection": {"protocol": selection, "participants": 8}}
    if aggregation:
        chosen |= {"aggregation": aggregation | {"threshold": None}}
    virtual = recorded(tmp_path / "virtual", experiment(**chosen))
    live = recorded(tmp_path / "live", experiment(**chosen, time={"clock": "wall"}))
    assert virtual.rounds["outcome"].tolist() == ["completed"] * 2
    assert live.model is not None
    assert virtual.model is not None
    assert live.model.tobytes() == virtual.model.tobytes()
    same = [
        "round", "stage", "client", "bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_up",
        "pki_bytes_down", "compute_s", "outcome", "as_participant",
    ]  # fmt: skip
    assert live.frame("exchanges")[same].equals(virtual.frame("exchanges")[same])
    assert live.frame("participation").equals(virtual.frame("participation"))
    for column in ("bytes_down", "bytes_up", "survivors", "accuracy"):
        assert live.rounds[column].tolist() == virtual.rounds[column].tolist()
    assert (live.rounds["ended_s"] >= virtual.rounds["ended_s"] * 0.999).all()


def test_dropouts_go_through_the_recovery_of_secure_aggregation(tmp_path: Path) -> None:
    leaving = {"dropout": {"rate": 0.3, "stage": "secagg/masked-input"}}
    quick = {"disconnects": "visible"}
    virtual = recorded(tmp_path / "virtual", experiment(availability=leaving, time=quick))
    live = recorded(tmp_path / "live", experiment(availability=leaving, time={**quick, "clock": "wall"}))
    assert "dropped" in virtual.frame("exchanges")["outcome"].tolist()
    outcomes = ["round", "stage", "client", "outcome"]
    assert live.frame("exchanges")[outcomes].equals(virtual.frame("exchanges")[outcomes])
    assert live.model is not None
    assert virtual.model is not None
    assert live.model.tobytes() == virtual.model.tobytes()


def test_a_ring_that_travels_in_bytes_is_summed_as_any_other(tmp_path: Path) -> None:
    small = {"bits": 8, "levels_bits": 3, "weights": "equal"}
    chosen = {"protocol": "random"}
    virtual = recorded(tmp_path / "virtual", experiment(aggregation=small, selection=chosen, rounds=1))
    live = recorded(
        tmp_path / "live", experiment(aggregation=small, selection=chosen, rounds=1, time={"clock": "wall"})
    )
    assert live.rounds["outcome"].tolist() == ["completed"]
    assert live.model is not None
    assert virtual.model is not None
    assert live.model.tobytes() == virtual.model.tobytes()


def test_a_live_run_is_resumed_with_its_clock(tmp_path: Path) -> None:
    described = experiment(time={"clock": "wall"}, selection={"protocol": "random"})
    plan = RunPlan(described, 0)
    workload = workloads.build(described.workload, described.population, SEED)
    records = RunDirectory.create(tmp_path / "run", described.plain())

    async def one_round() -> float:
        async with live_in_process(plan, workload, RunDirectory.reopen(records.path), hosts=2) as federation:
            await federation.run_next_round()
            return federation.network.now_s

    first_s, second_s = asyncio.run(one_round()), asyncio.run(one_round())
    rounds = RunDirectory.reopen(records.path).table("rounds")
    assert rounds["round"].to_pylist() == [1, 2]
    assert rounds["started_s"].to_pylist()[1] == rounds["ended_s"].to_pylist()[0] == first_s
    assert second_s > first_s > 0
    whole = recorded(tmp_path / "whole", described)
    assert RunDirectory.reopen(records.path).checkpoint().model.tobytes() == whole.model.tobytes()


def test_a_live_server_measures_how_long_each_answer_took(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"model": "uniform", "fastest": 1, "slowest": 50}
    described = experiment(time={"clock": "wall"}, selection={"protocol": "random"}, devices=slow, rounds=1)
    plan = RunPlan(described, 0)
    workload = workloads.build(described.workload, described.population, SEED)
    learned: list[TrainingReports] = []
    monkeypatch.setattr(plan.selection, "learn", lambda round_, reports: learned.append(reports))

    async def one_round() -> Exchanges:
        async with live_in_process(plan, workload, None) as federation:
            await federation.run_next_round()
            return next(stage for stage in federation.network.exchanges if stage.stage == "train")

    train = asyncio.run(one_round())
    (reports,) = learned
    assert reports.clients.tolist() == train.clients.tolist()
    assert reports.latency_s.tolist() == (train.received_s - train.sent_s).tolist()
    assert (reports.latency_s >= train.compute_s).all()
