"""FEMNIST from files that the user has: handwriting of 62 classes, 28x28, one writer per client. Nothing is downloaded.

Caldas et al. 2018 (LEAF, arXiv 1812.01097). Two layouts, told apart by what is in the folder:

- LEAF's json files (see `workloads.data.formats.leaf`), an image a list of 784 numbers from 0 (ink) to 1 (paper):
  folders ``train`` and ``test`` as LEAF's own split writes them, by sample or by user, or one folder of files, of which
  a tenth of each writer's images is held out here, by the seed;
- TensorFlow Federated's ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``: ``examples/WRITER/pixels`` (n, 28, 28)
  float32 of the same range and ``examples/WRITER/label`` (n,). Only the clients' images are read.

Images are kept as bytes and scaled as Lotto's authors do (mean 0.9637, deviation 0.1597); no augmentation.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, ScaledImages, Scaling, joined
from workloads.data.formats import leaf
from workloads.randomness import Purpose, stream

CLASSES = 62
SIZE = 28
TRAIN, TEST = "fed_emnist_train.h5", "fed_emnist_test.h5"
_SCALING = Scaling(mean=245.74, deviation=40.72)  # 0.9637 and 0.1597 of 255
_HELD_OUT_SHARE = 0.1
_NEEDED = "the folder with LEAF's json files or TensorFlow Federated's fed_emnist_train.h5"


def labelled(pixels: ArrayLike, labels: ArrayLike) -> LabelledImages:
    """One writer's images as bytes.

    Args:
        pixels: (n, 784) or (n, 28, 28), from 0 to 1.
        labels: (n,) integers from 0 to 61.

    Raises:
        ValueError: anything else; what is wrong and what to do.
    """
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and beyond 0 to 1
            values, classes = np.asarray(pixels, dtype=np.float32), np.asarray(labels)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("images of different lengths, or no numbers; 784 numbers an image are needed") from None
    if values.ndim == 0:
        raise ValueError("no list of images; 784 numbers an image are needed")
    if len(values) == 0:
        raise ValueError("no images; remove the writer from the data")
    if values.shape not in ((len(values), SIZE * SIZE), (len(values), SIZE, SIZE)):
        raise ValueError(f"images of shape {values.shape[1:]}; 784 numbers or 28x28 are needed")
    if classes.shape != (len(values),) or classes.dtype.kind not in "iu":
        raise ValueError(f"{classes.size} labels ({classes.dtype}) for {len(values)} images; one whole number each")
    if classes.min() < 0 or classes.max() >= CLASSES:
        raise ValueError(f"label {classes[(classes < 0) | (classes >= CLASSES)][0]}; 0 to 61 are needed")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("pixels beyond 0 to 1; divide them by 255")
    images = np.rint(values * 255).astype(np.uint8).reshape(-1, SIZE, SIZE)
    return LabelledImages(images, classes.astype(np.int64))


class _Leaf:
    """LEAF's files: everything of the clients in memory."""

    layout = "LEAF json"

    def __init__(self, root: Path, population: int, seed: int) -> None:
        self._seed = seed
        self._test = root / "test"
        self._is_split = bool(leaf.files(root / "train"))
        if self._is_split and not leaf.files(self._test):
            raise ExperimentError(f"workload.path: {root} has train/*.json and no test/*.json; add LEAF's test part")
        train = root / "train" if self._is_split else root
        chosen: owners.OwnerSelection[LabelledImages] = owners.OwnerSelection(population, seed, "writer", train)
        for writer, images in leaf.read_users(train, labelled):
            chosen.offer(writer, images)
        self._clients = [images for _, images in chosen.clients()]
        self._own = [
            np.arange(len(images)) if self._is_split else self._split(client)[0]
            for client, images in enumerate(self._clients)
        ]
        self.counts = [len(own) for own in self._own]

    def _split(self, client: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of a client's images for training (at least one) and of those held out."""
        count = len(self._clients[client])
        order = stream(self._seed, Purpose.HELD_OUT, client).permutation(count)
        held_out = min(count - 1, max(1, round(_HELD_OUT_SHARE * count)))
        return np.sort(order[held_out:]), np.sort(order[:held_out])

    def labels(self, client: int) -> NDArray[np.int64]:
        return self._clients[client].labels[self._own[client]]

    def of(self, client: int) -> LabelledImages:
        return self._clients[client].take(self._own[client])

    def test_parts(self) -> Iterator[LabelledImages]:
        if self._is_split:
            for _, images in leaf.read_users(self._test, labelled):
                yield images
        else:
            for client, images in enumerate(self._clients):
                yield images.take(self._split(client)[1])


class _Hdf5:
    """TensorFlow Federated's files: labels in memory, a client's images when it trains."""

    layout = "TensorFlow Federated HDF5"

    def __init__(self, root: Path, population: int, seed: int) -> None:
        self._train, self._test = root / TRAIN, root / TEST
        if not self._test.is_file():
            raise ExperimentError(f"workload.path: {root} has {TRAIN} and no {TEST}; put it there")
        with _opened(self._train) as file:
            examples = _examples(file, self._train)
            self._writers = owners.choose(examples, population, seed, "writer", self._train)
            self._labels = [_read(examples, writer, self._train, only_labels=True).labels for writer in self._writers]
        self.counts = [len(labels) for labels in self._labels]

    def labels(self, client: int) -> NDArray[np.int64]:
        return self._labels[client]

    def of(self, client: int) -> LabelledImages:
        with _opened(self._train) as file:
            return _read(_examples(file, self._train), self._writers[client], self._train)

    def test_parts(self) -> Iterator[LabelledImages]:
        with _opened(self._test) as file:
            examples = _examples(file, self._test)
            for writer in sorted(examples):
                yield _read(examples, writer, self._test)


def _opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise ExperimentError(
            f"workload.path: {path} needs h5py; install the extra: pip install 'sortition-testbed[hdf5]'"
        ) from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ExperimentError(
            f"workload.path: {path} cannot be read as HDF5 ({error}); replace it with an undamaged copy"
        ) from None


def _examples(file: Any, path: Path) -> Any:
    examples = file.get("examples")
    if not isinstance(examples, Mapping):
        raise ExperimentError(f"workload.path: {path} has no group examples; it is not TensorFlow Federated's file")
    return examples


def _read(examples: Any, writer: str, path: Path, only_labels: bool = False) -> LabelledImages:
    """One writer's images; with `only_labels` the pixels stay in the file, and the images are black."""
    try:
        pixels, labels = examples[writer]["pixels"], examples[writer]["label"][()]
        return labelled(np.zeros(pixels.shape, dtype=np.uint8) if only_labels else pixels[()], labels)
    except (KeyError, OSError, TypeError, AttributeError):
        raise ExperimentError(
            f"workload.path: {path}: writer {writer} has no pixels and label that can be read; "
            "replace the file with an undamaged copy"
        ) from None
    except ValueError as error:
        raise ExperimentError(f"workload.path: {path}: writer {writer}: {error}") from None


class Femnist(ScaledImages):
    """FEMNIST's writers as clients.

    Args:
        section: path, samples_per_client, test_samples.
        population, seed: of the experiment; fewer clients than writers are a choice by the seed.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few writers.
    """

    classes, height, width, scaling = CLASSES, SIZE, SIZE, _SCALING

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        root = owners.folder(section.path, _NEEDED)
        if not (root / TRAIN).is_file() and not leaf.files(root) and not leaf.files(root / "train"):
            raise ExperimentError(
                f"workload.path: {root} has neither {TRAIN} nor json files, there or in train; "
                f"give {_NEEDED} (nothing is downloaded)"
            )
        self._files = (_Hdf5 if (root / TRAIN).is_file() else _Leaf)(root, population, seed)
        self._seed = seed
        self._test_samples = section.test_samples
        self._own = [
            owners.own_samples(count, section.samples_per_client, seed, client)
            for client, count in enumerate(self._files.counts)
        ]
        self.sample_counts = np.array([len(own) for own in self._own], dtype=np.int64)
        self.description = (
            f"FEMNIST ({self._files.layout}), 28x28, 62 classes, {population} writers with "
            f"{self.sample_counts.sum()} images"
        )

    def samples(self, client: int) -> LabelledImages:
        return self._files.of(client).take(self._own[client])

    def held_out_samples(self) -> LabelledImages:
        """Of the test part, all or a seeded choice; LEAF's folder ``test`` is first read here."""
        parts = list(self._files.test_parts())
        if not sum(map(len, parts)):
            raise ExperimentError("workload.path: no image is left to be held out; add LEAF's test part")
        images = joined(parts)
        return images.take(owners.test_subset(len(images), self._test_samples, self._seed))

    def label_counts(self) -> NDArray[np.int64]:
        rows = [np.bincount(self._files.labels(client)[own], minlength=CLASSES) for client, own in enumerate(self._own)]
        return np.stack(rows).astype(np.int64)


SPECS = (
    Dataset(
        name="femnist",
        summary="handwriting of 62 classes by its writers, 28x28, from files",
        form=Form.GREY,
        size=SIZE,
        default_model="femnist-cnn",
        owner="writer",
        files=_NEEDED,
        layouts=" (train/ and test/, or one folder of json files; beside it fed_emnist_test.h5)",
        load=Femnist,
    ),
)
