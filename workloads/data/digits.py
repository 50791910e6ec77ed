"""The UCI digits of scikit-learn: 1,797 real handwritten digits, 8x8, ten classes.

Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits" (the test part of the UCI set). The set is small
and installed with the project, and is therefore the default data set of an experiment.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling, split_stratified
from workloads.determinism import Purpose, stream

# Mean and standard deviation of all pixels; they go from 0 to 16.
_SCALING = Scaling(mean=4.8842, deviation=6.0168)


def load(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """Load the digits: one fifth (stratified, by the seed) held out, the rest spread over the clients.

    Args:
        section: partition, samples_per_client, test_samples.
        population, seed: of the experiment.

    Raises:
        ExperimentError: a client would hold too few samples.
    """
    pixels_and_labels = _table()
    images = pixels_and_labels[:, :-1].reshape(-1, 8, 8)
    samples = LabelledImages(images.astype(np.uint8), pixels_and_labels[:, -1].astype(np.int64))
    train, test = split_stratified(samples, 0.2, stream(seed, Purpose.SPLIT))
    return PartitionedDataset(
        train,
        test,
        classes=10,
        scaling=_SCALING,
        description=f"UCI digits of scikit-learn, 8x8, {len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


def _table() -> npt.NDArray[np.float64]:
    """Return `(1797, 65)`: 64 pixels and the digit of each image.

    The data come from the file that `sklearn.datasets.load_digits` reads, if it is in its place: importing scikit-learn
    would cost each process of a run most of a second and 100 MB.
    """
    package = find_spec("sklearn")
    # The file that `load_digits` reads: importing scikit-learn costs each process most of a second and 100 MB.
    file = Path((package and package.origin) or "").parent / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        return np.asarray(np.loadtxt(file, delimiter=","))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack((bunch.data, bunch.target))


SPECS = (
    Dataset(
        name="digits",
        summary="the real UCI digits, 8x8, carried by scikit-learn",
        form=Form.GREY,
        size=8,
        default_model="mlp",
        load=load,
    ),
)
