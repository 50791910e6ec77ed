"""Grid search: values are pooled over seeds, each setting has its best value, and the table shows them."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scipy import stats

from analysis.comparison.tuning import render, tuned
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.analysis import recorded
from tests.messages_named import naming

RATE = "workload.learning_rate"
Make = Callable[[Sequence[float | None]], RunRecords]


@pytest.fixture
def run_of(tmp_path: Path) -> Make:
    """A run with these accuracies after its rounds."""
    made = itertools.count(1)

    def make(accuracies: Sequence[float | None]) -> RunRecords:
        rounds = [
            recorded.RecordedRound(number, number + 1.0, [], accuracy=accuracy)
            for number, accuracy in enumerate(accuracies)
        ]
        return recorded.write_run(tmp_path / str(next(made)), {"name": "t", "population": 3}, rounds)

    return make


def test_accuracies_are_means_over_seeds_with_their_interval(run_of: Make) -> None:
    given: dict[float, list[Sequence[float | None]]] = {
        0.1: [[0.9, 0.5], [0.4, 0.7, None]],
        0.03: [[0.1, 0.62], [0.3, 0.6]],
    }
    runs = [
        ({RATE: rate, "seed": seed}, run_of(accuracies))
        for rate, seeds in given.items()
        for seed, accuracies in enumerate(seeds)
    ]
    frame = tuned(runs, [RATE])
    assert frame[RATE].tolist() == [0.1, 0.03]
    assert frame["seeds"].tolist() == [2, 2]
    assert frame["setting"].tolist() == ["", ""]
    assert frame["final_accuracy"].tolist() == pytest.approx([0.6, 0.61])
    assert frame["best_accuracy"].tolist() == pytest.approx([0.8, 0.61])
    half = stats.t.ppf(0.975, 1) * 0.1  # standard error of 0.5 and 0.7
    assert frame["final_accuracy_half_width"][0] == pytest.approx(half)
    assert frame["is_best"].tolist() == [False, True]
    assert tuned(runs, [RATE], by="best")["is_best"].tolist() == [True, False]


def test_each_point_of_the_experiments_own_sweep_has_a_best_value(run_of: Make) -> None:
    given = {("random", 0.1): 0.3, ("random", 0.03): 0.4, ("partition", 0.1): 0.2, ("partition", 0.03): 0.1}
    runs = [
        ({"selection": {"protocol": scheme, "privacy": 2}, RATE: rate}, run_of([accuracy]))
        for (scheme, rate), accuracy in given.items()
    ]
    frame = tuned(runs[::2] + runs[1::2], [RATE])
    assert frame["setting"].tolist() == ["random,privacy=2"] * 2 + ["partition,privacy=2"] * 2
    assert frame[frame["is_best"]][RATE].tolist() == [0.03, 0.1]
    text = render(frame, [RATE])
    assert text.splitlines()[0] == "random,privacy=2"
    assert [line.split()[0] for line in text.splitlines() if line.endswith("best")] == ["0.03", "0.1"]


def test_all_combinations_of_two_keys_are_told_apart_and_the_first_of_equals_is_best(run_of: Make) -> None:
    runs = [
        ({RATE: rate, "workload.momentum": momentum}, run_of([0.5])) for rate in (0.1, 0.03) for momentum in (0, 0.9)
    ]
    frame = tuned(runs, [RATE, "workload.momentum"])
    assert len(frame) == 4
    assert frame["is_best"].tolist() == [True, False, False, False]


def test_values_that_measured_nothing_lose_and_nothing_at_all_is_an_error(run_of: Make) -> None:
    runs = [({RATE: 10.0}, run_of([None])), ({RATE: 0.1}, run_of([None, 0.2]))]
    frame = tuned(runs, [RATE])
    assert frame["is_best"].tolist() == [False, True]
    assert "–" in render(frame, [RATE])
    with pytest.raises(ExperimentError, match=naming("accuracy", "testbed status")):
        tuned(runs[:1], [RATE])


def test_every_format_has_the_same_numbers(run_of: Make) -> None:
    frame = tuned([({RATE: rate}, run_of([accuracy])) for rate, accuracy in ((0.1, 0.25), (1e-4, 0.5))], [RATE])
    text = render(frame, [RATE]).splitlines()
    assert text[0].split() == ["learning_rate", "Seeds", "Final", "accuracy", "Best", "accuracy"]
    assert text[3].split() == ["0.0001", "1", "50.0%", "50.0%", "best"]
    assert "| 0.0001 | 1 | 50.0% | 50.0% | best |" in render(frame, [RATE], "markdown")
    rows = list(csv.DictReader(io.StringIO(render(frame, [RATE], "csv"))))
    assert [float(row["final_accuracy"]) for row in rows] == [0.25, 0.5]
    plain = json.loads(render(frame, [RATE], "json"))["rows"]
    assert [row["is_best"] for row in plain] == [False, True]
    assert plain[0]["final_accuracy_half_width"] is None


def test_the_initial_model_is_no_best_value(tmp_path: Path, run_of: Make) -> None:
    """A rate at which training diverges completes no round: only the initial model is measured."""

    def without_rounds(name: str) -> RunRecords:
        rounds = [recorded.RecordedRound(1, 1.0, [], outcome="aborted", accuracy=0.9)]
        return recorded.write_run(tmp_path / name, {"name": "t", "population": 3}, rounds)

    frame = tuned([({RATE: 1000.0}, without_rounds("a")), ({RATE: 0.1}, run_of([0.3, 0.5]))], [RATE])
    assert frame["is_best"].tolist() == [False, True]
    assert frame["final_accuracy"].isna().tolist() == [True, False]
    with pytest.raises(ExperimentError, match=naming("no round completed", "testbed status")):
        tuned([({RATE: 1000.0}, without_rounds("b"))], [RATE])
