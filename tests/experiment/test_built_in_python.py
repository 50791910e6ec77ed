"""An experiment that is built in Python: the command's lines for the command's mistakes, and the same experiment."""

from typing import Any

import pytest

from testbed import Experiment
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.selection.random_selection import RandomParameters

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
    with pytest.raises(ExperimentError, match=r"^Experiment: selection.participants: 30 of a population of 20"):
        Experiment(selection=RandomParameters(participants=30), population=20)


def test_it_is_the_experiment_of_a_file_and_files_are_read_as_strictly_as_ever() -> None:
    keys: dict[str, Any] = {"rounds": 3, "selection": {"protocol": "oort", "participants": 7}, "output": {}}
    built = Experiment(**keys)
    assert built == validated(keys, "file.yaml")
    assert Experiment(**built.plain()) == built
    with pytest.raises(ExperimentError, match="rounds: should be a valid integer, not '3'"):
        validated({"rounds": "3"}, "file.yaml")
