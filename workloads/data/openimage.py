"""OpenImage from files that the user has, in FedScale's layout: one photographer per client. Nothing is downloaded.

Lai et al. 2022 (FedScale, arXiv 2105.11367). The folder holds::

    client_data_mapping/train.csv    client_id,sample_path,label_name,label_id (see `workloads.data.clients.fedscale`)
    client_data_mapping/test.csv
    train/SAMPLE_PATH                jpg or png
    test/SAMPLE_PATH

Images are opened when a client first trains, resized to a square and kept as bytes while memory allows. Labels come
from the mapping, so that who holds what is known without opening an image.

Synthetic OpenImage: generated colour images of the shapes of OpenImage's. **It is not OpenImage.**

A class is a coarse pattern of colours, the same in every experiment; a client is a photographer with a colour cast of
its own and few favourite classes; an image is a class's pattern with noise, contrast and brightness of its own,
smoothly enlarged. Accuracies say how well *this* task is learned and are not comparable with published ones.
"""

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import fedscale, owners
from workloads.data.clients.contract import Batch, ClientImages, Dataset
from workloads.data.clients.images import photographs
from workloads.data.clients.owners import ClientDataCache, class_counts, in_groups, sample_counts
from workloads.determinism import Purpose, stream

CLASSES = 596
"""Labels of FedScale's OpenImage, and outputs of Lotto's model for it."""
IMAGE_SIZE = 256
_NEEDED = f"{fedscale.NEEDED}, train and test"


class OpenImage(ClientImages):
    """OpenImage's photographers as clients.

    Args:
        section: path, image_size, samples_per_client, test_samples.
        population, seed: of the experiment; fewer clients than photographers are a choice by the seed.

    Raises:
        ExperimentError: mappings or folders that are absent or damaged, or too few photographers. An image that cannot
            be read is an error when its client first trains.
    """

    channels = 3

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        root = owners.folder(section.path, _NEEDED)
        self._folders = {part: root / part for part in ("train", "test")}
        for folder in self._folders.values():
            if not folder.is_dir():
                raise ExperimentError(f"workload.path: {root} has no folder {folder.name}; put its images there")
        self.height = self.width = section.image_size or IMAGE_SIZE
        train_file, test_file = (root / "client_data_mapping" / f"{part}.csv" for part in self._folders)
        of_client = fedscale.of_clients(train_file)
        names = owners.choose(of_client, population, seed, "photographer", train_file)
        self._train = []
        for number, name in enumerate(names):
            rows = of_client[name]
            own = owners.own_samples(len(rows), section.samples_per_client, seed, number)
            self._train.append([rows[place] for place in own])
        held_out = fedscale.held_out(test_file)
        self._test = [held_out[place] for place in owners.test_subset(len(held_out), section.test_samples, seed)]
        labels = [label for rows in (*of_client.values(), held_out) for _, label in rows]
        self.classes = max(CLASSES, max(labels) + 1)
        self.sample_counts = np.array([len(rows) for rows in self._train], dtype=np.int64)
        self.description = (
            f"OpenImage (FedScale's layout), {self.height}x{self.width}, {self.classes} classes, {population} "
            f"photographers with {self.sample_counts.sum()} images, {len(self._test)} held out"
        )
        self._cache = ClientDataCache(self._images)

    def _images(self, client: int) -> NDArray[np.uint8]:
        return self._opened("train", self._train[client])

    def _opened(self, part: str, rows: list[tuple[str, int]]) -> NDArray[np.uint8]:
        return photographs([self._folders[part] / path for path, _ in rows], self.height, fedscale.OTHERWISE)

    def shard(self, client: int) -> Batch:
        """(n, 3, size, size) uint8, which the model scales, and (n,) int64."""
        return _batch(self._cache(client), self._train[client])

    def held_out(self) -> Batch:
        return _batch(self._opened("test", self._test), self._test)

    def label_counts(self) -> NDArray[np.int64]:
        rows = [np.bincount(_labels(rows), minlength=self.classes) for rows in self._train]
        return np.stack(rows).astype(np.int64)


def _labels(rows: list[tuple[str, int]]) -> NDArray[np.int64]:
    return np.array([label for _, label in rows], dtype=np.int64)


def _batch(images: NDArray[np.uint8], rows: list[tuple[str, int]]) -> Batch:
    import torch  # here: data sets are described without it

    return torch.from_numpy(images), torch.from_numpy(_labels(rows))


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
        return class_counts(_CONCENTRATION * self._shares, self.sample_counts[client], self._seed, client)

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


SPECS = Dataset(
    name="openimage",
    summary="photographs by their photographers, 596 classes, from files",
    form=Form.PHOTO,
    default_model="mobilenet-v2",
    owner="photographer",
    files=_NEEDED,
    reads=("image_size",),
    load=OpenImage,
).with_stand_in(SyntheticOpenImage)
