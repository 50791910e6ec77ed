"""FEMNIST in FedScale's layout: NIST's images by a mapping, made small and grey as LEAF makes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build
from workloads.data.clients import images

HEADING = "client_id,sample_path,label_name,label_id"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four writers with three images each and two held-out images, 128x128, with paths relative to the folder."""
    random = np.random.default_rng(0)
    (tmp_path / "client_data_mapping").mkdir()
    for part, writers, each in (("train", 4, 3), ("test", 2, 1)):
        rows = [HEADING]
        for writer in range(writers):
            folder = Path("data", "raw_data", "by_write", "hsf_0", f"f{writer:04}_26")
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            for number in range(each):
                path = folder / f"{part}_{number:05}.png"
                pixels = random.integers(0, 2, (128, 128), dtype=np.uint8) * 255
                Image.fromarray(pixels).convert("RGB" if number else "L").save(tmp_path / path)
                rows.append(f"{writer},{path},{number},{(9 * writer + number) % 62}")
        (tmp_path / "client_data_mapping" / f"{part}.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def opened(path: Path, population: int = 4, **keys: Any) -> Any:
    return build(WorkloadSection(dataset="femnist", path=path, model="logistic", **keys), population, 2)


def test_a_writer_is_a_client(root: Path) -> None:
    workload = opened(root)
    assert workload.sample_counts.tolist() == [3] * 4
    found, labels = workload.data.shard(2)
    assert labels.tolist() == [18, 19, 20]
    with Image.open(root / "data/raw_data/by_write/hsf_0/f0002_26/train_00001.png") as image:
        small = np.asarray(image.convert("L").resize((28, 28), Image.Resampling.LANCZOS)) / 255
    assert np.allclose(found[1].numpy(), (small - 0.9637) / 0.1597, atol=2e-3)
    held_out, classes = workload.data.held_out()
    assert held_out.shape == (2, 28, 28)
    assert classes.tolist() == [0, 9]
    assert np.flatnonzero(workload.label_counts()[2]).tolist() == [18, 19, 20]
    assert "FEMNIST (FedScale's mapping), 28x28, 62 classes, 4 writers with 12 images" in workload.description
    assert opened(root, samples_per_client=2, test_samples=1).sample_counts.tolist() == [2] * 4
    model = workload.initial_model()
    assert np.array_equal(workload.train(1, model, 1).delta, opened(root).train(1, model, 1).delta)


def test_images_are_opened_when_they_are_needed_and_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = images.open_image

    def counted(file: Path, *rest: Any, **keys: Any) -> Any:
        asked.append(file.name)
        return original(file, *rest, **keys)

    monkeypatch.setattr("workloads.data.clients.handwriting.open_image", counted)
    workload = opened(root, samples_per_client=2)
    assert asked == []
    for _ in range(2):
        workload.data.shard(0)
    assert len(asked) == 2
    asked.clear()
    whole, classes = workload.data.held_out()
    assert len(asked) == 2
    asked.clear()
    one, its_class = opened(root, test_samples=1).data.held_out()
    assert len(asked) == 1
    place = classes.tolist().index(its_class.item())
    assert np.array_equal(one[0], whole[place])


def test_an_invalid_label_is_named(root: Path) -> None:
    """`test_openimage_files` has the other ways in which a mapping can be wrong."""
    file = root / "client_data_mapping" / "train.csv"
    file.write_text(file.read_text() + "0,data/a.png,x,62\n")
    with pytest.raises(ExperimentError, match=naming("train.csv", "line 14", "label_id '62'", "0 to 61")):
        opened(root)


def test_missing_files_are_named(root: Path) -> None:
    images = root / "data/raw_data/by_write/hsf_0"
    (images / "f0003_26/train_00001.png").write_bytes(b"no image")
    workload = opened(root)
    with pytest.raises(ExperimentError, match=naming("train_00001.png", "image")) as refused:
        workload.data.shard(3)
    assert "take its row out of the mapping" in str(refused.value)
    (images / "f0001_26/test_00000.png").unlink()
    with pytest.raises(ExperimentError, match=naming("lacks 1", "held-out images", "f0001_26/test_00000.png")):
        opened(root)
    for image in (images / "f0003_26").iterdir():
        image.unlink()
    (images / "f0003_26").rmdir()
    with pytest.raises(ExperimentError, match=naming("lacks 3", "clients' images", "train_00000.png")):
        opened(root)
