"""Construction of workloads from the ``workload`` section: data and a model, built in or user-defined.

Built-in data are those of `workloads.data`, built-in models those of `workloads.models`, by name; torch is imported
when a workload is built.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import plugin_class
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection
from workloads.data import specs
from workloads.data.clients.contract import ClientData, ClientImages, ClientSequences, ClientText
from workloads.data.own import loader
from workloads.determinism import one_thread
from workloads.models.registry import image_model, sequence_model, text_model
from workloads.training.simulated import SimulatedTraining

if TYPE_CHECKING:
    from torch import nn

    from workloads.training.classification import TorchWorkload


def built_in(section: WorkloadSection, population: int, seed: int) -> "TorchWorkload | SimulatedTraining":
    """Build the workload of a built-in data set, as `workloads.build` describes.

    Args:
        section, population, seed: as in `workloads.build`.
    """
    from workloads.training.classification import ImageClassification, NextWordPrediction, SequenceClassification

    spec = next(spec for spec in specs() if spec.name == section.dataset)
    model = spec.default_model if section.model == "auto" else section.model
    data = spec.load(section, population, seed)
    if section.own_model:
        return _own_model(spec.name, data, section, seed)
    if isinstance(data, ClientImages):
        if section.training == "real":
            return _fitting(ImageClassification(spec.name, data, model, section, seed), section)
        network, outputs = image_model(model, data.height, data.width, data.classes, data.channels), data.classes
    elif isinstance(data, ClientText):
        if section.training == "real":
            return NextWordPrediction(spec.name, data, model, section, seed)
        network, outputs = text_model(model, data.vocabulary_size), data.vocabulary_size
    elif isinstance(data, ClientSequences):
        if section.training == "real":
            return _fitting(SequenceClassification(spec.name, data, model, section, seed), section)
        network, outputs = sequence_model(model, data.classes, data.vocabulary_size), data.classes
    else:
        raise ExperimentError(f"workload.dataset: {spec.name} loads neither images nor text nor sequences")
    return _simulated(spec.name, data, model, network, outputs, section, seed)


def _simulated(
    name: str, data: ClientData, model: str, network: "nn.Module", outputs: int, section: WorkloadSection, seed: int
) -> SimulatedTraining:
    """Return simulated training with the sizes of a built-in model."""
    from workloads.models import adapters, vector

    network = adapters.built_in_model(network, section, model, seed, shapes=True)
    sizes = vector.dimension(network), adapters.charged_parameters(network)
    return SimulatedTraining(name, data, model, *sizes, outputs, section, seed)


def _fitting(workload: "TorchWorkload", section: WorkloadSection) -> "TorchWorkload":
    """Return the workload; raises `ExperimentError` if a loss other than the default does not fit."""
    # Built-in data and models fit the default loss; the trial run is saved.
    if section.loss != "cross_entropy":
        workload.check_fit()
    return workload


def flower_app(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Build the workload of a Flower app, as `workloads.build` describes.

    Args:
        section, population, seed: as in `workloads.build`.
    """
    from workloads.flower.app import FlowerWorkload

    return FlowerWorkload(section, population, seed)


def check_own(section: WorkloadSection) -> None:
    """Import the user-defined objects that a section names, and check that they can be called.

    Nothing is built or read.

    Raises:
        ExperimentError: as `user_defined`, and as the checks of own models, losses and optimizers.
    """
    if not section.is_built_in:
        named_object = plugin_class(section.dataset, "workload.dataset")
        if loader.is_loader(named_object):
            loader.check(named_object, section)
        else:
            plugin_options.check_callable(named_object, section.dataset, "workload", section.options, 3)
            _refuse_parts(section)
    if ":" in section.model and _is_read(section):
        from workloads.models import own

        own.checked(section)
    if ":" in section.loss:
        from workloads.training.objectives import objective_of

        objective_of(section.loss)
    if ":" in section.optimizer:
        from workloads.training.optimizers import kind_of

        kind_of(section.optimizer, section.optimizer_options)
    for metric in section.metrics:
        if ":" in metric:
            plugin_class(metric, "workload.metrics")


def _is_read(section: WorkloadSection) -> bool:
    """Return whether the section's model is built here; a workload class may interpret the name differently."""
    return section.is_built_in or loader.is_loader(plugin_class(section.dataset, "workload.dataset"))


def _refuse_parts(section: WorkloadSection) -> None:
    """Raise `ExperimentError` for keys that have no effect on a workload class."""
    if section.training == "simulated":
        raise ExperimentError(
            f"workload.training: simulated needs built-in training; {section.dataset} trains itself, leave the key out"
        )
    fine_tuned = section.adapters is not None or section.transformers is not None
    if fine_tuned or section.model_options or section.label != "label" or section.features:
        raise ExperimentError(
            f"workload.dataset: {section.dataset} is a workload class; leave out label, features, model_options, "
            "adapters and transformers, which are for a function that returns data"
        )


def _own_data(load: Any, section: WorkloadSection, population: int, seed: int) -> "TorchWorkload | SimulatedTraining":
    """Return a workload with data from the user's function."""
    from workloads.training.classification import TorchWorkload

    data = loader.client_arrays(load, section, population, seed)
    if section.own_model:
        return _own_model(section.dataset, data, section, seed)
    height, width, channels = data.image_shape()
    name = "mlp" if section.model == "auto" else section.model
    network = image_model(name, height, width, data.outputs, channels)
    if section.training == "real":
        workload = TorchWorkload(section.dataset, data.as_floats(), name, network, section, seed, 250)
        workload.check_fit()
        return workload
    return _simulated(section.dataset, data, name, network, data.outputs, section, seed)


def _own_model(name: str, data: ClientData, section: WorkloadSection, seed: int) -> "TorchWorkload | SimulatedTraining":
    """Return a workload with the user's model."""
    from workloads.models import adapters, vector
    from workloads.training.own import ChannelsFirst, OwnModelTraining

    if isinstance(data, ClientImages):
        data = ChannelsFirst(data)
    if section.training == "real":
        return OwnModelTraining(name, data, section, seed)
    # The loss of guessing is log(outputs): at least 2, or it would be 0.
    network, outputs = adapters.own_model(section, seed), max(2, data.label_counts().shape[1])
    sizes = vector.dimension(network), adapters.charged_parameters(network)
    return SimulatedTraining(name, data, section.own_model, *sizes, outputs, section, seed)


def user_defined(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Build the workload from the user's function or class in ``workload.dataset``.

    A function that returns data is called as ``load(**section.options)``, a workload class as ``ClassName(section,
    population, seed, **section.options)``.

    Args:
        section, population, seed: as in `workloads.build`.

    Raises:
        ExperimentError: the object does not exist, does not take these options, or returns neither data nor a
            `Workload` of this population. Its own errors are passed on unchanged.
    """
    name = section.dataset
    factory = plugin_class(name, "workload.dataset")
    one_thread()  # again, for libraries that the module has loaded
    if loader.is_loader(factory):
        return _own_data(factory, section, population, seed)
    _refuse_parts(section)
    workload = plugin_options.create_with_options(factory, name, "workload", section, population, seed)
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
