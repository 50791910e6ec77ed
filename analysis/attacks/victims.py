"""The truth that an attack is compared with: each client's update, trained again.

Local training is a function of the experiment, the client, the model and the round. So the records need not contain
data that no server may see.
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
    """A workload that shows its training samples, so that attacks can be compared with them."""

    def training_samples(self, client: int) -> npt.NDArray[np.float32]:
        """Return a client's inputs as the model takes them: `(n, ...)` float32."""


class Victims:
    """The clients of a run, with their data and updates.

    Args:
        run: its records.

    Raises:
        ExperimentError: if its data are not available any more, or its updates cannot be trained again.
    """

    def __init__(self, run: RunRecords) -> None:
        self.experiment: Experiment = validated(run.experiment, str(run.path))
        provenance = self.experiment.provenance or {}
        seed = self.experiment.seed
        # Without a seed in the experiment, data and training follow the one that the run recorded.
        self.seed = int(provenance["simulation_seed"]) if seed is None else seed
        section = self.experiment.workload
        for key in ("drift_correction", "local_layers"):
            if getattr(section, key) is not None:
                raise ExperimentError(
                    f"{run.path}: its clients trained with workload.{key}, from states that are not recorded: the "
                    "true updates are not known, and no attack can be measured"
                )
        if compression_of(self.experiment.aggregation) is not None:
            raise ExperimentError(
                f"{run.path}: its updates were compressed (aggregation.compression), and attacks are measured against "
                "uncompressed ones; run it without compression"
            )
        self.workload = workloads.build(section, self.experiment.population, self.seed)

    @property
    def weights(self) -> Floats:
        """`(n,)` weight of each client's update in a sum; the server knows it from the clients' training reports."""
        # Else a mean over samples: each update weighs as many times as its client has samples.
        if self.experiment.aggregation.weights == "equal":
            return np.ones(self.experiment.population)
        counts: Floats = np.asarray(self.workload.sample_counts, np.float64)
        return counts

    def samples(self, client: int) -> npt.NDArray[np.float32]:
        """Return a client's inputs, `(n, ...)` float32.

        Raises:
            ExperimentError: if the workload does not show its samples.
        """
        if not isinstance(self.workload, ShowsSamples):
            raise ExperimentError("workload.dataset: needs training_samples(client) for an attack to be measured")
        return self.workload.training_samples(client)

    def updates(self, model: npt.NDArray[np.float32], round_number: int) -> npt.NDArray[np.float32]:
        """Train every client's update again, also those of clients that were not chosen.

        Args:
            model: `(d,)` float32, at the start of the round.
            round_number: from 1.

        Returns:
            `(n, d)` float32.
        """
        clients = range(self.experiment.population)
        return np.array([self.workload.train(client, model, round_number).delta for client in clients], np.float32)
