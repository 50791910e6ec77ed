"""Images and their labels from idx files, the format of MNIST (LeCun et al. 1998). Nothing is downloaded.

The files are parsed by torchvision; it reads plain idx files only, so ``.gz`` files are unpacked first.
"""

import gzip
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from workloads.data.clients.images import LabelledImages

if TYPE_CHECKING:
    from torch import Tensor

_IMAGES, _LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
# What torchvision's parser and gzip raise on a file that is cut short or is something else.
_DAMAGE = (AssertionError, EOFError, KeyError, IndexError, OSError, RuntimeError, TypeError, ValueError, zlib.error)


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


def _parse(file: Path, parser: Callable[[str], "Tensor"]) -> NDArray[Any]:
    try:
        if file.suffix != ".gz":
            limits.check_size(file, limits.IDX_BYTES)
            return np.asarray(parser(str(file)))
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / file.stem
            with gzip.open(file, "rb") as packed, plain.open("wb") as unpacked:
                left = limits.IDX_BYTES  # a gzip file can stand for a thousand times as much
                while block := packed.read(1 << 20):
                    left -= len(block)
                    if left < 0:
                        raise limits.TooLarge(f"larger than {limits.size(limits.IDX_BYTES)} when it is unpacked")
                    unpacked.write(block)
            return np.asarray(parser(str(plain)))
    except _DAMAGE as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read as an idx file ({error or type(error).__name__}); "
            "replace it with an undamaged copy"
        ) from error


def read(folders: list[Path], part: str) -> LabelledImages | None:
    """One part, such as "train" or "t10k" of MNIST; None when neither of its two files is there.

    Args:
        folders: where to look, plain or ``.gz``; the first is named in errors.
        part: what the files' names begin with.

    Raises:
        ExperimentError: one file without the other, damaged, or not as many 28x28 images as labels.
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
    # Imported here: 160 MB and a second that other data sets need not pay in every process.
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images, labels = _parse(image_file, read_image_file), _parse(label_file, read_label_file)
    if images.shape != (len(labels), 28, 28) or len(labels) == 0:
        raise ExperimentError(
            f"workload.path: {image_file} holds images of shape {images.shape} for the {len(labels)} labels "
            f"of {label_file.name}; as many images as labels, 28x28, are needed"
        )
    return LabelledImages(images, labels.astype(np.int64))
