"""FEMNIST from the user's files: handwriting of 62 classes, 28x28, one writer per client. Nothing is downloaded.

Caldas et al. 2018 (LEAF, arXiv 1812.01097). Three layouts, recognised by the files in the folder: LEAF's json files,
the HDF5 of TensorFlow Federated and FedScale's mappings (see `workloads.data.clients.handwriting`).

Images are kept as bytes and scaled as by Lotto's authors (mean 0.9637, deviation 0.1597); no augmentation.

Synthetic FEMNIST is generated handwriting with the size and structure of FEMNIST. **It is not FEMNIST.**
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import handwriting, owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import GeneratedOwners, OwnedImages, Scaling
from workloads.data.clients.leaf import LeafUsers
from workloads.data.clients.owners import sample_counts
from workloads.determinism import Purpose, stream

if TYPE_CHECKING:
    from torch import Tensor

CLASSES, SIZE = handwriting.CLASSES, handwriting.SIZE
_SCALING = Scaling(mean=245.74, deviation=40.72)  # 0.9637 and 0.1597 of 255


class Femnist(OwnedImages):
    """FEMNIST's writers as clients.

    Args:
        section: path, samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more writers.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few writers.
    """

    classes, height, width, scaling = CLASSES, SIZE, SIZE, _SCALING

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        root = owners.folder(section.path, handwriting.NEEDED)
        files, layout = handwriting.read(root, population, seed, section.test_samples)
        super().__init__(files, section, seed, in_memory=isinstance(files, LeafUsers))
        self.description = (
            f"FEMNIST ({layout}), 28x28, 62 classes, {population} writers with {self.sample_counts.sum()} images"
        )


_GRID = 40  # resolution of the distance fields
_EXTENT = 1.3  # they cover [-1.3, 1.3] in both directions; an image shows about [-1, 1]
_TEST_SAMPLES = 2000
# FEMNIST's "by class" shares: digits 0.495, capitals 0.27, small letters 0.235 of the images.
_CLASS_SHARES = np.repeat([0.495 / 10, 0.270 / 26, 0.235 / 26], [10, 26, 26])
_SYNTHETIC_SCALING = Scaling(mean=36.0, deviation=70.0)


def alphabet() -> "Tensor":
    """Return (62, 40, 40) float32: for each character, the distance of each grid point to its nearest stroke.

    Distances are in units of half an image. A character is two or three cubic Bezier curves with random control points.
    """
    import torch

    # Seed 0: the alphabet is the same in every experiment, like the data of a file.
    random = stream(0, Purpose.ALPHABET)
    t = np.linspace(0.0, 1.0, 24)[:, None]
    bernstein = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    axis = np.linspace(-_EXTENT, _EXTENT, _GRID)
    pixels = np.stack(np.meshgrid(axis, axis, indexing="xy"), axis=-1).reshape(-1, 1, 2)
    fields = np.empty((CLASSES, _GRID, _GRID), dtype=np.float32)
    for field in fields:
        control = random.uniform(-0.75, 0.75, (random.integers(2, 4), 4, 2))
        points = (bernstein @ control).reshape(1, -1, 2)
        field[:] = np.sqrt(np.square(pixels - points).sum(axis=2).min(axis=1)).reshape(_GRID, _GRID)
    return torch.from_numpy(fields)


def write(fields: "Tensor", labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
    """Return one writer's images of the given characters.

    Args:
        fields: result of `alphabet`.
        labels: (n,) int64.
        random: the writer's own stream: the writer's style is drawn first, then the variation of each image.

    Returns:
        (n, 28, 28) uint8, bright strokes on black.
    """
    import torch
    from torch.nn.functional import grid_sample, interpolate

    count = len(labels)
    # A writer has a slant, a size, a pen and a smooth bending of all characters; each image varies around that.
    # Style and variation of rotation, slant, log width, log height, shift right, shift down.
    style = random.normal(size=6) * [0.12, 0.22, 0.10, 0.10, 0.06, 0.06]
    variation = random.normal(size=(count, 6)) * [0.08, 0.08, 0.06, 0.06, 0.05, 0.05]
    rotation, slant, log_width, log_height, right, down = (style + variation).T
    thickness = random.uniform(0.06, 0.15) * np.exp(random.normal(0.0, 0.1, count))
    contrast = random.uniform(0.65, 1.0)
    bending = random.normal(0.0, 0.07, (1, 2, 4, 4)).astype(np.float32)

    cosine, sine = np.cos(rotation), np.sin(rotation)
    width, height = np.exp(log_width), np.exp(log_height)
    # Image point (x, y, 1) -> character point: shift, rotate, slant, stretch.
    maps = np.empty((count, 3, 2), dtype=np.float32)
    maps[:, 0, 0], maps[:, 1, 0] = width * (cosine + slant * sine), width * (slant * cosine - sine)
    maps[:, 0, 1], maps[:, 1, 1] = height * sine, height * cosine
    maps[:, 2, 0], maps[:, 2, 1] = right, down
    axis = torch.linspace(-1.0, 1.0, SIZE)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    points = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1).view(1, -1, 3)
    grid = (points @ torch.from_numpy(maps)).view(count, SIZE, SIZE, 2)
    bent = interpolate(torch.from_numpy(bending), size=(SIZE, SIZE), mode="bicubic", align_corners=True)
    grid += bent[0].permute(1, 2, 0)
    grid /= _EXTENT
    # The distance to the nearest stroke, looked up once for each pixel: strokes of any thickness from one table.
    distance = grid_sample(
        fields[torch.from_numpy(labels)].unsqueeze(1), grid, padding_mode="border", align_corners=True
    )
    pen = torch.from_numpy(thickness.astype(np.float32)).view(-1, 1, 1, 1)
    ink = distance.neg_().add_(pen).mul_(1 / 0.06).add_(0.5).clamp_(0.0, 1.0).mul_(255.0 * contrast)
    images: NDArray[np.uint8] = ink.view(count, SIZE, SIZE).to(torch.uint8).numpy()
    return images


class SyntheticFemnist(GeneratedOwners):
    """The handwriting of a population of writers, made when it is used (about 2 ms for 225 images).

    FEMNIST has 28x28 images of 62 classes by 3,550 writers, 226.83 images each (standard deviation 88.94). In the
    stand-in, too, each client is a writer, so that the cost of the papers' sizes can be measured without the data.
    Accuracies measure the learning of *this* task and are not comparable with published ones.

    Args:
        section: samples_per_client (None: varying, lognormal, mean 225), test_samples (None: 2000).
        population, seed: of the experiment. A writer depends on the seed, not on the population.
    """

    classes, height, width, scaling = CLASSES, SIZE, SIZE, _SYNTHETIC_SCALING
    # A writer's class mix is drawn from a Dirichlet distribution around FEMNIST's shares.
    shares, concentration = _CLASS_SHARES, 30.0
    purpose, test_purpose = Purpose.WRITER, Purpose.TEST_WRITER
    description = "synthetic FEMNIST (generated; not the FEMNIST data), 28x28, 62 classes, a writer per client"

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        counts = sample_counts(
            population, section.samples_per_client, seed, mean=225.0, deviation=89.0, minimum=10, maximum=600
        )
        super().__init__(counts, section.test_samples or _TEST_SAMPLES, seed)
        self._fields = alphabet()  # once for all writers: 62 invented characters, the same in every experiment

    def draw(self, labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
        return write(self._fields, labels, random)


SPECS = Dataset(
    name="femnist",
    summary="handwriting of 62 classes by its writers, 28x28, from files",
    form=Form.GREY,
    size=SIZE,
    default_model="femnist-cnn",
    owner="writer",
    files=handwriting.NEEDED,
    layouts=" (train/ and test/, or one folder of json files; beside the others fed_emnist_test.h5, or the images)",
    load=Femnist,
).with_stand_in(SyntheticFemnist)
