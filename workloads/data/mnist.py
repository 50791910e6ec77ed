"""MNIST (or any data in its format) and EMNIST ByClass from the user's idx files. Nothing is downloaded.

MNIST: LeCun et al. 1998, 28x28. EMNIST: Cohen et al. 2017 (arXiv 1702.05373), 697,932 images for training and 116,323
for testing, 28x28, of 62 classes in the order 0-9, A-Z, a-z: digits, upper- and lower-case letters. EMNIST's files hold
every image with rows and columns exchanged; they are exchanged again here.
"""

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling, split_stratified
from workloads.determinism import Purpose, stream

# Mean and standard deviation of the training pixels, in bytes: MNIST's (0.1307 and 0.3081 of 255), and those of EMNIST
# ByClass as commonly given (0.1736 and 0.3317).
_SCALING = Scaling(mean=33.3285, deviation=78.5655)
_EMNIST_SCALING = Scaling(mean=44.268, deviation=84.5835)
_EMNIST_CLASSES = 62
_IMAGES, _LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"


def _find(folders: list[Path], name: str) -> Path | None:
    try:
        for folder in folders:
            for candidate in (folder / name, folder / f"{name}.gz"):
                if candidate.is_file():
                    return candidate
    except OSError as error:
        raise ExperimentError(
            f"workload.path: {folders[0]} cannot be searched ({error.strerror}); make it readable"
        ) from error
    return None


def _parse(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array in an idx file: two zeros, 8 for bytes, number of dimensions, their sizes (uint32), data."""
    begin = 4 + 4 * dimensions
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as opened:
            # A gzip file can stand for a thousand times as much.
            content = limits.read(cast("IO[bytes]", opened), limits.IDX_BYTES)
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise ValueError(f"it does not begin as one of bytes in {dimensions} dimensions")
        # Sizes are big-endian in idx files.
        return np.frombuffer(content, np.uint8, offset=begin).reshape(np.frombuffer(content[:begin], ">u4", offset=4))
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read as an idx file ({error or type(error).__name__}); "
            "replace it with an undamaged copy"
        ) from error


def read_idx(folders: list[Path], part: str) -> LabelledImages | None:
    """Read one part, such as "train" or "t10k" of MNIST.

    Args:
        folders: folders to search, for plain or ``.gz`` files; the first is named in errors.
        part: the beginning of the files' names.

    Returns:
        The images and labels; None if neither of the two files exists.

    Raises:
        ExperimentError: one file without the other, a damaged file, or different numbers of 28x28 images and labels.
    """
    image_file = _find(folders, _IMAGES.format(part))
    label_file = _find(folders, _LABELS.format(part))
    if image_file is None and label_file is None:
        return None
    if image_file is None or label_file is None:
        absent = (_LABELS if image_file else _IMAGES).format(part)
        raise ExperimentError(
            f"workload.path: {folders[0]} holds {image_file or label_file} but not {absent} (or {absent}.gz); add it"
        )
    images, labels = _parse(image_file, 3), _parse(label_file, 1)
    if images.shape != (len(labels), 28, 28) or len(labels) == 0:
        raise ExperimentError(
            f"workload.path: {image_file} holds images of shape {images.shape} for the {len(labels)} labels "
            f"of {label_file.name}; as many images as labels, 28x28, are needed"
        )
    return LabelledImages(images, labels.astype(np.int64))


def load(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """Load MNIST from ``workload.path``, spread over the clients.

    The folder holds the four idx files, plain or ``.gz``, or is torchvision's root with the files in ``MNIST/raw``. If
    only the t10k files exist, one fifth of them (stratified, by the seed) is held out and the rest is for training; the
    description states this.

    Args:
        section: path, partition, samples_per_client, test_samples.
        population, seed: of the experiment.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few samples for a client.
    """
    needed = "the folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files (plain or .gz)"
    root = owners.folder(section.path, needed)
    folders = [root, root / "MNIST" / "raw", root / "raw"]
    train, test = read_idx(folders, "train"), read_idx(folders, "t10k")
    if test is None:
        raise ExperimentError(
            f"workload.path: {root} has no t10k-images-idx3-ubyte (or .gz), there or in MNIST/raw; "
            "put MNIST's idx files there (nothing is downloaded)"
        )
    if train is None:
        train, test = split_stratified(test, 0.2, stream(seed, Purpose.SPLIT))
        note = "from the t10k files alone, as the training files are not there: "
    else:
        note = ""
    return PartitionedDataset(
        train,
        test,
        # Other data in MNIST's format may have more classes.
        classes=max(10, int(train.labels.max()) + 1, int(test.labels.max()) + 1),
        scaling=_SCALING,
        description=f"MNIST, 28x28, {note}{len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


def load_emnist(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """Load EMNIST ByClass from ``workload.path``, spread over the clients.

    The folder holds the four files ``emnist-byclass-train-images-idx3-ubyte`` and so on, plain or ``.gz``, or is
    torchvision's root with the files in ``EMNIST/raw``, or the unpacked archive with the files in ``gzip``.
    ``samples_per_client`` leaves out surplus samples.

    Args:
        section: path, partition, samples_per_client, test_samples.
        population, seed: of the experiment.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few samples for a client.
    """
    needed = "the folder with emnist-byclass-train-images-idx3-ubyte and the three files beside it (plain or .gz)"
    root = owners.folder(section.path, needed)
    folders = [root, root / "EMNIST" / "raw", root / "raw", root / "gzip"]
    parts = []
    for part in ("emnist-byclass-train", "emnist-byclass-test"):
        images = read_idx(folders, part)
        if images is None:
            raise ExperimentError(
                f"workload.path: {root} has no {part}-images-idx3-ubyte (or .gz), there or in EMNIST/raw or gzip; put "
                "EMNIST's ByClass files there (nothing is downloaded)"
            )
        if images.labels.max() >= _EMNIST_CLASSES:
            raise ExperimentError(
                f"workload.path: {root}: {part} has the label {images.labels.max()}; the ByClass split has 0 to 61"
            )
        # EMNIST's files hold every image with rows and columns exchanged.
        parts.append(LabelledImages(np.ascontiguousarray(images.images.swapaxes(1, 2)), images.labels))
    train, test = parts
    return PartitionedDataset(
        train,
        test,
        classes=_EMNIST_CLASSES,
        scaling=_EMNIST_SCALING,
        description=f"EMNIST ByClass, 28x28, {len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


SPECS = (
    Dataset(
        name="mnist",
        summary="handwritten digits, 28x28, from files",
        form=Form.GREY,
        size=28,
        default_model="cnn",
        files="the folder with the idx files",
        layouts=", plain or .gz, or torchvision's root (MNIST/raw)",
        load=load,
    ),
    Dataset(
        name="emnist",
        summary="handwritten digits and letters, 28x28, from files",
        form=Form.GREY,
        size=28,
        default_model="emnist-cnn",
        files="the folder with the emnist-byclass idx files",
        layouts=" (EMNIST/raw, or gzip)",
        load=load_emnist,
    ),
)
