"""Low-rank adapters: only the adapters are trained and sent, for all models."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from testbed.errors import ExperimentError
from testbed.records.arrays import Checkpoint, write_checkpoint
from testbed.workload.adapters import Adapters
from testbed.workload.contract import GradientWorkload, NotedWorkload, PartlyFrozenWorkload, Workload
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build
from workloads.models import vector
from workloads.models.adapters import AdaptedModel, LowRankLinear, adapted
from workloads.models.registry import text_model

MODULE = '''
import numpy as np
import torch
from torch import nn


def load(count=120):
    labels = np.arange(count) % 2
    return np.random.normal(0, 0.5, (count, 4)) + labels[:, None], labels


def words(count=60):
    return np.arange(count * 5).reshape(count, 5) % 7, np.arange(count) % 2


def net(hidden=8):
    return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))


class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        self[1].running_mean += 0.5


class Attending(nn.Module):
    """Torch's own transformer: it reads the weights of layers that it does not call."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, words):
        return self.last(self.encoder(self.embedding(words)).mean(1))


class Shared(nn.Module):
    """One layer in two places."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.relu(self.again(torch.relu(self.first(x)))))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 2, 4)

    def forward(self, x):
        return self.filters(x[:, None]).flatten(1)


def workload(section, population, seed):
    raise RuntimeError("called")
'''


@pytest.fixture(autouse=True, scope="module")
def _own_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("adapted")
    (folder / "mine_to_adapt.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop("mine_to_adapt", None)


def made(seed: int = 1, population: int = 6, **keys: Any) -> Any:
    usual = {"dataset": "mine_to_adapt:load", "batch_size": 5, "learning_rate": 0.1, "adapters": {"rank": 2}}
    if "model" in keys and ":" not in keys["model"] and "dataset" not in keys:
        keys["model"] = f"mine_to_adapt:{keys['model']}"
    return build(WorkloadSection(**(usual | {"model": "mine_to_adapt:net"} | keys)), population, seed)


def of_built_in(model: str, dataset: str, **keys: Any) -> Any:
    return made(dataset=dataset, model=model, samples_per_client=6, test_samples=10, **keys)


# -- the layer ---------------------------------------------------------------------------------------------------------


def test_a_layer_gives_what_the_paper_says() -> None:
    torch.manual_seed(0)
    base = nn.Linear(5, 3)
    layer = LowRankLinear(base, 2, scale=1.5)
    with torch.no_grad():
        layer.down.normal_()
        layer.up.normal_()
    inputs = torch.randn(4, 5)
    for row, given in zip(layer(inputs).tolist(), inputs.tolist(), strict=True):
        low = [sum(layer.down[j, k].item() * given[k] for k in range(5)) for j in range(2)]
        for i in range(3):
            whole = base.bias[i].item() + sum(base.weight[i, k].item() * given[k] for k in range(5))
            assert row[i] == pytest.approx(
                whole + 1.5 * sum(layer.up[i, j].item() * low[j] for j in range(2)), abs=1e-5
            )
    read = torch.nn.functional.linear(inputs, layer.weight, layer.bias)
    assert torch.allclose(read, layer(inputs), atol=1e-6)


def test_the_adapted_model_begins_as_the_given_one() -> None:
    from workloads.models import own

    workload = made()
    inputs = torch.randn(9, 4)
    assert torch.equal(workload._network(inputs), own.make(workload._section, 1)(inputs))
    first = workload.initial_model()
    down = first[: 2 * 4].reshape(2, 4)
    assert np.abs(down).min() > 0
    assert not first[2 * 4 : 2 * 4 + 2 * 8].any()  # B
    assert made(seed=2).initial_model().tobytes() != first.tobytes()
    assert made().initial_model().tobytes() == first.tobytes()


def test_first_factors_are_gaussian() -> None:
    model = adapted(nn.Sequential(nn.Linear(400, 300)), Adapters(rank=100), "m", 1)
    drawn = 20 * model.module[0].down.detach().numpy().ravel()
    assert drawn.mean() == pytest.approx(0, abs=5 / math.sqrt(len(drawn)))
    assert drawn.std() == pytest.approx(1, abs=5 / math.sqrt(2 * len(drawn)))
    assert np.mean(np.abs(drawn) > 1.96) == pytest.approx(0.05, abs=0.006)


def trained_slowly(workload: Any, client: int, rate: float) -> list[Any]:
    """Two-layer net with ReLU, rank 2, factor 3: gradients written out, W + 3 B A made anew in each step."""
    from workloads.determinism import Purpose, stream
    from workloads.models import own

    given = own.make(workload._section, 1).module
    weights = [given[place].weight.detach().double().numpy() for place in (0, 2)]
    biases = [given[place].bias.detach().double().numpy() for place in (0, 2)]
    first, factors, at = workload.initial_model().astype(np.float64), [], 0
    for weight in weights:
        d, k = weight.shape
        down, up = first[at : at + 2 * k].reshape(2, k), first[at + 2 * k : at + 2 * (k + d)].reshape(d, 2)
        factors.append((down.copy(), up.copy()))
        at += 2 * (k + d)
    x, y = (part.numpy() for part in workload.data.shard(client))
    order = stream(1, Purpose.BATCHES, client, 1).permutation(len(y))
    for start in range(0, len(y), 5):
        batch, labels = x[order[start : start + 5]].astype(np.float64), y[order[start : start + 5]]
        one, two = (weight + 3 * up @ down for weight, (down, up) in zip(weights, factors, strict=True))
        before = batch @ one.T + biases[0]
        hidden = np.maximum(before, 0)
        logits = hidden @ two.T + biases[1]
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1
        out = shares / len(labels)
        inner = (out @ two) * (before > 0)
        for (down, up), change in zip(factors, (inner.T @ batch, out.T @ hidden), strict=True):
            step_down, step_up = 3 * up.T @ change, 3 * change @ down.T
            down -= rate * step_down
            up -= rate * step_up
    return factors


def test_training_is_that_of_the_factors_alone() -> None:
    workload = made(adapters={"rank": 2, "alpha": 6}, momentum=0, epochs=1)
    factors = trained_slowly(workload, 3, rate=0.1)
    first = workload.initial_model()
    frozen = [one.clone() for one in workload._network.constant_tensors()]
    local = first + workload.train(3, first, 1).delta
    expected = np.concatenate([part.ravel() for pair in factors for part in pair])
    assert local == pytest.approx(expected, abs=1e-5)
    assert np.abs(local - first).max() > 0.01
    assert all(torch.equal(a, b) for a, b in zip(frozen, workload._network.constant_tensors(), strict=True))


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_the_vector_is_the_adapters() -> None:
    workload = made()
    assert workload.dimension == 2 * (4 + 8) + 2 * (8 + 2)
    assert workload._network.frozen == 4 * 8 + 8 + 8 * 2 + 2
    assert workload.charged_parameters == workload.dimension + math.ceil(2 / 3 * workload._network.frozen)
    assert all(isinstance(workload, kind) for kind in (Workload, PartlyFrozenWorkload, NotedWorkload, GradientWorkload))
    assert workload.notes == [
        "fine-tuning: 44 parameters are trained and sent; 58 are frozen and assumed to be on every client (0.000232 MB "
        "that no round counts)"
    ]
    whole = made(adapters=None)
    assert whole.notes == []
    assert whole.charged_parameters == whole.dimension == 58


@pytest.mark.parametrize(
    ("model", "dataset", "size"),
    [
        ("mlp", "digits", None),
        ("logistic", "digits", 2 * (64 + 10)),
        ("cnn", "digits", None),
        ("femnist-cnn", "synthetic-femnist", None),
        ("vgg11", "synthetic-cifar100", None),
        ("mobilenet-v2", "synthetic-openimage", None),
        ("albert-small", "synthetic-reddit", None),
        ("transformer-small", "synthetic-reddit", None),
    ],
)
def test_any_built_in_model_is_adapted(model: str, dataset: str, size: int | None) -> None:
    keys: dict[str, Any] = {"vocabulary_size": 60, "sequence_length": 6} if dataset == "synthetic-reddit" else {}
    keys |= {"image_size": 64} if dataset == "synthetic-openimage" else {}
    workload = of_built_in(model, dataset, **keys)
    layers = [part for part in workload._network.modules() if isinstance(part, LowRankLinear)]
    assert layers
    assert workload.dimension == sum(2 * (layer.in_features + layer.out_features) for layer in layers)
    assert size in (None, workload.dimension)
    first = workload.initial_model()
    update = workload.train(0, first, 1)
    assert update.delta.shape == (workload.dimension,)
    assert np.isfinite(update.delta).all()
    assert update.delta.any()
    assert workload.initial_model().tobytes() == first.tobytes()
    pretended = of_built_in(model, dataset, training="simulated", **keys)
    assert pretended.dimension == workload.dimension
    assert pretended.charged_parameters == workload.charged_parameters > workload.dimension


def test_it_learns() -> None:
    workload = made(momentum=0.9, epochs=3)
    model = workload.initial_model()
    before = workload.evaluate(model)
    for number in range(1, 6):
        model = model + np.mean([workload.train(client, model, number).delta for client in range(6)], axis=0)
    after = workload.evaluate(model)
    assert after.loss < before.loss / 1.5
    assert after.accuracy > 0.85


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({"targets": ["0"]}, ["0"]),
        ({"targets": ["[0-1]"]}, ["0"]),
        ({"targets": ["*"]}, ["0", "2"]),
        ({"targets": ["0"], "trained": ["2"]}, ["0"]),
        ({"trained": ["2"]}, ["0"]),
    ],
)
def test_targets_are_named(keys: dict[str, Any], layers: list[str]) -> None:
    workload = made(adapters={"rank": 2} | keys)
    module = workload._network.module
    found = [path for path, part in module.named_modules() if isinstance(part, LowRankLinear)]
    assert found == layers
    whole = 8 * 2 + 2 if "trained" in keys else 0
    sizes = {"0": 2 * (4 + 8), "2": 2 * (8 + 2)}
    assert workload.dimension == sum(sizes[layer] for layer in layers) + whole


def test_the_last_part_of_a_name_is_enough() -> None:
    workload = of_built_in(
        "transformer-small", "synthetic-reddit", vocabulary_size=60, sequence_length=6,
        adapters={"rank": 4, "targets": ["query", "layers.1.value"]},
    )  # fmt: skip
    found = {path for path, part in workload._network.module.named_modules() if isinstance(part, LowRankLinear)}
    assert found == {"layers.0.query", "layers.1.query", "layers.1.value"}
    assert workload.dimension == 3 * 4 * 128


def test_what_is_trained_whole_begins_as_it_was() -> None:
    workload = made(adapters={"rank": 2, "targets": ["0"], "trained": ["2"]})
    plain = made(adapters=None)
    assert workload.initial_model()[-18:].tobytes() == plain.initial_model()[-18:].tobytes()
    update = workload.train(0, workload.initial_model(), 1)
    assert np.count_nonzero(update.delta[-18:-2]) > 8
    assert update.delta[-2:].all()


# -- models that are not simple ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_layers_whose_weights_are_read_are_adapted(dropout: float) -> None:
    workload = made(
        model="mine_to_adapt:Attending", dataset="mine_to_adapt:words", model_options={"dropout": dropout},
        adapters={"rank": 2, "targets": ["out_proj", "linear?", "last"]},
    )  # fmt: skip
    first = workload.initial_model()
    update = workload.train(0, first, 1)
    assert update.delta.any()
    network = workload._network
    moved = first + np.random.default_rng(0).normal(0, 0.3, workload.dimension).astype(np.float32)
    inputs = torch.arange(10).reshape(2, 5) % 7
    with torch.inference_mode():
        workload._trainer._load(moved)
        fast = network.eval()(inputs)
        network.module.encoder.train()  # the way that calls each layer
        for part in network.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        network.module.encoder.self_attn.dropout = 0.0
        slow = network(inputs)
        workload._trainer._load(first)
        other = network(inputs)
    assert torch.allclose(fast, slow, atol=1e-5)
    assert not torch.allclose(fast, other, atol=1e-2)


def test_a_layer_in_two_places_has_one_adapter() -> None:
    workload = made(model="Shared")
    assert workload.dimension == 2 * (4 + 4) + 2 * (4 + 2)
    module = workload._network.module
    assert module.first is module.again


def test_normalisation_keeps_its_statistics() -> None:
    workload = made(model="Normed", batch_size=1)
    network = workload._network
    assert workload.dimension == 2 * (4 + 8) + 2 * (8 + 2)
    means = network.module[1].running_mean.clone()
    workload.train(0, workload.initial_model(), 1)
    assert network.training
    assert torch.equal(network.module[1].running_mean, means)
    assert means.eq(0.5).all()


def test_clients_trained_together_are_trained_alike_and_share_what_is_frozen() -> None:
    together, alone = made(clients_at_once=3), made()
    first = alone.initial_model()
    updates = together.train_together(range(6), first, 1)
    for client in range(6):
        assert updates[client].delta == pytest.approx(alone.train(client, first, 1).delta, abs=1e-5)
    mine, theirs = together._network.constant_tensors(), together._together._network.constant_tensors()
    assert [one.data_ptr() for one in mine] == [one.data_ptr() for one in theirs]


def test_single_samples_have_gradients_of_the_adapters() -> None:
    workload = made()
    workload.check_gradient_sum()
    first = workload.initial_model()
    total = workload.gradient_sum(0, first, 1, np.arange(4), None).delta
    single = [workload.gradient_sum(0, first, 1, np.array([i]), None).delta for i in range(4)]
    assert total == pytest.approx(np.sum(single, axis=0), abs=1e-5)
    clipped = workload.gradient_sum(0, first, 1, np.array([1]), 1e-3).delta
    assert np.linalg.norm(clipped) == pytest.approx(1e-3, rel=1e-3)


# -- a base ------------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, model: np.ndarray) -> Path:
    path = folder / "checkpoint.npz"
    write_checkpoint(folder, Checkpoint(3, 1.0, model, np.zeros(1, np.int64), 1.0), keep_last=False)
    return path


@pytest.mark.parametrize("kind", ["own", "built-in", "sent twice"])
def test_the_base_is_a_runs_last_model(kind: str, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"model": "mine_to_adapt:net"}
    if kind != "own":
        model = "mlp" if kind == "built-in" else "albert-small"
        keys = {"model": model, "dataset": "digits" if kind == "built-in" else "synthetic-reddit"}
        keys |= {} if kind == "built-in" else {"vocabulary_size": 60, "sequence_length": 6, "samples_per_client": 6}
        keys |= {"test_samples": 10}
    whole = made(adapters=None, **keys)
    learned = whole.initial_model()
    for number in (1, 2):
        learned = learned + whole.train(0, learned, number).delta
    path = checkpoint(tmp_path, learned)
    workload = made(adapters={"rank": 2, "base": path}, seed=1, **keys)
    assert workload.evaluate(workload.initial_model()).loss == pytest.approx(whole.evaluate(learned).loss, rel=1e-6)
    assert workload.dimension == made(**keys).dimension < whole.dimension
    assert made(**keys).evaluate(workload.initial_model()).loss != pytest.approx(whole.evaluate(learned).loss, rel=1e-3)


def test_a_base_that_is_none_is_one_line(tmp_path: Path) -> None:
    other = checkpoint(tmp_path, np.zeros(7, np.float32))
    damaged = tmp_path / "notes.txt"
    damaged.write_text("no checkpoint")
    for path, message in (
        (other, "has 7 parameters, but the model 58; name the checkpoint of a run with the same model and data"),
        (damaged, "no checkpoint of a run"),
        (tmp_path / "none.npz", "No such file or directory"),
    ):
        with pytest.raises(ExperimentError) as error:
            made(adapters={"rank": 2, "base": path})
        assert str(error.value).startswith(f"workload.adapters.base: {path}: {message}")
        assert "\n" not in str(error.value)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"adapters": {"rank": 2, "targets": ["query"]}},
            "workload.adapters.targets: query is no torch.nn.Linear layer of mine_to_adapt:net; it has 0, 2",
        ),
        (
            {"adapters": {"rank": 2, "trained": ["head"]}},
            "workload.adapters.trained: head is no module of mine_to_adapt:net; it has 0, 1, 2",
        ),
        (
            {"adapters": {"rank": 3}},
            "workload.adapters.rank: 3 is above the rank of 2 of mine_to_adapt:net, 8 to 2; lower it, or leave 2 out "
            "of targets (trained: [2] trains the whole layer)",
        ),
        (
            {"adapters": {"rank": 1, "trained": ["*"]}},
            "workload.adapters.targets: mine_to_adapt:net has no torch.nn.Linear layer outside of trained",
        ),
        (
            {"model": "Convolutions"},
            "workload.adapters.targets: * is no torch.nn.Linear layer of mine_to_adapt:Convolutions; it has none",
        ),
        (
            {"dataset": "mine_to_adapt:workload"},
            "workload.dataset: mine_to_adapt:workload is a workload class; leave out label, features, model_options, "
            "adapters and transformers, which are for a function that returns data",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        made(**keys)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "adapters",
    [{}, {"rank": 0}, {"rank": 1.5}, {"rank": 1, "alpha": 0}, {"rank": 1, "targets": []}, {"rank": 1, "r": 3}],
)
def test_values_out_of_range_are_errors(adapters: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        WorkloadSection(adapters=adapters)


def test_a_flower_app_has_none() -> None:
    with pytest.raises(ValueError, match=naming("adapters", "Flower app")):
        WorkloadSection(flower="somewhere:app", adapters={"rank": 1})


def test_an_experiment_without_says_nothing_of_them() -> None:
    assert "adapters" not in WorkloadSection().model_dump()
    assert WorkloadSection(adapters={"rank": 4, "alpha": 8}).adapters.scale == 2.0
    assert WorkloadSection(adapters={"rank": 4}).adapters.scale == 1.0


# -- the transformer ---------------------------------------------------------------------------------------------------


def test_the_transformers_predictions_look_back_only() -> None:
    network = text_model("transformer-small", 50)
    vector.attach(network, torch.from_numpy(vector.initial_vector(network, 3)))
    words = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (2, 9)))
    before = network(words)
    assert before.shape == (2, 50, 9)
    changed = words.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 50
    after = network(changed)
    assert torch.equal(after[:, :, :5], before[:, :, :5])
    assert not torch.allclose(after[:, :, 5:], before[:, :, 5:])


def test_the_transformers_size_is_what_the_schema_says() -> None:
    assert vector.dimension(text_model("transformer", 30_000)) == 40_872_240
    assert isinstance(adapted(text_model("transformer", 60), Adapters(rank=8), "transformer", 1), AdaptedModel)
