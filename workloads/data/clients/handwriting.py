"""FEMNIST's files: handwriting of 62 classes, 28x28, by its writers, in three published layouts.

- LEAF's json (Caldas et al. 2018, arXiv 1812.01097; `workloads.data.clients.leaf`): an image is a list of 784 numbers
  from 0 (ink) to 1 (paper);
- TensorFlow Federated's ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``: ``examples/WRITER/pixels`` (n, 28, 28)
  float32 of the same range and ``examples/WRITER/label`` (n,). Only the clients' images are read;
- FedScale's mappings (Lai et al. 2022, arXiv 2105.11367; `workloads.data.clients.fedscale`) with paths relative to the
  data set's folder, such as ``data/raw_data/by_write/...``: NIST's images, opened when a client first trains and made
  grey and small as by LEAF (FedScale's loader makes 32x32 colour images of them, and mirrors half of them).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from testbed.errors import ExperimentError
from testbed.extras import naming_extras
from workloads.data.clients import fedscale, owners
from workloads.data.clients.images import LabelledImages, open_image
from workloads.data.clients.leaf import LeafFolder, LeafUsers
from workloads.data.clients.owners import OwnerFiles

CLASSES = 62
SIZE = 28
TRAIN, TEST = "fed_emnist_train.h5", "fed_emnist_test.h5"
NEEDED = (
    "the folder with LEAF's json files, TensorFlow Federated's fed_emnist_train.h5 or FedScale's client_data_mapping"
)


def read(
    root: Path, population: int, seed: int, test_samples: int | None = None
) -> tuple[OwnerFiles[LabelledImages], str]:
    """Read the writers of a folder of any layout; return them and the name of the layout.

    Args:
        root: a folder.
        population, seed: of the experiment; the seed chooses the clients if there are more writers.
        test_samples: number of held-out images that need to be opened; None: all.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few writers.
    """
    if (root / TRAIN).is_file():
        return _Hdf5(root, population, seed), "TensorFlow Federated HDF5"
    if (root / fedscale.MAPPINGS).is_dir():
        mapped_images = fedscale.MappedImages(
            root, (root, root), _grey, "writer", population, seed, test_samples, CLASSES
        )
        mapped_images.check_there()
        return mapped_images, "FedScale's mapping"
    leaf_folder = LeafFolder.find(root)
    if leaf_folder is None:
        raise ExperimentError(
            f"workload.path: {root} has neither {TRAIN} nor json files, there or in train; "
            f"give {NEEDED} (nothing is downloaded)"
        )
    return LeafUsers(leaf_folder, labelled_images, population, seed, "writer"), "LEAF json"


def labelled_images(pixels: ArrayLike, labels: ArrayLike) -> LabelledImages:
    """Return one writer's images as bytes.

    Args:
        pixels: (n, 784) or (n, 28, 28), from 0 to 1.
        labels: (n,) integers from 0 to 61.

    Raises:
        ValueError: anything else; the message states fault and remedy.
    """
    try:
        with np.errstate(over="ignore"):  # values beyond float32 become infinite, and fail the check of the range
            values, classes = np.asarray(pixels, dtype=np.float32), np.asarray(labels)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("images of different lengths, or not numbers; 784 numbers per image are needed") from None
    if values.ndim == 0:
        raise ValueError("not a list of images; 784 numbers per image are needed")
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


class _Hdf5:
    """TensorFlow Federated's files: labels in memory, a client's images when it trains."""

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

    def of(self, client: int, numbers: NDArray[np.int64]) -> LabelledImages:
        with _opened(self._train) as file:
            return _read(_examples(file, self._train), self._writers[client], self._train).take(numbers)

    def test_parts(self) -> Iterator[LabelledImages]:
        with _opened(self._test) as file:
            examples = _examples(file, self._test)
            for writer in sorted(examples):
                yield _read(examples, writer, self._test)


def _grey(file: Path) -> NDArray[np.uint8]:
    return open_image(file, SIZE, fedscale.OTHERWISE, grey=True)


def _opened(path: Path) -> Any:
    with naming_extras(f"workload.path: {path}"):
        import h5py
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
    """Return one writer's images; with `only_labels` the pixels are not read, and the images are black."""
    try:
        pixels, labels = examples[writer]["pixels"], examples[writer]["label"][()]
        return labelled_images(np.zeros(pixels.shape, dtype=np.uint8) if only_labels else pixels[()], labels)
    except (KeyError, OSError, TypeError, AttributeError):
        raise ExperimentError(
            f"workload.path: {path}: writer {writer} has no pixels and label that can be read; "
            "replace the file with an undamaged copy"
        ) from None
    except ValueError as error:
        raise ExperimentError(f"workload.path: {path}: writer {writer}: {error}") from None
