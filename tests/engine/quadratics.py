"""Clients with quadratic losses, trained by exact gradient steps, so that results can be worked out by hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.workload.contract import Evaluation, LocalUpdate
from testbed.workload.section import WorkloadSection


class Quadratics:
    """f_i(w) = 1/2 (w - b_i)' A_i (w - b_i) with diagonal A_i, `steps_of(i)` full gradient steps a round.

    The last numbers of the vector are statistics: local training moves them by no gradient.

    Args:
        section: learning rate and drift correction.
        curvatures, centres: `(n, p)` A_i and b_i.
        samples: `(n,)`.
    """

    statistics = 2

    def __init__(
        self, section: WorkloadSection, curvatures: np.ndarray, centres: np.ndarray, samples: np.ndarray
    ) -> None:
        self.section = section
        self.curvatures, self.centres, self.sample_counts = curvatures, centres, samples
        self.corrected = curvatures.shape[1]
        self.dimension = self.corrected + self.statistics

    @classmethod
    def drawn(cls, section: WorkloadSection, population: int, parameters: int = 5) -> "Quadratics":
        """Unlike clients, with one to eight samples."""
        generator = np.random.default_rng(7)
        curvatures = generator.uniform(0.2, 2.0, (population, parameters))
        centres = generator.uniform(-0.5, 0.5, (population, parameters))
        return cls(section, curvatures, centres, generator.integers(1, 9, population))

    def optimum(self, weights: np.ndarray) -> np.ndarray:
        """`(p,)` where the weighted sum of the gradients is zero."""
        weighted = weights[:, None] * self.curvatures
        optimum: np.ndarray = (weighted * self.centres).sum(axis=0) / weighted.sum(axis=0)
        return optimum

    def steps_of(self, client: int) -> int:
        """K_i."""
        return self.section.epochs * (1 + client % 3)

    def gradient(self, client: int, parameters: np.ndarray) -> np.ndarray:
        """`(p,)` at `parameters`."""
        gradient: np.ndarray = self.curvatures[client] * (parameters - self.centres[client])
        return gradient

    def initial_model(self) -> np.ndarray:
        return np.linspace(-0.1, 0.1, self.dimension, dtype=np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        return self.train_corrected(client, model, round_number, np.zeros(self.corrected, np.float32))[0]

    def train_corrected(
        self, client: int, model: np.ndarray, round_number: int, term: np.ndarray
    ) -> tuple[LocalUpdate, int]:
        correction = self.section.drift_correction
        pull = 0.0 if correction is None else correction.pull
        given = model[: self.corrected].astype(np.float64)
        local, rate = given.copy(), self.section.learning_rate_in(round_number)
        for _ in range(self.steps_of(client)):
            local -= rate * (self.gradient(client, local) + term + pull * (local - given))
        statistics = np.full(self.statistics, 0.1 * client) - model[self.corrected :]
        delta = np.concatenate([local - given, statistics]).astype(np.float32)
        samples = int(self.sample_counts[client])
        return LocalUpdate(delta, samples, 1.0, samples * self.steps_of(client)), self.steps_of(client)

    def local_numbers(self, first: int, last: int) -> np.ndarray:
        """Each parameter is a layer."""
        local = np.zeros(self.dimension, np.bool_)
        local[:first] = local[self.corrected - last : self.corrected] = True
        return local

    def evaluate_for(self, client: int, model: np.ndarray) -> Evaluation | None:
        """How far a client's model is from its own optimum."""
        loss = float(np.abs(model[: self.corrected] - self.centres[client]).sum())
        return Evaluation(loss, float(loss < 0.1), 1)

    def evaluate(self, model: np.ndarray) -> Evaluation:
        loss = float(np.abs(model).sum())
        return Evaluation(loss, 1 / (1 + loss), 100)


class Papers:
    """The two algorithms as in the papers: each client's c_i or g_i in a dictionary, all in float64.

    Args:
        workload: the clients' losses.
        section: workload section of the experiment.
        weights: `(n,)` weight of each client.
    """

    def __init__(self, workload: Quadratics, section: WorkloadSection, weights: np.ndarray) -> None:
        self.workload, self.section, self.weights = workload, section, weights
        self.model = workload.initial_model().astype(np.float64)
        self.own: dict[int, np.ndarray] = {}
        self.common = np.zeros(workload.corrected)

    def round(self, number: int, survivors: np.ndarray) -> None:
        """Run a round for the clients in the sum; training of all other clients leaves no trace."""
        p, rate = self.workload.corrected, self.section.learning_rate_in(number)
        share = self.weights[survivors] / self.weights[survivors].sum()
        part = self.weights[survivors].sum() / self.weights.sum()
        before, moved, changed = self.model[:p].copy(), np.zeros(p), np.zeros(p)
        statistics = np.zeros(self.workload.statistics)
        assert self.section.drift_correction is not None
        alpha = self.section.drift_correction.alpha
        for weight, client in zip(share, survivors.tolist(), strict=True):
            own, local = self.own.get(client, np.zeros(p)), before.copy()
            steps = self.workload.steps_of(client)
            for _ in range(steps):
                gradient = self.workload.gradient(client, local)
                if alpha is None:
                    local = local - rate * (gradient - own + self.common)
                else:
                    local = local - rate * (gradient - own + alpha * (local - before))
            if alpha is None:
                new = own - self.common + (before - local) / (steps * rate)
            else:
                new = own - alpha * (local - before)
            self.own[client] = new
            moved, changed = moved + weight * (local - before), changed + weight * (new - own)
            statistics = statistics + weight * 0.1 * client
        if alpha is None:
            self.model[:p] = before + moved
            self.common = self.common + part * changed
        else:
            self.common = self.common - alpha * part * moved
            self.model[:p] = before + moved - self.common / alpha
        self.model[p:] = statistics


def of_papers(workload: Quadratics, section: WorkloadSection, weights: np.ndarray, outcomes: Any) -> Papers:
    """Return the papers' result for rounds with these outcomes."""
    papers = Papers(workload, section, weights)
    for number, outcome in enumerate(outcomes, 1):
        if outcome.state == "completed":
            papers.round(number, outcome.survivors)
    return papers


def common_of(memory: Mapping[str, np.ndarray]) -> np.ndarray:
    """c or h, whichever a checkpoint has."""
    (array,) = (array for name, array in memory.items() if name in ("scaffold/c", "feddyn/h"))
    return array
