"""What the ``workload`` section of an experiment names: data and a model, built in or the user's own, or a workload
class of the user's own.

Built-in data are those of `workloads.data`, built-in models those of `workloads.models`, by name; torch is imported
when a workload is made.
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
    """See `workloads.build`; for a section that names a data set of these."""
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
    """A built-in model's sizes, without training it."""
    from workloads.models import adapters, vector

    network = adapters.built_in_model(network, section, model, seed, shapes=True)
    sizes = vector.dimension(network), adapters.charged_parameters(network)
    return SimulatedTraining(name, data, model, *sizes, outputs, section, seed)


def _fitting(workload: "TorchWorkload", section: WorkloadSection) -> "TorchWorkload":
    """The same; raises `ExperimentError` where a loss of another kind than the models are made for does not fit."""
    if section.loss != "cross_entropy":
        workload.check_fit()
    return workload


def flower_app(section: WorkloadSection, population: int, seed: int) -> Workload:
    """See `workloads.build`; for a section that names a Flower app."""
    from workloads.flower.app import FlowerWorkload  # here: nobody else needs a process

    return FlowerWorkload(section, population, seed)


def check_own(section: WorkloadSection) -> None:
    """Import what a section names of the user's own, and check that it can be called so; nothing is made or read.

    Raises:
        ExperimentError: see `user_defined`, `workloads.models.own.checked` and the like for losses and optimizers.
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
    """Whether the model is ours to make: a workload class may give another meaning to the name."""
    return section.is_built_in or loader.is_loader(plugin_class(section.dataset, "workload.dataset"))


def _refuse_parts(section: WorkloadSection) -> None:
    """Raise `ExperimentError` for keys that a workload class has no use for."""
    if section.training == "simulated":
        raise ExperimentError(
            f"workload.training: simulated is for the built-in data sets and models; {section.dataset} trains itself"
        )
    fine_tuned = section.adapters is not None or section.transformers is not None
    if fine_tuned or section.model_options or section.label != "label" or section.features:
        raise ExperimentError(
            f"workload.dataset: {section.dataset} is a workload class; label, features, model_options, adapters and "
            "transformers are for a function that gives data"
        )


def _own_data(load: Any, section: WorkloadSection, population: int, seed: int) -> "TorchWorkload | SimulatedTraining":
    """A workload of data that the user's function gives."""
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
    """A workload whose model is the user's."""
    from workloads.models import adapters, vector
    from workloads.training.own import ChannelsFirst, OwnModelTraining

    if isinstance(data, ClientImages):
        data = ChannelsFirst(data)
    if section.training == "real":
        return OwnModelTraining(name, data, section, seed)
    network, outputs = adapters.own_model(section, seed), max(2, data.label_counts().shape[1])
    sizes = vector.dimension(network), adapters.charged_parameters(network)
    return SimulatedTraining(name, data, section.own_model, *sizes, outputs, section, seed)


def user_defined(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Call what ``workload.dataset`` names: a function that gives data, as ``load(**section.options)``, or a class that
    is a workload, as ``ClassName(section, population, seed, **section.options)``.

    Raises:
        ExperimentError: it is not there, does not take these options, or gives neither data nor a `Workload` of this
            population. Errors of its own are passed on unchanged.
    """
    name = section.dataset
    factory = plugin_class(name, "workload.dataset")
    one_thread()  # of what the module has loaded, too
    if loader.is_loader(factory):
        return _own_data(factory, section, population, seed)
    _refuse_parts(section)
    workload = plugin_options.made(factory, name, "workload", section, population, seed)
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
