"""The built-in workloads: a data set of `workloads.data` and a model of `workloads.models`, by name."""

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data import specs
from workloads.data.clients.contract import ClientImages, ClientText
from workloads.models import vector
from workloads.models.registry import image_model, text_model
from workloads.training.classification import ImageClassification, NextWordPrediction, TorchWorkload
from workloads.training.simulated import SimulatedTraining


def built_in(section: WorkloadSection, population: int, seed: int) -> TorchWorkload | SimulatedTraining:
    """See `workloads.build`; for a section that names a data set of these."""
    spec = next(spec for spec in specs() if spec.name == section.dataset)
    model = spec.default_model if section.model == "auto" else section.model
    data = spec.load(section, population, seed)
    if isinstance(data, ClientImages):
        if section.training == "real":
            return ImageClassification(spec.name, data, model, section, seed)
        network, outputs = image_model(model, data.height, data.width, data.classes, data.channels), data.classes
    elif isinstance(data, ClientText):
        if section.training == "real":
            return NextWordPrediction(spec.name, data, model, section, seed)
        network, outputs = text_model(model, data.vocabulary_size), data.vocabulary_size
    else:
        raise ExperimentError(f"workload.dataset: {spec.name} loads neither ClientImages nor ClientText")
    return SimulatedTraining(spec.name, data, model, vector.dimension(network), outputs, section, seed)
