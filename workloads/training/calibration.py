"""What `testbed calibrate` measures local training on: the FEMNIST CNN and a client of 225 synthetic examples."""

from collections.abc import Callable

import numpy as np

import workloads
from testbed.workload.section import WorkloadSection


def local_training() -> tuple[Callable[[], object], float]:
    """One epoch of one client's local training, and how many parameters times examples it processes."""
    section = WorkloadSection(dataset="synthetic-femnist", samples_per_client=225, batch_size=20)
    workload = workloads.build(section, population=10, seed=1)
    model = workload.initial_model()
    client = int(np.argmax(workload.sample_counts))
    processed = workload.train(client, model, 1).examples_processed
    return lambda: workload.train(client, model, 1), float(workload.dimension * processed)
