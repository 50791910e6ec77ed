"""The flat summary of a run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import analysis.multi_round.kept
import workloads
from analysis.comparison.cells import quality
from analysis.comparison.overhead import compare
from analysis.comparison.report import render
from analysis.comparison.summary import summarise
from analysis.multi_round import WeakPrivacy
from testbed.engine.in_process import run_in_process
from testbed.experiment.schema import Experiment
from testbed.network.recorder import Event
from testbed.records import RunDirectory, RunRecords
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]

REQUIRED = {
    "label", "name", "seed", "population", "rounds_completed", "rounds_skipped", "rounds_aborted", "mean_round_s",
    "mean_client_s", "server_bytes_per_round", "client_bytes_per_round", "server_compute_s_per_round",
    "participants_mean", "final_accuracy", "best_accuracy", "fairness_gap", "aggregation_cardinality",
    "multi_round_privacy_weak", "multi_round_privacy_weak_certified", "multi_round_privacy_weak_lower_bound",
    "dropouts", "refusals", "clock", "virtual_s", "wall_s",
}  # fmt: skip


def test_a_summary_is_flat_json_without_nan(make_run: MakeRun) -> None:
    summary = summarise(make_run("run", "lotto-client-centric", failing={2: "aborted"}, accuracy_every=3))
    assert set(summary) >= REQUIRED
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert all(value is None or type(value) in (int, float, str, bool) for value in summary.values())


def test_what_it_says_of_a_run(make_run: MakeRun) -> None:
    run = make_run("run", "random", rounds=9, failing={2: "aborted", 5: "skipped", 6: "skipped"}, accuracy_every=4)
    summary, rounds = summarise(run), run.rounds
    assert [summary[f"rounds_{what}"] for what in ("completed", "skipped", "aborted")] == [6, 2, 1]
    completed = rounds[rounds["outcome"] == "completed"]
    assert summary["mean_round_s"] == pytest.approx((completed["ended_s"] - completed["started_s"]).mean())
    assert summary["server_bytes_per_round"] == pytest.approx((completed["bytes_up"] + completed["bytes_down"]).mean())
    everything = (rounds["bytes_up"] + rounds["bytes_down"]).sum()
    assert summary["server_bytes_per_update"] == pytest.approx(everything / 6)
    assert summary["round_s_per_update"] == pytest.approx(rounds["ended_s"].iloc[-1] / 6)
    assert summary["round_s_per_update"] > summary["mean_round_s"]
    assert summary["final_accuracy"] == rounds["accuracy"][7]  # round 8 of 9: every fourth is evaluated
    assert summary["best_accuracy"] == max(rounds["accuracy"][3], rounds["accuracy"][7])
    assert (summary["virtual_s"], summary["wall_s"]) == (rounds["ended_s"].iloc[-1], 13.5)
    assert (summary["seed"], summary["population"], summary["selection"]) == (1, 100, "random")
    # One of ten participants drops out of rounds 3 and 9 (6 is skipped before anybody is chosen); round 2 lost all.
    assert (summary["dropouts"], summary["participants_lost"]) == (2, 12)
    assert summary["aggregation_cardinality"] == pytest.approx((4 * 10 + 2 * 9) / 9)


def test_refusals_are_counted_and_other_events_are_not(tmp_path: Path) -> None:
    events = [Event("lotto/participants", "client:3", kind, "why") for kind in ("refusal", "crash", "refusal")]
    made = recorded.RecordedRound(0.0, 1.0, [], outcome="aborted", reason="too-few-signatures", events=events)
    run = recorded.write_run(tmp_path / "run", {"name": "n", "seed": None, "population": 5}, [made])
    assert summarise(run)["refusals"] == 2


@pytest.mark.parametrize("failing", [{}, {1: "aborted", 2: "skipped"}])
def test_without_a_completed_round_nothing_is_made_up(make_run: MakeRun, failing: dict[int, str]) -> None:
    summary = summarise(make_run("run", rounds=len(failing), failing=failing, accuracy_every=None))
    assert summary["rounds_completed"] == 0
    unknown = """mean_round_s mean_client_s server_bytes_per_round client_bytes_per_round round_s_per_update
    participants_mean final_accuracy best_accuracy multi_round_privacy_weak multi_round_privacy_weak_certified"""
    assert all(summary[key] is None for key in unknown.split())
    assert (summary["fairness_gap"], summary["aggregation_cardinality"]) == ((0.0, 0.0) if failing else (None, None))
    assert summary["failed_rounds_bytes"] > 0 if failing else summary["virtual_s"] == 0.0
    json.dumps(summary, allow_nan=False)


def test_whole_batches_are_found_in_the_records(tmp_path: Path) -> None:
    rounds = [recorded.RecordedRound(0, 1, [], batch, batch) for batch in ([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5])]
    run = recorded.write_run(tmp_path / "run", {"name": "n", "population": 9}, rounds)
    summary = summarise(run)
    assert (summary["multi_round_privacy_weak"], summary["multi_round_privacy_weak_certified"]) == (3, True)
    assert summary["multi_round_privacy_strong"] == 3
    assert summary["fairness_gap"] == pytest.approx(2 / 3)  # clients 6, 7 and 8 never took part
    assert summary["fairness_gap_completed"] == summary["fairness_gap"]  # no round was skipped


def test_a_lost_member_breaks_the_batch(tmp_path: Path) -> None:
    rounds = [recorded.RecordedRound(0, 1, [], [0, 1, 2], survivors) for survivors in ([0, 1, 2], [0, 1])]
    run = recorded.write_run(tmp_path / "run", {"name": "n", "population": 3}, rounds)
    assert summarise(run)["multi_round_privacy_weak"] == 1


def test_an_unfinished_search_is_not_certified(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def unfinished(matrix: Any, time_limit_s: float) -> WeakPrivacy:
        limits.append(time_limit_s)
        return WeakPrivacy(value=4, lower_bound=2)

    monkeypatch.setattr(analysis.multi_round.kept, "weak_privacy", unfinished)
    summary = summarise(make_run("run"), privacy_time_limit_s=0.5)
    assert [summary[f"multi_round_privacy_weak{what}"] for what in ("", "_certified", "_lower_bound")] == [4, False, 2]
    assert limits == [0.5]


def test_infinities_become_none(tmp_path: Path) -> None:
    made = recorded.RecordedRound(0, 1, [], [0], [0], accuracy=math.inf)
    run = recorded.write_run(tmp_path / "run", {"name": "n", "population": 3}, [made])
    assert summarise(run)["final_accuracy"] is None


def test_perplexity_is_that_of_the_loss_and_of_language_alone(tmp_path: Path) -> None:
    rounds = [recorded.RecordedRound(0, 1, [], [0], [0], accuracy=0.1, loss=loss) for loss in (6.0, 3.0, 4.0, None)]
    for dataset in ("synthetic-reddit", "digits"):
        experiment = {"name": "n", "population": 3, "workload": {"dataset": dataset, "training": "real"}}
        run = recorded.write_run(tmp_path / dataset, experiment, rounds)
        summary, table = summarise(run), render(compare([run]))
        if dataset == "digits":
            assert summary["final_perplexity"] is summary["best_perplexity"] is None
            assert "Perplexity" not in table
        else:
            assert summary["final_perplexity"] == pytest.approx(math.exp(4.0))
            assert summary["best_perplexity"] == pytest.approx(math.exp(3.0))
            assert "Perplexity" in table
            assert "54.6" in table
        assert summary["training"] == "real"


def test_attack_success_is_that_of_the_last_evaluation_and_of_poisoned_samples_alone(tmp_path: Path) -> None:
    learned = {"workload": {"dataset": "digits", "model": "logistic"}, "rounds": 2, "population": 8}
    plain = {"selection": {"participants": 4}, "aggregation": {"protocol": "plain"}, "seed": 1, "name": "poisoned"}
    for name, clients in (("honest", None), ("poisoned", ["backdoor"])):
        adversary = {} if clients is None else {"adversary": {"dishonest": 2, "clients": clients}}
        described = Experiment.model_validate(learned | plain | adversary)
        records = RunDirectory.create(tmp_path / name, described.plain())
        built = workloads.build(described.workload, 8, 1)
        run_in_process(described, built, 0, records, lambda progress: None)
        run = RunRecords(tmp_path / name)
        frame = compare([run])
        shown = {column.heading: column.in_cells() for column in quality(frame)}
        if clients is None:
            assert summarise(run)["final_attack_success"] is None
            assert "Attack success" not in shown
        else:
            last = run.rounds["attack_success"].iloc[-1]
            assert summarise(run)["final_attack_success"] == last
            assert frame["final_attack_success"].tolist() == [last]
            assert shown["Attack success"] == [f"{100 * last:.1f}%"]
