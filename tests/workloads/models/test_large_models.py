"""MobileNetV2 and ALBERT: the published sizes, and the functions that other implementations compute."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torchvision.models import mobilenetv2

from workloads.models import vector
from workloads.models.albert import Albert, Configuration
from workloads.models.registry import image_model, text_model


def filled(network: nn.Module, seed: int) -> np.ndarray:
    """Give a network memory, with its initial values; the vector is returned."""
    values = vector.initial_vector(network, seed)
    vector.attach(network, torch.from_numpy(values.copy()))
    return values


def test_the_vectors_have_the_published_lengths() -> None:
    network = image_model("mobilenet-v2", 256, 256, 596, channels=3)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    statistics = sum(buffer.numel() for buffer in network.buffers())
    assert (parameters, statistics, vector.dimension(network)) == (999_272, 10_464, 1_009_736)
    base = text_model("albert", 30_000)
    once = sum(parameter.numel() for parameter in base.parameters())
    assert (once, vector.dimension(base)) == (11_221_680, 15_091_680)
    assert [again.stop - again.start for _, again in vector.copies(base)] == [3_840_000, 30_000]


class FirstExpanded(mobilenetv2.InvertedResidual):
    """torchvision's unit, with the convolution before the first one that it leaves out."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: object = None) -> None:
        super().__init__(inp, oup, stride, expand_ratio, norm_layer)
        if expand_ratio == 1:
            first = mobilenetv2.Conv2dNormActivation(inp, inp, kernel_size=1, activation_layer=nn.ReLU6)
            self.conv: nn.Sequential = nn.Sequential(first, *self.conv)


@pytest.mark.parametrize("training", [False, True])
def test_mobilenet_is_torchvisions_with_channels_that_are_not_rounded(training: bool) -> None:
    ours = image_model("mobilenet-v2", 64, 64, 10, channels=3)
    filled(ours, seed=5)
    theirs = mobilenetv2.MobileNetV2(10, width_mult=0.25, round_nearest=1, block=FirstExpanded, dropout=0.0)
    nn.init.zeros_(theirs.classifier[1].bias)
    shapes = [tensor for name, tensor in theirs.state_dict().items() if not name.endswith("num_batches_tracked")][:-1]
    assert sum(tensor.numel() for tensor in shapes) == vector.dimension(ours)
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=False):
            assert mine.shape == other.shape
            other.copy_(mine)
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (6, 3, 64, 64), dtype=np.uint8))
    means, deviations = (
        torch.tensor(values, dtype=torch.float64).view(3, 1, 1)
        for values in ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010])
    )
    normalised = (images / 255.0 - means) / deviations
    assert torch.allclose(ours.features[0](images).double(), normalised, atol=1e-5)
    setattr(ours.features, "0", nn.Identity())  # what follows in double precision: normalising amplifies the last bits
    labels = torch.arange(6)
    results = []
    for network in (ours, theirs):
        network.double().train(training)
        logits = network(normalised)
        cross_entropy(logits, labels).backward()
        results.append(logits.detach())
    assert torch.allclose(*results)
    assert float(results[0].std()) > 0.1
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=False):
        assert torch.allclose(mine.grad, other.grad, rtol=1e-6, atol=1e-8)
    statistics = [dict(network.named_buffers()) for network in (ours, theirs)]
    variances = [value for name, value in statistics[0].items() if name.endswith("running_var")]
    others = [value for name, value in statistics[1].items() if name.endswith("running_var")]
    assert all(torch.allclose(a, b) for a, b in zip(variances, others, strict=True))
    assert any((value != 1).any() for value in variances) == training


def test_initial_values_of_normalisations_are_neutral() -> None:
    network = image_model("mobilenet-v2", 64, 64, 10, channels=3)
    filled(network, seed=1)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 53
    for norm in norms:
        assert (norm.weight == 1).all()
        assert (norm.running_var == 1).all()
        assert not norm.bias.any()
        assert not norm.running_mean.any()
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    assert 0.95 < float(first.weight.detach().abs().max()) / (6 / 27) ** 0.5 <= 1


def reference(network: Albert, words: torch.Tensor) -> torch.Tensor:
    """ALBERT by torch's own encoder layer: (N, T, vocabulary)."""
    sizes = network.sizes
    layer = nn.TransformerEncoderLayer(
        sizes.hidden, sizes.heads, sizes.inner, dropout=0.0, layer_norm_eps=1e-12, batch_first=True,
        activation=lambda values: gelu(values, approximate="tanh"),
    )  # fmt: skip
    mine = network.layer
    pairs = [
        (layer.self_attn.in_proj_weight, torch.cat([mine.query.weight, mine.key.weight, mine.value.weight])),
        (layer.self_attn.in_proj_bias, torch.cat([mine.query.bias, mine.key.bias, mine.value.bias])),
        (layer.self_attn.out_proj.weight, mine.attended.weight), (layer.self_attn.out_proj.bias, mine.attended.bias),
        (layer.norm1.weight, mine.attention_norm.weight), (layer.norm1.bias, mine.attention_norm.bias),
        (layer.linear1.weight, mine.inner.weight), (layer.linear1.bias, mine.inner.bias),
        (layer.linear2.weight, mine.outer.weight), (layer.linear2.bias, mine.outer.bias),
        (layer.norm2.weight, mine.norm.weight), (layer.norm2.bias, mine.norm.bias),
    ]  # fmt: skip
    with torch.no_grad():
        for theirs, value in pairs:
            theirs.copy_(value)
    length = words.shape[1]
    place = torch.arange(length)
    values = network.words(words) + network.positions(place) + network.segments(torch.zeros_like(words))
    values = network.to_hidden(network.embedding_norm(values))
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    for _ in range(sizes.layers):
        values = layer(values, src_mask=mask)
    predicted = network.prediction_norm(gelu(network.prediction(values), approximate="tanh"))
    return predicted @ network.words.weight.T + network.bias


@pytest.fixture
def small() -> Albert:
    network = text_model("albert-small", 50)
    assert isinstance(network, Albert)
    values = vector.initial_vector(network, seed=2)
    # Larger than at the start, and no bias zero: otherwise half of it would not show.
    values += np.random.default_rng(3).normal(0.0, 0.2, values.shape).astype(np.float32)
    vector.attach(network, torch.from_numpy(values))
    return network


def test_albert_is_torchs_encoder_with_one_layer_for_all(small: Albert) -> None:
    words = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (3, 9)))
    logits = small(words)
    assert logits.shape == (3, 50, 9)
    assert torch.allclose(logits.transpose(1, 2), reference(small, words), rtol=1e-4, atol=1e-4)
    assert float(logits.detach().std()) > 0.1


def test_albert_shares_its_layer() -> None:
    shallow, deep = (Configuration(50, 32, 64, 256, layers, 4) for layers in (1, 9))
    counts = [sum(parameter.numel() for parameter in Albert(sizes).parameters()) for sizes in (shallow, deep)]
    assert counts[0] == counts[1]
    networks = [Albert(sizes) for sizes in (shallow, deep)]
    for network in networks:
        filled(network, seed=4)
    words = torch.arange(8).view(1, 8)
    assert not torch.allclose(networks[0](words), networks[1](words))


def test_a_later_word_changes_no_earlier_prediction(small: Albert) -> None:
    words = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (1, 12)))
    before = small(words)
    for place in (3, 11):
        changed = words.clone()
        changed[0, place] = (changed[0, place] + 1) % 50
        after = small(changed)
        assert torch.equal(after[:, :, :place], before[:, :, :place])
        assert not torch.allclose(after[:, :, place], before[:, :, place])


def test_albert_trains_the_first_copy_and_sends_both() -> None:
    from testbed.workload.section import WorkloadSection
    from workloads.training.local import LocalTrainer, prepare_process

    network = text_model("albert-small", 50)
    section = WorkloadSection(
        dataset="synthetic-reddit", model="albert-small", optimizer="adamw", batch_size=20, learning_rate=0.01
    )
    trainer = LocalTrainer(network, section, 1, prepare_process())
    model = vector.initial_vector(network, seed=2)
    words = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (30, 9)))
    drifted = model.copy()
    for _, again in vector.copies(network):
        drifted[again] += 0.25  # as noise of an aggregation could leave it
    for given in (model, drifted):
        delta, loss, _ = trainer.train(0, words[:, :-1], words[:, 1:], given, 1)
        local = given + delta
        for there, again in vector.copies(network):
            assert np.allclose(local[there], local[again], atol=1e-6)
            assert np.abs(delta[there]).max() > 1e-3
        assert 3 < loss < 5
