"""Synthetic CIFAR: generated colour images of the shapes of CIFAR-10's and CIFAR-100's. **It is not CIFAR.**

CIFAR (Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images") has 50,000 training and 10,000 test
images of 32x32, as many of each class. Here, too; a class comes in six kinds, each a coarse pattern of colours, and an
image shows one of them, turned, mirrored, shifted and stretched, in a light of its own, before a smooth background that
tells nothing, with noise. Accuracies say how well *this* task is learned and are not comparable with published ones.

The data set is the same in every experiment, as a file would be: the seed decides who holds what, as with the real one.
An image is made when it is first taken, and kept as bytes. Torch is imported where an image is drawn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.randomness import Purpose, stream

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 32
_TRAIN, _TEST = 50_000, 2_000
_KINDS = 6  # patterns of a class
_CELLS = 6  # of a pattern, in each direction
_SCENE = 24  # cells of the landscape that backgrounds are taken from
_GRAIN = 96  # pixels of the noise that each image's is taken from
_AT_ONCE = 256  # images that are made together
_SCALING = Scaling(mean=(127.0, 127.0, 127.0), deviation=(55.0, 55.0, 55.0))


class GeneratedImages:
    """Labelled images that are made when they are taken.

    Each depends on its own number, the number of classes and the purpose alone, not on what is taken with it.

    Args:
        classes: number of labels; each has as many images as any other, to the nearest one.
        count: number of images.
        purpose: whose choices these are: training and test images differ.
    """

    shape = (SIZE, SIZE, 3)

    def __init__(self, classes: int, count: int, purpose: Purpose) -> None:
        import torch

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
        """The samples with the given numbers, int64."""
        new = np.unique(numbers[~self._made[numbers]])
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            self._images[some] = self._render(some)
            self._made[some] = True  # last: another thread may make the same images, but never takes unfinished ones
        return LabelledImages(self._images[numbers], self.labels[numbers])

    def _render(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n, 32, 32, 3) uint8."""
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
    """(count, 2, 3) float32: from image points (x, y, 1) to points of what is shown, both within [-1, 1]."""
    angle = random.uniform(-turn, turn, count)
    across, along = random.uniform(*width, (2, count))
    across *= random.choice([-1.0, 1.0], count)  # mirrored
    maps = np.empty((count, 2, 3), dtype=np.float32)
    maps[:, 0, 0], maps[:, 0, 1] = across * np.cos(angle), -across * np.sin(angle)
    maps[:, 1, 0], maps[:, 1, 1] = along * np.sin(angle), along * np.cos(angle)
    maps[:, :, 2] = random.uniform(-shift, shift, (count, 2))
    return maps


def _sampled(picture: "Tensor", maps: NDArray[np.float32], padding_mode: str) -> "Tensor":
    """(n, channels, 32, 32): what is seen at the image's points; `padding_mode` says what is outside."""
    import torch
    from torch.nn.functional import grid_sample

    axis = torch.linspace(-1.0, 1.0, SIZE)
    place = torch.from_numpy(maps).view(-1, 2, 3, 1, 1)
    # Written out, not a product of matrices: sums in the same order, however many images are made together.
    x, y = (place[:, to, 0].mul(axis).add(place[:, to, 1].mul(axis.view(-1, 1))).add(place[:, to, 2]) for to in (0, 1))
    return grid_sample(picture, torch.stack([x, y], dim=-1), padding_mode=padding_mode, align_corners=True)


def load10(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """The stand-in for CIFAR-10, spread over the clients; see `workloads.data.cifar.load10`."""
    return _load(10, section, population, seed)


def load100(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """The stand-in for CIFAR-100, spread over the clients; see `workloads.data.cifar.load100`."""
    return _load(100, section, population, seed)


def _load(classes: int, section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
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


def _spec(classes: int, default_model: str, load: Callable[[WorkloadSection, int, int], PartitionedDataset]) -> Dataset:
    return Dataset(
        name=f"synthetic-cifar{classes}",
        summary=f"generated, with the shapes of cifar{classes}",
        form=Form.COLOUR,
        size=SIZE,
        default_model=default_model,
        load=load,
    )


SPECS = (_spec(10, "lenet", load10), _spec(100, "vgg11", load100))
