"""Workloads: data, their spread over clients, models and local training.

`build` turns the ``workload`` section of an experiment into a `Workload`. Everything is imported at its first use, so
that the verbs of `workloads.cli` start fast. The built-in workloads import torch when needed: a host with a
user-defined workload spends neither its time nor its memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.workload.contract import Evaluation as Evaluation
    from testbed.workload.contract import LocalUpdate as LocalUpdate
    from testbed.workload.contract import Workload as Workload
    from testbed.workload.section import WorkloadSection
    from workloads.data.clients.contract import ClientData as ClientData
    from workloads.data.clients.contract import ClientImages as ClientImages
    from workloads.data.clients.contract import ClientSequences as ClientSequences
    from workloads.data.clients.contract import ClientText as ClientText
    from workloads.data.clients.images import LabelledImages as LabelledImages
    from workloads.data.clients.images import PartitionedDataset as PartitionedDataset
    from workloads.data.clients.images import Scaling as Scaling
    from workloads.determinism import one_thread as one_thread
    from workloads.registry import check_own as check_own
    from workloads.training.classification import ImageClassification as ImageClassification

_NAMES = {
    "testbed.workload.contract": "Evaluation LocalUpdate Workload",
    "workloads.data.clients.contract": "ClientData ClientImages ClientSequences ClientText",
    "workloads.data.clients.images": "LabelledImages PartitionedDataset Scaling",
    "workloads.determinism": "one_thread",
    "workloads.registry": "check_own",
    "workloads.training.classification": "ImageClassification",
}
_FROM = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["build", *sorted(_FROM)]


def __getattr__(name: str) -> Any:
    """Import public names at their first use."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_FROM[name]), name)


def build(section: "WorkloadSection", population: int, seed: int) -> "Workload":
    """Build the workload that an experiment describes; called once in every process that trains or evaluates.

    From then on arithmetic uses one thread in this process (`workloads.determinism`). A built-in workload uses CUDA if
    available, and draws nothing from the global random number generators.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, a class that does not fit, or an extra that
            is not installed.
    """
    from testbed.extras import naming_extras
    from workloads.determinism import one_thread
    from workloads.registry import built_in, flower_app, user_defined

    one_thread()
    if section.flower is not None:
        return flower_app(section, population, seed)
    with naming_extras(f"workload.dataset: {section.dataset}"):
        return (built_in if section.is_built_in else user_defined)(section, population, seed)
