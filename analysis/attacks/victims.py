"""The truth that an attack is measured against: what each client's update was, trained once more.

Local training is a function of the experiment, the client, the model and the round, so the records need not hold what
no server may see.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

import workloads
from testbed.aggregation.kit.ring_elements import compression_of
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.records import RunRecords


@runtime_checkable
class ShowsSamples(Protocol):
    """A workload whose training samples an attack can be measured against."""

    def training_samples(self, client: int) -> npt.NDArray[np.float32]:
        """`(n, ...)` float32: a client's inputs, as the model takes them."""


class Victims:
    """The clients of a run.

    Args:
        run: its records; raises `ExperimentError` when its data are not there any more.
    """

    def __init__(self, run: RunRecords) -> None:
        self.experiment: Experiment = validated(run.experiment, str(run.path))
        provenance = self.experiment.provenance or {}
        seed = self.experiment.seed
        self.seed = int(provenance["simulation_seed"]) if seed is None else seed
        section = self.experiment.workload
        for key in ("drift_correction", "local_layers"):
            if getattr(section, key) is not None:
                raise ExperimentError(
                    f"{run.path}: its clients trained with workload.{key}, by what they keep, which is in no record: "
                    "nothing to hold an attack against"
                )
        if compression_of(self.experiment.aggregation) is not None:
            raise ExperimentError(
                f"{run.path}: its updates were compressed (aggregation.compression), and attacks are measured against "
                "whole ones; run it without"
            )
        self.workload = workloads.build(section, self.experiment.population, self.seed)

    @property
    def weights(self) -> Floats:
        """`(n,)` what each client's update counts in a sum. The server knows it: clients say it with `Trained`."""
        if self.experiment.aggregation.weights == "equal":
            return np.ones(self.experiment.population)
        counts: Floats = np.asarray(self.workload.sample_counts, np.float64)
        return counts

    def samples(self, client: int) -> npt.NDArray[np.float32]:
        """`(n, ...)` float32: a client's inputs; raises `ExperimentError` for a workload that does not show them."""
        if not isinstance(self.workload, ShowsSamples):
            raise ExperimentError("workload.dataset: needs training_samples(client) for an attack to be measured")
        return self.workload.training_samples(client)

    def updates(self, model: npt.NDArray[np.float32], round_number: int) -> npt.NDArray[np.float32]:
        """`(n, d)` float32: what each client learns (or would learn, had it been chosen) from `model` in this round."""
        clients = range(self.experiment.population)
        return np.array([self.workload.train(client, model, round_number).delta for client in clients], np.float32)
