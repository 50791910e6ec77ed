"""The same seed gives the same tables and model, bit for bit: again, on more hosts, and after a resume."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.errors import RunError
from testbed.records.schemas import SCHEMAS
from tests.messages_named import naming

UNSTEADY = {
    "devices": {"model": "zipf", "slowest": 4.0},
    "links": {"up_mbit_s": [1, 5, 44], "latency_ms": [5, 100], "server_down_mbit_s": 20},
    "availability": {"model": "bernoulli", "unavailable": [0.05, 0.1], "dropout": {"rate": 0.08}},
    "workload": {"evaluate_every": 2},
}
SELECTIONS: dict[str, dict[str, Any]] = {  # tests/conformance has the others
    "random": {"participants": 6},
    "oort": {"participants": 6, "pacer_step": 2, "unexplored": "check-in"},
    "lotto-client-centric": {"participants": 6, "over_selection": 2.0, "signatures": 4},
    "lotto-server-centric": {"participants": 6, "over_selection": 2.0, "signatures": 4},
}


# One resume of each protocol; the other kind of it where nothing else is new.
RESUMED = [
    pytest.param(protocol, finished, marks=() if finished == (place % 2 == 1) else pytest.mark.slow)
    for place, protocol in enumerate(SELECTIONS)
    for finished in (False, True)
]


def experiment_with(protocol: str, aggregation: str = "secagg", **keys: Any) -> dict[str, Any]:
    selection = {"protocol": protocol, **SELECTIONS[protocol]}
    parameters = {"threshold": 0.6} if aggregation == "secagg" else {}
    return UNSTEADY | {"selection": selection, "aggregation": {"protocol": aggregation, **parameters}} | keys


def result(run: Any) -> tuple[Any, ...]:
    """Everything that a run has recorded (but that it was resumed), and the model's bits."""
    state = run.federation.state
    rows = {table: run.rows(table) for table in SCHEMAS}
    rows["events"] = [event for event in rows["events"] if event["kind"] != "resume"]
    tables = tuple(repr(rows[table]) for table in SCHEMAS)  # repr: every bit of a float
    return (*tables, state.model.tobytes(), state.participations.tobytes(), state.now_s, state.round_number)


@pytest.mark.parametrize("protocol", SELECTIONS)
def test_again_and_on_three_hosts(protocol: str, run: Callable) -> None:
    keys = experiment_with(protocol)
    once = result(run(keys, "once").rounds())
    assert result(run(keys, "again").rounds()) == once
    assert result(run(keys, "spread", hosts=3).rounds()) == once
    assert result(run(keys | {"seed": 4}, "other").rounds()) != once


@pytest.mark.parametrize("protocol", ["random", "lotto-server-centric"])
def test_float_sums_do_not_depend_on_the_hosts(protocol: str, run: Callable) -> None:
    keys = experiment_with(protocol, "plain")
    assert result(run(keys, "one").rounds()) == result(run(keys, "five", hosts=5).rounds())


@pytest.mark.parametrize(("protocol", "finished_between"), RESUMED)
def test_a_resumed_run_equals_an_uninterrupted_one(protocol: str, finished_between: bool, run: Callable) -> None:
    keys = experiment_with(protocol)
    uninterrupted = run(keys, "whole").rounds()
    stopped = run(keys, "stopped").rounds(3)
    assert stopped.federation.state.round_number == 3
    if finished_between:
        stopped.records.finish()
    resumed = run(keys, "stopped", resume=True, hosts=2).rounds()
    assert len(resumed.outcomes) == 3
    resumed.records.finish()
    assert result(resumed) == result(uninterrupted)
    assert "completed" in {outcome.state for outcome in uninterrupted.outcomes[3:]}


def test_a_run_is_resumed_only_by_an_experiment_that_fits(run: Callable) -> None:
    run(experiment_with("random"), "here").rounds(1)
    with pytest.raises(RunError, match=naming("here", "23 parameters", "30 clients")) as error:
        run(experiment_with("random", population=31), "here", resume=True)
    assert "\n" not in str(error.value)


def test_a_finished_run_has_nothing_left_to_do(run: Callable) -> None:
    run(experiment_with("random", rounds=2), "here").rounds()
    assert run(experiment_with("random", rounds=2), "here", resume=True).rounds().outcomes == []
    longer = run(experiment_with("random", rounds=3), "here", resume=True).rounds()
    assert [row["round"] for row in longer.rows("rounds")] == [1, 2, 3]


def test_without_a_seed_secrets_are_fresh_and_the_simulation_is_not(run: Callable) -> None:
    keys = experiment_with("lotto-client-centric", seed=None)
    first, second = (run(keys, name, seed=11) for name in ("first", "second"))
    assert first.plan.randomness.secrets_from_system
    boards = [r.federation.directory.vrf.tobytes() for r in (first, second)]
    assert boards[0] != boards[1]
    everybody = np.arange(first.plan.experiment.population)
    away = [
        [
            r.federation.network.availability.presence(number, "check-in", 0.0, everybody).reachable.tolist()
            for number in (1, 2)
        ]
        for r in (first, second)
    ]
    assert away[0] == away[1]
    assert (first.federation.network.speed_factors == second.federation.network.speed_factors).all()


def test_the_time_that_a_run_took_adds_up_over_its_sessions(run: Callable) -> None:
    keys = experiment_with("random", rounds=2)
    first = run(keys, "here").rounds(1).federation.state.wall_s
    both = run(keys, "here", resume=True).rounds().federation.state.wall_s
    assert 0 < first < both < 3600


@pytest.mark.parametrize("hosts", [1, 3])
def test_single_vectors_can_be_had_for_attacks_and_debugging(hosts: int, run: Callable) -> None:
    federation = run(experiment_with("random", "plain"), hosts=hosts)
    (outcome,) = federation.rounds(1).outcomes
    network = federation.federation.network
    last = (1, len(network.exchanges) - 1)
    vectors = asyncio.run(network.hosts.vectors(last, outcome.survivors))
    assert sorted(vectors) == outcome.survivors.tolist()
    model = federation.workload.initial_model()
    for client, vector in vectors.items():
        assert vector.values.tobytes() == federation.workload.train(client, model, 1).delta.tobytes()
