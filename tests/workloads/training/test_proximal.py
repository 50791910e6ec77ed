"""FedProx, compared with autograd of the explicit penalty, alone and for several clients together."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.floors import plain_network
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.workload.contract import ProximalWorkload
from testbed.workload.section import WorkloadSection
from workloads import ImageClassification, build
from workloads.determinism import Purpose, stream
from workloads.training.classification import TorchWorkload

KEYS: dict[str, Any] = {"dataset": "digits", "model": "cnn", "batch_size": 16, "epochs": 3, "learning_rate": 0.03}
OPTIMIZERS: list[dict[str, Any]] = [
    {"momentum": 0.0},
    {"momentum": 0.9, "weight_decay": 0.01},
    {"optimizer": "adamw", "learning_rate": 0.003, "weight_decay": 0.1},
]
IDS = ["sgd", "momentum", "adamw"]


def by_autograd(
    workload: ImageClassification, section: WorkloadSection, client: int, model: np.ndarray, round_number: int
) -> tuple[np.ndarray, float]:
    """The oracle: F_k + mu/2 |w - w^t|^2 as one loss, torch's own optimizer; (delta, the mean of F_k)."""
    images, labels = workload.data.shard(client)
    network = plain_network(workload.model_name, images.shape[1], images.shape[2], 10)
    given = torch.from_numpy(model.copy())
    vector_to_parameters(given.clone(), network.parameters())  # they become views of it
    parameters = list(network.parameters())
    rate, decay = section.learning_rate, section.weight_decay
    optimizer: torch.optim.Optimizer
    if section.optimizer == "adamw":
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(section.momentum, 0.999), weight_decay=decay)
    else:
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=section.momentum, weight_decay=decay)
    order_stream, losses = stream(11, Purpose.BATCHES, client, round_number), []
    for _ in range(section.epochs):
        order = order_stream.permutation(len(labels))
        for start in range(0, len(labels), section.batch_size):
            batch = torch.from_numpy(order[start : start + section.batch_size])
            optimizer.zero_grad()
            loss = cross_entropy(network(images[batch].unsqueeze(1)), labels[batch])
            distance: Tensor = (parameters_to_vector(parameters) - given).square().sum()
            (loss + section.proximal / 2 * distance).backward()
            optimizer.step()
            losses += [loss.item()] * len(batch)
    return parameters_to_vector(parameters).detach().numpy() - model, float(np.mean(losses))


def workload(**keys: Any) -> TorchWorkload:
    made = build(WorkloadSection(**KEYS | keys), population=33, seed=11)
    assert isinstance(made, TorchWorkload)
    return made


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=IDS)
def test_a_step_goes_by_the_gradient_of_the_penalty_too(optimizer: dict[str, Any]) -> None:
    keys = {"proximal": 0.7} | optimizer
    mine, section = workload(**keys), WorkloadSection(**KEYS | keys)
    assert isinstance(mine, ImageClassification)
    model = mine.initial_model()
    for client, round_number in ((3, 1), (17, 4)):  # the second's w^t is another one
        update = mine.train(client, model, round_number)
        delta, loss = by_autograd(mine, section, client, model, round_number)
        assert np.allclose(update.delta, delta, rtol=1e-3, atol=2e-5)
        assert update.loss == pytest.approx(loss, rel=1e-4)
        without = workload(**optimizer).train(client, model, round_number).delta
        assert np.abs(update.delta - without).max() > 1e-3
        model = model + update.delta


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=IDS)
def test_clients_together_learn_what_each_learns_alone(optimizer: dict[str, Any]) -> None:
    keys = {"proximal": 0.7} | optimizer
    alone, together = workload(**keys), workload(clients_at_once=3, **keys)
    model = alone.initial_model()
    clients = [2, 5, 6, 11, 30]
    for client, update in together.train_together(clients, model, 2).items():
        single = alone.train(client, model, 2)
        difference = np.linalg.norm(update.delta - single.delta)
        assert difference <= 1e-3 * np.linalg.norm(single.delta)
        assert update.loss == pytest.approx(single.loss, rel=1e-4)


def test_the_stronger_the_nearer() -> None:
    model = workload().initial_model()
    far = [float(np.linalg.norm(workload(proximal=mu).train(4, model, 1).delta)) for mu in (0.0, 0.1, 1.0, 10.0)]
    assert far == sorted(far, reverse=True)
    assert far[-1] < 0.8 * far[0]


def test_none_is_federated_averaging_bit_for_bit() -> None:
    section = WorkloadSection(**KEYS)
    assert "proximal" not in section.model_dump()
    assert WorkloadSection(**KEYS, proximal=0.5).model_dump()["proximal"] == 0.5
    model = workload().initial_model()
    bits = {workload(**keys).train(4, model, 1).delta.tobytes() for keys in ({}, {"proximal": 0.0})}
    assert len(bits) == 1


class TrainsItself(ImageClassification):
    def train(self, client: int, model: np.ndarray, round_number: int) -> Any:
        return self._untrained()


class KnowsIt(TrainsItself):
    proximal = 0.5


@pytest.mark.parametrize("kind", [TrainsItself, KnowsIt])
def test_a_class_that_trains_in_its_own_way_must_say_that_it_applies_it(kind: Any) -> None:
    experiment = Experiment.model_validate({"seed": 1, "population": 12, "workload": KEYS | {"proximal": 0.5}})
    made: Any = build(experiment.workload, 12, 1)
    own = kind("own", made.data, "cnn", experiment.workload, 1)
    plan = RunPlan(experiment, 1)
    plan.check_sums(made)
    assert isinstance(own, ProximalWorkload)
    if kind is KnowsIt:
        plan.check_sums(own)
        return
    with pytest.raises(ExperimentError) as error:
        plan.check_sums(own)
    assert str(error.value).startswith("workload.proximal: digits trains without it; leave the key out")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"proximal": -1}, "workload.proximal: should be greater than or equal to 0, not -1"),
        ({"proximal": True}, "workload.proximal: should be a valid number"),
        ({"proximal": 0.1, "training": "simulated"}, "proximal: has no effect on simulated training; leave it out"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"workload": keys}, "mine.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
