"""Synthetic OpenImage: generated colour images of the shapes of OpenImage's. **It is not OpenImage.**

A class is a coarse pattern of colours, the same in every experiment; a client is a photographer with a colour cast of
its own and few favourite classes; an image is a class's pattern with noise, contrast and brightness of its own,
smoothly enlarged. Accuracies say how well *this* task is learned and are not comparable with published ones.
"""

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients.cache import ClientDataCache
from workloads.data.clients.contract import Batch, ClientImages, Dataset
from workloads.data.clients.sample_counts import in_groups, sample_counts
from workloads.data.openimage import CLASSES, IMAGE_SIZE
from workloads.randomness import Purpose, stream

_GRID = 6  # cells of a pattern in each direction
_AT_ONCE = 32  # images that are enlarged together
_CONCENTRATION = 5.0  # of a photographer's class mix around the classes' shares
_TEST_IMAGES, _OF_EACH_TEST_PHOTOGRAPHER = 500, 20


class SyntheticOpenImage(ClientImages):
    """The images of a population of photographers, made as they are needed.

    Args:
        section: image_size, samples_per_client (None: varying, lognormal, mean 100), test_samples (None: 500).
        population, seed: of the experiment. A photographer depends on the seed, not on the population.
    """

    classes, channels = CLASSES, 3

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        self._seed = seed
        self._test_images = section.test_samples or _TEST_IMAGES
        self.height = self.width = section.image_size or IMAGE_SIZE
        self.sample_counts = sample_counts(
            population, section.samples_per_client, seed, mean=100.0, deviation=60.0, minimum=10, maximum=600
        )
        self.description = (
            f"synthetic OpenImage (generated images; not OpenImage's), {self.height}x{self.width}, {CLASSES} classes"
        )
        shares = 1.0 / np.arange(1, CLASSES + 1)
        self._shares = shares / shares.sum()
        shape = (CLASSES, 3, _GRID, _GRID)
        self._patterns = stream(0, Purpose.TEXTURES).random(shape, dtype=np.float32)
        self._cache = ClientDataCache(self._own)

    def _class_counts(self, client: int) -> NDArray[np.int64]:
        """(596,) int64: training samples of each class at one client."""
        random = stream(self._seed, Purpose.CLASS_MIX, client)
        mix = random.dirichlet(_CONCENTRATION * self._shares)
        return random.multinomial(self.sample_counts[client], mix)

    def _labels(self, client: int) -> NDArray[np.int64]:
        return np.repeat(np.arange(CLASSES), self._class_counts(client))

    def _own(self, client: int) -> NDArray[np.uint8]:
        return self._photographs(self._labels(client), stream(self._seed, Purpose.PHOTOS, client))

    def _photographs(self, labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
        """(n, 3, size, size) uint8: one photographer's images of the given classes."""
        import torch
        from torch.nn.functional import interpolate

        count = len(labels)
        cast = random.normal(0.0, 0.1, (1, 3, 1, 1)).astype(np.float32)
        noise = random.normal(0.0, 0.15, (count, 3, _GRID, _GRID)).astype(np.float32)
        contrast = random.uniform(0.6, 1.2, (count, 1, 1, 1)).astype(np.float32)
        brightness = random.normal(0.5, 0.08, (count, 1, 1, 1)).astype(np.float32)
        coarse = torch.from_numpy((self._patterns[labels] - 0.5 + noise) * contrast + brightness + cast)
        images = torch.empty((count, 3, self.height, self.width), dtype=torch.uint8)
        for start in range(0, count, _AT_ONCE):
            part = coarse[start : start + _AT_ONCE]
            fine = interpolate(part, size=(self.height, self.width), mode="bilinear", align_corners=True)
            images[start : start + _AT_ONCE] = fine.mul_(255.0).clamp_(0.0, 255.0).to(torch.uint8)
        return images.numpy()

    def shard(self, client: int) -> Batch:
        """(n, 3, size, size) uint8, which the model scales, and (n,) int64."""
        import torch

        return torch.from_numpy(self._cache(client)), torch.from_numpy(self._labels(client))

    def held_out(self) -> Batch:
        """Images of other photographers, who are no clients, 20 of each."""
        import torch

        images, labels = [], []
        for person, count in in_groups(self._test_images, _OF_EACH_TEST_PHOTOGRAPHER):
            random = stream(self._seed, Purpose.TEST_PHOTOS, person)
            labels.append(random.choice(CLASSES, count, p=self._shares))
            images.append(self._photographs(labels[-1], random))
        return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels))

    def label_counts(self) -> NDArray[np.int64]:
        """(population, 596) int64."""
        return np.stack([self._class_counts(client) for client in range(len(self.sample_counts))])


SPECS = (
    Dataset(
        name="synthetic-openimage",
        summary="generated, with the shapes of openimage",
        form=Form.PHOTO,
        default_model="mobilenet-v2",
        owner="photographer",
        reads=("image_size",),
        load=SyntheticOpenImage,
    ),
)
