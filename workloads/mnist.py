"""MNIST, or any data in its format (28x28, idx files), from files that the user has. Nothing is downloaded.

LeCun et al. 1998. The files are parsed by torchvision; it reads plain idx files only, so ``.gz`` files are
unpacked first.
"""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from testbed.errors import ExperimentError
from testbed.experiment.workload import Workload
from workloads.datasets import LabelledImages, PartitionedDataset, Scaling, split_stratified
from workloads.randomness import Purpose, stream

# Mean and standard deviation of MNIST's training pixels, in bytes (0.1307 and 0.3081 of 255).
_SCALING = Scaling(mean=33.3285, deviation=78.5655)
_IMAGES, _LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
# What torchvision's parser and gzip raise on a file that is cut short or is something else.
_DAMAGE = (
    AssertionError,
    EOFError,
    KeyError,
    IndexError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)


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


def _parse(file: Path, parser: Callable[[str], Tensor]) -> NDArray[Any]:
    try:
        if file.suffix != ".gz":
            return np.asarray(parser(str(file)))
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / file.stem
            with gzip.open(file, "rb") as packed, plain.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            return np.asarray(parser(str(plain)))
    except _DAMAGE as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read as an idx file ({error or type(error).__name__}); "
            "replace it with an undamaged copy"
        ) from error


def _read(folders: list[Path], part: str) -> LabelledImages | None:
    """One part, "train" or "t10k"; None when neither of its two files is there."""
    image_file = _find(folders, _IMAGES.format(part))
    label_file = _find(folders, _LABELS.format(part))
    if image_file is None and label_file is None:
        return None
    if image_file is None or label_file is None:
        absent = (_LABELS if image_file else _IMAGES).format(part)
        raise ExperimentError(
            f"workload.path: {folders[0]} holds {image_file or label_file} but not {absent} (or {absent}.gz); add it"
        )
    # Imported here: 160 MB and a second that other data sets need not pay in every process.
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images, labels = _parse(image_file, read_image_file), _parse(label_file, read_label_file)
    if images.shape != (len(labels), 28, 28) or len(labels) == 0:
        raise ExperimentError(
            f"workload.path: {image_file} holds images of shape {images.shape} for the {len(labels)} labels "
            f"of {label_file.name}; as many images as labels, 28x28, are needed"
        )
    return LabelledImages(images, labels.astype(np.int64))


def load(section: Workload, population: int, seed: int) -> PartitionedDataset:
    """MNIST from ``workload.path``, spread over the clients.

    The folder holds the four idx files, plain or ``.gz``, or is torchvision's root with them in
    ``MNIST/raw``. Where only the t10k files are there, one fifth of them (stratified, by the seed) is held
    out and the rest is for training; the description says so.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few samples for a client.
    """
    if section.path is None:
        raise ExperimentError("workload.path: dataset mnist needs the folder with the idx files")
    root = section.path.expanduser()
    if not root.is_dir():
        raise ExperimentError(
            f"workload.path: {root} is not a folder that can be read; give the folder with "
            "train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files (plain or .gz)"
        )
    folders = [root, root / "MNIST" / "raw", root / "raw"]
    train, test = _read(folders, "train"), _read(folders, "t10k")
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
        classes=max(10, int(train.labels.max()) + 1, int(test.labels.max()) + 1),
        scaling=_SCALING,
        description=f"MNIST, 28x28, {note}{len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )
