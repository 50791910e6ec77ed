"""Targets of the metrics that ``workload.metrics`` names: they end runs, and runs are compared by them."""

from pathlib import Path
from typing import Any

import pytest

from testbed import compare_targets, run
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

KEYS: dict[str, Any] = {
    "seed": 1,
    "rounds": 6,
    "population": 10,
    "workload": {"dataset": "digits", "model": "logistic", "momentum": 0, "metrics": ["macro-f1"]},
    "selection": {"participants": 6},
    "aggregation": {"protocol": "plain"},
    "cluster": {"network": "in-process"},
}


def test_a_further_metric_ends_a_run_and_compares_it(tmp_path: Path) -> None:
    run(Experiment(**KEYS), tmp_path / "free")
    values = [row[0] for row in RunRecords(tmp_path / "free").rounds["metrics"]]
    level = (values[0] + max(values[1:])) / 2
    reached = next(number for number, value in enumerate(values, 1) if value >= level)
    run(Experiment(**KEYS, stop_at={"macro-f1": level}), tmp_path / "stopped")
    records = RunRecords(tmp_path / "stopped")
    assert len(records.rounds) == reached
    assert (records.why_stopped != "") == (reached < KEYS["rounds"])
    table = compare_targets(tmp_path / "free", [f"macro-f1>={level}"])
    assert table["rounds_to_target"].tolist() == [reached]
    with pytest.raises(ExperimentError, match="accuracy, loss, macro-f1"):
        compare_targets(tmp_path / "free", ["r2>=0.5"])
