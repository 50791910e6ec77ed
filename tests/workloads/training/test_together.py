"""Clients trained together: equal to training alone except for rounding, and bit-identical beside any other clients."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from testbed.errors import ExperimentError
from testbed.workload.contract import BatchedWorkload
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from tests.thoroughness import examples
from workloads import LocalUpdate, build
from workloads.data.clients.contract import IGNORED, ClientData
from workloads.models.classifiers import SeededDropout
from workloads.models.registry import image_model, text_model
from workloads.training.classification import TorchWorkload
from workloads.training.local import prepare_process

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads compute there, in whole 32-bit floats."""
    prepare_process()
    monkeypatch.setattr("workloads.training.classification.prepare_process", lambda: torch.device(request.param))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


class Noise(ClientData):
    """Clients with random samples, a number for each client."""

    description = "noise"

    def __init__(self, sizes: Sequence[int], shape: tuple[int, ...], classes: int, words: bool = False) -> None:
        self.sample_counts = np.array(sizes, np.int64)
        self.shape, self.classes, self.words = shape, classes, words

    def shard(self, client: int) -> tuple[Tensor, Tensor]:
        random, size = np.random.default_rng(client), int(self.sample_counts[client])
        if not self.words:
            images = random.normal(size=(size, *self.shape)).astype(np.float32)
            return torch.from_numpy(images), torch.from_numpy(random.integers(0, self.classes, size))
        labels = random.integers(0, self.classes, (size, *self.shape))
        labels[:, 1:][random.random((size, *self.shape))[:, 1:] < 0.3] = IGNORED  # sequences of unequal length
        return torch.from_numpy(random.integers(0, self.classes, (size, *self.shape))), torch.from_numpy(labels)

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self.shard(0)

    def label_counts(self) -> np.ndarray:
        return self.sample_counts[:, None]


class Own(nn.Module):
    """What a user may write: a layer used twice, dropout twice, shapes of the sample's own."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.layer, self.end = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(5, 5), nn.Linear(50, 3)
        self.norm, self.dropout = nn.LayerNorm(5), SeededDropout(0.25)

    def forward(self, images: Tensor) -> Tensor:
        values = torch.tanh(self.begin(images[:, None]))
        values = self.dropout(self.norm(self.layer(values)))
        values = self.dropout(torch.relu(self.layer(values)))
        return self.end(values.reshape(len(images), -1))


def _own() -> nn.Module:
    with torch.device("meta"):
        return Own()


def _mlp() -> nn.Module:
    return image_model("mlp", 8, 8, 10)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "logistic": (lambda: image_model("logistic", 8, 8, 10), (8, 8), 10),
    "mlp": (_mlp, (8, 8), 10),
    "cnn": (lambda: image_model("cnn", 12, 12, 10), (12, 12), 10),
    **{
        name: (partial(image_model, name, 28, 28, 12), (28, 28), 12)
        for name in ("femnist-cnn", "mnist-cnn", "emnist-cnn", "lenet")
    },
    **{
        f"{name} in colour": (partial(image_model, name, 32, 32, 10, 3), (32, 32, 3), 10)
        for name in ("lenet", "cifar-cnn", "vgg11")
    },
    "albert-small": (lambda: text_model("albert-small", 30), (7,), 30),
    "own": (_own, (5, 5), 3),
}


def workload(name: str, sizes: Sequence[int], clients_at_once: int, **keys: Any) -> TorchWorkload:
    make, shape, classes = NETWORKS[name]
    section = WorkloadSection(clients_at_once=clients_at_once, **keys)
    data = Noise(sizes, shape, classes, words=name.startswith("albert"))
    return TorchWorkload("noise", data, name, make(), section, 5, 100)


def same(update: LocalUpdate, other: LocalUpdate) -> bool:
    return update.delta.tobytes() == other.delta.tobytes() and update.loss == other.loss


def assert_close(update: LocalUpdate, plain: LocalUpdate) -> None:
    """Equal but for rounding, which steps enlarge."""
    assert update.delta.dtype == np.float32
    assert update.delta.shape == plain.delta.shape
    assert np.linalg.norm(update.delta - plain.delta) <= 1e-3 * np.linalg.norm(plain.delta) + 1e-7
    assert update.loss == pytest.approx(plain.loss, rel=1e-4)
    assert update.squared_loss == pytest.approx(plain.squared_loss, rel=1e-4)
    assert (update.samples, update.examples_processed) == (plain.samples, plain.examples_processed)


SIZES = (7, 1, 0, 4, 12, 3, 8)
LARGE = {"femnist-cnn", "mnist-cnn", "cifar-cnn in colour", "vgg11 in colour"}
"""More clients than slots, one of them without samples; smaller last batches, and one of a single sample."""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", NETWORKS)
def test_each_client_learns_what_it_learns_alone(name: str) -> None:
    sizes, epochs = ((3, 1, 0, 2, 4), 1) if name in LARGE else (SIZES, 2)
    keys = {"batch_size": 2, "learning_rate": 0.01, "epochs": epochs}
    plain, together = workload(name, sizes, 1, **keys), workload(name, sizes, 3, **keys)
    assert isinstance(together, BatchedWorkload)
    model = plain.initial_model()
    updates = together.train_together(range(len(sizes)), model, 2)
    assert list(updates) == list(range(len(sizes)))
    for client, update in updates.items():
        assert_close(update, plain.train(client, model, 2))
    assert np.linalg.norm(updates[0].delta) > 1e-3
    assert not updates[2].delta.any()
    # Alone, in another order and beside others: not a bit differs.
    for chosen in ((4,), (3, 4, 0), tuple(reversed(range(len(sizes))))):
        again = together.train_together(chosen, model, 2)
        assert all(same(again[client], updates[client]) for client in chosen)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["mlp", "own"])
@pytest.mark.parametrize(
    "keys",
    [
        {"momentum": 0.0, "weight_decay": 0.1},
        {"momentum": 0.95, "epochs": 3, "weight_decay": 0.01, "learning_rate_decay": 0.5},
        {"optimizer": "adamw", "epochs": 3, "weight_decay": 0.1, "learning_rate": 0.001},
        {"optimizer": "adamw", "momentum": 0.0, "learning_rate": 0.001, "batch_size": 100},
    ],
)
def test_every_client_has_an_optimizer_of_its_own(name: str, keys: dict[str, Any]) -> None:
    """One of a single step is beside those of many, and its slot's next client begins without momentum."""
    keys = {"batch_size": 3, "learning_rate": 0.02} | keys
    sizes = (1, 31, 2, 9, 1, 5)
    plain, together = workload(name, sizes, 1, **keys), workload(name, sizes, 2, **keys)
    model = plain.initial_model()
    for client, update in together.train_together(range(len(sizes)), model, 4).items():
        assert_close(update, plain.train(client, model, 4))


@settings(max_examples=examples(50))
@given(
    sizes=st.lists(st.integers(1, 23), min_size=1, max_size=9),
    slots=st.integers(2, 5),
    batch_size=st.integers(1, 12),
    epochs=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.9]),
    round_number=st.integers(1, 1000),
    data=st.data(),
)
def test_any_clients_in_any_number_of_slots(
    sizes: list[int], slots: int, batch_size: int, epochs: int, momentum: float, round_number: int, data: st.DataObject
) -> None:
    keys = {"batch_size": batch_size, "epochs": epochs, "momentum": momentum, "learning_rate": 0.01}
    plain, together = workload("own", sizes, 1, **keys), workload("own", sizes, slots, **keys)
    assert together._together is not None
    together._together._any_slot |= data.draw(st.booleans())  # as on a GPU
    model = plain.initial_model()
    updates = together.train_together(range(len(sizes)), model, round_number)
    for client, update in updates.items():
        assert_close(update, plain.train(client, model, round_number))
    if together._together._any_slot:
        return
    some = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    again = together.train_together(some, model, round_number)
    assert all(same(again[client], updates[client]) for client in some)


def test_samples_that_do_not_fit_on_the_device_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = workload("mlp", SIZES, 2, batch_size=4)
    model = together.initial_model()
    expected = together.train_together(range(len(SIZES)), model, 1)
    monkeypatch.setattr("workloads.training.together._SAMPLE_BYTES", 1)
    updates = together.train_together(range(len(SIZES)), model, 1)
    assert all(same(update, expected[client]) for client, update in updates.items())


def test_an_update_that_is_not_finite_stays_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    together = workload("mlp", (5, 5, 5, 5), 2, batch_size=2)
    model = together.initial_model()
    expected = together.train_together(range(4), model, 1)
    shard = together.data.shard

    def broken(client: int) -> tuple[Tensor, Tensor]:
        inputs, labels = shard(client)
        return inputs * np.nan if client == 1 else inputs, labels

    monkeypatch.setattr(together.data, "shard", broken)
    updates = together.train_together(range(4), model, 1)
    assert not np.isfinite(updates[1].delta).any()
    assert all(same(updates[client], expected[client]) for client in (0, 2, 3))


def test_the_model_that_is_given_is_left_alone_and_checked() -> None:
    together = workload("mlp", (5, 6), 2)
    model = together.initial_model()
    model.flags.writeable = False
    together.train_together([0, 1], model, 1)
    assert np.array_equal(model, together.initial_model())
    for wrong in (model[:-1], model.astype(np.float64)):
        with pytest.raises(ValueError, match="float32"):
            together.train_together([0, 1], wrong, 1)


def refused(network: Callable[[], nn.Module], match: str, kind: type[TorchWorkload] = TorchWorkload) -> None:
    section = WorkloadSection(clients_at_once=2)
    with torch.device("meta"):
        made = network()
    with pytest.raises(ExperimentError, match=match) as caught:
        kind("own", Noise((4, 4), (8,), 2), "mine", made, section, 1, 10).train_together([0, 1], np.zeros(18, "f4"), 1)
    assert "\n" not in str(caught.value)


class ByValue(nn.Linear):
    """What it does depends on a number in its input."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs if float(inputs.sum()) > 0 else -inputs)


class OwnTraining(TorchWorkload):
    """Trains in its own way."""

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        return super().train(client, 2 * model, round_number)


def test_what_cannot_be_trained_together_is_refused_in_one_line() -> None:
    refused(lambda: nn.Sequential(nn.Linear(8, 2), nn.BatchNorm1d(2)), "clients_at_once: mine has BatchNorm1d")
    refused(lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 2)), "mine has Dropout.*SeededDropout")
    refused(lambda: ByValue(8, 2), "mine cannot be trained for several clients at once; leave the key out.*item")
    refused(lambda: nn.Linear(8, 2), "train method of OwnTraining .* train_together", OwnTraining)
    with pytest.raises(ExperimentError, match="mobilenet-v2 has BatchNorm2d"):
        build(WorkloadSection(dataset="synthetic-openimage", image_size=64, clients_at_once=2), 5, 1)
    with pytest.raises(ValueError, match=naming("clients_at_once", "simulated")):
        WorkloadSection(training="simulated", clients_at_once=2)
