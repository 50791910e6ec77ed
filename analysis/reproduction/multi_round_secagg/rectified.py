"""Workload with a ReLU after the model's last layer, so that no logit is negative.

The public notebook of Multi-RoundSecAgg has such models (DGIST-Distributed-AI-Lab/multi-round-secagg). The built-in
models have plain logits.
"""

from torch import nn

import workloads
from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.models.registry import image_model
from workloads.training.classification import ImageClassification, TorchWorkload


class Rectified(TorchWorkload):
    """Built-in data set of images with a built-in model, followed by a ReLU.

    Args:
        section: path, model, partition and training are those of the built-in workload.
        population: number of clients.
        seed: the experiment's seed.
        dataset: name of the built-in data set (``workload.options``).

    Raises:
        ExperimentError: the data set has no images, or cannot be read.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int, dataset: str) -> None:
        keys = section.model_dump(exclude_unset=True) | {"dataset": dataset, "options": {}}
        built = workloads.build(WorkloadSection.model_validate(keys), population, seed)
        if not isinstance(built, ImageClassification) or not isinstance(built.data, workloads.ClientImages):
            raise ExperimentError(f"workload.options.dataset: {dataset} is not of images")
        data = built.data
        network = image_model(built.model_name, data.height, data.width, data.classes, data.channels)
        super().__init__(dataset, data, built.model_name, nn.Sequential(network, nn.ReLU()), section, seed, 250)
