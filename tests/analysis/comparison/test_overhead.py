"""The overhead table: ratios, intervals over rounds and over seeds, missing values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import analysis.comparison.overhead
from analysis.comparison.measures import per_round
from analysis.comparison.overhead import COSTS, compare
from analysis.comparison.summary import summarise
from testbed.errors import ExperimentError
from testbed.records import RunRecords

MakeRun = Callable[..., RunRecords]


def test_one_row_per_protocol_in_the_order_of_the_runs(make_run: MakeRun) -> None:
    names = ["batch-partition", "lotto-server-centric", "random"]
    runs = [make_run(name, name, sweep={"selection.protocol": name}) for name in names]
    frame = compare(runs, "lotto-server-centric")
    assert frame["label"].tolist() == names
    assert frame["is_baseline"].tolist() == [False, True, False]
    assert set(frame["baseline"]) == {"lotto-server-centric"}
    assert (frame.loc[1, [f"{cost}_ratio" for cost in COSTS]] == 1).all()
    for run in runs:
        row, summary = frame.set_index("label").loc[run.label], summarise(run)
        for cost, key in COSTS.items():
            assert (row[cost], row[f"{cost}_half_width"]) == (summary[key], summary[f"{key}_half_width"])
            assert row[f"{cost}_ratio"] == row[cost] / frame.loc[1, cost]
        assert row["final_accuracy"] == summary["final_accuracy"]
        assert row["multi_round_privacy_weak"] == summary["multi_round_privacy_weak"]


def test_the_mean_is_over_completed_rounds_and_the_cost_per_update_over_all(make_run: MakeRun) -> None:
    run = make_run("run", "lotto-client-centric", failing={2: "aborted", 3: "skipped"})
    row, rounds = compare([run]).loc[0], per_round(run)
    completed = rounds.loc[rounds["outcome"] == "completed", "round_s"]
    assert row["round_s"] == pytest.approx(completed.mean())
    low, high = stats.t.interval(0.95, len(completed) - 1, completed.mean(), stats.sem(completed))
    assert row["round_s_half_width"] == pytest.approx((high - low) / 2)
    assert row["round_s_per_update"] == pytest.approx(rounds["round_s"].sum() / len(completed))
    assert row[["rounds_completed", "rounds_skipped", "rounds_aborted"]].tolist() == [8, 1, 1]


def test_seeds_are_pooled_with_intervals_over_seeds(make_run: MakeRun) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=4, failing={seed: "skipped"}) for seed in (1, 2, 3)]
    frame = compare(runs)
    assert frame[["seeds", "rounds_completed", "rounds_skipped"]].values.tolist() == [[3, 9, 3]]
    means = [summarise(run)["mean_round_s"] for run in runs]
    assert frame.loc[0, "round_s"] == pytest.approx(np.mean(means))
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert frame.loc[0, "round_s_half_width"] == pytest.approx((high - low) / 2)
    accuracies = [summarise(run)["final_accuracy"] for run in runs]
    assert frame.loc[0, "final_accuracy"] == pytest.approx(np.mean(accuracies))
    low, high = stats.t.interval(0.95, 2, np.mean(accuracies), stats.sem(accuracies))
    assert frame.loc[0, "final_accuracy_half_width"] == pytest.approx((high - low) / 2)
    assert np.isnan(frame.loc[0, "final_perplexity_half_width"])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(5, True, 5), (3, True, 3)], (3, True, 3)),
        ([(5, False, 2), (3, True, 3)], (3, False, 2)),  # the first might still turn out to be 2
        ([(5, False, 3), (3, True, 3)], (3, True, 3)),  # it can not be less than 3
        ([(None, None, None), (4, True, 4)], (4, True, 4)),  # a seed without any sum
        ([(None, None, None), (None, None, None)], (pd.NA, pd.NA, pd.NA)),
    ],
)
def test_the_privacy_of_pooled_seeds_is_the_worst(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, found: list[Any], expected: tuple[Any, ...]
) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=1) for seed in range(len(found))]
    names = [f"multi_round_privacy_weak{what}" for what in ("", "_certified", "_lower_bound")]
    values = {run.path: dict(zip(names, row, strict=True)) for run, row in zip(runs, found, strict=True)}
    monkeypatch.setattr(
        analysis.comparison.overhead, "summarise", lambda run, **options: summarise(run) | values[run.path]
    )
    row = compare(runs).loc[0, names]
    assert all((value is pd.NA) if want is pd.NA else value == want for value, want in zip(row, expected, strict=True))


def test_a_run_without_completed_rounds_has_missing_values(make_run: MakeRun) -> None:
    runs = [make_run("random", rounds=0), make_run("batch-partition", "batch-partition", rounds=2)]
    frame = compare(runs).set_index("label")
    assert frame.loc["random", ["round_s", "round_s_ratio", "final_accuracy", "multi_round_privacy_weak"]].isna().all()
    assert frame.loc["batch-partition", "round_s"] > 0
    assert np.isnan(frame.loc["batch-partition", "round_s_ratio"])  # to nothing


def test_an_unknown_baseline_is_an_error(make_run: MakeRun) -> None:
    with pytest.raises(ExperimentError, match="random"):
        compare([make_run("run", rounds=1)], "nothing")
