"""Defaults of local training: what they are by optimizer, and that experiment.yaml of earlier versions stays valid."""

from typing import Any

import pytest
from pydantic import ValidationError

from testbed.errors import ExperimentError
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import Experiment, points
from testbed.workload.section import WorkloadSection

FORMER_DEFAULTS = WorkloadSection.former_defaults


@pytest.mark.parametrize(
    ("optimizer", "momentum", "learning_rate"),
    [("sgd", 0.0, 0.1), ("adamw", 0.9, 0.001), ("torch.optim:RMSprop", 0.0, 0.1)],
)
def test_momentum_and_rate_are_those_of_the_optimizer(optimizer: str, momentum: float, learning_rate: float) -> None:
    section = WorkloadSection(optimizer=optimizer)
    assert (section.momentum, section.learning_rate) == (momentum, learning_rate)
    written = section.model_dump()  # experiment.yaml has them written out
    assert (written["momentum"], written["learning_rate"]) == (momentum, learning_rate)
    assert not section.model_fields_set & {"momentum", "learning_rate"}


def test_a_value_that_is_given_stays() -> None:
    assert WorkloadSection(momentum=0.5).momentum == 0.5
    assert WorkloadSection(optimizer="adamw", momentum=0).momentum == 0


def test_the_points_of_a_sweep_over_optimizers_have_their_own_defaults() -> None:
    swept = Experiment.model_validate({"sweep": {"workload.optimizer": ["sgd", "adamw"]}})
    assert [point.experiment.workload.momentum for point in points(swept, "x")] == [0.0, 0.9]


@pytest.mark.parametrize(
    "experiment",
    [
        {"workload": {"optimizer": "torch.optim:RMSprop", "momentum": 0.9}},
        {"workload": {"flower": "their_app", **FORMER_DEFAULTS}},
        {
            "workload": {**FORMER_DEFAULTS},
            "selection": {"protocol": "bernoulli", "client_rate": 0.1},
            "aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.1, "sigma": 1.0},
        },
    ],
    ids=["own optimizer", "flower", "dp-sgd"],
)
def test_former_defaults_may_stand_where_nothing_reads_them(experiment: dict[str, Any]) -> None:
    """An experiment.yaml of an earlier version has them written out."""
    written = Experiment.model_validate(experiment).workload
    assert all(written.has_default(key) for key in FORMER_DEFAULTS if key in experiment["workload"])


def test_other_values_are_refused_where_nothing_reads_them() -> None:
    with pytest.raises(ValidationError, match="momentum"):
        WorkloadSection(optimizer="torch.optim:RMSprop", momentum=0.5)
    with pytest.raises(ValidationError, match="momentum"):
        WorkloadSection(flower="their_app", momentum=0.5)


def test_a_wrong_key_of_the_workload_is_one_line() -> None:
    """The defaults that depend on other keys cannot be computed then; nobody has to be told."""
    for wrong in ({"epochs": 0}, {"partition": {"scheme": "no"}}, {"batch_size": "many"}):
        with pytest.raises(ExperimentError) as refused:
            Experiment(workload=wrong)
        (line,) = str(refused.value).splitlines()
        assert f"workload.{next(iter(wrong))}" in line


FORMER = {"workload": dict(FORMER_DEFAULTS), "time": {"disconnects": "invisible"}}
CHOSEN = {"workload": {"momentum": 0, "batch_size": 10, "learning_rate": 0.1}, "time": {"disconnects": "visible"}}


@pytest.mark.parametrize(
    ("experiment", "begins"),
    [(FORMER, "80c044f285053921bf0a3cf98e776f12"), ({"seed": 3, **CHOSEN}, "b566ff186c8593fd987fcd3374f9ee99")],
    ids=["former defaults", "present defaults"],
)
def test_secrets_of_the_same_values_are_those_of_earlier_versions(experiment: dict[str, Any], begins: str) -> None:
    """A default that changes must not change the results of experiments that say the value."""
    assert secrets_context(Experiment.model_validate(experiment)).hex().startswith(begins)


def test_secrets_do_not_depend_on_who_says_a_value() -> None:
    assert secrets_context(Experiment()) == secrets_context(Experiment.model_validate(CHOSEN))
    assert secrets_context(Experiment()) != secrets_context(Experiment.model_validate(FORMER))
