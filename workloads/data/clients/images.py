"""Data of classification workloads, client by client: images, labels, and who holds what."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.experiment.workload import WorkloadSection
from workloads.data.clients import partition
from workloads.randomness import Purpose, stream


class ClientData(Protocol):
    """Labelled images of a population of clients, with a held-out part: grey, or with ``channels = 3`` in colour."""

    classes: int
    height: int
    width: int
    description: str
    sample_counts: NDArray[np.int64]

    def shard(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's training samples: images as the model takes them, (n, height, width) float32 if they are grey,
        and labels (n,) int64, on the CPU.
        """

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The samples for evaluation, in the same form."""

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: training samples of each class at each client."""


class Samples(Protocol):
    """Labelled images that are there, or are made when they are taken."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: height and width, and 3 if it is in colour."""

    def __len__(self) -> int: ...

    def take(self, numbers: NDArray[np.int64]) -> "LabelledImages":
        """The samples with the given numbers, int64."""


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images as bytes, the form in which they take the least memory.

    Attributes:
        images: (n, height, width) or (n, height, width, 3) uint8.
        labels: (n,) int64.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: height and width, and 3 if it is in colour."""
        return self.images.shape[1:]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> "LabelledImages":
        """The samples with the given numbers, int64."""
        return LabelledImages(self.images[numbers], self.labels[numbers])


@dataclass(frozen=True, slots=True)
class Scaling:
    """How bytes become the numbers that a model sees: (byte - mean) / deviation.

    Attributes:
        mean, deviation: in bytes; of images in colour, of each of their channels.
    """

    mean: float | tuple[float, ...]
    deviation: float | tuple[float, ...]

    def __call__(self, images: NDArray[np.uint8]) -> Tensor:
        """uint8 images as a float32 tensor of the same shape, in memory that torch has allocated (so that its
        alignment, and with it the last bit of a sum, is the same in every process)."""
        mean, factor = torch.tensor(self.mean), 1.0 / torch.tensor(self.deviation, dtype=torch.float64)
        return torch.from_numpy(images).to(torch.float32).sub_(mean).mul_(factor.to(torch.float32))


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
        train: Samples,
        test: Samples,
        *,
        classes: int,
        scaling: Scaling,
        description: str,
        section: WorkloadSection,
        population: int,
        seed: int,
    ) -> None:
        self.classes = classes
        self.height, self.width, *channels = train.shape
        self.channels = channels[0] if channels else 1
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
        return self._tensors(self._test.take(np.arange(len(self._test))))

    def label_counts(self) -> NDArray[np.int64]:
        return self._assignment.label_counts(self._train.labels, self.classes)

    def own_label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: the same without the samples that all clients share."""
        return self._assignment.own_label_counts(self._train.labels, self.classes)

    def _tensors(self, samples: LabelledImages) -> tuple[Tensor, Tensor]:
        return self._scaling(samples.images), torch.from_numpy(samples.labels)
