"""The workloads that come along, by name."""

from collections.abc import Callable

from testbed.experiment.workload import LANGUAGE_DATASETS, WorkloadSection
from workloads.data import cifar, digits, emnist, mnist, synthetic_cifar
from workloads.data.clients.images import ClientData
from workloads.data.clients.text import ClientText
from workloads.data.femnist import Femnist
from workloads.data.openimage import OpenImage
from workloads.data.reddit import Reddit
from workloads.data.synthetic_femnist import SyntheticFemnist
from workloads.data.synthetic_openimage import SyntheticOpenImage
from workloads.data.synthetic_reddit import SyntheticReddit
from workloads.models import albert, classifiers
from workloads.training.classification import ImageClassification, LocalLearning, NextWordPrediction
from workloads.training.simulated import SimulatedTraining

_IMAGES: dict[str, Callable[[WorkloadSection, int, int], ClientData]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "emnist": emnist.load,
    "cifar10": cifar.load10,
    "cifar100": cifar.load100,
    "synthetic-cifar10": synthetic_cifar.load10,
    "synthetic-cifar100": synthetic_cifar.load100,
    "femnist": Femnist,
    "openimage": OpenImage,
    "synthetic-femnist": SyntheticFemnist,
    "synthetic-openimage": SyntheticOpenImage,
}
_TEXTS: dict[str, Callable[[WorkloadSection, int, int], ClientText]] = {
    "reddit": Reddit,
    "synthetic-reddit": SyntheticReddit,
}
_AUTO_MODEL = {
    "digits": "mlp",
    "mnist": "cnn",
    "emnist": "emnist-cnn",
    "cifar10": "lenet",
    "cifar100": "vgg11",
    "femnist": "femnist-cnn",
    "openimage": "mobilenet-v2",
    "reddit": "albert",
}


def built_in(section: WorkloadSection, population: int, seed: int) -> LocalLearning | SimulatedTraining:
    """See `workloads.build`; for a section that names a workload of these."""
    name = section.dataset
    model = _AUTO_MODEL[name.removeprefix("synthetic-")] if section.model == "auto" else section.model
    if name in LANGUAGE_DATASETS:
        text = _TEXTS[name](section, population, seed)
        if section.training == "real":
            return NextWordPrediction(name, text, model, section, seed)
        network, data, outputs = albert.make(model, text.vocabulary_size), text, text.vocabulary_size
    else:
        images = _IMAGES[name](section, population, seed)
        if section.training == "real":
            return ImageClassification(name, images, model, section, seed)
        channels = getattr(images, "channels", 1)
        network = classifiers.make(model, images.height, images.width, images.classes, channels)
        data, outputs = images, images.classes
    return SimulatedTraining(
        name, model, data.description, classifiers.dimension(network), outputs, data.sample_counts, data.label_counts,
        getattr(data, "own_label_counts", data.label_counts), section, seed,
    )  # fmt: skip
