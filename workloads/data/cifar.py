"""CIFAR-10 and CIFAR-100 from the user's files, and generated stand-ins. Nothing is downloaded.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images". Both versions of its authors are read, from a
folder or from the archive as it is; of an archive, only the members with these names are read, and nothing is
unpacked::

    cifar-10-batches-bin/    data_batch_1.bin to data_batch_5.bin, test_batch.bin    (cifar-10-binary.tar.gz)
    cifar-10-batches-py/     data_batch_1 to data_batch_5, test_batch                (cifar-10-python.tar.gz)
    cifar-100-binary/        train.bin, test.bin                                     (cifar-100-binary.tar.gz)
    cifar-100-python/        train, test                                             (cifar-100-python.tar.gz)

A binary record is a label (CIFAR-100: the coarse label and the fine one, which is used) and 3,072 bytes: all of red,
row by row, then green, then blue. The python version has the same bytes in pickles; see
`workloads.data.clients.cifar_pickle`.

Synthetic CIFAR is generated colour images with the shapes of CIFAR-10 and CIFAR-100. **It is not CIFAR.**
"""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.files.limits import SmallHeaders
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients.cifar_pickle import UnreadablePickle, batch
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.determinism import Purpose, stream

if TYPE_CHECKING:
    from torch import Tensor

_PIXELS = 3 * 32 * 32
_LARGEST_FILE = 400 * 2**20  # CIFAR-100's training part has 148 MiB


@dataclass(frozen=True)
class _Version:
    """A version in which a data set is published.

    Attributes:
        folder, archive: their names.
        train, test: the files of the parts.
        parse: function from a file's content and the number of classes to (n, 3072) uint8 and (n,) int64.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    parse: Callable[[bytes, int], tuple[NDArray[np.uint8], NDArray[np.int64]]]


def _records(content: bytes, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images and labels of a file of the binary version; see the module."""
    labels = 2 if classes == 100 else 1  # bytes
    size = labels + _PIXELS
    if not content or len(content) % size:
        raise UnreadablePickle(f"{len(content)} bytes are not a whole number of records of {size} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    # CIFAR-100: the coarse label comes first, and the fine one, which is used, second.
    label_column = records[:, labels - 1].astype(np.int64)
    if label_column.max() >= classes:
        raise UnreadablePickle(f"a label {label_column.max()}; 0 to {classes - 1} are CIFAR-{classes}'s")
    return records[:, labels:], label_column


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


def load(classes: int, section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """Load CIFAR-10, or CIFAR-100 with its 100 fine labels, from ``workload.path``, spread over the clients.

    The path is a folder with the files of a version, a folder with such a folder (torchvision's root) or its archive,
    or the archive itself.

    Args:
        classes: 10 or 100.
        section: path, partition, samples_per_client, test_samples.
        population, seed: of the experiment.

    Raises:
        ExperimentError: files that are absent, damaged or of another form, or too few samples for a client.
    """
    version, place = _find(classes, (section.path or Path()).expanduser())
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


def _find(classes: int, root: Path) -> tuple[_Version, Path]:
    """Return the available version, and the folder or archive with its files."""
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
    """Return the training or the test part, read from one or several files.

    Raises:
        ExperimentError: a file is absent or damaged, or a label is invalid.
    """
    contents = _of_folder(place, names) if place.is_dir() else _of_archive(place, version.folder, names)
    images, labels = [], []
    for name in names:
        if name not in contents:
            raise ExperimentError(
                f"workload.path: {place} has {version.test[0]} but not {name}; add it, or download the data set again"
            )
        try:
            rows, labels_read = version.parse(contents.pop(name), classes)
        except UnreadablePickle as why:
            raise ExperimentError(
                f"workload.path: {place / name} cannot be read ({why}); replace it with an undamaged copy"
            ) from None
        # The files have planes of red, green and blue; models take colours last.
        images.append(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(labels_read)
    return LabelledImages(np.concatenate(images), np.concatenate(labels))


def _of_folder(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the contents of the files that exist in the folder."""
    contents = {}
    for file in (folder / name for name in names):
        try:
            if file.is_file():
                _check_size(file.stat().st_size, file)
                contents[file.name] = file.read_bytes()
        except OSError as error:
            raise ExperimentError(
                f"workload.path: {file} cannot be read ({error.strerror}); make it readable"
            ) from None
    return contents


def _of_archive(archive: Path, folder: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read the contents of the files that are in the archive's folder into memory; skip all other members."""
    wanted_names = {f"{folder}/{name}": name for name in names}
    contents = {}
    try:
        # Member by member, into memory: nothing is unpacked, so names with ".." do no harm.
        with tarfile.open(archive, "r:gz", tarinfo=SmallHeaders) as members:
            left = limits.ARCHIVE_BYTES
            for member in members:
                # By the headers, before unpacking: skipped members are decompressed, too.
                left -= member.size
                if left < 0:
                    raise tarfile.ReadError(f"larger than {limits.size(limits.ARCHIVE_BYTES)} when it is unpacked")
                name = wanted_names.get(member.name.removeprefix("./"))
                content = members.extractfile(member) if name is not None and member.isfile() else None
                if name is not None and content is not None:
                    _check_size(member.size, archive / member.name)
                    contents[name] = content.read()
                if len(contents) == len(names):
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ExperimentError(
            f"workload.path: {archive} cannot be read as an archive ({error or type(error).__name__}); replace it with "
            "an undamaged copy"
        ) from None
    return contents


def _check_size(size: int, where: Path) -> None:
    if size > _LARGEST_FILE:
        raise ExperimentError(
            f"workload.path: {where} has {size} bytes, more than any file of CIFAR ({_LARGEST_FILE} are allowed); "
            "replace it"
        )


SIZE = 32
_TRAIN, _TEST = 50_000, 2_000
_KINDS = 6  # patterns of a class
_CELLS = 6  # of a pattern, in each direction
_SCENE = 24  # cells of the landscape that backgrounds are taken from
_GRAIN = 96  # pixels of the noise that each image's is taken from
_AT_ONCE = 256  # images that are made together
_SCALING = Scaling(mean=(127.0, 127.0, 127.0), deviation=(55.0, 55.0, 55.0))


class GeneratedImages:
    """Labelled images that are made when they are first used, and kept as bytes.

    CIFAR has 50,000 training and 10,000 test images of 32x32, the same number of each class; so has the stand-in. A
    class has six kinds, each a coarse pattern of colours. An image shows one of them before a smooth background without
    information, and with noise. Accuracies measure the learning of *this* task and are not comparable with published
    ones. Each image depends on its own number, the number of classes and the purpose alone.

    Args:
        classes: number of labels; each has the same number of images, to the nearest one.
        count: number of images.
        purpose: purpose of the random stream: training and test images differ.
    """

    shape = (SIZE, SIZE, 3)

    def __init__(self, classes: int, count: int, purpose: Purpose) -> None:
        import torch

        # Seed 0: the data set is the same in every experiment, like a file.
        random = stream(0, purpose, classes)
        self.labels: NDArray[np.int64] = random.permutation(np.arange(count, dtype=np.int64) % classes)
        self._kinds = self.labels * _KINDS + random.integers(0, _KINDS, count)
        self._objects = _placements(count, random, turn=0.4, width=(0.9, 1.6), shift=0.4)
        self._scenes = _placements(count, random, turn=np.pi, width=(0.15, 0.3), shift=0.65)
        self._contrast = random.uniform(0.5, 1.1, (count, 1, 1, 1)).astype(np.float32)
        self._light = random.normal(0.0, 0.1, (count, 3, 1, 1)).astype(np.float32)
        self._grain_at = random.integers(0, _GRAIN - SIZE + 1, (count, 2))
        shared = stream(0, Purpose.CIFAR_PATTERNS, classes)
        patterns = shared.random((classes * _KINDS, 4, _CELLS, _CELLS), dtype=np.float32)
        alike = shared.random((classes, 1, 4, _CELLS, _CELLS), dtype=np.float32)
        patterns = (0.5 * (patterns.reshape(classes, _KINDS, 4, _CELLS, _CELLS) + alike)).reshape(patterns.shape)
        patterns[:, 3] = 1.0  # where a pattern is, it hides the background
        self._patterns = torch.from_numpy(patterns)
        self._landscape = torch.from_numpy(shared.random((1, 3, _SCENE, _SCENE), dtype=np.float32))
        grain = shared.normal(0.0, 0.06, (3, _GRAIN, _GRAIN)).astype(np.float32)
        self._grain = np.lib.stride_tricks.sliding_window_view(grain, (SIZE, SIZE), axis=(1, 2))
        # Memory that nothing has been written to takes no room.
        self._images = np.zeros((count, *self.shape), dtype=np.uint8)
        self._made = np.zeros(count, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> LabelledImages:
        """Return the samples with the given numbers, int64."""
        new = np.unique(numbers[~self._made[numbers]])
        for start in range(0, len(new), _AT_ONCE):
            batch_numbers = new[start : start + _AT_ONCE]
            self._images[batch_numbers] = self._render(batch_numbers)
            self._made[batch_numbers] = (
                True  # last: another thread may make the same images, but never takes unfinished ones
            )
        return LabelledImages(self._images[numbers], self.labels[numbers])

    def _render(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return (n, 32, 32, 3) uint8 images."""
        import torch

        kinds = self._patterns[torch.from_numpy(self._kinds[numbers])]
        shown = _sampled(kinds, self._objects[numbers], "zeros")
        scene = _sampled(self._landscape.expand(len(numbers), -1, -1, -1), self._scenes[numbers], "reflection")
        hidden = shown[:, 3:]
        picture = shown[:, :3].add_(scene.mul_(1.0 - hidden)).sub_(0.5).mul_(torch.from_numpy(self._contrast[numbers]))
        picture.add_(torch.from_numpy(self._light[numbers])).add_(0.5)
        down, right = self._grain_at[numbers].T
        picture.add_(torch.from_numpy(self._grain[:, down, right].transpose(1, 0, 2, 3)))
        octets = picture.mul_(255.0).clamp_(0.0, 255.0).to(torch.uint8)
        painted: NDArray[np.uint8] = octets.permute(0, 2, 3, 1).numpy()
        return painted


def _placements(
    count: int, random: np.random.Generator, *, turn: float, width: tuple[float, float], shift: float
) -> NDArray[np.float32]:
    """Return (count, 2, 3) float32 maps from image points (x, y, 1) to picture points, both within [-1, 1]."""
    angle = random.uniform(-turn, turn, count)
    across, along = random.uniform(*width, (2, count))
    across *= random.choice([-1.0, 1.0], count)  # mirrored
    maps = np.empty((count, 2, 3), dtype=np.float32)
    maps[:, 0, 0], maps[:, 0, 1] = across * np.cos(angle), -across * np.sin(angle)
    maps[:, 1, 0], maps[:, 1, 1] = along * np.sin(angle), along * np.cos(angle)
    maps[:, :, 2] = random.uniform(-shift, shift, (count, 2))
    return maps


def _sampled(picture: "Tensor", maps: NDArray[np.float32], padding_mode: str) -> "Tensor":
    """Return (n, channels, 32, 32): the picture at the image's points; `padding_mode` continues it outside."""
    import torch
    from torch.nn.functional import grid_sample

    axis = torch.linspace(-1.0, 1.0, SIZE)
    place = torch.from_numpy(maps).view(-1, 2, 3, 1, 1)
    # Written out, not a product of matrices: sums in the same order, however many images are made together.
    x, y = (place[:, to, 0].mul(axis).add(place[:, to, 1].mul(axis.view(-1, 1))).add(place[:, to, 2]) for to in (0, 1))
    return grid_sample(picture, torch.stack([x, y], dim=-1), padding_mode=padding_mode, align_corners=True)


def generate(classes: int, section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """Return the stand-in for CIFAR-10 or CIFAR-100, spread over the clients as `load` does.

    Args:
        classes: 10 or 100.
        section: partition, samples_per_client, test_samples.
        population, seed: of the experiment.
    """
    test = section.test_samples or _TEST
    return PartitionedDataset(
        GeneratedImages(classes, _TRAIN, Purpose.CIFAR_IMAGES),
        GeneratedImages(classes, test, Purpose.CIFAR_TEST_IMAGES),
        classes=classes,
        scaling=_SCALING,
        description=f"synthetic CIFAR-{classes} (generated images; not CIFAR's), 32x32, {_TRAIN} for training, {test} "
        "held out",
        section=section,
        population=population,
        seed=seed,
    )


SPECS = tuple(
    spec
    for classes, model in ((10, "lenet"), (100, "vgg11"))
    for spec in Dataset(
        name=f"cifar{classes}",
        summary=f"colour images of {classes} classes, 32x32, from files",
        form=Form.COLOUR,
        size=SIZE,
        default_model=model,
        files=_NEEDED[classes],
        layouts=", the same of the python version, a folder that holds such a folder or its .tar.gz, or the .tar.gz",
        load=partial(load, classes),
    ).with_stand_in(partial(generate, classes))
)
