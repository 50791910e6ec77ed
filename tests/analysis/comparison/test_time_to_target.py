"""Time, rounds and bytes to a target: by hand, against slow oracles, censored and paired."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.comparison import target_table
from analysis.comparison.rows import rows_of
from analysis.comparison.summary import summarise
from analysis.comparison.targets import Target, default_target, named_targets
from analysis.comparison.time_to_target import MEASURES, compare_targets, reach, reached_in, targets_beside, trajectory
from analysis.statistics import mean_interval, ratio_interval
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.analysis.comparison.learned import learner
from tests.messages_named import naming
from tests.thoroughness import examples

Learn = Callable[..., RunRecords]
HALF = Target("accuracy", 0.5)


def only(frame: pd.DataFrame, protocol: str = "random") -> Any:
    [row] = frame[frame["protocol"] == protocol].to_dict("records")
    return row


def test_a_trajectory_has_the_evaluated_rounds_and_all_that_was_sent_till_then(learn: Learn) -> None:
    run = learn([None, 0.2, None, 0.6], outcomes=["aborted", "completed", "skipped", "completed"])
    frame = trajectory(run, "accuracy")
    assert frame.to_dict("list") == {
        "round": [2, 4],
        "time_s": [20.0, 40.0],
        "server_bytes": [440, 880],
        "client_bytes": [446, 892],
        "value": [0.2, 0.6],
        "changed": [True, True],
    }
    found = reach(run, HALF)
    assert (found.reached, found.rounds, found.time_s, found.server_bytes, found.client_bytes) == (
        True, 4, 40.0, 880, 892,
    )  # fmt: skip


def test_a_model_that_no_round_has_changed_reaches_nothing(learn: Learn) -> None:
    """All rounds failed, and the initial model's accuracy counted as reached in round 1."""
    run = learn([0.6, 0.6, 0.6], outcomes=["aborted", "skipped", "aborted"])
    found = reach(run, HALF)
    assert (found.reached, found.met_at_start, found.rounds, found.time_s) == (False, True, 3, 30.0)
    row = only(compare_targets([run], [HALF]))
    assert (row["reached"], row["unchanged"], row["met_at_start"], row["estimator"]) == (0, 1, 1, "not reached")
    with pytest.raises(ExperimentError, match=naming("round", "completed", "testbed status")):
        default_target(rows_of([run]))
    frame, why = targets_beside([run])
    assert frame is None
    assert "no round has completed" in why
    summary = summarise(learn([0.6], outcomes=["aborted"], targets=["50%"]))
    assert (summary["reached.accuracy>=0.5"], summary["rounds_to_target.accuracy>=0.5"]) == (False, None)


def test_an_initial_model_that_meets_the_target_reaches_it_in_the_first_completed_round(learn: Learn) -> None:
    run = learn([0.6, None, 0.7, 0.4], outcomes=["aborted", "completed", "completed", "completed"])
    found = reach(run, HALF)
    assert (found.reached, found.met_at_start, found.rounds) == (True, True, 3)
    assert not reach(run, Target("accuracy", 0.65)).met_at_start
    said = target_table.notes(compare_targets([run], [HALF]))
    assert any(re.search(naming("initial model", "1 run"), note) for note in said)
    assert not any("no round has changed the model" in note for note in said)


def test_runs_without_a_completed_round_do_not_decide_what_all_reach(learn: Learn) -> None:
    failed = learn([0.02, 0.02], protocol="lotto", outcomes=["aborted", "aborted"])
    late = learn([0.9, 0.3, 0.4], protocol="batch-partition", outcomes=["aborted", "completed", "completed"])
    frame = compare_targets([learn([0.1, 0.8]), failed, late])
    assert frame["target"].unique().tolist() == ["accuracy>=0.4"]  # the initial model's 0.9 is nobody's
    assert only(frame, "lotto")["reached"] == 0
    said = target_table.notes(frame)
    assert any(re.match(naming("In 1 run", "changed the model", "default target"), note) for note in said)


def test_traffic_is_that_of_the_records(make_run: Callable[..., RunRecords]) -> None:
    run = make_run("run", "lotto-client-centric", rounds=7, accuracy_every=3, failing={2: "aborted", 3: "skipped"})
    frame = trajectory(run)
    for _, row in frame.iterrows():
        until = run.exchanges[run.exchanges["round"] <= row["round"]]
        assert row["server_bytes"] == until[["bytes_down", "bytes_up"]].sum().sum()
        assert row["client_bytes"] - row["server_bytes"] == until[["pki_bytes_down", "pki_bytes_up"]].sum().sum() > 0
    assert frame["round"].tolist() == [3, 6]


def test_smoothed_it_is_the_mean_with_the_evaluations_before(learn: Learn) -> None:
    run = learn([0.6, 0.3, 0.6, None, 0.6, 0.6])
    assert reach(run, HALF).rounds == 1
    assert reach(run, HALF, smooth=2).rounds == 5
    assert reach(run, HALF, smooth=3).rounds == 3  # 0.5: the first that has three
    assert not reach(run, HALF, smooth=6).reached


@given(
    st.lists(st.none() | st.sampled_from([0.1, 0.4, 0.5, 0.7, float("nan")]), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(0, 3),
)
@settings(max_examples=examples(60))
def test_reach_agrees_with_a_loop_over_the_rounds(accuracies: list[float | None], smooth: int, failed: int) -> None:
    """The first `failed` rounds fail."""
    rounds = pd.DataFrame(
        {
            "round": range(1, len(accuracies) + 1),
            "outcome": ["aborted" if number <= failed else "completed" for number in range(1, len(accuracies) + 1)],
            "ended_s": np.cumsum(np.arange(1.0, len(accuracies) + 1)),
            "bytes_down": 5,
            "bytes_up": 2,
            "accuracy": pd.Series(accuracies, dtype=float),
            "loss": [np.nan if value is None else 1.0 for value in accuracies],
        }
    )

    run: Any = SimpleNamespace(rounds=rounds, experiment={}, exchanges_in_stretches=lambda columns, keep: iter(()))
    found = reach(run, HALF, smooth)
    seen: list[float] = []
    last = 0
    for number, value in enumerate(accuracies, 1):
        if value is None:
            continue
        seen.append(value)
        last = number
        if number > failed and len(seen) >= smooth and np.mean(seen[-smooth:]) >= 0.5 - 1e-12:
            assert (found.reached, found.rounds, found.server_bytes) == (True, number, 7 * number)
            break
    else:
        assert (found.reached, found.rounds, found.server_bytes) == (False, last, 7 * last)
    assert found.time_s == found.rounds * (found.rounds + 1) / 2


def test_where_all_seeds_reach_it_the_row_has_their_mean_and_pairs_their_ratio(learn: Learn) -> None:
    reached = {"random": [2, 3, 4], "batch-partition": [4, 5, 9]}
    runs = [
        learn([0.1] * (at - 1) + [0.5] + [0.6] * (9 - at), protocol=protocol, seed=seed, speed=2.0)
        for protocol, rounds in reached.items()
        for seed, at in enumerate(rounds)
    ]
    frame = compare_targets(runs[::-1], ["50%"], "random")  # the other order: seeds pair, not places
    base, row = only(frame), only(frame, "batch-partition")
    assert (row["seeds"], row["reached"], row["estimator"], row["ratio_is"]) == (3, 3, "mean", "exact")
    assert (row["is_baseline"], row["baseline"], base["is_baseline"]) == (False, "random", True)
    assert row["rounds_to_target"] == 6
    assert row["time_to_target_s"] == pytest.approx(120)
    assert row["server_bytes_to_target"] == pytest.approx(220 * 6)
    assert row["client_bytes_to_target"] == pytest.approx(223 * 6)
    assert row["rounds_to_target_half_width"] == pytest.approx(mean_interval([4, 5, 9]).half_width)
    assert row["rounds_to_target_ratio"] == pytest.approx(2)
    assert row["rounds_to_target_ratio_half_width"] == pytest.approx(ratio_interval([4, 5, 9], [2, 3, 4]).half_width)
    assert (base["rounds_to_target_ratio"], base["rounds_to_target_ratio_half_width"]) == (1, 0)
    assert row["rounds_to_target_median"] == 5
    assert np.isnan(row["rounds_watched"])


def test_runs_that_have_not_reached_the_target_count_as_longer(learn: Learn) -> None:
    runs = [learn([0.1, 0.5, 0.5, 0.5], seed=1), learn([0.1] * 4, seed=2), learn([0.1, 0.1, 0.5, 0.5], seed=3)]
    runs += [learn([0.1] * 2 + [0.5], protocol="batch-partition", seed=seed) for seed in (1, 2, 3)]
    runs += [learn([0.1] * 6, protocol="lotto", seed=seed) for seed in (1, 2, 3)]
    frame = compare_targets(runs, [HALF])
    base, row, never = (only(frame, name) for name in ("random", "batch-partition", "lotto"))
    assert [(each["reached"], each["seeds"]) for each in (base, row, never)] == [(2, 3), (3, 3), (0, 3)]
    assert [each["estimator"] for each in (base, row, never)] == ["restricted mean", "mean", "not reached"]
    assert base["rounds_to_target"] == pytest.approx((2 + 3 + 4) / 3)
    assert base["rounds_to_target_half_width"] == pytest.approx(mean_interval([2, 3, 4]).half_width)
    assert (base["rounds_to_target_median"], base["rounds_watched"]) == (3, 4)
    assert (row["ratio_is"], row["rounds_to_target_ratio"]) == ("at most", pytest.approx(1))
    assert np.isnan(row["rounds_to_target_ratio_half_width"])
    assert (never["rounds_to_target"], never["rounds_watched"]) == (6, 6)
    assert np.isnan(never["rounds_to_target_half_width"])
    assert np.isnan(never["rounds_to_target_median"])
    assert never["ratio_is"] == ""  # neither mean is known
    assert np.isnan(never["rounds_to_target_ratio"])
    other = only(compare_targets(runs, [HALF], "batch-partition"), "lotto")
    assert (other["ratio_is"], other["rounds_to_target_ratio"]) == ("at least", pytest.approx(2))
    both = only(compare_targets(runs, ["90%"]), "batch-partition")
    assert (both["reached"], both["ratio_is"]) == (0, "")
    assert np.isnan(both["time_to_target_s_ratio"])


def test_seeds_whose_rounds_are_short_because_they_fail_do_not_vanish(learn: Learn) -> None:
    """A Kaplan-Meier curve over seconds would report 40 s: the seed that reached the target is the last one."""
    runs = [learn([0.1, 0.1, 0.1, 0.5], seed=1), *(learn([0.1] * 4, seed=seed, speed=0.5) for seed in (2, 3))]
    row = only(compare_targets(runs, [HALF]))
    assert (row["reached"], row["estimator"], row["time_to_target_s"]) == (1, "restricted mean", pytest.approx(80 / 3))
    assert row["time_to_target_s_half_width"] > 20
    assert np.isnan(row["rounds_to_target_median"])


def test_runs_that_go_on_are_counted_and_marked(learn: Learn) -> None:
    whole = [learn([0.1] * (at - 1) + [0.5], seed=at, rounds=9) for at in (2, 4, 6)]
    killed = [learn([0.1], seed=7, rounds=9), learn([None], seed=8, rounds=9)]
    alone, together = only(compare_targets(whole, [HALF])), only(compare_targets([*whole, *killed], [HALF]))
    assert (together["seeds"], together["reached"], together["unfinished"]) == (5, 3, 2)
    assert (alone["unfinished"], alone["estimator"], together["estimator"]) == (0, "mean", "restricted mean")
    assert (alone["rounds_to_target"], together["rounds_to_target"]) == (4, pytest.approx(13 / 5))
    assert together["rounds_watched"] == 0
    assert alone["rounds_to_target_median"] == together["rounds_to_target_median"] == 4  # their observed rounds decide


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.floats(0.1, 9)), min_size=1, max_size=5))
@settings(max_examples=examples(15), deadline=None)
def test_no_row_looks_better_than_with_more_rounds(tmp_path_factory: Any, seeds: list[tuple[int, int, float]]) -> None:
    """Each seed would reach the target in some round, and ends after another: the report is at most the mean."""
    learn = learner(tmp_path_factory.mktemp("runs"))
    runs = [
        learn([0.5 if number >= at else 0.1 for number in range(1, ends + 1)], seed=seed, speed=speed, rounds=9)
        for seed, (at, ends, speed) in enumerate(seeds)
    ]
    row = only(compare_targets(runs, [HALF]))
    whole = np.array([[10 * speed * at, at, 220 * at, 223 * at] for at, _, speed in seeds]).mean(axis=0)
    told = np.array([row[measure] for measure in MEASURES])
    assert row["reached"] == sum(at <= ends for at, ends, _ in seeds)
    assert (told <= whole * (1 + 1e-9)).all()
    if row["estimator"] == "mean":
        assert told == pytest.approx(whole)


def test_the_default_is_the_best_that_every_run_reaches(learn: Learn) -> None:
    runs = [learn([0.1, 0.8129, 0.7]), learn([0.1, 0.2, 0.95], protocol="batch-partition")]
    assert default_target(rows_of(runs)) == Target("accuracy", 0.812)
    assert default_target(rows_of(runs), smooth=2) == Target("accuracy", 0.575)
    going_on = learn([0.3, 0.4], protocol="lotto", rounds=9)
    frame = compare_targets([*runs, going_on])
    assert frame["target"].unique().tolist() == ["accuracy>=0.812"]
    assert frame["is_default"].all()
    assert dict(zip(frame["protocol"], frame["reached"], strict=True)) == {
        "random": 1, "batch-partition": 1, "lotto": 0,
    }  # fmt: skip
    assert default_target(rows_of([going_on])) == Target("accuracy", 0.4)


def test_no_perplexity_is_the_best_where_a_run_has_none_that_is_finite(learn: Learn) -> None:
    words = {"dataset": "synthetic-reddit"}
    diverged = learn([0.1, 0.1], losses=[800.0, 900.0], workload=words)
    with pytest.raises(ExperimentError, match="no finite perplexity"):
        default_target(rows_of([diverged]))
    assert "no finite perplexity" in targets_beside([diverged])[1]


def test_losses_and_several_targets(learn: Learn) -> None:
    run = learn([0.1, 0.5, 0.9], losses=[float("nan"), 0.6, 0.4])
    frame = compare_targets([run], ["loss<0.5", "50%", "loss<0.5", "best"])
    assert frame["target"].tolist() == ["loss<=0.5", "accuracy>=0.5", "accuracy>=0.9"]
    assert frame["rounds_to_target"].tolist() == [3, 2, 3]
    assert frame["is_default"].tolist() == [False, False, True]
    assert not reached_in(trajectory(run, "loss"), Target("loss", 0.1)).reached
    words = learn([0.1, 0.2], losses=[5.0, 4.0], workload={"dataset": "synthetic-reddit"})
    assert compare_targets([words])["target"].tolist() == ["perplexity<=54.6"]
    assert reach(words, Target("perplexity", 54.6)).rounds == 2


def test_targets_that_experiments_name(learn: Learn) -> None:
    runs = [learn([0.5], targets=["50%", "loss<0.5"]), learn([0.5], seed=2, targets=["loss<=0.5"])]
    assert [target.column for target in named_targets(runs)] == ["accuracy>=0.5", "loss<=0.5"]


def test_runs_that_are_not_comparable_are_refused(learn: Learn) -> None:
    one, other = learn([0.5]), learn([0.5], protocol="lotto", workload={"dataset": "spirals"})
    with pytest.raises(ExperimentError, match=r"digits in random, spirals in lotto.*--across-workloads"):
        compare_targets([one, other], ["50%"])
    assert len(compare_targets([one, other], ["50%"], across_workloads=True)) == 2
    assert len(compare_targets([one, other], across_workloads=True)) == 2
    with pytest.raises(ExperimentError, match=naming("target accuracy ≥ 50 %:", "run-2:", "workload.training")):
        compare_targets([one, learn([None, None], protocol="lotto")], ["50%"])
    with pytest.raises(ExperimentError, match=naming("loss", "never measured")):
        compare_targets([one], ["loss<1"])
    with pytest.raises(ExperimentError, match=naming("digits", "perplexity")):
        compare_targets([one], ["perplexity<90"])
    with pytest.raises(ExperimentError, match=naming("--smooth 0", "at least 1")):
        compare_targets([one], smooth=0)
    with pytest.raises(ExperimentError, match=naming("fewer evaluations", "--smooth")):
        compare_targets([one], smooth=2)
    with pytest.raises(ExperimentError, match=naming("accuracy", "above 0", "--target")):
        compare_targets([learn([0.0])])


def test_settings_of_different_workloads_have_a_default_each(learn: Learn) -> None:
    runs = []
    for dataset, best in (("digits", 0.9), ("spirals", 0.7)):
        for protocol in ("random", "batch-partition"):
            swept = {"selection.protocol": protocol, "workload.dataset": dataset}
            origin = {"label": f"{protocol},{dataset}", "sweep": swept}
            runs.append(learn([0.1, best], protocol=protocol, workload={"dataset": dataset}, provenance=origin))
    frame = compare_targets(runs)
    assert sorted(set(zip(frame["setting"], frame["target"], strict=True))) == [
        ("dataset=digits", "accuracy>=0.9"),
        ("dataset=spirals", "accuracy>=0.7"),
    ]
    assert len(frame) == 4
    with pytest.raises(ExperimentError, match=naming("digits", "spirals", "--across-workloads")):
        compare_targets(runs, baseline="random,dataset=digits")
