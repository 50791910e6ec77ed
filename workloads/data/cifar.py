"""CIFAR-10 and CIFAR-100 from files that the user has. Nothing is downloaded.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images". Both versions that its authors offer are read,
from a folder or from the archive as it is; of an archive, only the members with these names, and nothing is unpacked::

    cifar-10-batches-bin/    data_batch_1.bin to data_batch_5.bin, test_batch.bin    (cifar-10-binary.tar.gz)
    cifar-10-batches-py/     data_batch_1 to data_batch_5, test_batch                (cifar-10-python.tar.gz)
    cifar-100-binary/        train.bin, test.bin                                     (cifar-100-binary.tar.gz)
    cifar-100-python/        train, test                                             (cifar-100-python.tar.gz)

A binary record is a label (CIFAR-100: the coarse label and the fine one, which counts) and 3,072 bytes: all of red, row
by row, then green, then blue. The python version has the same bytes in pickles; see
`workloads.data.formats.cifar_pickle`.
"""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.files.archives import SmallHeaders
from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.data.formats.cifar_pickle import Unreadable, batch

_PIXELS = 3 * 32 * 32
_LARGEST_FILE = 400 * 2**20  # CIFAR-100's training part has 148 MiB


@dataclass(frozen=True)
class _Version:
    """One of the forms that a data set comes in.

    Attributes:
        folder, archive: what they are called.
        train, test: the files of the parts.
        parse: from a file's content and the number of classes to (n, 3072) uint8 and (n,) int64.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    parse: Callable[[bytes, int], tuple[NDArray[np.uint8], NDArray[np.int64]]]


def _records(content: bytes, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The binary version: see the module."""
    labels = 2 if classes == 100 else 1  # bytes
    size = labels + _PIXELS
    if not content or len(content) % size:
        raise Unreadable(f"{len(content)} bytes are no whole number of records of {size}")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    own = records[:, labels - 1].astype(np.int64)
    if own.max() >= classes:
        raise Unreadable(f"a label {own.max()}; 0 to {classes - 1} are CIFAR-{classes}'s")
    return records[:, labels:], own


_TENS = [f"data_batch_{number}" for number in range(1, 6)]
_VERSIONS = {
    10: (
        _Version(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            tuple(f"{name}.bin" for name in _TENS),
            ("test_batch.bin",),
            _records,
        ),
        _Version("cifar-10-batches-py", "cifar-10-python.tar.gz", tuple(_TENS), ("test_batch",), batch),
    ),
    100: (
        _Version("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), ("test.bin",), _records),
        _Version("cifar-100-python", "cifar-100-python.tar.gz", ("train",), ("test",), batch),
    ),
}
_NEEDED = {
    10: "the folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin",
    100: "the folder with train.bin and test.bin",
}
# Mean and deviation of the training images' red, green and blue, of 255.
_SCALINGS = {
    10: Scaling((125.307, 122.950, 113.865), (62.993, 62.089, 66.705)),
    100: Scaling((129.304, 124.070, 112.434), (68.170, 65.392, 70.418)),
}


def load10(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """CIFAR-10 from ``workload.path``, spread over the clients.

    The path is a folder with the files of a version, one that holds such a folder (torchvision's root) or its archive,
    or the archive itself.

    Raises:
        ExperimentError: files that are absent, damaged or of another form, or too few samples for a client.
    """
    return _load(10, section, population, seed)


def load100(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """CIFAR-100 with its 100 fine labels; see `load10`."""
    return _load(100, section, population, seed)


def _load(classes: int, section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    version, place = _found(classes, (section.path or Path()).expanduser())
    train, test = (_part(classes, version, place, names) for names in (version.train, version.test))
    return PartitionedDataset(
        train,
        test,
        classes=classes,
        scaling=_SCALINGS[classes],
        description=f"CIFAR-{classes}, 32x32, {len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


def _found(classes: int, root: Path) -> tuple[_Version, Path]:
    """The version that is there, and the folder or archive with its files."""
    versions = _VERSIONS[classes]
    try:
        for version in versions:
            for folder in (root, root / version.folder):
                if (folder / version.test[0]).is_file():
                    return version, folder
        for version in versions:
            if root.name == version.archive and root.is_file():
                return version, root
            if (root / version.archive).is_file():
                return version, root / version.archive
    except OSError as error:
        raise ExperimentError(
            f"workload.path: {root} cannot be searched ({error.strerror}); make it readable"
        ) from None
    archives = " or ".join(version.archive for version in versions)
    raise ExperimentError(
        f"workload.path: {root} has no CIFAR-{classes}; give {_NEEDED[classes]}, or {archives} (nothing is downloaded)"
    )


def _part(classes: int, version: _Version, place: Path, names: tuple[str, ...]) -> LabelledImages:
    """The training or the test part, of one file or several.

    Raises:
        ExperimentError: a file is absent or damaged, or a label is none.
    """
    contents = _of_folder(place, names) if place.is_dir() else _of_archive(place, version.folder, names)
    images, labels = [], []
    for name in names:
        if name not in contents:
            raise ExperimentError(
                f"workload.path: {place} has {version.test[0]} but not {name}; put it there, or take the whole again"
            )
        try:
            rows, own = version.parse(contents.pop(name), classes)
        except Unreadable as why:
            raise ExperimentError(
                f"workload.path: {place / name} cannot be read ({why}); replace it with an undamaged copy"
            ) from None
        images.append(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(own)
    return LabelledImages(np.concatenate(images), np.concatenate(labels))


def _of_folder(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The content of those files that are there."""
    found = {}
    for file in (folder / name for name in names):
        try:
            if file.is_file():
                _check_size(file.stat().st_size, file)
                found[file.name] = file.read_bytes()
        except OSError as error:
            raise ExperimentError(
                f"workload.path: {file} cannot be read ({error.strerror}); make it readable"
            ) from None
    return found


def _of_archive(archive: Path, folder: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """The content of those files that are in the archive's folder; read into memory, whatever else is there."""
    wanted = {f"{folder}/{name}": name for name in names}
    found = {}
    try:
        with tarfile.open(archive, "r:gz", tarinfo=SmallHeaders) as members:
            left = limits.ARCHIVE_BYTES
            for member in members:
                left -= member.size
                if left < 0:
                    raise tarfile.ReadError(f"larger than {limits.size(limits.ARCHIVE_BYTES)} when it is unpacked")
                name = wanted.get(member.name.removeprefix("./"))
                content = members.extractfile(member) if name is not None and member.isfile() else None
                if name is not None and content is not None:
                    _check_size(member.size, archive / member.name)
                    found[name] = content.read()
                if len(found) == len(names):
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ExperimentError(
            f"workload.path: {archive} cannot be read as an archive ({error or type(error).__name__}); replace it with "
            "an undamaged copy"
        ) from None
    return found


def _check_size(size: int, where: Path) -> None:
    if size > _LARGEST_FILE:
        raise ExperimentError(
            f"workload.path: {where} has {size} bytes, more than any file of CIFAR ({_LARGEST_FILE} are allowed); "
            "replace it"
        )


def _spec(classes: int, default_model: str, load: Callable[[WorkloadSection, int, int], PartitionedDataset]) -> Dataset:
    return Dataset(
        name=f"cifar{classes}",
        summary=f"colour images of {classes} classes, 32x32, from files",
        form=Form.COLOUR,
        size=32,
        default_model=default_model,
        files=_NEEDED[classes],
        layouts=", the same of the python version, a folder that holds such a folder or its .tar.gz, or the .tar.gz",
        load=load,
    )


SPECS = (_spec(10, "lenet", load10), _spec(100, "vgg11", load100))
