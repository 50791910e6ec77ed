"""Models of sequences and portraits: their sizes, compared with stacks of torch's layers."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads.models import vector
from workloads.models.recurrent import StackedLstm
from workloads.models.registry import image_model, sequence_model
from workloads.training.clipped_gradients import ClippedGradients
from workloads.training.local import LocalTrainer
from workloads.training.objectives import objective_of
from workloads.training.together import ClientsTogether


def filled(network: nn.Module, seed: int = 5) -> np.ndarray:
    """Give a network memory, with its initial values; the vector is returned."""
    values = vector.initial_vector(network, seed)
    values += np.random.default_rng(seed).normal(0, 0.05, values.shape).astype(np.float32)
    vector.attach(network, torch.from_numpy(values.copy()))
    return values


@pytest.mark.parametrize(
    ("name", "classes", "vocabulary", "parameters"),
    [
        ("char-lstm", 80, 80, 817_872),
        ("sent-lstm", 2, 10_000, 1_173_986),
        ("word-bag", 2, 10_000, 20_002),
    ],
)
def test_sizes_are_those_of_leafs_models(name: str, classes: int, vocabulary: int, parameters: int) -> None:
    assert vector.dimension(sequence_model(name, classes, vocabulary)) == parameters


class Reference(nn.Module):
    """torch's own LSTM, whose gates come in the order entry, forget, new, out, each with two biases."""

    def __init__(self, ours: StackedLstm) -> None:
        super().__init__()
        self.table = ours.embedding.weight.detach()
        first, second = ours.layers.children()
        self.lstm = nn.LSTM(first.inputs.in_features, first.hidden, num_layers=2, batch_first=True)
        self.output = ours.output
        turned = [0, 2, 1, 3]  # ours are entry, new, forget, out
        with torch.no_grad():
            for place, layer in enumerate((first, second)):
                parts = (layer.inputs.weight, layer.state.weight, layer.inputs.bias)
                named = ("weight_ih", "weight_hh", "bias_ih")
                for name, values in zip(named, parts, strict=True):
                    gates = values.detach().chunk(4)
                    getattr(self.lstm, f"{name}_l{place}").copy_(torch.cat([gates[gate] for gate in turned]))
                bias = torch.zeros(4, first.hidden)
                bias[1] = 1.0  # BasicLSTMCell's forget_bias
                getattr(self.lstm, f"bias_hh_l{place}").copy_(bias.flatten())

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.table[tokens])
        logits: Tensor = self.output(states[:, -1])
        return logits


@pytest.mark.parametrize(("name", "classes", "vocabulary"), [("char-lstm", 80, 80), ("sent-lstm", 2, 50)])
def test_the_lstm_is_torchs_with_one_added_to_the_forget_gate(name: str, classes: int, vocabulary: int) -> None:
    network = sequence_model(name, classes, vocabulary)
    filled(network)
    random = np.random.default_rng(1)
    tokens = torch.from_numpy(random.integers(0, vocabulary, (6, 12)))
    labels = torch.from_numpy(random.integers(0, classes, 6))
    assert isinstance(network, StackedLstm)
    reference = Reference(network)
    assert torch.allclose(network(tokens), reference(tokens), atol=1e-5)
    cross_entropy(network(tokens), labels).backward()
    mine = network.layers[0].state.weight.grad.clone()
    cross_entropy(reference(tokens), labels).backward()
    theirs = torch.cat([reference.lstm.weight_hh_l0.grad.chunk(4)[gate] for gate in [0, 2, 1, 3]])
    assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_bag_counts_known_words_alone() -> None:
    network = sequence_model("word-bag", 2, 6)
    filled(network)
    tokens = torch.tensor([[2, 2, 5, 1, 0], [0, 0, 0, 0, 0]])
    counts = torch.tensor([[0, 0, 2.0, 0, 0, 1], [0] * 6])
    assert torch.allclose(network(tokens), counts @ network.words.weight + network.bias)


@pytest.mark.parametrize("name", ["char-lstm", "sent-lstm", "word-bag"])
def test_clients_are_trained_at_once_and_samples_have_gradients_of_their_own(name: str) -> None:
    section = WorkloadSection(clients_at_once=2, batch_size=2, learning_rate=0.1)
    network = sequence_model(name, 3, 20)
    model = filled(sequence_model(name, 3, 20))
    together = ClientsTogether(network, section, 1, torch.device("cpu"), name)
    alone = LocalTrainer(network, section, 1, torch.device("cpu"))
    random = np.random.default_rng(2)

    def samples(client: int) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(random.integers(0, 20, (5, 7))), torch.from_numpy(random.integers(0, 3, 5))

    held = {client: samples(client) for client in range(3)}
    results = together.train([0, 1, 2], held.__getitem__, model, 1)
    for client, (tokens, labels) in held.items():
        delta, _, _ = alone.train(client, tokens, labels, model, 1)
        assert np.allclose(results[client].delta, delta, atol=1e-5)
    gradients = ClippedGradients(network, objective_of("cross_entropy").of_samples)
    tokens, labels = held[0]
    total, _ = gradients.sum(tokens, labels, 0.05)
    expected = torch.zeros_like(total)
    for number in range(5):
        network.zero_grad()
        cross_entropy(network(tokens[[number]]), labels[[number]]).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
        expected += gradient / max(1.0, float(gradient.norm()) / 0.05)
    assert torch.allclose(total, expected, atol=1e-5)


@pytest.mark.parametrize(("size", "parameters"), [(84, 31_458), (16, 29_218), (33, 29_730)])
def test_portraits_are_classified_by_leafs_network(size: int, parameters: int) -> None:
    network = image_model("celeba-cnn", size, size, 2, channels=3)
    assert vector.dimension(network) == parameters
    filled(network)
    layers: list[nn.Module] = []
    for channels in (3, 32, 32, 32):
        layers += [nn.Conv2d(channels, 32, 3, padding="same"), nn.BatchNorm2d(32)]
        layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
    last = size
    for _ in range(4):
        last = -(-last // 2)
    reference = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * last * last, 2))
    with torch.no_grad():
        for mine, other in zip(network.parameters(), reference.parameters(), strict=True):
            other.copy_(mine)
    network.train()
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (6, 3, size, size), dtype=np.uint8))
    scaled = network.features[0](images)
    assert torch.allclose(network(images), reference(scaled), atol=1e-4)


@pytest.mark.parametrize(("name", "least"), [("mobilenet-v2", 33), ("celeba-cnn", 16)])
def test_the_smallest_images(name: str, least: int) -> None:
    network = image_model(name, least, least, 3, channels=3)
    filled(network)
    one = torch.zeros((1, 3, least, least), dtype=torch.uint8)
    assert network.train()(one).shape == (1, 3)  # a batch of one can be normalised
    with pytest.raises(ExperimentError, match=naming(name, f"{least}x{least}")):
        image_model(name, least - 1, least - 1, 3, channels=3)


def test_unknown_sequence_models_are_refused() -> None:
    with pytest.raises(ExperimentError, match=naming("'albert'", "char-lstm, sent-lstm, word-bag")):
        sequence_model("albert", 2, 10)
