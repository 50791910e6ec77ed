"""EMNIST ByClass from files that the user has: digits, upper- and lower-case letters. Nothing is downloaded.

Cohen et al. 2017 (arXiv 1702.05373): 697,932 images for training and 116,323 for testing, 28x28, of 62 classes in the
order 0-9, A-Z, a-z. The idx files hold every image with rows and columns exchanged; it is turned back here.
"""

import numpy as np

from testbed.errors import ExperimentError
from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.data.formats import idx

CLASSES = 62

# Mean and standard deviation of the ByClass training pixels as commonly given, in bytes (0.1736 and 0.3317 of 255).
_SCALING = Scaling(mean=44.268, deviation=84.5835)


def load(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """EMNIST ByClass from ``workload.path``, spread over the clients; ``samples_per_client`` leaves out what is more.

    The folder holds the four files ``emnist-byclass-train-images-idx3-ubyte`` and so on, plain or ``.gz``, or is
    torchvision's root with them in ``EMNIST/raw``, or the unpacked archive with them in ``gzip``.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few samples for a client.
    """
    needed = "the folder with emnist-byclass-train-images-idx3-ubyte and the three files beside it (plain or .gz)"
    root = owners.folder(section.path, needed)
    folders = [root, root / "EMNIST" / "raw", root / "raw", root / "gzip"]
    parts = []
    for part in ("emnist-byclass-train", "emnist-byclass-test"):
        found = idx.read(folders, part)
        if found is None:
            raise ExperimentError(
                f"workload.path: {root} has no {part}-images-idx3-ubyte (or .gz), there or in EMNIST/raw or gzip; put "
                "EMNIST's ByClass files there (nothing is downloaded)"
            )
        if found.labels.max() >= CLASSES:
            raise ExperimentError(
                f"workload.path: {root}: {part} has the label {found.labels.max()}; the ByClass split has 0 to 61"
            )
        parts.append(LabelledImages(np.ascontiguousarray(found.images.swapaxes(1, 2)), found.labels))
    train, test = parts
    return PartitionedDataset(
        train,
        test,
        classes=CLASSES,
        scaling=_SCALING,
        description=f"EMNIST ByClass, 28x28, {len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


SPECS = (
    Dataset(
        name="emnist",
        summary="handwritten digits and letters, 28x28, from files",
        form=Form.GREY,
        size=28,
        default_model="emnist-cnn",
        files="the folder with the emnist-byclass idx files",
        layouts=" (EMNIST/raw, or gzip)",
        load=load,
    ),
)
