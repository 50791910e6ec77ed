"""Generated data in the shapes of CIFAR: sizes, repeatability, learnability, and messages."""

import numpy as np
import pytest
import torch

from testbed.workload.section import WorkloadSection
from workloads.data.cifar import GeneratedImages
from workloads.determinism import Purpose
from workloads.registry import built_in

NON_IID = {"scheme": "label-shards", "shards_per_client": 1, "shared_samples": 200}


@pytest.mark.parametrize(("classes", "model", "dimension"), [(10, "lenet", 62_006), (100, "vgg11", 9_271_780)])
def test_the_sizes_are_those_of_cifar(classes: int, model: str, dimension: int) -> None:
    workload = built_in(WorkloadSection(dataset=f"synthetic-cifar{classes}"), population=120, seed=1)
    assert (workload.model_name, workload.dimension) == (model, dimension)
    assert sorted(set(workload.sample_counts.tolist())) == [416, 417]
    assert workload.label_counts().sum(axis=0).tolist() == [50_000 // classes] * classes
    images, labels = workload.data.shard(7)
    assert images.shape == (len(labels), 32, 32, 3)
    assert images.dtype == torch.float32
    assert np.array_equal(workload.label_counts()[7], np.bincount(labels, minlength=classes))
    held_out, held_labels = workload.data.held_out()
    assert len(held_out) == 2000
    assert np.bincount(held_labels, minlength=classes).tolist() == [2000 // classes] * classes
    assert (images.mean(dim=(0, 1, 2)).abs() < 0.3).all()
    assert ((images.std(dim=(0, 1, 2)) - 1).abs() < 0.3).all()
    assert "not CIFAR's" in workload.description


def test_with_shared_data_each_client_has_its_label_and_some_of_all() -> None:
    """Multi-RoundSecAgg, Appendix E: 200 samples of all, 415 of a client's own label."""
    workload = built_in(WorkloadSection(dataset="synthetic-cifar10", partition=NON_IID), population=120, seed=4)
    assert workload.sample_counts.tolist() == [615] * 120
    assert np.array_equal(np.sort(workload.label_counts(), axis=1), [[20] * 9 + [435]] * 120)
    assert np.array_equal(np.sort(workload.own_label_counts(), axis=1), [[0] * 9 + [415]] * 120)
    first, second = (workload.data.shard(client) for client in (3, 90))
    assert torch.equal(first[0][415:], second[0][415:])
    assert not torch.equal(first[0][:415], second[0][:415])
    assert len(first[1][:415].unique()) == 1


def test_an_image_does_not_depend_on_the_others_of_a_call() -> None:
    several = GeneratedImages(10, 1000, Purpose.CIFAR_IMAGES)
    numbers = np.random.default_rng(0).permutation(1000)
    together = several.take(numbers)
    for some in (numbers[:1], numbers[5:8], numbers[100:433]):
        alone = GeneratedImages(10, 1000, Purpose.CIFAR_IMAGES).take(some)
        places = np.flatnonzero(np.isin(numbers, some))
        assert np.array_equal(alone.images, together.images[places])
        assert np.array_equal(alone.labels, several.labels[some])
    assert np.array_equal(several.take(numbers[5:8]).images, together.images[5:8])
    assert len(np.unique(together.images.reshape(1000, -1), axis=0)) == 1000


def test_the_seed_decides_the_assignment_but_not_the_samples() -> None:
    first, second = (
        built_in(WorkloadSection(dataset="synthetic-cifar10", test_samples=50), 100, seed) for seed in (1, 2)
    )
    assert torch.equal(first.data.held_out()[0], second.data.held_out()[0])
    assert not torch.equal(first.data.shard(0)[0], second.data.shard(0)[0])


def test_the_images_can_be_learned_and_not_at_once() -> None:
    section = WorkloadSection(
        dataset="synthetic-cifar10", samples_per_client=2000, test_samples=500, learning_rate=0.01, batch_size=50
    )
    workload = built_in(section, population=1, seed=5)
    model, accuracies = workload.initial_model(), []
    for number in range(1, 9):
        model = model + workload.train(0, model, number).delta
        accuracies.append(workload.evaluate(model).accuracy)
    assert accuracies[0] < 0.5
    assert accuracies[-1] > 0.4


def test_simulated_training_has_the_same_sizes() -> None:
    keys = {"dataset": "synthetic-cifar10", "partition": NON_IID}
    sections = (WorkloadSection(**keys, training=training) for training in ("real", "simulated"))
    real, simulated = (built_in(section, 120, 4) for section in sections)
    assert simulated.dimension == real.dimension
    assert np.array_equal(simulated.label_counts(), real.label_counts())
    assert np.array_equal(simulated.own_label_counts(), real.own_label_counts())
    update = simulated.train(5, simulated.initial_model(), 1)
    assert update.samples == 615
    assert update.delta.any()
