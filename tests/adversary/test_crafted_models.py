"""Models crafted by a malicious server, trained by the workloads as clients train them."""

import math
from typing import Any

import numpy as np
import pytest

import workloads
from testbed.adversary.crafted_models import imprint, silent
from testbed.workload.section import WorkloadSection

SHAPES = [(12, 9), (12,), (12, 12), (12,), (4, 12), (4,)]


def digits(model: str, **keys: Any) -> Any:
    return workloads.build(WorkloadSection(dataset="digits", model=model, **keys), 10, 3)


@pytest.mark.parametrize("model", ["logistic", "mlp", "cnn"])
@pytest.mark.parametrize("optimizer", [{}, {"optimizer": "adamw", "learning_rate": 0.01}])
def test_a_silent_model_does_not_move_for_any_data(model: str, optimizer: dict[str, Any]) -> None:
    workload = digits(model, epochs=3, batch_size=20, weight_decay=0.0, **optimizer)
    made = silent(workload.dimension, workload.parameter_shapes())
    for client in range(3):
        update = workload.train(client, made, 1)
        assert not update.delta.any()
        assert math.isfinite(update.loss)
        assert workload.train(client, workload.initial_model(), 1).delta.any()


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_silent_adapters_do_not_move(model: str) -> None:
    workload = digits(model, epochs=3, adapters={"rank": 4})
    update = workload.train(0, silent(workload.dimension, workload.parameter_shapes()), 1)
    assert not update.delta.any()
    assert workload.train(0, workload.initial_model(), 1).delta.any()


def test_without_the_architecture_only_the_last_layers_biases_move() -> None:
    workload = digits("mlp", epochs=3)
    delta = workload.train(0, silent(workload.dimension, None), 1).delta
    assert np.flatnonzero(delta).tolist() == list(range(workload.dimension - 10, workload.dimension))


def step_of(model: np.ndarray, samples: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean cross-entropy at a perceptron of `SHAPES`, computed independently of torch."""
    parts, start = [], 0
    for shape in SHAPES:
        parts.append(model[start : start + math.prod(shape)].astype(np.float64).reshape(shape))
        start += math.prod(shape)
    values, active = [samples], []
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        values.append(np.maximum(values[-1] @ weight.T + bias, 0))
        active.append(values[-1] > 0)
    logits = values[-1] @ parts[-2].T + parts[-1]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = chances / chances.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    gradient: list[np.ndarray] = []
    for layer in (2, 1, 0):
        gradient = [(error.T @ values[layer]).ravel(), error.sum(axis=0), *gradient]
        if layer:
            error = (error @ parts[2 * layer]) * active[layer - 1]
    return np.concatenate(gradient) / len(samples)


def test_a_sum_of_updates_reveals_samples_that_are_alone_in_a_bin() -> None:
    draw = np.random.default_rng(5)
    known = draw.uniform(-1, 2, (400, 9))
    clients = [draw.uniform(-1, 2, (count, 9)) for count in (2, 3, 1)]
    made = imprint(SHAPES, known, 6, 4.0, 1)
    total = sum(-0.1 * len(own) * step_of(made.model, own, draw.integers(0, 4, len(own))) for own in clients)
    found, true = made.samples_in(total), np.concatenate(clients)
    distance = np.abs(found[:, None] - true[None]).max(axis=2)
    numbers = true @ made.model[:9]
    edges = -made.model[12 * 9 : 12 * 10]
    alone = np.bincount(np.searchsorted(edges, numbers), minlength=13)[np.searchsorted(edges, numbers)] == 1
    assert alone.sum() >= 3
    assert (distance.min(axis=0)[alone] < 1e-4).all()
    assert (distance.min(axis=0)[~alone] > 1e-2).all()


def test_more_samples_than_bins_give_narrower_bins() -> None:
    known = np.random.default_rng(5).uniform(-1, 2, (4000, 9))
    spans = []
    for samples in (5, 11, 110, 1100):
        made = imprint(SHAPES, known, samples, 4.0, 1)
        numbers = np.sort(known @ made.model[:9])
        edges = -made.model[12 * 9 : 12 * 10]
        spans.append(np.searchsorted(numbers, edges[-1]) - np.searchsorted(numbers, edges[0]))
    assert spans[:2] == [4000, 4000]
    assert spans[2] == pytest.approx(400, abs=3)
    assert spans[3] == pytest.approx(40, abs=3)


def test_each_round_sorts_samples_differently() -> None:
    known = np.random.default_rng(5).uniform(-1, 2, (100, 9))
    assert (imprint(SHAPES, known, 5, 4.0, 1).model == imprint(SHAPES, known, 5, 4.0, 1).model).all()
    assert (imprint(SHAPES, known, 5, 4.0, 1).model != imprint(SHAPES, known, 5, 4.0, 2).model).any()


@pytest.mark.parametrize(
    ("shapes", "known", "told"),
    [
        ([(4, 9), (4,)], np.zeros((5, 9)), "needs a multilayer perceptron"),
        ([(16, 1, 3, 3), (16,), (4, 16), (4,)], np.zeros((5, 9)), "needs a multilayer perceptron"),
        ([(12, 9), (12,), (4, 11), (4,)], np.zeros((5, 9)), "needs a multilayer perceptron"),
        (SHAPES, np.zeros((0, 9)), "needs samples of 9 values"),
        (SHAPES, np.zeros((5, 8)), "needs samples of 9 values"),
    ],
)
def test_unsuitable_models_and_samples_are_refused(shapes: Any, known: np.ndarray, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        imprint(shapes, known, 5, 4.0, 1)
