"""Summaries of accuracies over clients, compared with values by hand, and workloads without the measurement."""

import re
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import Experiment
from testbed.workload.client_accuracy import ClientAccuracy, check_client_accuracy
from tests.engine.federations import Pulling

ASKED = {"dataset": "digits", "client_accuracy": True}


def test_mean_worst_tenth_and_standard_deviation_by_hand() -> None:
    found = ClientAccuracy.of(np.array([1.0, 0.5, np.nan, 0.0, 0.5]))
    assert found == ClientAccuracy(mean=0.5, worst_decile=0.0, std=pytest.approx(np.sqrt(0.125)))


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_worst_tenth_is_rounded_up(clients: int, worst: int) -> None:
    accuracies = np.arange(clients)[::-1] / 100
    found = ClientAccuracy.of(accuracies)
    assert found is not None
    assert found.worst_decile == pytest.approx(np.mean(np.arange(worst)) / 100)


def test_without_a_client_that_has_samples_there_is_nothing() -> None:
    assert ClientAccuracy.of(np.full(3, np.nan)) is None
    assert ClientAccuracy.of(np.empty(0)) is None


def test_a_workload_that_does_not_offer_it_is_refused() -> None:
    check_client_accuracy(False, "mine:Pulling", Pulling(4))
    with pytest.raises(ExperimentError) as refused:
        check_client_accuracy(True, "mine:Pulling", Pulling(4))
    assert str(refused.value) == (
        "workload.client_accuracy: mine:Pulling does not measure the accuracy of single clients; leave the key out, or "
        "see ClientAccuracyWorkload in testbed/workload/contract.py"
    )


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        (ASKED | {"training": "simulated"}, "client_accuracy: has no effect on simulated training"),
        ({"flower": "mine:app", "client_accuracy": True}, "client_accuracy has no effect on a Flower app"),
    ],
)
def test_a_section_that_cannot_have_it_is_refused(workload: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        Experiment.model_validate({"workload": workload})


def test_it_is_written_only_where_it_is_set_and_changes_no_secret() -> None:
    without, with_it = (Experiment.model_validate({"workload": {"client_accuracy": asked}}) for asked in (False, True))
    assert "client_accuracy" not in without.plain()["workload"]
    assert with_it.plain()["workload"]["client_accuracy"] is True
    assert secrets_context(without) == secrets_context(with_it)
