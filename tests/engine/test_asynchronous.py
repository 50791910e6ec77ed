"""Asynchronous federations: a round is a buffer of updates, and clients train all the time."""

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.buffered import staleness_weight
from testbed.messages import Vector, encode
from testbed.records.schemas import SCHEMAS
from testbed.training import Train
from testbed.workload.contract import LocalUpdate
from tests.engine.federations import Pulling, Run

NO_WAY = {"latency_ms": 0, "down_mbit_s": 1e6, "up_mbit_s": 1e6, "transport": "none"}
SLOW = {"compute": "modelled", "deadline_s": 1e6, "disconnects": "visible", "costs": {"train.parameter_example": 0.01}}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "plain": {"protocol": "plain"},
    "secagg": {"protocol": "secagg", "threshold": 0.6, "model_binding": "none"},
    "secagg-plus": {
        "protocol": "secagg-plus", "neighbours": 8, "threshold": 6, "dropouts": 0.3, "accept_weaker": True,
        "model_binding": "none",
    },
}  # fmt: skip
UNSTEADY: dict[str, Any] = {
    "devices": {"model": "zipf", "slowest": 9.0},
    "links": {"up_mbit_s": [0.01, 0.05, 4], "latency_ms": [5, 100], "server_down_mbit_s": 0.05, "transport": "none"},
    "availability": {"model": "markov", "mean_online_s": 40, "mean_offline_s": 10, "dropout": {"hazard": 0.03}},
    "selection": {"participants": 5},
    "asynchronous": {"concurrency": 9, "redraw_s": 3},
    "time": {"compute": "modelled", "deadline_s": 9, "disconnects": "visible", "costs": SLOW["costs"]},
    "workload": {"evaluate_every": 2},
    "rounds": 8,
}


def keys(protocol: str = "plain", **other: Any) -> dict[str, Any]:
    base = {"links": NO_WAY, "time": SLOW, "selection": {"participants": 4}, "asynchronous": {"concurrency": 30}}
    return base | {"aggregation": PROTOCOLS[protocol]} | other


class Averaging(Pulling):
    """A workload that depends on client and model alone, with equal numbers of samples."""

    def __init__(self, population: int) -> None:
        super().__init__(population)
        self.sample_counts = np.full(population, 3)


def fedbuff(work: Pulling, duration: np.ndarray, wanted: int, rounds: int, exponent: float) -> Any:
    """FedBuff in a few lines, with everybody training all the time: the model, and (client, staleness) by round."""
    model, told = work.initial_model(), []
    queue = [(duration[client], client, 1, model) for client in range(len(duration))]
    heapq.heapify(queue)
    for number in range(1, rounds + 1):
        buffer = [heapq.heappop(queue) for _ in range(wanted)]
        told.append(sorted((client, number - sent) for _, client, sent, _ in buffer))
        step, weights = np.zeros(len(model)), 0
        for _, client, sent, base in buffer:
            update = work.train(client, base, sent)
            step += update.samples * (1 + number - sent) ** -exponent * update.delta.astype(np.float64)
            weights += update.samples
        model = (model + step / weights).astype(np.float32)
        for _, client, _, _ in buffer:
            heapq.heappush(queue, (buffer[-1][0] + duration[client], client, number + 1, model))
    return model, told


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_it_is_fedbuff(run: Callable, exponent: float) -> None:
    section = {"concurrency": 30, "staleness_exponent": exponent}
    devices = {"model": "log-normal", "median": 5, "sigma": 0.9}
    one = run(keys(devices=devices, asynchronous=section, rounds=25), "run").rounds()
    work = one.workload
    seconds = one.federation.network.speed_factors * 0.01 * work.dimension * 2 * work.sample_counts
    model, told = fedbuff(work, seconds, 4, 25, exponent)
    rows = one.rows("staleness")
    of_round = [[(r["client"], r["staleness"]) for r in rows if r["round"] == number] for number in range(1, 26)]
    assert of_round == told
    assert max(row["staleness"] for row in rows) >= 4
    assert all(row["scale"] == staleness_weight(row["staleness"], exponent) for row in rows)
    assert one.federation.state.model == pytest.approx(model, abs=2e-6)


def test_a_client_that_takes_the_place_of_the_last_one_is_sent_the_new_model(run: Callable) -> None:
    section = {"concurrency": 1, "max_staleness": 0}
    one = run(keys(selection={"participants": 1}, asynchronous=section, rounds=6), "alone").rounds()
    assert [row["staleness"] for row in one.rows("staleness")] == [0] * 6
    assert not one.rows("events")
    assert len(trips(one)) == 6
    assert [row["candidates"] for row in one.rows("rounds")] == [30] * 6
    devices = {"model": "log-normal", "median": 5, "sigma": 0.9}
    rows = run(keys(devices=devices, asynchronous={"concurrency": 6}, rounds=8), "six").rounds().rows("staleness")
    full_s = {row["round"]: max(one["ready_s"] for one in rows if one["round"] == row["round"]) for row in rows}
    assert len(rows) == 32
    assert all(row["sent_s"] < full_s[row["round"] - row["staleness"]] for row in rows)


@pytest.mark.parametrize(("protocol", "busy"), [("plain", 19), ("secagg", 16)])
def test_candidates_are_counted_when_the_round_begins(run: Callable, protocol: str, busy: int) -> None:
    devices = {"model": "log-normal", "median": 5, "sigma": 0.9}
    one = run(keys(protocol, devices=devices, asynchronous={"concurrency": 20}, rounds=5), "run").rounds()
    assert [row["candidates"] for row in one.rows("rounds")] == [30, *[30 - busy] * 4]


@pytest.mark.parametrize("protocol", ["plain", "secagg"])
def test_with_all_clients_in_every_buffer_it_equals_fedavg(run: Callable, protocol: str) -> None:
    section = {"participants": 12}
    alike = {"population": 12, "selection": section, "asynchronous": {"concurrency": 12}, "rounds": 3}
    buffered = run(keys(protocol, **alike), "buffered").rounds()
    synchronous = run(keys(protocol, **alike) | {"asynchronous": None}, "synchronous").rounds()
    assert buffered.federation.state.model.tobytes() == synchronous.federation.state.model.tobytes()
    assert {row["staleness"] for row in buffered.rows("staleness")} == {0}
    assert [len(outcome.survivors) for outcome in buffered.outcomes] == [12, 12, 12]


def test_an_aggregation_does_not_delay_clients_that_train(run: Callable) -> None:
    costs = SLOW["costs"] | {"x25519.agree": 3.0}
    devices = {"model": "log-normal", "median": 5, "sigma": 0.9}
    links = NO_WAY | {"down_mbit_s": 0.01}
    one = run(keys("secagg", devices=devices, links=links, time=SLOW | {"costs": costs}, rounds=8), "run").rounds()
    samples, speed = one.workload.sample_counts, one.federation.network.speed_factors
    assert all(row["ended_s"] - row["started_s"] > 50 for row in one.rows("rounds"))
    download_s = trips(one)[0]["bytes_down"] * 8 / 1e4
    for row in one.rows("staleness"):
        seconds = 0.01 * one.workload.dimension * 2 * samples[row["client"]] * speed[row["client"]]
        assert row["ready_s"] - row["sent_s"] == pytest.approx(seconds + download_s, rel=1e-4)
    waiting = {row["staleness"] for row in one.rows("staleness")}
    assert max(waiting) <= 8  # waiting clients keep their places: 30 of them, 4 at a time


def test_an_update_waits_for_its_client_to_be_back(run: Callable) -> None:
    away = {"model": "markov", "mean_online_s": 20, "mean_offline_s": 40}
    devices = {"model": "log-normal", "median": 5, "sigma": 0.5}
    section = {"concurrency": 10, "redraw_s": 2}
    one = run(keys("secagg", availability=away, devices=devices, asynchronous=section, rounds=15), "run").rounds()
    asked = [row for row in one.rows("exchanges") if row["stage"] == "secagg/advertise-keys"]
    assert len(asked) == 60
    assert {row["outcome"] for row in asked} == {"answered"}
    blind = {"time": SLOW | {"disconnects": "invisible"}}
    other = run(keys("secagg", availability=away, devices=devices, asynchronous=section) | blind, "blind").rounds()
    asked = [row["outcome"] for row in other.rows("exchanges") if row["stage"] == "secagg/advertise-keys"]
    assert "offline" in asked


def trips(one: Run, stage: str = "train") -> list[dict[str, Any]]:
    return [row for row in one.rows("exchanges") if row["stage"] == stage]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lost_clients_are_replaced(run: Callable, protocol: str) -> None:
    one = run(keys(
        protocol,
        population=60,
        availability={"dropout": {"hazard": {"train": 0.3}}},
        devices={"model": "log-normal", "median": 5, "sigma": 0.5},
        selection={"participants": 12},
        asynchronous={"concurrency": 14},
        rounds=5,
    ), "run").rounds()  # fmt: skip
    rows = trips(one)
    lost = [row for row in rows if row["outcome"] == "dropped"]
    assert len(lost) > 5
    assert all(row["received_s"] is None and row["bytes_up"] == 0 and row["bytes_down"] > 0 for row in lost)
    assert [outcome.state for outcome in one.outcomes] == ["completed"] * 5
    begun = sorted(row["sent_s"] for row in rows)
    assert begun.count(begun[0]) <= 14
    for at in begun:  # of those that are over: the others are in no table yet
        assert sum(row["sent_s"] <= at < (row["received_s"] or row["sent_s"]) for row in rows) <= 14


def test_the_records_equal_the_bytes_sent(run: Callable) -> None:
    one = run(keys(links=UNSTEADY["links"], devices=UNSTEADY["devices"], rounds=6), "run").rounds()
    size = len(encode(Train(1, Vector(one.workload.initial_model(), 0))))
    rows = trips(one)
    assert {row["bytes_down"] for row in rows} == {size}
    ready = {(row["round"], row["client"]): row for row in one.rows("staleness")}
    updates = {(row["client"], row["received_s"]): row for row in trips(one, "plain/update")}
    assert len(ready) == 24
    for (_, client), row in ready.items():
        assert row["sent_s"] < row["ready_s"]
        assert updates[client, row["ready_s"]]["bytes_up"] > 4 * one.workload.dimension
    rounds = one.rows("rounds")
    exchanged = one.rows("exchanges")
    for column in ("bytes_down", "bytes_up"):
        assert sum(row[column] for row in rounds) == sum(row[column] for row in exchanged)
    assert [row["ended_s"] for row in rounds] == sorted(row["ended_s"] for row in rounds)
    of_client: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row["sent_s"]):  # nobody trains twice at a time
        assert row["sent_s"] >= of_client.get(row["client"], 0.0)
        of_client[row["client"]] = row["received_s"]


def test_a_client_that_is_too_late_makes_room(run: Callable) -> None:
    devices = {"model": "zipf", "slowest": 1000.0}
    time = SLOW | {"deadline_s": 30}
    one = run(keys(devices=devices, time=time, asynchronous={"concurrency": 6}, population=60), "run").rounds()
    late = [row for row in trips(one) if row["outcome"] == "late"]
    assert late
    assert all(row["received_s"] is None for row in late)
    assert all(outcome.state == "completed" for outcome in one.outcomes)


def test_updates_too_old_are_thrown_away(run: Callable) -> None:
    devices = {"model": "log-normal", "median": 5, "sigma": 1.2}
    section = {"concurrency": 30, "max_staleness": 2}
    one = run(keys(devices=devices, asynchronous=section, rounds=25), "run").rounds()
    assert max(row["staleness"] for row in one.rows("staleness")) == 2
    stale = [row for row in one.rows("events") if row["kind"] == "stale-update"]
    assert stale
    assert all(row["detail"].endswith("at most 2") for row in stale)


def test_a_buffer_that_is_aborted_leaves_the_model(run: Callable) -> None:
    hazard = {"secagg/masked-input": 0.5}
    one = run(keys("secagg", availability={"dropout": {"hazard": hazard}}, rounds=12), "run").rounds()
    states = [outcome.state for outcome in one.outcomes]
    assert {"completed", "aborted"} == set(states)
    before = one.workload.initial_model()
    for outcome in one.outcomes:
        if outcome.state == "aborted":
            assert outcome.reason.startswith("below-threshold")
            assert outcome.model.tobytes() == before.tobytes()
            assert len(outcome.participants) == 4
        before = outcome.model


def test_without_clients_in_progress_the_round_is_skipped(run: Callable) -> None:
    away = {"model": "bernoulli", "unavailable": 1.0}
    (outcome,) = run(keys(availability=away), "run").rounds(1).outcomes
    assert outcome.state == "skipped"
    assert outcome.reason.startswith("too-few-available")


def same(one: Run, other: Run) -> None:
    assert one.federation.state.model.tobytes() == other.federation.state.model.tobytes()
    assert one.federation.state.now_s == other.federation.state.now_s
    for table in SCHEMAS:
        rows, others = (
            [row for row in each.rows(table) if row.get("kind") != "resume"] for each in (one, other)
        )  # fmt: skip
        assert rows == others, table


@pytest.mark.parametrize("protocol", ["plain", "secagg"])
def test_resumed_at_each_round_it_is_the_same_run(run: Callable, protocol: str) -> None:
    unsteady = keys(protocol) | UNSTEADY
    whole = run(unsteady, "whole").rounds()
    lost = {row["outcome"] for row in whole.rows("exchanges")}
    assert lost >= {"answered", "dropped", "late"}
    assert len({outcome.state for outcome in whole.outcomes} | {"completed"}) <= 2
    run(unsteady, "parts").rounds(1)
    for number in range(2, 9):
        parts = run(unsteady, "parts", resume=True).rounds(1)
        assert parts.federation.state.round_number == number
    same(whole, parts)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_number_of_hosts_changes_nothing(run: Callable, protocol: str) -> None:
    unsteady = keys(protocol) | UNSTEADY | {"selection": {"participants": 12}, "asynchronous": {"concurrency": 16}}
    same(run(unsteady, "one").rounds(), run(unsteady, "three", hosts=3).rounds())


def test_weighted_draws_are_even(run: Callable) -> None:
    selection = {"protocol": "weighted-random", "participants": 4}
    one = run(keys(selection=selection, asynchronous={"concurrency": 6}, rounds=20), "run").rounds()
    drawn = one.federation.state.memory["buffered: drawn"]
    assert drawn.max() - drawn.min() <= 1


def test_a_server_optimizer_takes_the_step(run: Callable) -> None:
    aggregation = {"protocol": "plain", "server_optimizer": {"name": "momentum", "beta1": 0, "learning_rate": 0.5}}
    (outcome,) = run(keys(aggregation=aggregation), "run").rounds(1).outcomes
    start = Pulling(30).initial_model()
    assert outcome.model == pytest.approx(start + 0.5 * outcome.aggregate.mean, abs=1e-6)


class Failing(Averaging):
    """A workload in which client 3's code crashes, and client 5's update is not finite."""

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        if client == 3:
            raise ValueError("a bug")
        update = super().train(client, model, round_number)
        return replace(update, delta=update.delta * np.nan) if client == 5 else update


def test_a_client_that_crashes_or_refuses_makes_room(run: Callable) -> None:
    one = run(keys(on_crash="drop", time=SLOW | {"deadline_s": 2}, rounds=20), "run", workload=Failing).rounds()
    found = {(row["client"], row["outcome"]) for row in trips(one) if row["outcome"] != "answered"}
    assert found == {(3, "silent"), (5, "refused")}
    assert {(row["party"], row["kind"]) for row in one.rows("events")} == {
        ("client:3", "crash"),
        ("client:5", "refusal"),
    }
    assert not {3, 5} & {row["client"] for row in one.rows("participation")}
    assert all(outcome.state == "completed" for outcome in one.outcomes)
