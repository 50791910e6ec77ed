"""The keys of an experiment that the user has set, also from a run's directory."""

from pathlib import Path

import pytest
import yaml

from testbed.experiment.schema import Experiment, points
from testbed.experiment.written import changed_keys, written_in, written_keys
from testbed.records import find_runs
from testbed.running import run

FILE = """
rounds: 1
population: 6
workload: {dataset: digits, model: logistic}
selection: {participants: 3}
aggregation: {protocol: plain}
sweep:
  selection.protocol: [random, lotto-client-centric]
"""
SHOWN = ["rounds", "population", "workload.dataset", "workload.model", "selection.participants"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(FILE)
    return path


def test_keys_of_the_file_the_sweep_and_overrides_are_written(file: Path) -> None:
    experiment = Experiment.load(file, ["time.deadline_s=60"])
    for point in points(experiment, str(file)):
        keys = written_keys(point.experiment)
        assert set(keys) == {*SHOWN, "selection.protocol", "aggregation.protocol", "time.deadline_s"}
        assert "selection.over_selection" in _all_keys(point.experiment) or point.label == "random"


def test_of_a_recorded_run_written_out_only_its_own_keys_are_written(file: Path) -> None:
    point = list(points(Experiment.load(file), str(file)))[1]
    recorded = point.experiment.plain() | {"provenance": {"written": written_keys(point.experiment)}}
    again = Experiment.load(_saved(recorded, file.with_name("again.yaml")), ["workload.epochs=7"])
    assert set(written_keys(again)) >= {*written_keys(point.experiment), "workload.epochs"}
    assert not {"selection.over_selection", "workload.batch_size"} & set(written_keys(again))
    assert written_in(recorded) == written_keys(point.experiment)


def test_of_a_run_that_does_not_say_so_what_is_no_default_is_written(file: Path) -> None:
    point = list(points(Experiment.load(file), str(file)))[1]
    keys = written_in(point.experiment.plain())
    assert keys == changed_keys(point.experiment)
    assert keys is not None
    assert {"population", "selection.protocol", "aggregation.protocol"} <= set(keys)
    assert "selection.over_selection" not in keys
    assert written_in({"name": "x", "selection": {"protocol": "nobody"}}) is None


def test_a_run_records_them(file: Path, tmp_path: Path) -> None:
    made_runs = find_runs(run(file, tmp_path / "runs", network="in-process"))
    assert len(made_runs) == 2
    for made in made_runs:
        assert {*SHOWN, "selection.protocol", "aggregation.protocol"} <= set(made.experiment["provenance"]["written"])
        assert "workload.learning_rate" not in made.experiment["provenance"]["written"]


def _all_keys(experiment: Experiment) -> set[str]:
    return {
        f"{section}.{key}" for section, part in experiment.plain().items() if isinstance(part, dict) for key in part
    }


def _saved(plain: dict[str, object], path: Path) -> Path:
    path.write_text(yaml.safe_dump(plain))
    return path
