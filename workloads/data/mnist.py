"""MNIST, or any data in its format (28x28, idx files), from files that the user has. Nothing is downloaded.

LeCun et al. 1998.
"""

from testbed.errors import ExperimentError
from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import PartitionedDataset, Scaling, split_stratified
from workloads.data.formats import idx
from workloads.randomness import Purpose, stream

# Mean and standard deviation of MNIST's training pixels, in bytes (0.1307 and 0.3081 of 255).
_SCALING = Scaling(mean=33.3285, deviation=78.5655)


def load(section: WorkloadSection, population: int, seed: int) -> PartitionedDataset:
    """MNIST from ``workload.path``, spread over the clients.

    The folder holds the four idx files, plain or ``.gz``, or is torchvision's root with them in
    ``MNIST/raw``. Where only the t10k files are there, one fifth of them (stratified, by the seed) is held
    out and the rest is for training; the description says so.

    Raises:
        ExperimentError: files that are absent, damaged or of another shape, or too few samples for a client.
    """
    needed = "the folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files (plain or .gz)"
    root = owners.folder(section.path, needed)
    folders = [root, root / "MNIST" / "raw", root / "raw"]
    train, test = idx.read(folders, "train"), idx.read(folders, "t10k")
    if test is None:
        raise ExperimentError(
            f"workload.path: {root} has no t10k-images-idx3-ubyte (or .gz), there or in MNIST/raw; "
            "put MNIST's idx files there (nothing is downloaded)"
        )
    if train is None:
        train, test = split_stratified(test, 0.2, stream(seed, Purpose.SPLIT))
        note = "from the t10k files alone, as the training files are not there: "
    else:
        note = ""
    return PartitionedDataset(
        train,
        test,
        classes=max(10, int(train.labels.max()) + 1, int(test.labels.max()) + 1),
        scaling=_SCALING,
        description=f"MNIST, 28x28, {note}{len(train)} for training, {len(test)} held out",
        section=section,
        population=population,
        seed=seed,
    )


SPECS = (
    Dataset(
        name="mnist",
        summary="handwritten digits, 28x28, from files",
        form=Form.GREY,
        size=28,
        default_model="cnn",
        files="the folder with the idx files",
        layouts=", plain or .gz, or torchvision's root (MNIST/raw)",
        load=load,
    ),
)
