"""An experiment that is built in Python: the command's lines for the command's mistakes, and the same experiment."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Experiment, find_runs, run
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.selection.random_selection import RandomParameters
from tests.commands.conftest import SMALL
from tests.messages_named import naming
from tests.repository import ROOT

WRONG: list[dict[str, Any]] = [
    {"rounds": 0},
    {"round": 3},
    {"selection": {"protocol": "randm"}},
    {"selection": {"participants": 101}},
    {"workload": {"datset": "digits", "epochs": -1}},
    {"aggregation": {"protocol": "plain", "server_optimizer": {"name": "adan"}}},
    {"availability": {"model": "sometimes"}},
    {"workload": {"dataset": "nothing"}, "links": 3},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_is_wrong_is_said_in_the_lines_of_a_file(wrong: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError) as in_file:
        validated(wrong, "Experiment")
    with pytest.raises(ExperimentError) as in_python:
        Experiment(**wrong)
    assert str(in_python.value) == str(in_file.value)
    assert in_python.value.__suppress_context__  # no pages of pydantic's above it
    assert all(line.startswith("Experiment: ") for line in str(in_python.value).splitlines())


def test_a_mistake_beside_a_section_that_is_built_has_its_key() -> None:
    with pytest.raises(ExperimentError) as refused:
        Experiment(selection=RandomParameters(participants=30), population=20, time={"deadline_s": -1})
    assert str(refused.value) == "Experiment: time.deadline_s: should be greater than 0, not -1"
    with pytest.raises(ExperimentError, match=naming("Experiment: selection.participants", 30, 20)):
        Experiment(selection=RandomParameters(participants=30), population=20)


def test_it_is_the_experiment_of_a_file_and_files_are_read_as_strictly_as_ever() -> None:
    keys: dict[str, Any] = {"rounds": 3, "selection": {"protocol": "oort", "participants": 7}, "output": {}}
    built = Experiment(**keys)
    assert built == validated(keys, "file.yaml")
    assert Experiment(**built.plain()) == built
    with pytest.raises(ExperimentError, match=naming("rounds", "'3'")):
        validated({"rounds": "3"}, "file.yaml")


class Net:
    """Stands for a class of somebody's notebook."""


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"workload": {"model": Net}},
            "workload.model: should be a name, e.g. 'package.module:Net', not a class or function",
        ),
        (
            {"devices": {"model": "m:N", "options": {"x": object()}}},
            "devices.options.x: an experiment cannot hold a value of type object",
        ),
        (
            {"devices": {"model": "m:N", "options": {"x": [1.0, float("nan")]}}},
            "devices.options.x.1: must be a finite number",
        ),
        (
            {"sweep": {"selection.protocol": [Net]}},
            "sweep.selection.protocol.0: should be a name, e.g. 'package.module:Net', not a class or function",
        ),
    ],
)
def test_what_no_experiment_can_hold_is_refused_where_it_is_made(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        Experiment(**wrong)
    assert str(refused.value) == f"Experiment: {line}"


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    built = Experiment(rounds=np.int64(3), devices={"model": "m:N", "options": {"x": np.arange(2)}})
    assert built.plain()["devices"]["options"] == {"x": [0, 1]}
    swept = Experiment(**SMALL, sweep={"rounds": np.arange(1, 3)})
    assert swept.sweep == {"rounds": [1, 2]}
    run(swept, out=tmp_path / "runs", network="in-process")
    assert sorted(len(one.rounds) for one in find_runs(tmp_path / "runs")) == [1, 2]


@pytest.mark.parametrize("overrides", ["rounds=3", {"rounds": 3}])
def test_overrides_are_a_list(overrides: Any) -> None:
    with pytest.raises(ExperimentError, match=naming("quickstart.yaml", "overrides", "['rounds=3']")):
        Experiment.load(ROOT / "examples" / "quickstart.yaml", overrides)


def test_what_is_no_experiment_is_not_run() -> None:
    wrong: Any = {"rounds": 3}
    with pytest.raises(ExperimentError, match=naming("run", "Experiment", "dict")):
        run(wrong, network="in-process")
