"""What a workload is: the small interface between the federation and whatever the clients learn.

The federation sees a model as one vector of 32-bit floats and a client's work as the change of that vector. A
class of the user's own (``dataset: package.module:ClassName``) implements the same interface; torch is not
needed for it. It is constructed as ``ClassName(section, population, seed, **section.options)`` in every
process that trains or evaluates, so construction must be deterministic and cheap, and heavy data are best
made when a client first trains. A complete one, every client estimating a mean by gradient steps:

    class MeanEstimation:
        name, model_name, dimension = "mean-estimation", "mean", 16

        def __init__(self, section, population, seed, spread=1.0):
            self.section, self.population = section, population
            data = np.random.default_rng(seed).normal(3.0, spread, (population, 30, 16))
            self.data = data.astype(np.float32)
            self.sample_counts = np.full(population, 30, dtype=np.int64)

        def initial_model(self):
            return np.zeros(16, dtype=np.float32)

        def train(self, client, model, round_number):
            local = np.array(model)
            for _ in range(self.section.epochs):
                local -= self.section.learning_rate * (local - self.data[client].mean(axis=0))
            loss = float(np.square(self.data[client] - local).mean())
            return LocalUpdate(local - model, 30, loss, examples_processed=30 * self.section.epochs)

        def evaluate(self, model):
            error = float(np.square(model - 3.0).mean())
            return Evaluation(loss=error, accuracy=float(error < 0.1), samples=1)

        def label_counts(self):
            return np.full((self.population, 1), 30, dtype=np.int64)
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """What one client's local training gave.

    Attributes:
        delta: (d,) float32, the local model minus the model that was given.
        samples: training samples that the client holds, FedAvg's weight n_k (McMahan et al. 2017).
        loss: mean training loss over all examples processed, each measured before its own step; 0.0 for a
            client without samples.
        examples_processed: samples times epochs, what modelled compute is charged for.
    """

    delta: NDArray[np.float32]
    samples: int
    loss: float
    examples_processed: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is on held-out data.

    Attributes:
        loss: mean loss over the held-out samples.
        accuracy: share of them classified correctly, 0 to 1.
        samples: how many were held out.
    """

    loss: float
    accuracy: float
    samples: int


@runtime_checkable
class FederatedWorkload(Protocol):
    """What the clients of a federation learn.

    Every result is a function of the section, the population, the seed and the arguments: never of which
    process asks, of the order of the calls, or of earlier calls.
    """

    @property
    def name(self) -> str:
        """What is learned, for the records, e.g. ``"digits"``."""

    @property
    def model_name(self) -> str:
        """Which model learns it, for the records, e.g. ``"mlp"``."""

    @property
    def dimension(self) -> int:
        """d, the number of model parameters."""

    @property
    def population(self) -> int:
        """n, the number of clients."""

    @property
    def sample_counts(self) -> NDArray[np.int64]:
        """(population,) int64: the training samples of each client."""

    def initial_model(self) -> NDArray[np.float32]:
        """(d,) float32: the model before round 1, the same on every machine for the same seed."""

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train `model` on the client's own samples, as one round does.

        Args:
            client: 0 <= client < population.
            model: (d,) float32; it may be read-only or memory-mapped and is not changed.
            round_number: 1 for the first round.
        """

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation:
        """Evaluate `model`, (d,) float32, on held-out samples."""

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: how many training samples of each class each client holds."""
