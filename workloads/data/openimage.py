"""OpenImage from the user's files, in FedScale's layout: one photographer per client. Nothing is downloaded.

Lai et al. 2022 (FedScale, arXiv 2105.11367). The folder holds::

    client_data_mapping/train.csv    client_id,sample_path,label_name,label_id (see `workloads.data.clients.fedscale`)
    client_data_mapping/test.csv
    train/SAMPLE_PATH                jpg or png
    test/SAMPLE_PATH

Images are opened when a client first trains, resized to a square and kept as bytes while memory allows. Labels come
from the mapping, so that the clients' classes are known without opening an image.

Synthetic OpenImage is generated colour images with the shapes of OpenImage. **It is not OpenImage.**
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import fedscale, owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import GeneratedOwners, OwnedImages, open_photograph
from workloads.data.clients.owners import sample_counts
from workloads.determinism import Purpose, stream

CLASSES = 596
"""Labels of FedScale's OpenImage, and outputs of Lotto's model for it."""
IMAGE_SIZE = 256
_NEEDED = f"{fedscale.NEEDED}, train and test"


class OpenImage(OwnedImages):
    """OpenImage's photographers as clients.

    Args:
        section: path, image_size, samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more photographers.

    Raises:
        ExperimentError: mappings or folders that are absent or damaged, or too few photographers. An unreadable image
            is an error when its client first trains.
    """

    channels, scaling = 3, None

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        root = owners.folder(section.path, _NEEDED)
        folders = root / "train", root / "test"
        for folder in folders:
            if not folder.is_dir():
                raise ExperimentError(f"workload.path: {root} has no folder {folder.name}; put its images there")
        self.height = self.width = section.image_size or IMAGE_SIZE
        files = fedscale.MappedImages(
            root, folders, self._photograph, "photographer", population, seed, section.test_samples
        )
        super().__init__(files, section, seed)
        # At least 596: with a part of the data, too, the model has the size of Lotto's.
        self.classes = max(CLASSES, files.largest_label + 1)
        self.description = (
            f"OpenImage (FedScale's layout), {self.height}x{self.width}, {self.classes} classes, {population} "
            f"photographers with {self.sample_counts.sum()} images, {files.test_count} held out"
        )

    def _photograph(self, file: Path) -> NDArray[np.uint8]:
        return open_photograph(file, self.height, fedscale.OTHERWISE)


_GRID = 6  # cells of a pattern in each direction
_AT_ONCE = 32  # images that are enlarged together
_TEST_IMAGES = 500
_FREQUENCIES = 1.0 / np.arange(1, CLASSES + 1)


class SyntheticOpenImage(GeneratedOwners):
    """The images of a population of photographers, made when they are used.

    A class is a coarse pattern of colours, the same in every experiment. A client is a photographer with its own colour
    cast and few favourite classes. Accuracies measure the learning of *this* task and are not comparable with published
    ones.

    Args:
        section: image_size, samples_per_client (None: varying, lognormal, mean 100), test_samples (None: 500).
        population, seed: of the experiment. A photographer depends on the seed, not on the population.
    """

    classes, channels, scaling = CLASSES, 3, None
    shares, concentration = _FREQUENCIES / _FREQUENCIES.sum(), 5.0
    purpose, test_purpose = Purpose.PHOTOS, Purpose.TEST_PHOTOS

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        counts = sample_counts(
            population, section.samples_per_client, seed, mean=100.0, deviation=60.0, minimum=10, maximum=600
        )
        super().__init__(counts, section.test_samples or _TEST_IMAGES, seed)
        self.height = self.width = section.image_size or IMAGE_SIZE
        self.description = (
            f"synthetic OpenImage (generated images; not OpenImage's), {self.height}x{self.width}, {CLASSES} classes"
        )
        shape = (CLASSES, 3, _GRID, _GRID)
        self._patterns = stream(0, Purpose.TEXTURES).random(shape, dtype=np.float32)

    def draw(self, labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
        """Return one photographer's images of the given classes, (n, 3, size, size) uint8."""
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
