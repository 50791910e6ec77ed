"""The term of SCAFFOLD and FedDyn, compared with autograd of the explicit losses."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.floors import plain_network
from testbed.errors import ExperimentError
from testbed.workload.contract import DriftCorrectedWorkload
from testbed.workload.section import WorkloadSection
from workloads import ImageClassification, build
from workloads.determinism import Purpose, stream
from workloads.training.classification import TorchWorkload

KEYS: dict[str, Any] = {
    "dataset": "digits", "model": "cnn", "batch_size": 16, "epochs": 3, "learning_rate": 0.03, "momentum": 0,
}  # fmt: skip
ALGORITHMS: dict[str, dict[str, Any]] = {"scaffold": {"name": "scaffold"}, "feddyn": {"name": "feddyn", "alpha": 0.7}}


def workload(**keys: Any) -> TorchWorkload:
    made = build(WorkloadSection(**KEYS | keys), population=33, seed=11)
    assert isinstance(made, TorchWorkload)
    return made


def by_autograd(
    mine: TorchWorkload, client: int, model: np.ndarray, number: int, term: np.ndarray, alpha: float, decay: float
) -> np.ndarray:
    """The oracle: F_k + <term, w> + alpha/2 |w - w^t|^2 as one loss, by torch's own optimizer."""
    images, labels = mine.data.shard(client)
    network = plain_network("cnn", images.shape[1], images.shape[2], 10)
    given, linear = torch.from_numpy(model.copy()), torch.from_numpy(term)
    vector_to_parameters(given.clone(), network.parameters())
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=KEYS["learning_rate"], weight_decay=decay)
    order_stream = stream(11, Purpose.BATCHES, client, number)
    for _ in range(KEYS["epochs"]):
        order = order_stream.permutation(len(labels))
        for start in range(0, len(labels), KEYS["batch_size"]):
            batch = torch.from_numpy(order[start : start + KEYS["batch_size"]])
            optimizer.zero_grad()
            loss = cross_entropy(network(images[batch].unsqueeze(1)), labels[batch])
            flat = parameters_to_vector(parameters)
            (loss + linear @ flat + alpha / 2 * (flat - given).square().sum()).backward()
            optimizer.step()
    return parameters_to_vector(parameters).detach().numpy() - model


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_goes_by_the_term_too(name: str, decay: float) -> None:
    mine = workload(drift_correction=ALGORITHMS[name], weight_decay=decay)
    assert isinstance(mine, DriftCorrectedWorkload)
    assert mine.corrected == mine.dimension
    model, drawn = mine.initial_model(), np.random.default_rng(5)
    for client, number in ((3, 1), (17, 4)):
        term = drawn.normal(0, 0.05, mine.corrected).astype(np.float32)
        update, steps = mine.train_corrected(client, model, number, term)
        assert steps == 3 * -(-int(mine.sample_counts[client]) // 16)
        expected = by_autograd(mine, client, model, number, term, ALGORITHMS[name].get("alpha", 0.0), decay)
        assert np.allclose(update.delta, expected, rtol=1e-3, atol=2e-5)
        model = model + update.delta


def test_a_term_of_zeros_is_federated_averaging_bit_for_bit() -> None:
    plain, mine = workload(), workload(drift_correction=ALGORITHMS["scaffold"])
    model = plain.initial_model()
    mine.train_corrected(9, model, 1, np.ones(mine.corrected, np.float32))  # leaves nothing behind
    update, _ = mine.train_corrected(4, model, 1, np.zeros(mine.corrected, np.float32))
    assert update.delta.tobytes() == plain.train(4, model, 1).delta.tobytes()
    assert mine.train(4, model, 1).delta.tobytes() == update.delta.tobytes()


class Normalised(nn.Module):
    """Parameters, then running statistics; one parameter has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(images)
        return logits


def test_statistics_and_unused_parameters_have_no_term() -> None:
    name = f"{Normalised.__module__}:Normalised"
    mine = workload(model=name, drift_correction=ALGORITHMS["scaffold"], batch_size=10, samples_per_client=30)
    unused = 3
    assert mine.dimension - mine.corrected == 24
    model = mine.initial_model()
    term = np.full(mine.corrected, 0.5, np.float32)
    delta = mine.train_corrected(2, model, 1, term)[0].delta
    without = mine.train_corrected(2, model, 1, 0 * term)[0].delta
    moved = np.flatnonzero(delta[: mine.corrected] == 0)
    assert len(moved) >= unused
    assert np.abs(delta[mine.corrected :]).max() > 0
    assert np.abs(delta - without)[: mine.corrected].max() > 0.01


class TrainsItself(ImageClassification):
    def train(self, client: int, model: np.ndarray, round_number: int) -> Any:
        return self._untrained()


def test_a_class_that_trains_in_its_own_way_is_refused() -> None:
    section = WorkloadSection(**KEYS, drift_correction=ALGORITHMS["scaffold"])
    data: Any = workload().data
    with pytest.raises(ExperimentError) as error:
        TrainsItself("own", data, "cnn", section, 1)
    assert str(error.value).startswith("workload.drift_correction: the train method of TrainsItself")
    assert "\n" not in str(error.value)
