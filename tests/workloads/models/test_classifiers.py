"""The models equal textbook stacks of torch layers with the same flat parameters."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.floors import plain_network
from testbed.errors import ExperimentError
from workloads.models import vector
from workloads.models.classifiers import SeededDropout
from workloads.models.registry import image_model

SIZES = [
    ("logistic", 8, 10, 650),
    ("logistic", 28, 62, 48_670),
    ("mlp", 8, 10, 8_970),
    ("mlp", 28, 10, 199_210),
    ("cnn", 8, 10, 6_090),
    ("cnn", 28, 10, 20_490),
    ("femnist-cnn", 28, 62, 1_018_174),
    ("mnist-cnn", 28, 10, 1_663_370),
    ("lenet", 28, 10, 61_706),
    ("lenet", 32, 10, 62_006),
    ("cifar-cnn", 32, 10, 1_626_442),
    ("vgg11", 32, 100, 9_271_780),
    ("vgg11", 32, 10, 9_225_610),
]


@pytest.mark.parametrize(("name", "size", "classes", "parameters"), SIZES)
def test_values_and_gradients_equal_the_textbook_network(name, size, classes, parameters) -> None:
    channels = 3 if size == 32 else 1
    ours = image_model(name, size, size, classes, channels)
    assert vector.dimension(ours) == parameters
    values = vector.initial_vector(ours, seed=3)
    assert values.shape == (parameters,)
    assert values.dtype == np.float32
    ours.to_empty(device="cpu")
    plain = plain_network(name, size, size, classes)
    for network in (ours, plain):
        vector_to_parameters(torch.from_numpy(values.copy()), network.parameters())
        network.eval()  # dropout off: its masks are compared below
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(6, size, size, channels)).astype(np.float32))
    labels = torch.arange(6)
    given = images.squeeze(-1) if channels == 1 else images
    losses = [cross_entropy(ours(given), labels), cross_entropy(plain(images.permute(0, 3, 1, 2)), labels)]
    gradients = []
    for loss, network in zip(losses, (ours, plain), strict=True):
        loss.backward()
        gradients.append(parameters_to_vector([one.grad for one in network.parameters() if one.grad is not None]))
    assert torch.allclose(losses[0], losses[1], rtol=1e-5)
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)
    assert gradients[0].abs().max() > 1e-3


def test_initial_weights_are_xavier_uniform_with_zero_biases() -> None:
    network = image_model("femnist-cnn", 28, 28, 62)
    values = torch.from_numpy(vector.initial_vector(network, seed=1))
    network.to_empty(device="cpu")
    vector_to_parameters(values, network.parameters())
    for parameter in network.parameters():
        if parameter.dim() == 1:
            assert not parameter.any()
            continue
        reference = torch.nn.init.xavier_uniform_(torch.empty_like(parameter), gain=2**0.5)
        assert float(parameter.detach().std()) == pytest.approx(float(reference.std()), rel=0.15)
        assert float(parameter.detach().abs().max()) == pytest.approx(float(reference.abs().max()), rel=0.05)


def test_signals_neither_fade_nor_grow_in_vgg11_as_it_begins() -> None:
    network = image_model("vgg11", 32, 32, 100, channels=3)
    values = torch.from_numpy(vector.initial_vector(network, seed=1))
    network.to_empty(device="cpu")
    vector_to_parameters(values, network.parameters())
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 32, 32, 3)).astype(np.float32))
    with torch.inference_mode():
        assert 0.3 < float(network(images).std()) < 3


def test_initial_weights_depend_on_the_seed_alone() -> None:
    network = image_model("cnn", 8, 8, 10)
    first = vector.initial_vector(network, seed=2**100 + 1)
    torch.rand(3)
    np.random.default_rng().random()
    assert np.array_equal(vector.initial_vector(network, seed=2**100 + 1), first)
    assert not np.array_equal(vector.initial_vector(network, seed=2**100 + 2), first)


def test_dropout_drops_its_share_scales_the_rest_and_repeats() -> None:
    dropout = SeededDropout(0.25)
    values = torch.ones(100, 1000)
    results = []
    for _ in range(2):
        dropout.random = np.random.Generator(np.random.Philox(7))
        results.append(dropout(values))
    assert torch.equal(*results)
    assert torch.allclose(results[0].unique(), torch.tensor([0.0, 4 / 3]))
    # 10**5 units: the share dropped is within five standard deviations of a quarter.
    assert float((results[0] == 0).float().mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 1e5) ** 0.5)
    assert not torch.equal(dropout(values), results[0])
    assert torch.equal(dropout.eval()(values), values)


@pytest.mark.parametrize("probability", [-0.25, 0.3, 1.0])
def test_dropout_refuses_other_probabilities(probability: float) -> None:
    with pytest.raises(ValueError, match="1/256"):
        SeededDropout(probability)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ExperimentError, match="28x28"):
        image_model("femnist-cnn", 8, 8, 10)
    for name, size, channels, needed in (("mnist-cnn", 8, 1, 28), ("lenet", 32, 1, 28), ("vgg11", 64, 3, 32)):
        with pytest.raises(ExperimentError, match=f"{name} needs {needed}x{needed} .* {size}x{size}"):
            image_model(name, size, size, 10, channels)
    with pytest.raises(ExperimentError, match="allowed: lenet, cifar-cnn, vgg11, mobilenet-v2"):
        image_model("cnn", 32, 32, 10, channels=3)
    with pytest.raises(ExperimentError, match="allowed: logistic, mlp, cnn, femnist-cnn"):
        image_model("resnet", 28, 28, 10)


@pytest.mark.parametrize("name", ["sent_twice", "initial_weights", "draw"])
def test_a_plain_module_that_declares_its_vector_is_refused(name: str) -> None:
    """What only `FederatedModel` may declare would be without effect."""
    network = type("Own", (nn.Linear,), {name: ()})(2, 2)
    for measure in (vector.dimension, lambda network: vector.initial_vector(network, 0)):
        with pytest.raises(TypeError, match=f"Own has {name}, which has no effect: inherit from FederatedModel"):
            measure(network)
