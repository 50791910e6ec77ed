"""What the federation needs of a workload, whatever its clients learn; what a workload can beyond that is a contract of
its own, which names just these methods: whether a workload has them is asked with ``isinstance``. Nothing here knows of
parties or messages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """What one client's local training gave.

    Attributes:
        delta: (d,) float32, the local model minus the model that was given.
        samples: training samples that the client holds, FedAvg's weight n_k (McMahan et al. 2017).
        loss: mean training loss over all examples processed, each measured before its own step; 0.0 for a
            client without samples; NaN where the workload measures none.
        examples_processed: samples times epochs, what modelled compute is charged for.
        squared_loss: mean of the squared loss over the same examples; None: the workload does not say.
    """

    delta: npt.NDArray[np.float32]
    samples: int
    loss: float
    examples_processed: int
    squared_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is on held-out data.

    Attributes:
        loss: mean loss over the held-out samples.
        accuracy: share of them classified correctly, 0 to 1; NaN where none is measured, as where values are learned.
        samples: how many were held out.
        metrics: those of ``workload.metrics``, in their order.
    """

    loss: float
    accuracy: float
    samples: int
    metrics: tuple[float, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class LabelledEvaluation(Evaluation):
    """The same of samples with one label each.

    Attributes:
        recalls: of each label, from 0, the share of its held-out samples that were classified correctly, 0 to 1; NaN
            where it has none.
    """

    recalls: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EvaluationWithoutLoss(Evaluation):
    """The same where no loss is measured, as with some Flower apps: ``loss`` is NaN, and null in the records."""


@runtime_checkable
class Workload(Protocol):
    """What clients learn, as a federation needs it; `workloads.contract` shows a complete one.

    Every result is a function of the experiment and the arguments: never of which process asks, of the order of the
    calls, or of earlier calls.
    """

    @property
    def dimension(self) -> int:
        """d, the number of model parameters."""

    @property
    def sample_counts(self) -> npt.NDArray[np.int64]:
        """(population,) int64: the training samples of each client."""

    def initial_model(self) -> npt.NDArray[np.float32]:
        """(d,) float32: the model before round 1, the same on every machine for the same seed."""

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train `model` on the client's own samples, as one round does.

        Args:
            client: 0 <= client < population.
            model: (d,) float32; it may be read-only or memory-mapped and is not changed.
            round_number: 1 for the first round.
        """

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Evaluate `model`, (d,) float32, on held-out samples; None: nothing is learned that could be measured."""


@runtime_checkable
class LabelledWorkload(Protocol):
    """A workload whose samples have labels, which some models of availability go by."""

    def label_counts(self) -> npt.NDArray[np.int64]:
        """(population, classes) int64: how many training samples of each class each client holds."""


@runtime_checkable
class PartlySharedWorkload(Protocol):
    """A workload that can leave out the samples that all clients share: these tell no client from another."""

    def own_label_counts(self) -> npt.NDArray[np.int64]:
        """As `label_counts`, of the samples that a client alone holds."""


@runtime_checkable
class GradientWorkload(Protocol):
    """A workload with gradients of single samples, as DP-SGD needs it."""

    def check_gradient_sum(self) -> None:
        """Raise `ExperimentError` where single samples have no gradients, as with batch normalisation."""

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """The sum of the gradients of some of the client's samples, each scaled down to norm `clip` if it is longer.

        Args:
            client, model, round_number: as in `Workload.train`.
            samples: (k,) int64, positions among the client's samples, k >= 0; the caller has drawn them.
            clip: C; None: gradients are not clipped.

        Returns:
            ``delta`` is the sum, no change of the model; ``examples_processed`` is k.
        """


@runtime_checkable
class BatchedWorkload(Protocol):
    """A workload that can train several clients as one computation (``workload.clients_at_once``)."""

    @property
    def clients_at_once(self) -> int:
        """How many; 1: `Workload.train` is asked, for one after the other."""

    def train_together(
        self, clients: Sequence[int], model: npt.NDArray[np.float32], round_number: int
    ) -> Mapping[int, LocalUpdate]:
        """As `Workload.train` for each of the clients, any number of different ones; by client.

        A client's update may differ from that of `Workload.train` by rounding, and does not depend on which others are
        trained beside it: the number of hosts, and one that is replaced, would change the run.
        """


@runtime_checkable
class ProximalWorkload(Protocol):
    """A workload whose local training can add FedProx's term (``workload.proximal``)."""

    @property
    def proximal(self) -> float:
        """mu, as `Workload.train` applies it; 0: it does not."""


@runtime_checkable
class DriftCorrectedWorkload(Protocol):
    """A workload whose local training takes a term of SCAFFOLD or FedDyn (``workload.drift_correction``)."""

    @property
    def corrected(self) -> int:
        """p <= d: the first p numbers of the model's vector move by gradients; the others have no term."""

    def train_corrected(
        self, client: int, model: npt.NDArray[np.float32], round_number: int, term: npt.NDArray[np.float32]
    ) -> tuple[LocalUpdate, int]:
        """As `Workload.train`, each step of which goes by the gradient plus `term` plus ``pull`` (w - model).

        Args:
            client, model, round_number: as there.
            term: (p,) float32.

        Returns:
            the update, and how many steps made it (K), each with the round's learning rate; ``pull`` is that of
            ``section.drift_correction``, above 0 for FedDyn.
        """


@runtime_checkable
class PersonalWorkload(Protocol):
    """A workload of a model of which layers may stay with the clients (``workload.local_layers``)."""

    def local_numbers(self, first: int, last: int) -> npt.NDArray[np.bool_]:
        """`(d,)` bool: which numbers of the model's vector are of so many first and last layers.

        Raises `ExperimentError` where none would be left to share.
        """

    def evaluate_for(self, client: int, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Evaluate `model`, (d,) float32, on held-out samples as this client has them; None: it has none."""


@runtime_checkable
class ClientAccuracyWorkload(Protocol):
    """A workload that can measure a model on the samples of single clients (``workload.client_accuracy``)."""

    def client_accuracies(
        self, clients: npt.NDArray[np.int64], model: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float64]:
        """Measure the accuracy of `model` on the samples of each of these clients.

        Args:
            clients: (k,) int64, different clients in ascending order.
            model: (d,) float32; it is not changed.

        Returns:
            (k,) float64: the share of a client's samples that the model classifies correctly, 0 to 1. The samples are
            those held out from the client's training; where the client has none, those it trains on. NaN: the client
            has no samples, or values are learned.
        """


@runtime_checkable
class InspectableWorkload(Protocol):
    """A workload of which can be said what a server knows that chose the model and has samples to evaluate it on."""

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each parameter, in the order of the model's vector, which begins with them."""

    def known_samples(self) -> npt.NDArray[np.float32]:
        """`(m, ...)` float32: the samples that models are evaluated on, as the model takes them."""


Samples = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""`(n, ...)` inputs as the model takes them, and `(n,)` integer labels."""


@runtime_checkable
class ReplaceableSamplesWorkload(Protocol):
    """A workload that can be had with other samples, as of dishonest clients that poison their own."""

    def with_samples(self, change: Callable[[Samples], Samples]) -> Workload:
        """The same workload, in which what a client trains on, and what a model is evaluated on, has gone through
        `change`, each time it is looked at. It must not be changed in place.
        """


@runtime_checkable
class PartlyFrozenWorkload(Protocol):
    """A workload that may compute with more parameters than it trains and sends, as fine-tuning does."""

    @property
    def charged_parameters(self) -> int:
        """How many parameters modelled compute charges an example for: those that are trained, and two thirds of the
        frozen ones, which have no gradient of their own.
        """


@runtime_checkable
class LossReportingWorkload(Protocol):
    """A workload that can say whether its clients measure the loss of their training; others always measure it."""

    @property
    def reports_losses(self) -> bool:
        """Whether `LocalUpdate.loss` is a number."""


@runtime_checkable
class NotedWorkload(Protocol):
    """A workload that has something to tell whoever runs it before the first round."""

    @property
    def notes(self) -> Sequence[str]:
        """A line each."""


@runtime_checkable
class DescribedWorkload(Protocol):
    """A workload that can say of its data what a reader of the results should know."""

    @property
    def data_facts(self) -> Mapping[str, Any]:
        """Plain data for the records (``provenance.data``); empty: there is nothing to say.

        ``trained_in_batches``: clients train in ``workload.epochs`` of ``workload.batch_size``.
        ``unscaled_feature``: ``name`` and ``ratio`` of a feature that is far larger than the others.
        """
