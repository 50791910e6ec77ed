"""What clients learn: data, who holds which of them, models and local training.

`build` turns the ``workload`` section of an experiment into a `FederatedWorkload`. Importing this package
imports torch; the federation itself (`testbed`) does not.
"""

from collections.abc import Callable

from testbed.experiment.workload import Workload
from workloads import digits, mnist, own_class
from workloads.classification import ImageClassification
from workloads.contract import Evaluation, FederatedWorkload, LocalUpdate
from workloads.datasets import ClientData, LabelledImages, PartitionedDataset, Scaling
from workloads.synthetic_femnist import SyntheticFemnist

__all__ = [
    "ClientData",
    "Evaluation",
    "FederatedWorkload",
    "ImageClassification",
    "LabelledImages",
    "LocalUpdate",
    "PartitionedDataset",
    "Scaling",
    "build",
]

_DATA: dict[str, Callable[[Workload, int, int], ClientData]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "synthetic-femnist": SyntheticFemnist,
}
_AUTO_MODEL = {"digits": "mlp", "mnist": "cnn", "synthetic-femnist": "femnist-cnn"}


def build(section: Workload, population: int, seed: int) -> FederatedWorkload:
    """The workload that an experiment describes; call it once in every process that trains or evaluates.

    It sets torch to one thread in this process, takes CUDA when there is one, and draws nothing from the
    global random number generators.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, or a class that does not fit.
    """
    if not section.is_built_in:
        return own_class.load(section, population, seed)
    data = _DATA[section.dataset](section, population, seed)
    model = _AUTO_MODEL[section.dataset] if section.model == "auto" else section.model
    return ImageClassification(section.dataset, data, model, section, seed)
