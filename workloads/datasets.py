"""Data of classification workloads, client by client: grey images, labels, and who holds what."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.experiment.workload import Workload
from workloads import partition
from workloads.randomness import Purpose, stream


class ClientData(Protocol):
    """Labelled images of a population of clients, with a held-out part."""

    classes: int
    height: int
    width: int
    description: str
    sample_counts: NDArray[np.int64]

    def shard(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's training samples: images (n, height, width) float32, labels (n,) int64, on the CPU."""

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The samples for evaluation, in the same form."""

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: training samples of each class at each client."""


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images as bytes, the form in which they take the least memory.

    Attributes:
        images: (n, height, width) uint8.
        labels: (n,) int64.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> "LabelledImages":
        """The samples with the given numbers, int64."""
        return LabelledImages(self.images[numbers], self.labels[numbers])


@dataclass(frozen=True, slots=True)
class Scaling:
    """How bytes become the numbers that a model sees: (byte - mean) / deviation."""

    mean: float
    deviation: float

    def __call__(self, images: NDArray[np.uint8]) -> Tensor:
        """uint8 images as a float32 tensor of the same shape, in memory that torch has allocated (so that its
        alignment, and with it the last bit of a sum, is the same in every process)."""
        return torch.from_numpy(images).to(torch.float32).sub_(self.mean).mul_(1.0 / self.deviation)


def split_stratified(
    samples: LabelledImages, test_share: float, random: np.random.Generator
) -> tuple[LabelledImages, LabelledImages]:
    """Training and test parts of the same class frequencies (to the nearest sample), in random order."""
    test_parts, train_parts = [], []
    for label in np.unique(samples.labels):
        members = random.permutation(np.flatnonzero(samples.labels == label))
        test_size = round(test_share * len(members))
        test_parts.append(members[:test_size])
        train_parts.append(members[test_size:])
    train = random.permutation(np.concatenate(train_parts))
    test = random.permutation(np.concatenate(test_parts))
    return samples.take(train), samples.take(test)


class PartitionedDataset:
    """One data set in memory, spread over the clients by a partitioner.

    Args:
        train, test: the two parts.
        classes: number of labels.
        scaling: from bytes to model input.
        description: one line for a person.
        section: partition, samples_per_client, test_samples.
        population, seed: of the experiment.

    Raises:
        ExperimentError: a client would hold too few samples.
    """

    def __init__(
        self,
        train: LabelledImages,
        test: LabelledImages,
        *,
        classes: int,
        scaling: Scaling,
        description: str,
        section: Workload,
        population: int,
        seed: int,
    ) -> None:
        self.classes = classes
        self.height, self.width = train.images.shape[1:]
        self.description = description
        self._train = train
        self._scaling = scaling
        self._assignment = partition.assign(
            train.labels,
            population,
            section.partition,
            section.samples_per_client,
            stream(seed, Purpose.PARTITION),
        )
        self.sample_counts = self._assignment.counts
        if section.test_samples is not None and section.test_samples < len(test):
            chosen = stream(seed, Purpose.TEST_SUBSET).permutation(len(test))[: section.test_samples]
            test = test.take(chosen)
        self._test = test

    def shard(self, client: int) -> tuple[Tensor, Tensor]:
        return self._tensors(self._train.take(self._assignment.of(client)))

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self._tensors(self._test)

    def label_counts(self) -> NDArray[np.int64]:
        population = len(self.sample_counts)
        holder = np.repeat(np.arange(population), self.sample_counts)
        labels = self._train.labels[self._assignment.order]
        cells = np.bincount(holder * self.classes + labels, minlength=population * self.classes)
        return cells.reshape(population, self.classes).astype(np.int64)

    def _tensors(self, samples: LabelledImages) -> tuple[Tensor, Tensor]:
        return self._scaling(samples.images), torch.from_numpy(samples.labels)
