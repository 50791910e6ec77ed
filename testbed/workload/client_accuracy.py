"""Accuracy per client: quality and fairness of a model over the clients (``workload.client_accuracy``).

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
"""Columns of the table of rounds."""
WORST_SHARE = 10
"""Divisor of the number of clients: the worst tenth counts."""

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
        mean: mean over all clients, 0 to 1.
        worst_decile: mean of the tenth of the clients (rounded up) with the lowest accuracies.
        std: standard deviation over the clients, with the number of clients as the divisor.
    """

    mean: float
    worst_decile: float
    std: float

    @classmethod
    def of(cls, accuracies: npt.NDArray[np.float64]) -> "ClientAccuracy | None":
        """Summarise the accuracies of clients.

        Args:
            accuracies: (k,) 0 to 1, NaN for clients without samples, which are ignored.

        Returns:
            the summary; None if no client has samples.

        Example:
            >>> ClientAccuracy.of(np.array([0.5, 1.0, np.nan]))
            ClientAccuracy(mean=0.75, worst_decile=0.5, std=0.25)
        """
        measured = np.sort(accuracies[~np.isnan(accuracies)])
        if not len(measured):
            return None
        # Rounded up: at least one client counts, however few there are.
        worst = measured[: -(-len(measured) // WORST_SHARE)]
        return cls(float(measured.mean()), float(worst.mean()), float(measured.std()))


def check_client_accuracy(is_wanted: bool, dataset: str, workload: Workload) -> None:
    """Check on one client that the workload supports the measurement.

    Args:
        is_wanted: ``workload.client_accuracy``.
        dataset: name of the data set, for the message.
        workload: the workload.

    Raises:
        ExperimentError: the workload does not measure single clients, or is a regression, which has no accuracy.
    """
    if not is_wanted:
        return
    if not isinstance(workload, ClientAccuracyWorkload):
        raise ExperimentError(
            f"workload.client_accuracy: {dataset} does not measure the accuracy of single clients; leave the key out, "
            "or see ClientAccuracyWorkload in testbed/workload/contract.py"
        )
    # The client with the most samples: a client without any measures NaN, too, and would look like a regression.
    client = int(np.argmax(workload.sample_counts))
    if np.isnan(workload.client_accuracies(np.array([client]), workload.initial_model())).any():
        raise ExperimentError("workload.client_accuracy: a regression has no accuracy; leave the key out")
