"""CelebA from LEAF's files: smiling or not, one celebrity per client. Nothing is downloaded.

Caldas et al. 2018 (LEAF, arXiv 1812.01097), after Liu et al. 2015. A celebrity's ``x`` is a list of image names, ``y``
of labels, 1 for smiling and 0 (`workloads.data.clients.leaf` describes the folders). The images are CelebA's aligned
ones, which LEAF has in ``raw/img_align_celeba`` beside ``train`` (``img_align_celeba`` there is also accepted). They
are opened when a client first trains, resized to 84x84 like LEAF's, and kept as bytes while memory allows.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, ScaledImages, open_photograph
from workloads.data.clients.leaf import LeafFolder, LeafUsers
from workloads.data.clients.owners import ClientDataCache, LabelledValues, OwnedSamples, join_values

CLASSES = 2
IMAGE_SIZE = 84
_NEEDED = "the folder with LEAF's json files of CelebA and its images"
_IMAGES = (Path("raw", "img_align_celeba"), Path("img_align_celeba"))
_OTHERWISE = "take its name out of the json files"


def read_celebrity(x: Any, y: Any) -> LabelledValues:
    """Return a celebrity's images.

    Args:
        x: a list of file names.
        y: as many labels, 0 or 1 (LEAF writes them as 0.0 and 1.0).

    Raises:
        ValueError: anything else; the message states fault and remedy.
    """
    if not isinstance(x, list) or not isinstance(y, list) or not x or len(x) != len(y):
        raise ValueError("x must be a list of names of images, y one label each; preprocess the data again")
    # A name with a folder in it could lead out of the images' folder.
    bad_name = next((name for name in x if not isinstance(name, str) or Path(name).name != name or not name), None)
    if bad_name is not None:
        raise ValueError(f"{bad_name!r} is not an image name, such as 000001.jpg; preprocess the data again")
    if any(label not in (0, 1) for label in y):
        raise ValueError("labels must be 0 or 1 (smiling); preprocess the data again")
    return LabelledValues(np.array(x), np.array(y).astype(np.int64))


class CelebA(ScaledImages):
    """CelebA's celebrities as clients.

    Args:
        section: path, image_size (None: 84), samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more celebrities.

    Raises:
        ExperimentError: files or images that are absent or damaged, or too few celebrities. An unreadable image is an
            error when its client first trains.
    """

    classes, channels, scaling = CLASSES, 3, None

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        folder = LeafFolder.needed(owners.folder(section.path, _NEEDED), _NEEDED)
        places = [folder.root / place for place in _IMAGES]
        image_folder = next((place for place in places if place.is_dir()), None)
        if image_folder is None:
            raise ExperimentError(f"workload.path: {folder.root} has no {_IMAGES[0]}; put CelebA's images there")
        self._images = image_folder
        self.height = self.width = section.image_size or IMAGE_SIZE
        files = LeafUsers(folder, read_celebrity, population, seed, "celebrity")
        self._owned = OwnedSamples(files, join_values, section, seed)
        self.sample_counts = self._owned.counts
        self._check_images(population)
        self.description = (
            f"CelebA (LEAF json), {self.height}x{self.width}, smiling or not, {population} celebrities with "
            f"{self.sample_counts.sum()} images"
        )
        self._cache = ClientDataCache(lambda client: self._opened(self._owned.of(client)))

    def _check_images(self, population: int) -> None:
        """Check that all training images exist before the training begins."""
        # One listing: asking for each of 200,000 files takes long on a network file system.
        present = set(os.listdir(self._images))
        missing = [
            name for client in range(population) for name in self._owned.of(client).values if name not in present
        ]
        if missing:
            raise ExperimentError(
                f"workload.path: {self._images} lacks {len(missing)} of the clients' images, the first {missing[0]}; "
                f"add them or {_OTHERWISE.replace('its name', 'their names')}"
            )

    def _opened(self, samples: LabelledValues) -> LabelledImages:
        images = [open_photograph(self._images / str(name), self.height, _OTHERWISE) for name in samples.values]
        return LabelledImages(np.stack(images), samples.labels)

    def samples(self, client: int) -> LabelledImages:
        return self._cache(client)

    def held_out_samples(self) -> LabelledImages:
        """Return the test part, all or a seeded choice; its files are first read here."""
        return self._opened(self._owned.held_out())

    def label_counts(self) -> NDArray[np.int64]:
        return self._owned.label_counts(CLASSES)


SPECS = (
    Dataset(
        name="celeba",
        summary="portraits of celebrities, smiling or not, from files",
        form=Form.PHOTO,
        default_model="celeba-cnn",
        owner="celebrity",
        files=_NEEDED,
        layouts=" (in raw/img_align_celeba)",
        reads=("image_size",),
        load=CelebA,
    ),
)
