"""Gradient inversion: finds the images behind a gradient, their labels, and measures of the result."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from analysis.attacks.inversion import InversionTarget, Inverter, Search, invert, pictures, psnr, row, text
from testbed.errors import ExperimentError
from workloads.models import vector
from workloads.models.registry import image_model

QUICK = Search(iterations=150, starts=1)


def target_of(model: str, seed: int = 3) -> InversionTarget:
    network = image_model(model, 8, 8, 10)
    return InversionTarget(model, (8, 8), 10, vector.initial_vector(network, seed))


def test_a_gradient_gives_the_image_away() -> None:
    target = target_of("logistic")
    image = torch.tensor(np.random.default_rng(0).uniform(-1, 1, (1, 8, 8)), dtype=torch.float32)
    gradient = target.gradient(image, torch.tensor([7])).numpy()
    found = invert(target, 123 * gradient, np.array([7]), -1.0, 1.0, QUICK)  # of any scale
    assert found.cosine > 0.99
    assert psnr(((found.images - image.numpy()) ** 2 / 4).mean()) > 20
    other = target.gradient(-image, torch.tensor([2])).numpy()
    assert invert(target, other, np.array([7]), -1.0, 1.0, QUICK).cost > found.cost


@pytest.mark.parametrize("labels", [[4], [1, 8], [0, 3, 3, 9]])
def test_labels_are_read_off_the_last_bias(labels: list[int]) -> None:
    target = target_of("cnn")
    coin = torch.Generator().manual_seed(1)
    images, others = torch.randn((len(labels), 8, 8), generator=coin), torch.randn((50, 8, 8), generator=coin)
    gradient = target.gradient(images, torch.tensor(labels))
    assert target.labels_of(gradient, len(labels), others).tolist() == labels


def test_gradients_are_those_of_local_training(made: Callable[..., Any]) -> None:
    inverter = Inverter(made(), 1, 24)
    images, labels = inverter.data.shard(2)
    gradient = inverter.target.gradient(images, labels).numpy()
    delta = inverter.victims.workload.train(2, inverter.view.model, 1).delta
    assert np.abs(delta + 0.0005 * gradient).max() < 1e-7


def test_a_clients_image_out_of_the_sums_of_a_run(made: Callable[..., Any], tmp_path: Any) -> None:
    own = Inverter(made(), 1, 24).invert(1, QUICK)
    assert own.group.tolist() == [1]
    assert own.steps == 1
    assert own.recovered.labels.tolist() == own.true_labels.tolist()
    assert own.psnr[0] > psnr(own.prior_mse)[0] + 3
    assert f"PSNR {own.psnr[0]:.2f} dB" in text(own)
    batches = made(selection={"protocol": "batch-partition", "participants": 4, "privacy": 4})
    inverter = Inverter(batches, 1, 24)
    alone, jointly = inverter.invert(1, QUICK, alone=True), inverter.invert(1, QUICK)
    assert jointly.group.tolist() == [0, 1, 2, 3]
    assert (len(alone.recovered.images), len(jointly.recovered.images)) == (1, 4)
    assert alone.psnr[0] < own.psnr[0]
    assert row(jointly)["images_sought"] == 4
    found = pictures([("T = 1", own), ("T = 4", jointly)], tmp_path / "figures" / "pictures")
    assert all(path.stat().st_size > 1000 for path in found)


def test_errors_name_the_option(made: Callable[..., Any]) -> None:
    with pytest.raises(ExperimentError, match="running statistics"):
        InversionTarget("mobilenet-v2", (64, 64, 3), 10, np.zeros(3, np.float32))
    few = made(selection={"participants": 2})
    missing = np.setdiff1d(np.arange(8), few.participation.loc[few.participation["round"] == 1, "client"])[0]
    with pytest.raises(ExperimentError, match=f"--client: {missing} is in no sum"):
        Inverter(few, 1, 1).invert(int(missing), QUICK)
    many = made(workload={"dataset": "digits", "model": "mlp", "evaluate_every": 24})
    with pytest.raises(ExperimentError, match="at most 64"):
        Inverter(many, 1, 24).invert(0, QUICK)


def test_psnr() -> None:
    assert psnr([0.1, 0.001]) == pytest.approx([10, 30])
    assert psnr(0.0) == np.inf
