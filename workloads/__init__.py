"""What clients learn: data, who holds which of them, models and local training.

`build` turns the ``workload`` section of an experiment into a `Workload`. The built-in workloads import torch
when they are needed: a host whose clients have a user-defined workload takes neither its time nor its memory.
"""

from typing import TYPE_CHECKING, Any

from testbed.extras import naming_extras
from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate, Workload
from workloads.data.clients.contract import ClientData, ClientImages, ClientSequences, ClientText
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.determinism import one_thread
from workloads.registry import built_in, check_own, flower_app, user_defined

if TYPE_CHECKING:
    from workloads.training.classification import ImageClassification

__all__ = [
    "ClientData",
    "ClientImages",
    "ClientSequences",
    "ClientText",
    "Evaluation",
    "ImageClassification",
    "LabelledImages",
    "LocalUpdate",
    "PartitionedDataset",
    "Scaling",
    "Workload",
    "build",
    "check_own",
    "one_thread",
]


def __getattr__(name: str) -> Any:
    """`ImageClassification`, which needs torch, when somebody asks for it."""
    if name != "ImageClassification":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from workloads.training.classification import ImageClassification

    return ImageClassification


def build(section: WorkloadSection, population: int, seed: int) -> Workload:
    """The workload that an experiment describes; call it once in every process that trains or evaluates.

    From then on arithmetic takes one thread in this process (`workloads.determinism`). A built-in workload takes
    CUDA when there is one, and draws nothing from the global random number generators.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, a class that does not fit, or an extra that
            is not installed.
    """
    one_thread()
    if section.flower is not None:
        return flower_app(section, population, seed)
    with naming_extras(f"workload.dataset: {section.dataset}"):
        return (built_in if section.is_built_in else user_defined)(section, population, seed)
