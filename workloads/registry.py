"""What the ``workload`` section of an experiment names: a built-in workload, or the user's own class.

A built-in one is a data set of `workloads.data` and a model of `workloads.models`, by name; torch is imported when one
is made.
"""

from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import plugin_class
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection
from workloads.data import specs
from workloads.data.clients.contract import ClientImages, ClientText
from workloads.determinism import one_thread
from workloads.models.registry import image_model, text_model
from workloads.training.simulated import SimulatedTraining

if TYPE_CHECKING:
    from workloads.training.classification import TorchWorkload


def built_in(section: WorkloadSection, population: int, seed: int) -> "TorchWorkload | SimulatedTraining":
    """See `workloads.build`; for a section that names a data set of these."""
    from workloads.models import vector
    from workloads.training.classification import ImageClassification, NextWordPrediction

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


def flower_app(section: WorkloadSection, population: int, seed: int) -> Workload:
    """See `workloads.build`; for a section that names a Flower app."""
    from workloads.flower.app import FlowerWorkload  # here: nobody else needs a process

    return FlowerWorkload(section, population, seed)


def user_defined(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Import the class and construct it as ``ClassName(section, population, seed, **section.options)``.

    Raises:
        ExperimentError: the module or class is not there, does not take these options, or gives something that is
            not a `Workload` of this population. Errors of the class's own are passed on unchanged.
    """
    name = section.dataset
    made_by = plugin_class(name, "workload.dataset")
    one_thread()  # of what the module has loaded, too
    workload = plugin_options.made(made_by, name, "workload", section, population, seed)
    if not isinstance(workload, Workload):
        lacking = [part for part in vars(Workload) if not part.startswith("_") and not hasattr(workload, part)]
        raise ExperimentError(f"workload.dataset: {name} lacks {', '.join(lacking)}; see workloads/contract.py")
    counts = np.asarray(workload.sample_counts)
    if counts.shape != (population,) or counts.dtype != np.int64:
        raise ExperimentError(
            f"workload.dataset: {name} must have sample_counts of shape ({population},) and dtype int64, not "
            f"{counts.shape} and {counts.dtype}"
        )
    return workload
