"""Sums of clipped gradients, against gradients that torch makes one sample at a time."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads.models import vector
from workloads.models.registry import image_model, text_model
from workloads.registry import built_in
from workloads.training.classification import TorchWorkload
from workloads.training.clipped_gradients import ClippedGradients, check
from workloads.training.objectives import sample_losses


def one_by_one(network: nn.Module, inputs: Tensor, labels: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """The oracle: (d,) sum of clipped gradients, and their (n,) norms before clipping."""
    total, norms = torch.zeros(vector.dimension(network), dtype=inputs.dtype), []
    for sample, label in zip(inputs, labels, strict=True):
        network.zero_grad()
        sample_losses(network(sample[None]), label[None])[0].backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
        norms.append(gradient.norm())
        total += gradient / (1.0 if clip is None else max(1.0, float(gradient.norm()) / clip))
    return total, torch.stack(norms)


def model(name: str, side: int, colours: int = 1) -> nn.Module:
    network = image_model(name, side, side, 62, colours)
    vector.attach(network, torch.from_numpy(vector.initial_vector(network, 1)))
    return network


def own(*layers: nn.Module) -> nn.Module:
    network = nn.Sequential(*layers)
    torch.nn.utils.vector_to_parameters(
        torch.from_numpy(np.random.default_rng(2).normal(0, 0.3, vector.dimension(network)).astype(np.float32)),
        network.parameters(),
    )
    return network


class Twice(nn.Module):
    """One layer used twice: its gradient is the sum of both uses'."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(inputs)))))


class Positions(nn.Module):
    """A layer over several positions of a sample; logits are (n, classes, positions)."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(inputs))).transpose(1, 2)


NETWORKS = {
    **{name: (partial(model, name, 28), (28, 28), 62) for name in ("mlp", "cnn", "emnist-cnn", "mnist-cnn")},
    "lenet": (lambda: model("lenet", 32, 3), (32, 32, 3), 62),
    "strides": (
        lambda: own(nn.Conv2d(2, 3, (3, 2), (2, 1), (1, 2), (1, 2), bias=False), nn.Flatten(), nn.Linear(150, 4)),
        (2, 9, 8),
        4,
    ),
    "groups": (lambda: own(nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6 * 9, 4)), (4, 5, 5), 4),
    "normalised": (lambda: own(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(inplace=True), nn.Linear(8, 3)), (6,), 3),
    "twice": (lambda: own(Twice()), (6,), 3),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_the_sum_is_that_of_single_gradients(name: str, clipped: bool, direct: bool) -> None:
    make, shape, classes = NETWORKS[name]
    network = make().double()  # so that rounding hides no mistake
    random = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(7, *shape, generator=random).double(), torch.arange(7) % classes
    _, norms = one_by_one(network, inputs, labels, None)
    clip = float(norms.median()) if clipped else None  # some are longer, some are not
    expected, _ = one_by_one(network, inputs, labels, clip)
    found, losses = ClippedGradients(network, sample_losses, direct=direct).sum(inputs, labels, clip)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)
    assert torch.allclose(losses, sample_losses(network(inputs), labels), rtol=1e-9)
    if clip is not None:
        for position in range(7):
            alone, _ = ClippedGradients(network, sample_losses).sum(inputs[position : position + 1], labels[:1], clip)
            assert float(alone.norm()) <= clip * (1 + 1e-9)


def test_labels_of_several_positions() -> None:
    network = own(Positions())
    inputs = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(20).view(5, 4) % 3
    expected, _ = one_by_one(network, inputs, labels, 0.2)
    assert torch.allclose(ClippedGradients(network, sample_losses).sum(inputs, labels, 0.2)[0], expected, atol=1e-6)


def test_chunks_change_nothing_but_the_order_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    network = model("emnist-cnn", 28)
    inputs, labels = torch.randn(9, 28, 28, generator=torch.Generator().manual_seed(1)), torch.arange(9)
    whole, losses = ClippedGradients(network, sample_losses).sum(inputs, labels, 0.5)
    monkeypatch.setattr("workloads.training.clipped_gradients._LARGEST_CHUNK", 4)
    parts, part_losses = ClippedGradients(network, sample_losses).sum(inputs, labels, 0.5)
    assert torch.allclose(whole, parts, atol=1e-6)
    assert torch.allclose(losses, part_losses)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", ["mlp", "emnist-cnn", "groups", "normalised"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_a_sample_without_a_finite_gradient_counts_as_zero(name: str, value: float, direct: bool) -> None:
    make, shape, classes = NETWORKS[name]
    network = make()
    inputs = torch.randn(5, *shape, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(5) % classes
    spoilt = inputs.clone()
    spoilt[2].fill_(value)
    others = [0, 1, 3, 4]
    expected, _ = ClippedGradients(network, sample_losses, direct=direct).sum(inputs[others], labels[others], 0.5)
    found, _ = ClippedGradients(network, sample_losses, direct=direct).sum(spoilt, labels, 0.5)
    assert torch.isfinite(found).all()
    assert float((found - expected).norm()) <= 0.5 * (1 + 1e-6)  # 3e38 may have a gradient after a normalisation
    if not np.isfinite(value):
        assert torch.allclose(found, expected, atol=1e-6)
    unclipped, _ = ClippedGradients(network, sample_losses, direct=direct).sum(spoilt, labels, None)
    assert np.isfinite(value) or not torch.isfinite(unclipped).all()  # without a clip nothing is promised


@pytest.mark.parametrize("direct", [True, False])
def test_rounding_of_a_large_sum_leaves_a_sample_no_more_than_the_clip(direct: bool) -> None:
    """20,000 samples that all pull one way, with and without one of them: a null sample, whose gradient is none."""
    clip_for, held = RandomParticipationParameters(sample_rate=1.0, clip=0.1, sigma=1.0).clip_for, 20_000
    network = own(nn.Linear(2, 2))
    inputs, labels = torch.full((held, 2), 3.7), torch.zeros(held, dtype=torch.int64)
    gradients = ClippedGradients(network, sample_losses, direct=direct)
    whole, _ = gradients.sum(inputs, labels, clip_for(held))
    for gone in (0, 255, 10_000, held - 1):
        without = inputs.clone()
        without[gone] = float("nan")
        total, _ = gradients.sum(without, labels, clip_for(held))
        assert 0.09 < float((whole.double() - total.double()).norm()) <= 0.1


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), "BatchNorm2d, which mixes the samples"),
        (nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)), "BatchNorm1d"),
        (image_model("mobilenet-v2", 64, 64, 10, 3), "BatchNorm2d"),
    ],
)
def test_networks_that_mix_samples_are_refused(network: nn.Module, says: str) -> None:
    with pytest.raises(ExperimentError, match=says) as refused:
        check(network, "mine")
    assert str(refused.value).startswith("workload.model: mine has ")
    assert "\n" not in str(refused.value)


def test_parameters_that_are_sent_twice_are_refused() -> None:
    network = text_model("albert-small", 20)
    with pytest.raises(ExperimentError, match=naming("workload.model", "twice")):
        check(network, "mine")


def test_a_workload_sums_the_samples_that_it_is_told_to() -> None:
    workload = built_in(WorkloadSection(dataset="digits", model="mlp"), population=20, seed=1)
    workload.check_gradient_sum()
    model = workload.initial_model()
    images, labels = workload.data.shard(3)
    network = image_model("mlp", 8, 8, 10)
    vector.attach(network, torch.from_numpy(model.copy()))
    chosen = np.array([1, 4, 5])
    update = workload.gradient_sum(3, model, 1, chosen, 0.7)
    expected, _ = one_by_one(network, images[chosen], labels[chosen], 0.7)
    assert np.allclose(update.delta, expected.numpy(), atol=1e-6)
    assert (update.samples, update.examples_processed) == (len(labels), 3)
    assert update.loss == pytest.approx(
        float(sample_losses(network(images[chosen]), labels[chosen]).detach().mean()), rel=1e-5
    )
    again = workload.gradient_sum(3, model, 2, chosen, 0.7)
    assert again.delta.tobytes() == update.delta.tobytes()
    nothing = workload.gradient_sum(3, model, 1, chosen[:0], 0.7)
    assert not nothing.delta.any()
    assert nothing.examples_processed == 0


def test_dropout_is_drawn_from_the_stream_of_client_and_round() -> None:
    section = WorkloadSection(dataset="synthetic-femnist", model="femnist-cnn", samples_per_client=4, test_samples=10)
    workload = built_in(section, population=2, seed=1)
    model, chosen = workload.initial_model(), np.arange(4)
    first, other, again = (workload.gradient_sum(0, model, number, chosen, 1.0).delta for number in (1, 2, 1))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet"])
def test_gradients_one_by_one_are_those_of_single_samples(name: str) -> None:
    make, shape, classes = NETWORKS[name]
    network, rng = make(), np.random.default_rng(3)
    inputs = torch.from_numpy(rng.normal(size=(3, *shape)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, classes, 3))
    gradients, losses = ClippedGradients(network, sample_losses).each(inputs, labels)
    assert gradients.shape == (3, vector.dimension(network))
    for place in range(3):
        alone, _ = one_by_one(network, inputs[place : place + 1], labels[place : place + 1], None)
        torch.testing.assert_close(gradients[place], alone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(losses, sample_losses(network(inputs), labels).detach())


def test_a_workload_gives_gradients_and_updates_of_any_samples() -> None:
    """What attackers compute: the same as a client does of the same samples."""
    section = WorkloadSection(dataset="digits", model="logistic", samples_per_client=5, batch_size=2)
    workload = built_in(section, 4, 7)
    assert isinstance(workload, TorchWorkload)
    first, samples = workload.initial_model(), workload.data.shard(2)
    assert np.array_equal(workload.train_on(samples, first, 3, 2), workload.train(2, first, 3).delta)
    gradients = np.concatenate([part for part, _ in workload.sample_gradients(first, samples)])
    total = workload.gradient_sum(2, first, 3, np.arange(5), None).delta
    np.testing.assert_allclose(gradients.sum(axis=0), total, rtol=1e-4, atol=1e-6)
