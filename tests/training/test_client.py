"""The training stage: a client trains once, and hands on its update."""

from typing import Any

import numpy as np
import pytest

from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel, metered
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.parties.client import Client, Environment
from testbed.parties.pki import Directory
from testbed.randomness import Randomness
from testbed.training import Train, Trainer, trained_update
from testbed.workload.contract import LocalUpdate

D = 4


class Workload:
    """A workload that returns prescribed updates."""

    dimension = D
    sample_counts = np.array([3])

    def __init__(self, delta: Any) -> None:
        self.delta = delta
        self.asked: list[Any] = []

    def train(self, client: int, model: Any, round_number: int) -> Any:
        self.asked.append((client, model.tolist(), round_number))
        return LocalUpdate(delta=self.delta, samples=np.int64(3), loss=np.float32(0.5), examples_processed=6)


def trainer(delta: Any = (0.0, 1.0, 2.0, 3.0), *, workload: bool = True, agreed: bool = False) -> Trainer:
    environment = Environment(
        population=1,
        randomness=Randomness(0),
        compute=ComputeModel(False, REFERENCE_COSTS),
        directory=Directory.empty(1),
        workload=Workload(np.array(delta, np.float32)) if workload else None,
        experiment_id=bytes(16),
        participants_are_agreed=agreed,
    )
    return Trainer(Client(0, environment), None)


def model(length: int = D) -> Vector:
    return Vector(np.arange(length, dtype=np.float32), 0)


def test_it_trains_the_model_and_keeps_the_update() -> None:
    role = trainer()
    with metered() as meter:
        answer = role.on_train(Train(1, model()))
    assert (answer.samples, answer.loss) == (3, 0.5)
    assert type(answer.samples) is int
    assert meter.counts == {"train.parameter_example": D * 6}
    assert role.environment.workload.asked == [(0, [0, 1, 2, 3], 1)]
    update = trained_update(role, 1)
    assert update.delta.tolist() == [0, 1, 2, 3]
    assert (update.samples, update.loss, update.examples_processed) == (3, 0.5, 6)


def refused(role: Trainer, message: Train) -> str:
    with pytest.raises(Refusal) as refusal:
        role.on_train(message)
    return refusal.value.check


@pytest.mark.parametrize("vector", [model(D - 1), model(D + 1), model(0), Vector(np.zeros(D, np.uint32), 32)])
def test_a_model_of_another_shape_is_refused(vector: Vector) -> None:
    assert refused(trainer(), Train(1, vector)) == "train.dimension-mismatch"


@pytest.mark.parametrize("delta", [(0, 0, 0), (0,) * 5, ((0,), (0,), (0,), (0,))])
def test_an_update_of_another_shape_is_not_handed_on(delta: Any) -> None:
    role = trainer(delta)
    assert refused(role, Train(1, model())) == "train.dimension-mismatch"
    with pytest.raises(Refusal, match=r"aggregation\.no-trained-update"):
        trained_update(role, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_not_handed_on(value: float) -> None:
    assert refused(trainer((0, value, 0, 0)), Train(1, model())) == "train.diverged"


def test_without_a_workload_there_is_nothing_to_train() -> None:
    assert refused(trainer(workload=False), Train(1, model())) == "train.no-workload"


def test_a_round_number_is_used_once_and_lower_ones_never_after() -> None:
    role = trainer()
    role.on_train(Train(4, model()))
    for number in (4, 3, 0):
        assert refused(role, Train(number, model())) == "train.round-reused"
    role.client.forget_round()
    assert refused(role, Train(4, model())) == "train.round-reused"
    role.on_train(Train(5, model()))
    assert trained_update(role, 5).samples == 3
    for number in (4, 6):
        with pytest.raises(Refusal, match=r"aggregation\.no-trained-update"):
            trained_update(role, number)


def test_where_participants_agree_the_round_is_theirs_and_training_comes_once() -> None:
    role = trainer(agreed=True)
    assert refused(role, Train(1, model())) == "train.no-agreed-list"
    role.client.agreed_participants, role.client.last_round = {0: bytes(32)}, 7
    for number in (6, 8):
        assert refused(role, Train(number, model())) == "train.round-reused"
    role.on_train(Train(7, model()))
    assert refused(role, Train(7, model())) == "train.round-reused"
    role.client.forget_round()
    assert refused(role, Train(7, model())) == "train.no-agreed-list"
