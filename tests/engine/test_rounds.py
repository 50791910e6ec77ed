"""Recorded rounds: completed, skipped and aborted ones, and their costs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.engine.plan import RunPlan
from testbed.errors import CodeCrashed, ExperimentError, Refusal, RoundAborted
from testbed.experiment.schema import Experiment
from testbed.records.schemas import SCHEMAS
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.random_selection import RandomSelection
from tests.messages_named import naming

PLAIN = {"aggregation": {"protocol": "plain"}}


def lotto(**keys: Any) -> dict[str, Any]:
    return {"selection": {"protocol": "lotto-server-centric", "participants": 6, "over_selection": 2.0, **keys}}


def test_a_completed_round_moves_the_model_by_the_weighted_mean(run: Callable) -> None:
    federation = run(PLAIN | {"selection": {"participants": 5}}, "run")
    before = federation.federation.state.model.copy()
    (outcome,) = federation.rounds(1).outcomes
    workload, who = federation.workload, outcome.participants.tolist()
    updates = np.stack([workload.train(client, before, 1).delta for client in who]).astype(np.float64)
    mean = np.average(updates, axis=0, weights=workload.sample_counts[who])
    assert federation.federation.state.model == pytest.approx(before + mean, abs=1e-6)
    assert outcome.survivors.tolist() == who
    assert outcome.training_loss == pytest.approx(np.mean([workload.train(c, before, 1).loss for c in who]))
    assert federation.federation.state.participations.tolist() == [int(c in who) for c in range(30)]
    (row,) = federation.rows("rounds")
    assert (row["outcome"], row["reason"]) == ("completed", "")
    assert (row["population"], row["candidates"], row["participants"], row["survivors"]) == (30, 30, 5, 5)
    assert federation.rows("participation") == [
        {"round": 1, "client": c, "survived": True, "dishonest": False} for c in who
    ]


def test_the_rounds_add_up(run: Callable) -> None:
    """Bytes, times and participants of the rounds are those of the exchanges."""
    keys = lotto(signatures=4) | {
        "links": {"latency_ms": [10, 80]},
        "availability": {"model": "bernoulli", "unavailable": 0.1, "dropout": {"rate": 0.1}},
    }
    federation = run(keys, "run").rounds()
    rounds, exchanges = federation.rows("rounds"), federation.rows("exchanges")
    clock_s = 0.0
    for row in rounds:
        mine = [exchange for exchange in exchanges if exchange["round"] == row["round"]]
        assert row["bytes_down"] == sum(exchange["bytes_down"] for exchange in mine) > 0
        assert row["bytes_up"] == sum(exchange["bytes_up"] for exchange in mine) > 0
        assert row["started_s"] == clock_s
        clock_s = row["ended_s"]
        for exchange in mine:
            assert row["started_s"] <= exchange["sent_s"] <= clock_s
            assert exchange["outcome"] == "late" or (exchange["received_s"] or 0) <= clock_s
            assert (exchange["received_s"] is None) == (exchange["outcome"] in ("offline", "dropped", "silent"))
        assert 0 < row["server_compute_s"] < clock_s - row["started_s"]
        took_part = [p for p in federation.rows("participation") if p["round"] == row["round"]]
        assert len(took_part) == row["participants"]
        assert sum(p["survived"] for p in took_part) == row["survivors"]
        if row["outcome"] == "completed":
            assert row["survivors"] >= 4
    selected = [p["client"] for p in federation.rows("participation")]
    assert np.bincount(selected, minlength=30).tolist() == federation.federation.state.participations.tolist()
    for table in SCHEMAS:
        for column in federation.records.table(table).itercolumns():
            assert not any(isinstance(value, float) and np.isnan(value) for value in column.to_pylist())


def test_too_few_candidates_abort_with_their_number_and_leave_the_model(run: Callable) -> None:
    keys = {"selection": {"protocol": "lotto-client-centric", "participants": 15, "over_selection": 1.0}, "rounds": 8}
    federation = run(keys | PLAIN, "run")
    models = [federation.federation.state.model.tobytes()]
    for _ in range(8):
        federation.rounds(1)
        models.append(federation.federation.state.model.tobytes())
    rows = federation.rows("rounds")
    aborted = [row for row in rows if row["outcome"] == "aborted"]
    assert 0 < len(aborted) < 8
    for row in aborted:
        assert row["reason"] == f"too-few-candidates: {row['candidates']} candidates, 15 wanted"
        assert 0 < row["candidates"] < 15
        assert (row["participants"], row["survivors"]) == (0, 0)
        assert row["bytes_down"] > 0
        assert row["ended_s"] > row["started_s"]
        assert models[row["round"]] == models[row["round"] - 1]
    for row in rows:
        if row["outcome"] == "completed":
            assert row["candidates"] >= 15 == row["participants"]
            assert models[row["round"]] != models[row["round"] - 1]


def test_a_round_aborted_after_selection_keeps_its_participants(run: Callable) -> None:
    lost = {"availability": {"dropout": {"rate": 1.0, "stage": "lotto/participants"}}}
    federation = run(lotto() | PLAIN | lost, "run").rounds(1)
    (row,) = federation.rows("rounds")
    assert (row["outcome"], row["reason"]) == ("aborted", "too-few-signatures: 0 of 6 needed")
    assert (row["participants"], row["survivors"]) == (6, 0)
    assert row["candidates"] >= 6
    assert [p["survived"] for p in federation.rows("participation")] == [False] * 6
    assert federation.federation.state.participations.sum() == 6  # selected, though nothing came of it


def test_a_client_that_always_drops_out_is_not_chosen_for_ever(run: Callable) -> None:
    gone = {"availability": {"dropout": {"rate": 0.3, "stage": "train"}}}
    keys = PLAIN | gone | {"rounds": 15, "selection": {"protocol": "weighted-random", "participants": 6}}
    federation = run(keys, "run").rounds()
    assert not all(p["survived"] for p in federation.rows("participation"))
    selected = np.bincount([p["client"] for p in federation.rows("participation")], minlength=30)
    assert selected.tolist() == [3] * 30


def test_a_round_without_admissible_clients_is_skipped(run: Callable) -> None:
    away = {"availability": {"model": "bernoulli", "unavailable": 0.9}}
    federation = run(PLAIN | away | {"selection": {"participants": 20}}, "run").rounds(2)
    for row in federation.rows("rounds"):
        assert row["outcome"] == "skipped"
        assert row["reason"] == f"too-few-available: {row['candidates']} available, 20 wanted"
        assert row["ended_s"] - row["started_s"] == pytest.approx(20)  # the deadline of the check-in
    assert {exchange["stage"] for exchange in federation.rows("exchanges")} == {"check-in"}


def test_a_quorum_carries_a_round_through_losses_before_and_after_training(run: Callable) -> None:
    """Secure aggregation over the agreed list, of which some are lost before they sign."""
    lost = {"availability": {"dropout": {"rate": [0, 0, 0, 0, 1], "stage": "lotto/participants"}}}
    secagg = {"aggregation": {"protocol": "secagg", "threshold": 4}, "rounds": 8}
    strict = run(lotto() | lost | secagg, "strict").rounds()
    quorum = run(lotto(signatures=4) | lost | secagg, "quorum").rounds()
    for was, now in zip(strict.outcomes, quorum.outcomes, strict=True):
        missing = int((now.participants % 5 == 4).sum())
        if now.reason.startswith("too-few-candidates"):
            continue
        assert was.participants.tolist() == now.participants.tolist()
        assert was.state == ("aborted" if missing else "completed")
        if missing <= 2:
            assert (now.state, now.reason) == ("completed", "")
            assert now.survivors.tolist() == [client for client in now.participants.tolist() if client % 5 != 4]
    assert "aborted" in {outcome.state for outcome in strict.outcomes}
    states = [outcome.state for outcome in quorum.outcomes]
    assert states.count("completed") > [outcome.state for outcome in strict.outcomes].count("completed")


def test_a_client_that_is_lost_before_training_is_not_asked_to_train(run: Callable) -> None:
    lost = {"availability": {"dropout": {"rate": [0, 1], "stage": "lotto/participants"}}}
    federation = run(lotto(signatures=1) | lost | PLAIN, "run").rounds(1)
    (outcome,) = federation.outcomes
    trained = [e["client"] for e in federation.rows("exchanges") if e["stage"] == "train"]
    assert trained == [client for client in outcome.participants.tolist() if client % 2 == 0]
    assert len(trained) < 6


class Choosing(RandomSelection):
    """Fails as told."""

    error: Exception

    async def select(self, round_: SelectionRound) -> Selection:
        await super().select(round_)
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refusal("pki.unknown-client", "client 7 is not registered"), "pki.unknown-client: client 7 is not registered"),
        (Refusal("sum.empty"), "sum.empty"),
        (RoundAborted("own-reason", "of one's own"), "own-reason: of one's own"),
        (RoundAborted("own-reason"), "own-reason"),
    ],
)
def test_a_refusal_by_the_server_ends_the_round_and_not_the_run(error: Exception, reason: str, run: Callable) -> None:
    federation = run(PLAIN, "run")
    federation.plan.selection = Choosing(federation.experiment.selection, 30)
    federation.plan.selection.error = error
    federation.rounds(2)
    assert [(row["outcome"], row["reason"]) for row in federation.rows("rounds")] == [("aborted", reason)] * 2


def test_a_fault_of_the_program_is_not_an_outcome(run: Callable) -> None:
    federation = run(PLAIN, "run")
    federation.plan.selection = Choosing(federation.experiment.selection, 30)
    federation.plan.selection.error = ZeroDivisionError("a fault")
    with pytest.raises(CodeCrashed, match=naming("round 1", "ZeroDivisionError: a fault")) as ended:
        federation.rounds(1)
    assert isinstance(ended.value.__cause__, ZeroDivisionError)
    assert federation.rows("rounds") == []


def test_evaluation_every_k_rounds_and_after_the_last(run: Callable) -> None:
    federation = run(PLAIN | {"workload": {"evaluate_every": 3}, "rounds": 7}, "run").rounds()
    measured = [row["accuracy"] is not None for row in federation.rows("rounds")]
    assert measured == [False, False, True, False, False, True, True]
    last = federation.rows("rounds")[-1]
    assert last["accuracy"] == federation.workload.evaluate(federation.federation.state.model).accuracy
    assert (last["loss"] is None) == (last["accuracy"] is None)
    assert last["recalls"] is None  # this workload does not say


def test_progress_tells_each_stage_and_each_end(run: Callable) -> None:
    federation = run(PLAIN | {"rounds": 2}).rounds()
    told = [(p.round_number, p.stage, p.outcome) for p in federation.progress]
    stages = ["check-in", "train", "plain/update"]
    expected = [(number, *what) for number in (1, 2) for what in [*((s, "") for s in stages), ("", "completed")]]
    assert told == expected
    assert [p.now_s for p in federation.progress] == sorted(p.now_s for p in federation.progress)
    assert federation.progress[-1].accuracy is not None


def test_fair_batches_even_out_the_participations(run: Callable) -> None:
    keys = PLAIN | {"rounds": 30, "selection": {"protocol": "batch-partition", "participants": 6, "privacy": 3}}
    federation = run(keys).rounds()
    counts = federation.federation.state.participations
    assert counts.sum() == 30 * 6
    assert (counts.reshape(-1, 3) == counts[::3, None]).all()  # whole batches only
    assert counts.max() - counts.min() <= 3


def test_a_plan_refuses_settings_that_cannot_work(run: Callable) -> None:
    stage = {"availability": {"dropout": {"rate": 0.1, "stage": "secagg/masked"}}}
    with pytest.raises(ExperimentError, match=r"availability\.dropout\.stage: unknown stage 'secagg/masked'"):
        run(PLAIN | stage)
    narrow = {"aggregation": {"protocol": "secagg", "bits": 16, "levels_bits": 16}}
    with pytest.raises(ExperimentError, match=r"aggregation\.bits"):
        run(narrow)


def test_the_ring_must_hold_the_largest_round_that_may_be_drawn(run: Callable) -> None:
    """Bernoulli selection may draw everybody, so K weights that fit are not enough."""
    ring = {"aggregation": {"protocol": "secagg", "bits": 20, "levels_bits": 16, "weights": "equal"}}
    run(ring | {"selection": {"protocol": "random", "participants": 8}})
    with pytest.raises(ExperimentError, match="30 participants"):
        run(ring | {"selection": {"protocol": "bernoulli", "participants": 8}})


def test_a_threshold_must_fit_the_largest_round_that_selection_may_choose() -> None:
    data = {
        "population": 11,
        "selection": {"protocol": "partition", "participants": 4},
        "aggregation": {"protocol": "secagg", "threshold": 3},
    }
    with pytest.raises(ExperimentError, match=naming("aggregation.threshold: t = 3 of 6", "6 participants")):
        RunPlan(Experiment.model_validate(data), 0)
    data["aggregation"] = {"protocol": "secagg", "threshold": 0.6}
    assert RunPlan(Experiment.model_validate(data), 0).maximum_participants == 6


def test_time_passes_between_rounds_if_it_should(run: Callable[..., Any]) -> None:
    together, apart = (
        run(
            {"rounds": 3, "time": {"compute": "modelled", "deadline_s": 20, "between_rounds_s": pause}}, name=str(pause)
        )
        .rounds()
        .rows("rounds")
        for pause in (0.0, 100.0)
    )
    for number, (first, second) in enumerate(zip(together, apart, strict=True)):
        assert second["started_s"] == pytest.approx(first["started_s"] + 100 * number)
        assert second["ended_s"] - second["started_s"] == pytest.approx(first["ended_s"] - first["started_s"])
