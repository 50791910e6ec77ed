"""How the local learning rate moves from round to round."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.workload.local_steps import LearningRateSchedule
from testbed.workload.section import WorkloadSection
from tests.thoroughness import examples


def rates(count: int, **keys: Any) -> list[float]:
    section = WorkloadSection(learning_rate=0.4, **keys)
    return [section.learning_rate_in(number) for number in range(1, count + 1)]


def test_by_hand() -> None:
    cosine = rates(7, learning_rate_schedule=LearningRateSchedule(rounds=5, last=0.5))
    # 1 + cos of 0, 45, 90, 135 and 180 degrees, halved, between a half and all of 0.4.
    assert cosine == pytest.approx([0.4, 0.370711, 0.3, 0.229289, 0.2, 0.2, 0.2], abs=1e-6)
    linear = LearningRateSchedule(shape="linear", rounds=6, last=0.0, warm_up_rounds=2)
    assert rates(8, learning_rate_schedule=linear) == pytest.approx([0.2, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0])


def test_without_it_the_rate_is_what_it_was() -> None:
    for keys in ({}, {"learning_rate_decay": 0.5, "learning_rate_milestones": (2,)}):
        section = WorkloadSection(**keys)
        assert "learning_rate_schedule" not in section.model_dump()
    assert rates(4) == [0.4] * 4


def test_a_warm_up_goes_with_decay() -> None:
    warm = LearningRateSchedule(shape="constant", warm_up_rounds=4)
    found = rates(6, learning_rate_schedule=warm, learning_rate_decay=0.5, learning_rate_milestones=(4,))
    assert found == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.2, 0.2])


@given(st.integers(2, 60), st.floats(0, 0.99), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_torch_has_the_same_cosine(rounds: int, last: float, data: st.DataObject) -> None:
    warm = data.draw(st.integers(0, rounds - 1))
    schedule = LearningRateSchedule(rounds=rounds, last=last, warm_up_rounds=warm)
    first = max(1, warm)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=rounds - first, eta_min=last)
    for number in range(first, rounds + 1):
        assert schedule.factor(number) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-6)
        optimizer.step()
        theirs.step()
    assert schedule.factor(rounds + 7) == pytest.approx(last)
    rising = [schedule.factor(number) for number in range(1, first + 1)]
    assert rising == pytest.approx(np.linspace(1 / first, 1, first).tolist())


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({"rounds": 1}, "learning_rate_schedule.rounds: should be greater than or equal to 2, not 1"),
        ({}, "rounds: required for shape cosine; set it, usually to the experiment's number of rounds"),
        ({"shape": "linear"}, "rounds: required for shape linear"),
        ({"shape": "step", "rounds": 5}, "should be 'cosine', 'linear' or 'constant'"),
        ({"rounds": 5, "warm_up_rounds": 5}, "warm_up_rounds: 5 must be less than rounds: 5"),
        ({"shape": "constant"}, "shape: constant has no effect without warm_up_rounds"),
        ({"shape": "constant", "warm_up_rounds": 2, "rounds": 9}, "rounds: only shapes cosine and linear use this key"),
        ({"shape": "constant", "warm_up_rounds": 2, "last": 0.1}, "last: only shapes cosine and linear use this key"),
        ({"rounds": 5, "last": 1.0}, "should be less than 1"),
        ({"rounds": 5, "warmup_rounds": 1}, "did you mean 'warm_up_rounds'?"),
    ],
)
def test_a_wrong_schedule_is_refused_in_one_line(schedule: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"workload": {"learning_rate_schedule": schedule}}, "mine.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_two_ways_to_fall_are_refused() -> None:
    data = {"workload": {"learning_rate_schedule": {"rounds": 9}, "learning_rate_decay": 0.9}}
    with pytest.raises(ExperimentError) as error:
        validated(data, "mine.yaml")
    assert str(error.value) == (
        "mine.yaml: workload: learning_rate_schedule: cosine replaces learning_rate_decay; leave out one of the "
        "two (shape: constant goes with learning_rate_decay)"
    )
