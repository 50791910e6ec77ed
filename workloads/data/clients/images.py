"""Images for classification: bytes with labels, their scaling, and data sets of images spread over the clients."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.clients import partition
from workloads.data.clients.contract import Batch, ClientImages
from workloads.data.clients.owners import ClientDataCache, OwnedSamples, OwnerFiles, class_counts, in_groups
from workloads.determinism import Purpose, stream

if TYPE_CHECKING:
    from torch import Tensor


_SAMPLES_PER_TEST_OWNER = 20


class Samples(Protocol):
    """Labelled images in memory, or made when they are used."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: height and width, and 3 for colour images."""

    def __len__(self) -> int: ...

    def take(self, numbers: NDArray[np.int64]) -> "LabelledImages":
        """Return the samples with the given numbers, int64."""


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images as bytes, the form that takes the least memory.

    Attributes:
        images: (n, height, width) or (n, height, width, 3) uint8; (n, 3, height, width) for models that scale bytes.
        labels: (n,) int64.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: height and width, and 3 for colour images."""
        return self.images.shape[1:]

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the images and labels."""
        return self.images.nbytes + self.labels.nbytes

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> "LabelledImages":
        """Return the samples with the given numbers, int64."""
        return LabelledImages(self.images[numbers], self.labels[numbers])


@dataclass(frozen=True, slots=True)
class Scaling:
    """Conversion of bytes to model input: (byte - mean) / deviation.

    Attributes:
        mean, deviation: in bytes; for colour images, of each channel.
    """

    mean: float | tuple[float, ...]
    deviation: float | tuple[float, ...]

    def __call__(self, images: NDArray[np.uint8]) -> "Tensor":
        """Return uint8 images as a float32 tensor of the same shape.

        The memory is allocated by torch, so that its alignment, and with it the last bit of a sum, is the same in every
        process.
        """
        import torch  # not needed to describe data sets

        mean, factor = torch.tensor(self.mean), 1.0 / torch.tensor(self.deviation, dtype=torch.float64)
        return torch.from_numpy(images).to(torch.float32).sub_(mean).mul_(factor.to(torch.float32))


def open_image(file: Path, size: int, otherwise: str, grey: bool = False) -> NDArray[np.uint8]:
    """Open an image, resized to a square.

    Colour images are resized by bilinear interpolation with the scale's filter, grey ones with Lanczos' filter, as LEAF
    resizes handwriting.

    Args:
        file: jpg, png or another format of Pillow.
        size: height and width in pixels.
        otherwise: alternative remedy for an unreadable image, besides adding it.
        grey: convert to grey.

    Returns:
        (size, size, 3) uint8, or (size, size) with `grey`.

    Raises:
        ExperimentError: the file cannot be read as an image.
    """
    from PIL import Image  # not needed by other data sets

    way = Image.Resampling.LANCZOS if grey else Image.Resampling.BILINEAR
    try:
        with Image.open(file) as image:
            square = image.convert("L" if grey else "RGB").resize((size, size), way)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).partition("\n")[0]
        raise ExperimentError(
            f"workload.path: {file} cannot be read as an image ({reason}); add an undamaged copy or {otherwise}"
        ) from None
    return np.asarray(square)


def open_photograph(file: Path, size: int, otherwise: str) -> NDArray[np.uint8]:
    """Open a colour image for models that scale bytes; see `open_image`.

    Args:
        file, size, otherwise: see `open_image`.

    Returns:
        (3, size, size) uint8.
    """
    return np.ascontiguousarray(open_image(file, size, otherwise).transpose(2, 0, 1))


def join_images(parts: list[LabelledImages]) -> LabelledImages:
    """Return all images of at least one part, in this order."""
    return LabelledImages(
        np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts])
    )


def split_stratified(
    samples: LabelledImages, test_share: float, random: np.random.Generator
) -> tuple[LabelledImages, LabelledImages]:
    """Return training and test parts with the same class frequencies (to the nearest sample), in random order.

    Args:
        samples: all samples.
        test_share: share of the test part, 0 to 1.
        random: of the experiment's seed.
    """
    train, test = partition.stratified(samples.labels, test_share, random)
    return samples.take(train), samples.take(test)


class ScaledImages(ClientImages):
    """Images that are kept as bytes until a client trains, and are scaled here.

    Attributes:
        scaling: conversion from bytes to model input; None: the model itself scales bytes.
    """

    scaling: Scaling | None

    @abstractmethod
    def samples(self, client: int) -> LabelledImages:
        """Return one client's training samples."""

    @abstractmethod
    def held_out_samples(self) -> LabelledImages:
        """Return the samples for evaluation."""

    def shard(self, client: int) -> Batch:
        return self._scaled(self.samples(client))

    def held_out(self) -> Batch:
        return self._scaled(self.held_out_samples())

    def _scaled(self, samples: LabelledImages) -> Batch:
        import torch  # here: data sets are described without it

        images = torch.from_numpy(samples.images) if self.scaling is None else self.scaling(samples.images)
        return images, torch.from_numpy(samples.labels)


class OwnedImages(ScaledImages):
    """Images that come with their owners; each owner is a client. Images are kept while memory allows.

    Args:
        files, section, seed: see `OwnedSamples`.
        in_memory: the files keep the images themselves.
    """

    def __init__(
        self, files: OwnerFiles[LabelledImages], section: WorkloadSection, seed: int, *, in_memory: bool = False
    ) -> None:
        self._owned = OwnedSamples(files, join_images, section, seed)
        self.sample_counts = self._owned.counts
        self._of = self._owned.of if in_memory else ClientDataCache(self._owned.of)

    def samples(self, client: int) -> LabelledImages:
        return self._of(client)

    def held_out_samples(self) -> LabelledImages:
        """Return the test part, all or a seeded choice; its files are first read here."""
        return self._owned.held_out()

    def label_counts(self) -> NDArray[np.int64]:
        return self._owned.label_counts(self.classes)


class GeneratedOwners(ScaledImages):
    """Generated images of owners, made when they are used. An owner depends on the seed, not on the population.

    Attributes:
        shares: (classes,) float64 shares of the images, over all owners.
        concentration: concentration of an owner's class mix around these shares (Dirichlet).
        purpose, test_purpose: purposes of the random streams of clients, and of the owners of held-out images.
    """

    shares: NDArray[np.float64]
    concentration: float
    purpose: Purpose
    test_purpose: Purpose

    def __init__(self, sample_counts: NDArray[np.int64], test_samples: int, seed: int) -> None:
        self.sample_counts, self._test_samples, self._seed = sample_counts, test_samples, seed
        self._cache = ClientDataCache(self.generate)

    @abstractmethod
    def draw(self, labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
        """Return one owner's images of the given classes; the owner's style is drawn from `random` first."""

    def _class_counts(self, client: int) -> NDArray[np.int64]:
        """Return (classes,) int64: training samples of each class at one client."""
        return class_counts(self.concentration * self.shares, self.sample_counts[client], self._seed, client)

    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64; about 30 us and 8 bytes per class for each client, trained or not."""
        counts = np.empty((len(self.sample_counts), self.classes), dtype=np.int64)  # not a list of 10**6 arrays
        for client in range(len(counts)):
            counts[client] = self._class_counts(client)
        return counts

    def generate(self, client: int) -> LabelledImages:
        """Return one client's images as bytes, sorted by label."""
        labels = np.repeat(np.arange(self.classes), self._class_counts(client))
        return LabelledImages(self.draw(labels, stream(self._seed, self.purpose, client)), labels)

    def samples(self, client: int) -> LabelledImages:
        return self._cache(client)

    def held_out_samples(self) -> LabelledImages:
        """Return images of other owners."""
        parts = []
        for owner, count in in_groups(self._test_samples, _SAMPLES_PER_TEST_OWNER):
            random = stream(self._seed, self.test_purpose, owner)
            labels = random.choice(self.classes, count, p=self.shares)
            parts.append(LabelledImages(self.draw(labels, random), labels))
        return join_images(parts)


class PartitionedDataset(ScaledImages):
    """One data set in memory, spread over the clients by a partitioner.

    Args:
        train, test: the two parts.
        classes: number of labels.
        scaling: conversion from bytes to model input.
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
        self.scaling = scaling
        self._assignment = partition.assign(
            train.labels, population, section.partition, section.samples_per_client, stream(seed, Purpose.PARTITION)
        )
        self.sample_counts = self._assignment.counts
        if section.test_samples is not None and section.test_samples < len(test):
            chosen = stream(seed, Purpose.TEST_SUBSET).permutation(len(test))[: section.test_samples]
            test = test.take(chosen)
        self._test = test

    def samples(self, client: int) -> LabelledImages:
        return self._train.take(self._assignment.of(client))

    def held_out_samples(self) -> LabelledImages:
        return self._test.take(np.arange(len(self._test)))

    def label_counts(self) -> NDArray[np.int64]:
        return self._assignment.label_counts(self._train.labels, self.classes)

    def own_label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64: label counts without the samples that all clients share."""
        return self._assignment.own_label_counts(self._train.labels, self.classes)
