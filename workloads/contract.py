"""What a workload is: the small interface between the federation and whatever the clients learn.

The federation sees a model as one vector of 32-bit floats and a client's work as the change of that vector. A
class of the user's own (``dataset: package.module:ClassName``) implements the same interface; torch is not
needed for it. It is constructed as ``ClassName(section, population, seed, **section.options)`` in every
process that trains or evaluates (options that it does not take are refused), so construction must be deterministic
and cheap, and heavy data are best made when a client first trains. A complete one, every client estimating a mean by
gradient steps:

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

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from testbed.training.workload import Evaluation, LocalUpdate, Workload

__all__ = ["Evaluation", "FederatedWorkload", "LocalUpdate"]


@runtime_checkable
class FederatedWorkload(Workload, Protocol):
    """What the clients of a federation learn: what a round needs (`Workload`), and what describes it."""

    @property
    def name(self) -> str:
        """What is learned, for the records, e.g. ``"digits"``."""

    @property
    def model_name(self) -> str:
        """Which model learns it, for the records, e.g. ``"mlp"``."""

    @property
    def population(self) -> int:
        """n, the number of clients."""

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: how many training samples of each class each client holds."""
