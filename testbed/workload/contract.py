"""Contracts of workloads: the data, model and local training of a federation's clients.

`Workload` is required. Each further capability is a protocol of its own, with only the methods that it needs; callers
test for it with ``isinstance``. This module knows nothing of parties or messages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """Result of one client's local training.

    Attributes:
        delta: (d,) float32, the local model minus the model that was sent.
        samples: training samples that the client holds, FedAvg's weight n_k (McMahan et al. 2017).
        loss: mean training loss over all processed examples, each measured before its own step; 0.0 for a
            client without samples; NaN where the workload measures no loss.
        examples_processed: samples times epochs, charged by modelled compute.
        squared_loss: mean of the squared loss over the same examples; None where the workload does not measure it.

    Example:
        >>> update = LocalUpdate(np.array([0.5, -0.25], np.float32), samples=60, loss=0.7, examples_processed=120)
        >>> update.delta.dtype.name, update.squared_loss
        ('float32', None)
    """

    delta: npt.NDArray[np.float32]
    samples: int
    loss: float
    examples_processed: int
    squared_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality of a model on held-out data.

    Attributes:
        loss: mean loss over the held-out samples.
        accuracy: share of the samples classified correctly, 0 to 1; NaN where none is measured, as in regression.
        samples: number of held-out samples.
        metrics: values of ``workload.metrics``, in their order.

    Example:
        >>> Evaluation(loss=0.35, accuracy=0.9, samples=360, metrics=(0.88,)).accuracy
        0.9
    """

    loss: float
    accuracy: float
    samples: int
    metrics: tuple[float, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class LabelledEvaluation(Evaluation):
    """Evaluation on samples with one label each.

    Attributes:
        recalls: (classes,) for each label, from 0, the share of its held-out samples classified correctly, 0 to 1; NaN
            where the label has no held-out samples.

    Example:
        >>> evaluation = LabelledEvaluation(0.35, 0.75, 4, recalls=(1.0, 0.5))
        >>> evaluation.recalls[1]
        0.5
    """

    recalls: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EvaluationWithoutLoss(Evaluation):
    """Evaluation that measures no loss, as with some Flower apps: ``loss`` is NaN, and null in the records.

    Example:
        >>> EvaluationWithoutLoss(loss=float("nan"), accuracy=0.9, samples=360)
        EvaluationWithoutLoss(loss=nan, accuracy=0.9, samples=360, metrics=())
    """


@runtime_checkable
class Workload(Protocol):
    """The training task of a federation; `workloads.contract` shows a complete implementation.

    Every result is a function of the experiment and the arguments. It must not depend on the process that calls, on the
    order of calls, or on earlier calls.

    Example:
        >>> class MeanOfNumbers:
        ...     dimension, sample_counts = 1, np.array([2, 2])
        ...     numbers = np.array([[1.0, 3.0], [5.0, 7.0]])  # of two clients
        ...     def initial_model(self):
        ...         return np.zeros(1, np.float32)
        ...     def train(self, client, model, round_number):
        ...         step = (self.numbers[client].mean() - model).astype(np.float32)
        ...         return LocalUpdate(step, samples=2, loss=float(step[0] ** 2), examples_processed=2)
        ...     def evaluate(self, model):
        ...         return None
        >>> isinstance(MeanOfNumbers(), Workload), MeanOfNumbers().train(1, np.zeros(1, np.float32), 1).delta.tolist()
        (True, [6.0])
    """

    @property
    def dimension(self) -> int:
        """d, the number of model parameters."""

    @property
    def sample_counts(self) -> npt.NDArray[np.int64]:
        """(population,) int64: training samples of each client."""

    def initial_model(self) -> npt.NDArray[np.float32]:
        """Return the model before round 1, (d,) float32, the same on every machine for the same seed."""

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train `model` on the client's own samples, as one round does.

        Args:
            client: 0 <= client < population.
            model: (d,) float32; may be read-only or memory-mapped, and must not be changed.
            round_number: 1 for the first round.
        """

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Evaluate a model on held-out samples.

        Args:
            model: (d,) float32.

        Returns:
            the evaluation; None if the workload has nothing to measure.
        """


@runtime_checkable
class LabelledWorkload(Protocol):
    """Workload with labelled samples, which some models of availability depend on."""

    def label_counts(self) -> npt.NDArray[np.int64]:
        """Return (population, classes) int64: the training samples of each class that each client holds."""


@runtime_checkable
class PartlySharedWorkload(Protocol):
    """Workload that can leave out the samples that all clients share, which distinguish no client."""

    def own_label_counts(self) -> npt.NDArray[np.int64]:
        """Return `label_counts` of the samples that a single client holds."""


@runtime_checkable
class GradientWorkload(Protocol):
    """Workload with per-sample gradients, as DP-SGD needs."""

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` if single samples have no gradients, as with batch normalisation."""

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """Return the sum of the gradients of some of the client's samples, each clipped to norm `clip`.

        Args:
            client, model, round_number: as in `Workload.train`.
            samples: (k,) int64, positions among the client's samples, k >= 0, as sampled by the caller.
            clip: C, the largest norm of a gradient; None: no clipping.

        Returns:
            an update with the sum as ``delta`` and k as ``examples_processed``.
        """


@runtime_checkable
class BatchedWorkload(Protocol):
    """Workload that can train several clients as one computation (``workload.clients_at_once``)."""

    @property
    def clients_at_once(self) -> int:
        """Number of clients per computation; 1: `Workload.train` is called client by client."""

    def train_together(
        self, clients: Sequence[int], model: npt.NDArray[np.float32], round_number: int
    ) -> Mapping[int, LocalUpdate]:
        """Train several clients as one computation.

        An update may differ from that of `Workload.train` by rounding. It must not depend on the other clients: the
        number of hosts, or a replaced host, would change the run.

        Args:
            clients: different clients, any number.
            model, round_number: as in `Workload.train`.

        Returns:
            the update of each client.
        """


@runtime_checkable
class ProximalWorkload(Protocol):
    """Workload that supports FedProx's proximal term (``workload.proximal``)."""

    @property
    def proximal(self) -> float:
        """mu, the strength of the term in `Workload.train`; 0: no term."""


@runtime_checkable
class DriftCorrectedWorkload(Protocol):
    """Workload that supports the gradient term of SCAFFOLD or FedDyn (``workload.drift_correction``)."""

    @property
    def corrected(self) -> int:
        """p <= d: the first p numbers of the model's vector have gradients; only these have a term."""

    def train_corrected(
        self, client: int, model: npt.NDArray[np.float32], round_number: int, term: npt.NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """Train as `Workload.train`, with steps along the gradient plus `term` plus ``pull`` (w - model).

        ``pull`` is that of ``section.drift_correction``, above 0 for FedDyn.

        Args:
            client, model, round_number: as in `Workload.train`.
            term: (p,) float32.

        Returns:
            the update, and the number of steps (K), each with the round's learning rate.
        """


@runtime_checkable
class PersonalWorkload(Protocol):
    """Workload with a model whose layers may stay with the clients (``workload.local_layers``)."""

    def local_numbers(self, first: int, last: int) -> npt.NDArray[np.bool_]:
        """Return the positions of the outer layers in the model's vector, (d,) bool.

        Args:
            first: number of layers from the input.
            last: number of layers from the output.

        Raises:
            ExperimentError: no layer would be left to share.
        """

    def evaluate_for(self, client: int, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Evaluate a model on held-out samples that follow one client's distribution.

        Args:
            client: the client.
            model: (d,) float32.

        Returns:
            the evaluation; None if the client has no such samples.
        """


@runtime_checkable
class ClientAccuracyWorkload(Protocol):
    """Workload that can measure a model on the samples of single clients (``workload.client_accuracy``)."""

    def client_accuracies(
        self, clients: npt.NDArray[np.int64], model: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float64]:
        """Measure the accuracy of `model` on the samples of each client.

        Args:
            clients: (k,) int64, different clients in ascending order.
            model: (d,) float32; must not be changed.

        Returns:
            (k,) float64: the share of the client's samples that the model classifies correctly, 0 to 1. The samples are
            those held out from the client's training, or its training samples where none are held out. NaN for a client
            without samples, and in regression.
        """


@runtime_checkable
class InspectableWorkload(Protocol):
    """Workload that shows the knowledge of a server that chose the model and holds evaluation samples."""

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each parameter, in the order of the model's vector, which begins with the parameters."""

    def known_samples(self) -> npt.NDArray[np.float32]:
        """Return (m, ...) float32: the evaluation samples, as the model takes them."""


Samples = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Inputs, (n, ...), as the model takes them, and (n,) integer labels."""


@runtime_checkable
class ReplaceableSamplesWorkload(Protocol):
    """Workload that supports changed samples, as dishonest clients use to poison their data."""

    def with_samples(self, change: Callable[[Samples], Samples]) -> Workload:
        """Return the same workload with all training and evaluation samples passed through `change` at each use.

        Args:
            change: returns the new samples; must not change its argument in place.
        """


@runtime_checkable
class PartlyFrozenWorkload(Protocol):
    """Workload that may compute with more parameters than it trains and sends, as in fine-tuning."""

    @property
    def charged_parameters(self) -> int:
        """Parameters that modelled compute charges per example: the trained ones, and two thirds of the frozen ones.

        Frozen parameters have no gradient of their own.
        """


@runtime_checkable
class LossReportingWorkload(Protocol):
    """Workload that declares whether its clients measure their training loss; other workloads always measure it."""

    @property
    def reports_losses(self) -> bool:
        """Whether `LocalUpdate.loss` is a number."""


@runtime_checkable
class NotedWorkload(Protocol):
    """Workload with notes to the user before the first round."""

    @property
    def notes(self) -> Sequence[str]:
        """The notes, one line each."""


@runtime_checkable
class DescribedWorkload(Protocol):
    """Workload with facts about its data that readers of the results should know."""

    @property
    def data_facts(self) -> Mapping[str, Any]:
        """Plain data for the records (``provenance.data``); empty without facts.

        ``trained_in_batches``: clients train in ``workload.epochs`` of ``workload.batch_size``.
        ``unscaled_feature``: ``name`` and ``ratio`` of a feature that is far larger than the others.
        """
