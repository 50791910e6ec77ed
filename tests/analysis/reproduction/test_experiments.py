"""Experiments of reproductions: they pin training and time, so that no default changes a kept result.

The fixture `in_process` checks this for every experiment that a test runs.
"""

import pytest

from analysis.reproduction.experiments import TIME, WORKLOAD, declared
from analysis.reproduction.multi_round_secagg import fig11
from testbed.errors import ExperimentError
from tests.analysis.reproduction.conftest import is_pinned

TEXT = "{population: 10, workload: {dataset: digits, epochs: 3}, time: {deadline_s: 5}, selection: {participants: 2}}"


def test_values_add_to_sections_and_replace_pinned_values() -> None:
    made = declared("x", TEXT, {"rounds": 4, "workload": {"model": "mlp"}, "workload.batch_size": 7})
    assert (made.name, made.rounds, made.population, made.selection.participants) == ("x", 4, 10, 2)
    workload = {**WORKLOAD, "dataset": "digits", "epochs": 3, "model": "mlp", "batch_size": 7}
    assert made.workload.model_dump(exclude_unset=True) == workload
    assert made.time.model_dump(exclude_unset=True) == {**TIME, "deadline_s": 5}


def test_the_error_of_an_invalid_experiment_has_its_name() -> None:
    with pytest.raises(ExperimentError, match="odd: rounds: "):
        declared("odd", TEXT, {"rounds": -1})


def test_no_default_is_left_to_later_versions() -> None:
    assert is_pinned(fig11.experiment("digits"))
