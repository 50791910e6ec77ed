"""What clients learn: data, who holds which of them, models and local training.

`build` turns the ``workload`` section of an experiment into a `FederatedWorkload`. The built-in workloads import torch
when they are needed: a host whose clients learn something of the user's own takes neither its time nor its memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

from testbed.experiment.workload import WorkloadSection
from workloads import plugin
from workloads.contract import Evaluation, FederatedWorkload, LocalUpdate
from workloads.training.threads import one_thread

if TYPE_CHECKING:
    from workloads.data.clients.images import ClientData, LabelledImages, PartitionedDataset, Scaling
    from workloads.training.classification import ImageClassification

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

_OF_TORCH = {
    "ImageClassification": "training.classification",
    "ClientData": "data.clients.images",
    "LabelledImages": "data.clients.images",
    "PartitionedDataset": "data.clients.images",
    "Scaling": "data.clients.images",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_OF_TORCH[name]}"), name)


def build(section: WorkloadSection, population: int, seed: int) -> FederatedWorkload:
    """The workload that an experiment describes; call it once in every process that trains or evaluates.

    From then on arithmetic takes one thread in this process (`workloads.training.threads`). A built-in workload takes
    CUDA when there is one, and draws nothing from the global random number generators.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, or a class that does not fit.
    """
    one_thread()
    if not section.is_built_in:
        return plugin.load(section, population, seed)
    from workloads.registry import built_in

    return built_in(section, population, seed)
