"""Folders that Hugging Face's `datasets` has written, read by the name of its own function."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.workload.section import WorkloadSection
from workloads import build

pytestmark = pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the extra huggingface")


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    return (generator.normal(size=(count, 4)) + 3 * labels[:, None]).astype(np.float32), labels


def workload_of(folder: Path, **keys: Any) -> Any:
    options = {"dataset_path": str(folder)}
    section = WorkloadSection(dataset="datasets:load_from_disk", options=options, model="mlp", **keys)
    return build(section, 5, 1)


def test_a_folder_with_columns(tmp_path: Path) -> None:
    import datasets

    x, y = samples(120, 1)
    columns = {f"feature-{at}": x[:, at] for at in range(4)} | {"label": y}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "flat")
    workload = workload_of(tmp_path / "flat")
    assert int(workload.sample_counts.sum()) + workload.evaluate(workload.initial_model()).samples == len(y)
    named = workload_of(tmp_path / "flat", features=("feature-0", "feature-2"))
    assert named.dimension < workload.dimension


def test_a_folder_with_a_test_part_and_columns_of_arrays(tmp_path: Path) -> None:
    import datasets

    (x, y), (others, truth) = samples(90, 1), samples(30, 2)
    parts = {
        name: datasets.Dataset.from_dict({"pixels": images.reshape(-1, 2, 2), "label": labels})
        for name, images, labels in (("train", x, y), ("test", others, truth))
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "split")
    workload = workload_of(tmp_path / "split", momentum=0)
    assert int(workload.sample_counts.sum()) == 90
    assert workload.evaluate(workload.initial_model()).samples == 30
    model = workload.initial_model()
    for number in range(1, 6):
        model = model + workload.train(0, model, number).delta
    assert workload.evaluate(model).loss < workload.evaluate(workload.initial_model()).loss
