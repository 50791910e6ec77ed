"""The workloads that come along, by name."""

from collections.abc import Callable

from testbed.experiment.workload import Workload
from workloads import digits, mnist
from workloads.classification import ImageClassification
from workloads.datasets import ClientData
from workloads.synthetic_femnist import SyntheticFemnist

_DATA: dict[str, Callable[[Workload, int, int], ClientData]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "synthetic-femnist": SyntheticFemnist,
}
_AUTO_MODEL = {"digits": "mlp", "mnist": "cnn", "synthetic-femnist": "femnist-cnn"}


def built_in(section: Workload, population: int, seed: int) -> ImageClassification:
    """See `workloads.build`; for a section that names a workload of these."""
    data = _DATA[section.dataset](section, population, seed)
    model = _AUTO_MODEL[section.dataset] if section.model == "auto" else section.model
    return ImageClassification(section.dataset, data, model, section, seed)
