"""Runs of a server that adds correlated noise: planned, refused if impossible, resumed, and accounted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.matrix.section import CorrelatedNoise
from testbed.records.schemas import SCHEMAS
from tests.messages_named import naming
from tests.privacy.matrix import oracles

SELECTION = {"protocol": "min-separation", "participants": 6, "separation": 3}
BINS = {"protocol": "balls-in-bins", "bins": 4}
PROTOCOLS = ["secagg", "secagg-plus", "plain"]
SEEDS = (3, 11, 12, 13, 14)


def noisy(
    protocol: str = "plain", selection: dict[str, Any] = SELECTION, aggregation: Any = (), **noise: Any
) -> dict[str, Any]:
    section = {"mechanism": "correlated", "noise_multiplier": 2.0, "clip": 0.5} | noise
    return {
        "rounds": 9,
        "selection": selection,
        "aggregation": {"protocol": protocol, "weights": "equal", "noise": section, **dict(aggregation)},
    }


def planned(keys: dict[str, Any]) -> CorrelatedNoise:
    noise = validated({"population": 30} | keys, "test").aggregation.noise  # type: ignore[attr-defined]
    assert isinstance(noise, CorrelatedNoise)
    return noise


def tables(run: Any) -> str:
    return repr({table: run.rows(table) for table in SCHEMAS})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_on_more_hosts_and_after_a_resume(protocol: str, run: Callable[..., Any]) -> None:
    keys = noisy(protocol)
    once = run(keys, "once").rounds()
    assert {outcome.state for outcome in once.outcomes} == {"completed"}
    spread = run(keys, "spread", hosts=3).rounds()
    assert tables(spread) == tables(once)
    assert spread.federation.state.model.tobytes() == once.federation.state.model.tobytes()
    run(keys, "stopped").rounds(4)
    resumed = run(keys, "stopped", resume=True, hosts=2).rounds()
    assert resumed.federation.state.model.tobytes() == once.federation.state.model.tobytes()
    assert resumed.rows("privacy") == once.rows("privacy")


@pytest.mark.parametrize("strategy", ["blt", "band", "identity", "prefix-sum"])
def test_rows_of_the_ledger_are_the_costs_of_each_clients_rounds(strategy: str, run: Callable[..., Any]) -> None:
    """With dropouts, skipped and aborted rounds; against the participation that was recorded."""
    keys = noisy("secagg", strategy=strategy, aggregation={"threshold": 6})
    keys["availability"] = {"model": "always", "dropout": {"rate": 0.04, "stage": "train"}}
    done = run(keys, strategy).rounds()
    states = {outcome.state for outcome in done.outcomes}
    assert states == {"completed", "aborted"}, "choose another rate: both kinds are to be seen"
    accountant = done.plan.noise_plan(done.workload.dimension).accountant
    assert isinstance(accountant, CorrelatedAccountant)
    had: dict[int, list[int]] = {}
    expected = []
    for row in done.rows("participation"):
        if row["survived"]:
            had.setdefault(row["client"], []).append(row["round"] - 1)
            matrix = oracles.dense(accountant.strategy.coefficients)
            squared = oracles.changed(matrix, tuple(had[row["client"]])) ** 2
            delta = done.rows("privacy")[0]["delta"]
            expected.append((row["round"], row["client"], accountant.epsilon_of(np.array([squared]), delta)[0]))
    found = [(row["round"], row["client"], row["epsilon"]) for row in done.rows("privacy")]
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in expected], rel=1e-9)
    assert all(row["epsilon"] <= row["planned_epsilon"] * (1 + 1e-9) for row in done.rows("privacy"))
    assert {row["colluding_noise"] for row in done.rows("privacy")} == {0.0}


def test_without_a_seed_noise_differs_and_attempts_are_charged(run: Callable[..., Any]) -> None:
    """The run restarts after round 4 when round 5 was in its last stage: all clients of a round have one more row."""
    keys = noisy() | {"seed": None}
    models = [run(keys, name).rounds().federation.state.model for name in ("one", "two")]
    assert np.abs(models[0] - models[1]).max() > 0.01
    stopped = run(keys, "stopped").rounds(4)
    before = {row["client"] for row in stopped.rows("privacy")}
    stopped.federation.privacy.asking("plain/update", 5, np.array([0, 29]))
    resumed = run(keys, "stopped", resume=True).rounds()
    attempted = [row for row in resumed.rows("privacy") if row["round"] == 5 and row["noise"] is None]
    assert {row["client"] for row in attempted} == before | {0, 29}
    once_more = run(keys, "stopped", resume=True).federation.privacy.ledger
    last = {row["client"]: row["epsilon"] for row in resumed.rows("privacy")}
    assert {client: once_more.of(client) for client in last} == pytest.approx(last)


def test_the_guarantees_of_selection_are_recorded() -> None:
    noise = planned(noisy())
    assert (noise.rounds, noise.participants, noise.min_separation, noise.max_participations) == (9, 6, 3, 3)
    experiment = validated({"population": 30} | noisy(), "test")
    assert validated(experiment.plain(), "test").aggregation == experiment.aggregation
    bins = planned(noisy(selection=BINS))
    assert (bins.participants, bins.min_separation, bins.max_participations) == (8, 4, 3)
    once = planned(noisy(selection=SELECTION | {"max_participations": 1}))
    assert once.max_participations == 1
    everywhere = planned(noisy(selection={"protocol": "random", "participants": 5}, strategy="identity"))
    assert (everywhere.min_separation, everywhere.max_participations) == (1, 9)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            noisy(selection={"protocol": "random", "participants": 5}),
            "noise.strategy: blt needs a least distance between the rounds of a client, which this selection does "
            "not promise; set selection.protocol to min-separation, or strategy: identity",
        ),
        (noisy(min_separation=5), "noise.min_separation: 5, but the selection promises 3 over 9 rounds; leave it out"),
        (noisy(strategy="band", bands=4), "noise.bands: 4; at most 3, as the rounds of a client must not overlap"),
        (noisy() | {"rounds": 12, "aggregation": {"protocol": "plain", "weights": "equal", "noise": {
            "mechanism": "correlated", "noise_multiplier": 1, "rounds": 9}}},
         "noise.rounds: 9, for an experiment of 12: the noise would end before it"),
        (noisy(aggregation={"weights": "samples"}), "weights: noise needs updates that all count the same"),
        (noisy(enforcement={"tolerated_dropouts": 1}), "aggregation.noise.enforcement: unknown key"),
        (noisy(noise_multiplier=-1), "aggregation.noise.noise_multiplier: should be greater than 0, not -1"),
        (noisy() | {"adversary": {"dishonest": 0.2, "clients": ["skip-noise"]}}, "skip-noise applies to none"),
    ],
)  # fmt: skip
def test_noise_that_cannot_be_planned_is_refused(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        RunPlan(validated({"population": 30} | keys, "test"), 0)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_budget_ends_the_run(run: Callable[..., Any]) -> None:
    """Six of 30 clients in rounds that are 3 apart: nobody has a second before round 4."""
    whole = run(noisy(), "whole").rounds()
    costs = sorted({row["epsilon"] for row in whole.rows("privacy") if row["round"] <= 3})
    done = run(noisy() | {"privacy": {"budget": 1.05 * costs[-1]}}, "budget").rounds()
    assert 1 <= done.federation.state.round_number < 9
    assert done.federation.privacy.spent.startswith("privacy budget: client ")
    assert max(row["epsilon"] for row in done.rows("privacy")) <= 1.05 * costs[-1]
    with pytest.raises(ExperimentError, match=naming("privacy.budget", 0.01)):
        run(noisy() | {"privacy": {"budget": 0.01}}, "none")


def test_noise_is_charged_to_the_server(run: Callable[..., Any]) -> None:
    """Four buffers and a model of 23 parameters, padded to 32: 5 * 32 elements of the recurrence a round, or 32."""
    seconds = [
        [row["server_compute_s"] for row in run(noisy(strategy=name), name).rounds(3).rows("rounds")]
        for name in ("identity", "blt")
    ]
    more = np.array(seconds[1]) - np.array(seconds[0])
    np.testing.assert_allclose(more, 32 * 4 * 1.5e-9, rtol=1e-3)


def test_noise_takes_itself_back(run: Callable[..., Any]) -> None:
    """With clients that learn nothing the model is noise: less of it where noise is correlated, at the same epsilon."""
    distance = {}
    for name in ("identity", "blt", "band"):
        keys = noisy(strategy=name, selection=SELECTION | {"separation": 5}) | {"rounds": 60}
        models = [run(keys | {"seed": seed}, f"{name}{seed}").rounds().federation.state.model for seed in SEEDS]
        distance[name] = float(np.linalg.norm(models))  # over all seeds: one draw varies by a third
    assert max(distance["blt"], distance["band"]) < 0.7 * distance["identity"]
