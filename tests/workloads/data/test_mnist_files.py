"""MNIST from files: the accepted layouts, and messages for unreadable files."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build


def idx(values: np.ndarray) -> bytes:
    """The idx format: two zeros, the type (8: unsigned byte), the number of dimensions, the sizes, the data."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def write_part(folder: Path, part: str, count: int, packed: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        content = idx(values)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return images, labels


def open_mnist(path: Path, population: int = 5, **keys: object):
    return build(WorkloadSection(dataset="mnist", path=path, **keys), population, seed=2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", ["", "MNIST/raw", "raw"])
def test_files_are_read_plain_and_packed_where_torchvision_puts_them(tmp_path, packed, layout) -> None:
    images, labels = write_part(tmp_path / layout, "train", 60, packed, seed=1)
    test_images, test_labels = write_part(tmp_path / layout, "t10k", 20, packed, seed=2)
    workload = open_mnist(tmp_path)
    assert workload.sample_counts.tolist() == [12] * 5
    assert workload.label_counts().sum(axis=0).tolist() == np.bincount(labels).tolist()
    held_images, held_labels = workload.data.held_out()
    assert held_labels.tolist() == test_labels.tolist()
    assert np.allclose(held_images.numpy(), (test_images / 255 - 0.1307) / 0.3081, atol=1e-3)
    # Every training image is at the client that the partition says, with its own label.
    known = {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
    for client in range(5):
        shard_images, shard_labels = workload.data.shard(client)
        raw = np.rint((shard_images.numpy() * 0.3081 + 0.1307) * 255).astype(np.uint8)
        for image, label in zip(raw, shard_labels, strict=True):
            assert known.pop(image.tobytes()) == int(label)
    assert not known


def test_the_test_files_alone_are_split(tmp_path: Path) -> None:
    write_part(tmp_path, "t10k", 100, packed=True)
    workload = open_mnist(tmp_path, test_samples=15)
    assert "t10k files alone" in workload.description
    assert workload.sample_counts.sum() == 80
    assert workload.label_counts().sum(axis=0).tolist() == [8] * 10  # stratified
    assert workload.evaluate(workload.initial_model()).samples == 15
    other = build(WorkloadSection(dataset="mnist", path=tmp_path), 5, seed=3)
    first, second = (item.data.held_out()[0].numpy() for item in (open_mnist(tmp_path), other))
    assert not np.array_equal(first, second)


def test_absent_and_damaged_files_are_named(tmp_path: Path) -> None:
    def refused(match: str, folder: Path = tmp_path) -> None:
        with pytest.raises(ExperimentError, match=match) as error:
            open_mnist(folder)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)

    refused("not a readable folder", tmp_path / "nowhere")
    refused("no t10k-images-idx3-ubyte")
    write_part(tmp_path, "train", 20, packed=False)
    refused("no t10k-images-idx3-ubyte")
    write_part(tmp_path, "t10k", 20, packed=True)
    packed = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = packed.read_bytes()
    for damaged in (b"", b"not gzip", whole[: len(whole) // 2], whole[:40] + bytes(20) + whole[60:]):
        packed.write_bytes(damaged)
        refused("t10k-images-idx3-ubyte.gz cannot be read")
    packed.unlink()
    refused("but not t10k-images-idx3-ubyte")
    plain = tmp_path / "t10k-images-idx3-ubyte"
    content = idx(np.zeros((20, 28, 28)))
    for damaged in (
        b"",
        b"abc",
        content[:-1],
        content[:3],
        b"\x00\x00\x07" + content[3:],
        b"P" + content[1:],
    ):
        plain.write_bytes(damaged)
        refused("t10k-images-idx3-ubyte cannot be read")
    plain.write_bytes(idx(np.zeros((19, 28, 28))))
    refused("as many images as labels")
    plain.write_bytes(idx(np.zeros((20, 14, 14))))
    refused("28x28")
    plain.write_bytes(content)
    assert open_mnist(tmp_path).population == 5


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kilobytes of gzip for three megabytes, and so on."""
    for part in ("train", "t10k"):
        write_part(tmp_path, part, 20, packed=True)
    monkeypatch.setattr(limits, "IDX_BYTES", 1_000_000)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(3_000_000)))
    with pytest.raises(ExperimentError, match=r"train-images.* cannot be read .*larger than"):
        open_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").unlink()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(3_000_000))
    with pytest.raises(ExperimentError, match="larger than"):
        open_mnist(tmp_path)


def test_more_clients_than_samples_is_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20, packed=False)
    write_part(tmp_path, "t10k", 20, packed=False)
    with pytest.raises(ExperimentError, match=naming("5 of 25 clients")):
        open_mnist(tmp_path, population=25)


def test_the_real_test_set_is_read_and_learned(shared: Path) -> None:
    folder = shared / "data" / "mnist-t10k"
    if not folder.is_dir():
        pytest.skip("the shared folder has no MNIST")
    steps: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.01, "momentum": 0.9}
    section = WorkloadSection(dataset="mnist", path=folder, model="logistic", test_samples=1000, **steps)
    workload = build(section, population=20, seed=1)
    assert workload.sample_counts.sum() == 8000
    model = workload.initial_model()
    for round_number in (1, 2, 3):
        deltas = [workload.train(client, model, round_number).delta for client in range(20)]
        model = model + np.mean(deltas, axis=0)
    assert workload.evaluate(model).accuracy > 0.8
