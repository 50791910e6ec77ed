"""A torch module of the user's own with data of the user's own: trained like a built-in one, or refused in one line."""

import importlib
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from testbed.errors import ExperimentError
from testbed.workload.contract import BatchedWorkload, GradientWorkload, InspectableWorkload, Workload
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from tests.workloads.own.mine import learned, made
from workloads import build
from workloads.data.own.loader import is_loader
from workloads.models import own, vector
from workloads.training.own import OwnModelTraining

STEPS: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.1, "momentum": 0.9}


def test_ten_lines_learn_and_missing_options_are_named() -> None:
    workload = made(model_options={"hidden": 16}, metrics=["macro-f1", "mine_to_learn:error_rate"])
    assert isinstance(workload, Workload | GradientWorkload | BatchedWorkload | InspectableWorkload)
    assert workload.dimension == 4 * 16 + 16 + 16 * 2 + 2
    assert workload.sample_counts.sum() == 96
    assert workload.label_counts().sum(axis=0).tolist() == [48, 48]
    end = workload.evaluate(learned(workload))
    assert end.accuracy > 0.85
    f1, errors = end.metrics
    assert errors == pytest.approx(1 - end.accuracy)
    assert 0.85 < f1 <= 1
    assert len(end.recalls) == 2


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"model": "Normed", "batch_size": 8},
        {"dataset": "words", "model": "Words"},
        {"dataset": "values", "model_options": {"outputs": 1}, "loss": "mse"},
        {"model_options": {"outputs": 1}, "loss": "bce"},
        {"loss": "mine_to_learn:focal"},
        {"loss": "mine_to_learn:mean_focal"},
        {"loss": "torch.nn:MultiMarginLoss"},
        {"optimizer": "torch.optim:RMSprop", "optimizer_options": {"alpha": 0.9}, "learning_rate": 0.01},
        {"dataset": "Pairs", "options": {"count": 40}},
        {"dataset": "load", "model": None},
    ],
    ids=str,
)
def test_another_process_gives_the_same_bits_after_any_draws(keys: dict) -> None:
    keys = {**keys, "model": "net"} if keys.get("model", "") is None else keys
    first = made(**keys)
    model = first.initial_model()
    update = first.train(2, model, 3)
    random.seed(5)
    np.random.seed(6)  # noqa: NPY002 as the user's code may have
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.random(), random.random()  # noqa: NPY002, S311
    random.seed(5)
    np.random.seed(6)  # noqa: NPY002
    second = made(**keys)
    second.train(4, model, 1)
    second.evaluate(model)
    assert np.array_equal(second.initial_model(), model)
    again = second.train(2, model, 3)
    assert np.array_equal(again.delta, update.delta)
    assert np.isfinite(update.delta).all()
    assert update.delta.any()
    assert (again.loss, again.examples_processed) == (update.loss, update.examples_processed)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.random(), random.random()) == before[1:]  # noqa: NPY002, S311
    assert not np.array_equal(made(seed=2, **keys).initial_model(), model)


@pytest.mark.parametrize("model", ["net", "Unused"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_training_equals_a_plain_torch_loop(model: str, optimizer: str) -> None:
    """Batches in the order of the experiment's stream, the module's own values, torch's own optimizer."""
    from workloads.determinism import Purpose, stream

    workload = made(momentum=0.9, model=model, optimizer=optimizer, weight_decay=0.1)
    network = own.make(workload._section, 1)
    x, y = workload.data.shard(3)
    bare: Any = {
        "sgd": lambda: torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
        "adamw": lambda: torch.optim.AdamW(network.parameters(), lr=0.1, betas=(0.9, 0.999), weight_decay=0.1),
    }[optimizer]()
    order = stream(1, Purpose.BATCHES, 3, 2).permutation(len(y))
    for start in range(0, len(y), 5):
        chosen = order[start : start + 5]
        bare.zero_grad()
        nn.functional.cross_entropy(network(x[chosen]), y[chosen]).backward()
        bare.step()
    expected = network.values() - workload.initial_model()
    assert np.allclose(workload.train(3, workload.initial_model(), 2).delta, expected, atol=1e-6)


def test_the_vector_holds_what_is_trained_or_averaged_and_nothing_twice() -> None:
    workload = made(dataset="words", model="Words")
    assert workload.dimension == 7 * 6 + 7 + 7 * 2 + 2  # tied once; frozen layer and table of places left out
    network, model = workload._network, workload.initial_model()
    assert (model[:7] == 1).all()  # its own initial values: a scale of ones
    frozen = network.module.frozen.weight.clone()
    learned(workload, 2)
    assert network.module.out.weight is network.module.embedding.weight
    assert torch.equal(network.module.frozen.weight, frozen)
    normed = made(model="Normed", batch_size=8)
    assert normed.dimension == 4 * 8 + 8 + 8 + 8 + 8 * 2 + 2 + 16  # and running mean and variance
    assert len(vector.initial_vector(normed._network, 1)) == normed.dimension
    assert normed.train(0, normed.initial_model(), 1).delta[-16:].any()
    assert normed.evaluate(learned(normed)).accuracy > 0.8


def test_values_are_learned_and_are_neither_right_nor_wrong() -> None:
    workload = made(
        dataset="values", model_options={"outputs": 1}, loss="mse", metrics=["r2", "mae"], partition={"scheme": "iid"}
    )
    end = workload.evaluate(learned(workload, 15))
    assert np.isnan(end.accuracy)
    assert end.metrics[0] > 0.9
    assert end.loss < 0.5
    assert made(model_options={"outputs": 1}, loss="bce").evaluate(learned(made())[:1].repeat(49)).accuracy <= 1


def test_built_in_data_with_ones_own_model_and_own_data_with_a_built_in_model() -> None:
    images: Any = build(WorkloadSection(model="mine_to_learn:images", **STEPS), 10, 1)
    assert images.data.shard(0)[0].shape[1:] == (1, 8, 8)
    assert images.evaluate(learned(images, 3)).accuracy > 0.6
    viewed: Any = build(WorkloadSection(model="mine_to_learn:Viewed", **STEPS), 10, 1)
    assert (images._network.channels_last, viewed._network.channels_last) == (True, False)
    together: Any = build(WorkloadSection(model="mine_to_learn:images", clients_at_once=2, **STEPS), 10, 1)
    model = images.initial_model()
    for one in (together.train_together([3], model, 1)[3], viewed.train(3, model, 1)):
        assert np.allclose(one.delta, images.train(3, model, 1).delta, atol=1e-5)
    images.check_gradient_sum()
    for keys in ({"model": "auto"}, {"model": "logistic"}):
        section = WorkloadSection(dataset="mine_to_learn:load", **STEPS, **keys)
        built_in = build(section, 6, 1)
        assert built_in.evaluate(learned(built_in, 25)).accuracy > 0.7
    simulated = build(
        WorkloadSection(dataset="mine_to_learn:load", model="mine_to_learn:net", training="simulated"), 6, 1
    )
    assert simulated.dimension == made().dimension
    assert simulated.evaluate(simulated.initial_model()) is None


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"dataset": "values", "model_options": {"outputs": 1}, "loss": "mse"},
        {"model_options": {"outputs": 1}, "loss": "bce"},
        {"loss": "mine_to_learn:focal", "optimizer": "adamw"},
        {"dataset": "words", "model": "Words"},
        {"model": "Unused"},
    ],
    ids=str,
)
def test_batched_clients_learn_the_same_as_single_ones(keys: dict) -> None:
    alone, together = made(**keys, population=4), made(**keys, population=4, clients_at_once=3)
    model = alone.initial_model()
    updates = together.train_together(range(4), model, 1)
    for client in range(4):
        expected = alone.train(client, model, 1)
        assert np.allclose(updates[client].delta, expected.delta, atol=2e-5)
        assert updates[client].loss == pytest.approx(expected.loss, rel=1e-4)
        assert updates[client].squared_loss == pytest.approx(expected.squared_loss, rel=1e-4)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"model": "Twins"},
        {"dataset": "words", "model": "Words"},
        {"dataset": "values", "model_options": {"outputs": 1}, "loss": "mse"},
        {"loss": "mine_to_learn:mean_focal"},
    ],
    ids=str,
)
def test_clipped_gradients_are_those_of_single_samples(keys: dict) -> None:
    workload = made(**keys)
    workload.check_gradient_sum()
    model = workload.initial_model()
    x, y = workload.data.shard(0)
    network = own.make(workload._section, 1).train()
    expected = np.zeros(workload.dimension)
    for number in (0, 3, 4):
        network.zero_grad()
        objective = workload._trainer._objective
        objective.of_batch(network(x[[number]]), y[[number]])[0].backward()
        gradient = np.concatenate([parameter.grad.numpy().ravel() for parameter in network.parameters()])
        expected += gradient / max(1.0, np.linalg.norm(gradient) / 0.1)
    found = workload.gradient_sum(0, model, 1, np.array([0, 3, 4]), 0.1)
    assert np.allclose(found.delta, expected, atol=1e-5)


def test_positions_without_a_label_count_for_no_accuracy() -> None:
    for loss in ("cross_entropy", "mine_to_learn:own_cross_entropy"):
        workload = made(dataset="tokens", model="Tagger", loss=loss, learning_rate=1.0)
        model = (np.roll(np.eye(7), 1, axis=1) * 9).astype(np.float32).ravel()
        assert workload.evaluate(model).accuracy == 1.0


def test_metrics_of_an_own_loss_are_given_classes() -> None:
    end = made(loss="mine_to_learn:focal", metrics=["mine_to_learn:counts"])
    model = learned(end)
    assert end.evaluate(model).metrics[0] == pytest.approx(0.5, abs=0.2)


def test_overlapping_clients_may_be_more_than_the_samples() -> None:
    workload = made(population=100, dataset="load", partition={"scheme": "overlapping"}, samples_per_client=4)
    assert workload.sample_counts.tolist() == [4] * 100


def test_a_model_that_mixes_samples_has_no_clipped_gradients() -> None:
    with pytest.raises(ExperimentError, match=naming("Normed", "BatchNorm1d")):
        made(model="Normed", batch_size=8).check_gradient_sum()


def test_a_loss_that_is_not_finite_is_an_update_that_the_client_does_not_hand_on() -> None:
    workload = made(loss="mine_to_learn:infinite")
    assert np.isnan(workload.train(0, workload.initial_model(), 1).delta).all()


def test_functions_give_data_unless_they_are_called_as_workloads_are() -> None:
    mine_to_learn = importlib.import_module("mine_to_learn")
    assert is_loader(mine_to_learn.load)
    assert is_loader(mine_to_learn.Pairs)
    assert not is_loader(mine_to_learn.workload)
    assert not is_loader(OwnModelTraining)
    with pytest.raises(RuntimeError, match=naming("workload")):
        made(dataset="workload", model="net")
