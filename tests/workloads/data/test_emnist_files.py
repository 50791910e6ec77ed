"""EMNIST ByClass from files: places, orientation, equal shares, and messages for mistakes."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build


def write_part(folder: Path, part: str, count: int, packed: bool = False, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Two idx files of one part; returns the images as a person sees them, and the labels."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = (np.arange(count) % 62).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    stored = np.stack([image.T for image in images])
    for name, values in (("images-idx3-ubyte", stored), ("labels-idx1-ubyte", labels)):
        sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
        content = bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()
        path = folder / f"emnist-byclass-{part}-{name}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)
    return images, labels


def open_emnist(path: Path, population: int = 4, **keys: object):
    return build(WorkloadSection(dataset="emnist", path=path, **keys), population, seed=1)


@pytest.mark.parametrize(("layout", "packed"), [("", False), ("EMNIST/raw", False), ("gzip", True)])
def test_images_are_read_the_right_way_up(tmp_path: Path, layout: str, packed: bool) -> None:
    images, labels = write_part(tmp_path / layout, "train", 130, packed, seed=1)
    test_images, test_labels = write_part(tmp_path / layout, "test", 70, packed, seed=2)
    workload = open_emnist(tmp_path, samples_per_client=30)
    assert workload.model_name == "emnist-cnn"
    assert workload.dimension == 1040 + 8224 + 131_328 + 15_934
    assert workload.sample_counts.tolist() == [30] * 4  # of 32 or 33: the others are left out
    assert workload.label_counts().shape == (4, 62)
    held_images, held_labels = workload.data.held_out()
    assert held_labels.tolist() == test_labels.tolist()
    assert np.allclose(held_images.numpy(), (test_images / 255 - 0.1736) / 0.3317, atol=1e-3)
    known = {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
    for client in range(4):
        shard_images, shard_labels = workload.data.shard(client)
        raw = np.rint((shard_images.numpy() * 0.3317 + 0.1736) * 255).astype(np.uint8)
        for image, label in zip(raw, shard_labels, strict=True):
            assert known.pop(image.tobytes()) == int(label)
    assert len(known) == 10
    assert workload.evaluate(workload.initial_model()).samples == 70


def test_faults_of_the_files_are_named(tmp_path: Path) -> None:
    def refused(match: str, folder: Path = tmp_path) -> None:
        with pytest.raises(ExperimentError, match=match) as error:
            open_emnist(folder)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)

    refused("not a readable folder", tmp_path / "nowhere")
    refused("no emnist-byclass-train-images-idx3-ubyte")
    write_part(tmp_path, "train", 70)
    refused("no emnist-byclass-test-images-idx3-ubyte")
    write_part(tmp_path, "test", 70)
    assert open_emnist(tmp_path).population == 4
    labels = tmp_path / "emnist-byclass-test-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + bytes([62]))
    refused("has the label 62")
    labels.unlink()
    refused("but not emnist-byclass-test-labels-idx1-ubyte")
    with pytest.raises(ValueError, match=naming("emnist", "path")):
        WorkloadSection(dataset="emnist")


def test_the_network_is_the_papers() -> None:
    """Figure 8, written with stock layers: ReLU before pooling, images with a channel."""
    import torch
    from torch import nn

    from workloads.models import vector
    from workloads.models.registry import image_model

    network = image_model("emnist-cnn", 28, 28, 62)
    vector.attach(network, torch.from_numpy(vector.initial_vector(network, 1)))
    stock = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(32 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 62),
    )  # fmt: skip
    stock.load_state_dict(dict(zip(stock.state_dict(), network.parameters(), strict=True)))
    images = torch.randn(3, 28, 28, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(network(images), stock(images[:, None]), atol=1e-5)
    with pytest.raises(ExperimentError, match="28x28"):
        image_model("emnist-cnn", 32, 32, 62)
