"""Accuracy per client: how good a model is on each client's samples, and how evenly (``workload.client_accuracy``).

Caldas et al., LEAF: A Benchmark for Federated Settings, 2018, arXiv 1812.01097, section 3.2: the distribution of the
accuracies over clients beside the mean. Li, Sanjabi, Beirami and Smith, Fair Resource Allocation in Federated Learning
(q-FFL), ICLR 2020, arXiv 1905.10497, section 4: the mean over clients, the worst 10 % of them, and the variance.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.errors import ExperimentError
from testbed.workload.contract import ClientAccuracyWorkload, Workload

CLIENT_ACCURACY = ("client_accuracy_mean", "client_accuracy_worst_decile", "client_accuracy_std")
"""The columns of the rounds."""
WORST_SHARE = 10
"""The worst tenth of the clients."""

ClientAccuracyKey = Annotated[
    bool,
    Field(
        exclude_if=lambda is_measured: not is_measured,
        description="Whether each evaluation also measures the accuracy on the training samples of each client, and "
        "records the mean over clients, the mean of the worst 10 % and the standard deviation (fairness of accuracy). "
        "It costs a pass over all training samples.",
    ),
]


@dataclass(frozen=True, slots=True)
class ClientAccuracy:
    """Accuracies of one model over clients, each client counted once.

    Attributes:
        mean: of all clients, 0 to 1.
        worst_decile: mean of the tenth of the clients (rounded up) with the lowest accuracies.
        std: standard deviation over the clients, with the number of clients as the divisor.
    """

    mean: float
    worst_decile: float
    std: float

    @classmethod
    def of(cls, accuracies: npt.NDArray[np.float64]) -> "ClientAccuracy | None":
        """Summarise `(k,)` accuracies; NaN of a client without samples does not count, and None: there is no other."""
        measured = np.sort(accuracies[~np.isnan(accuracies)])
        if not len(measured):
            return None
        worst = measured[: -(-len(measured) // WORST_SHARE)]
        return cls(float(measured.mean()), float(worst.mean()), float(measured.std()))


def check_client_accuracy(is_wanted: bool, dataset: str, workload: Workload) -> None:
    """Try the measurement on one client.

    Args:
        is_wanted: ``workload.client_accuracy``.
        dataset: its name, for the message.
        workload: what the clients learn.

    Raises:
        ExperimentError: the workload does not measure this, or learns values, which are neither right nor wrong.
    """
    if not is_wanted:
        return
    if not isinstance(workload, ClientAccuracyWorkload):
        raise ExperimentError(
            f"workload.client_accuracy: {dataset} does not measure the accuracy of single clients; leave the key out, "
            "or see ClientAccuracyWorkload in testbed/workload/contract.py"
        )
    client = int(np.argmax(workload.sample_counts))
    if np.isnan(workload.client_accuracies(np.array([client]), workload.initial_model())).any():
        raise ExperimentError(
            "workload.client_accuracy: the clients learn values, which are neither right nor wrong; leave the key out"
        )
