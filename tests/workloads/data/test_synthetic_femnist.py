"""Synthetic FEMNIST: seeded writers, made when needed, forgotten within a bound, and learnable."""

import numpy as np
import pytest
import torch

from testbed.workload.section import WorkloadSection
from workloads.data.femnist import CLASSES, SyntheticFemnist, alphabet, write
from workloads.registry import built_in


def data(population: int = 20, seed: int = 1, **keys: object) -> SyntheticFemnist:
    return SyntheticFemnist(WorkloadSection(dataset="synthetic-femnist", **keys), population, seed)


def test_sample_counts() -> None:
    counts = data(population=20_000).sample_counts
    assert counts.dtype == np.int64
    assert counts.mean() == pytest.approx(225, rel=0.02)
    assert counts.std() == pytest.approx(89, rel=0.05)
    assert data(samples_per_client=17).sample_counts.tolist() == [17] * 20


def test_images_labels_and_class_mix() -> None:
    made = data()
    counts = made.label_counts()
    assert counts.shape == (20, CLASSES)
    assert counts.sum(axis=1).tolist() == made.sample_counts.tolist()
    for client in range(20):
        images, labels = made.shard(client)
        assert images.shape == (made.sample_counts[client], 28, 28)
        assert images.dtype == torch.float32
        assert labels.bincount(minlength=CLASSES).tolist() == counts[client].tolist()
    # Skewed: a writer's most frequent class has far more than its share of FEMNIST (at most 0.05).
    assert (counts.max(axis=1) / counts.sum(axis=1)).mean() > 0.1
    pixels = torch.cat([made.shard(client)[0] for client in range(20)])
    assert abs(float(pixels.mean())) < 0.3
    assert 0.7 < float(pixels.std()) < 1.3


def test_a_million_writers_cost_nothing_until_they_train() -> None:
    workload = built_in(WorkloadSection(dataset="synthetic-femnist", samples_per_client=20), 1_000_000, seed=1)
    assert workload.sample_counts.shape == (1_000_000,)
    assert not workload.data._cache._data
    update = workload.train(999_999, workload.initial_model(), 1)
    assert update.samples == 20
    assert list(workload.data._cache._data) == [999_999]


def test_held_out_writers_are_no_clients() -> None:
    made = data(test_samples=130)
    images, labels = made.held_out()
    assert images.shape == (130, 28, 28)
    assert labels.shape == (130,)
    again = data(test_samples=130, population=3).held_out()
    assert torch.equal(again[0], images)
    clients = {image.numpy().tobytes() for client in range(20) for image in made.shard(client)[0]}
    assert not any(image.numpy().tobytes() in clients for image in images)


def test_characters_differ_more_than_writers_do() -> None:
    """The nearest of the other writers' mean characters is mostly the right one: classes are learnable."""
    fields, labels = alphabet(), np.arange(CLASSES)
    written = np.stack([write(fields, labels, np.random.default_rng(writer)) for writer in range(30)])
    written = written.reshape(30, CLASSES, -1).astype(np.float64)
    means = written[:25].mean(axis=0)
    right = [
        (np.square(means - image).sum(axis=1).argmin() == label)
        for writer in written[25:]
        for label, image in enumerate(writer)
    ]
    assert np.mean(right) > 0.3  # chance is 1/62


def test_the_femnist_cnn_learns_it() -> None:
    section = WorkloadSection(
        dataset="synthetic-femnist",
        samples_per_client=600,
        test_samples=300,
        epochs=3,
        batch_size=20,
        learning_rate=0.02,
        momentum=0.9,
    )
    workload = built_in(section, population=1, seed=1)
    assert workload.dimension == 1_018_174
    model = workload.initial_model()
    before = workload.evaluate(model)
    update = workload.train(0, model, 1)
    after = workload.evaluate(model + update.delta)
    assert before.accuracy < 0.06
    assert after.accuracy > 0.2  # one writer's few classes, other writers' test images
    assert after.loss < before.loss
