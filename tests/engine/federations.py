"""Whole federations in this process, with a small workload that needs no torch."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.engine.federation import Federation
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.engine.round import Outcome
from testbed.experiment.schema import Experiment
from testbed.network.exchanges import Exchanges
from testbed.records import RunDirectory
from testbed.workload.contract import LocalUpdate
from tests.former_defaults import with_former_defaults


@dataclass
class Quality:
    """See `testbed.workload.contract.Evaluation`."""

    loss: float
    accuracy: float
    samples: int = 100


class Pulling:
    """A workload in which every client pulls the model towards its own point.

    Updates depend on (client, round, model) alone.
    """

    dimension = 23

    def __init__(self, population: int, seed: int = 7) -> None:
        generator = np.random.default_rng(seed)
        self.sample_counts = generator.integers(1, 9, population)
        self._points = generator.uniform(-0.2, 0.2, (population, self.dimension)).astype(np.float32)

    def initial_model(self) -> np.ndarray:
        return np.linspace(-0.1, 0.1, self.dimension, dtype=np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        noise = np.random.default_rng((client, round_number)).normal(0, 0.01, self.dimension)
        delta = (0.5 * (self._points[client] - model) + noise).astype(np.float32)
        samples = int(self.sample_counts[client])
        return LocalUpdate(delta, samples, float(np.abs(delta).sum()), 2 * samples)

    def evaluate(self, model: np.ndarray) -> Quality:
        loss = float(((model - self._points.mean(axis=0)) ** 2).sum())
        return Quality(loss, 1 / (1 + loss))


class Run:
    """A federation and the results of its rounds.

    Args:
        keys: the experiment; a few keys are set already, and all others have their `former_defaults`.
        path: where to record; None: nowhere.
        hosts: number of hosts.
        resume: continue the run at `path`.
        workload: made of the population; default: `Pulling`.
    """

    def __init__(
        self,
        keys: dict[str, Any],
        path: Path | None = None,
        *,
        hosts: int = 1,
        resume: bool = False,
        seed: int = 0,
        workload: Callable[[int], Any] = Pulling,
    ) -> None:
        base = {"seed": 3, "rounds": 6, "population": 30, "time": {"compute": "modelled", "deadline_s": 20}}
        self.experiment = Experiment.model_validate(with_former_defaults(base | keys))
        self.plan = RunPlan(self.experiment, seed)
        self.workload = workload(self.experiment.population)
        self.records = None
        if path is not None:
            self.records = RunDirectory.reopen(path) if resume else RunDirectory.create(path, self.experiment.plain())
        self.progress: list[Any] = []
        self.outcomes: list[Outcome] = []
        self.exchanges: list[list[Exchanges]] = []
        self.federation = federation_in_process(
            self.plan, self.workload, self.records, self.progress.append, hosts=hosts
        )

    def rounds(self, count: int | None = None) -> "Run":
        """Run `count` rounds (default: all remaining rounds)."""
        federation: Federation = self.federation

        async def run() -> None:
            left = count
            while not federation.finished and left != 0:
                self.outcomes.append(await federation.run_next_round())
                self.exchanges.append(federation.network.exchanges)
                left = None if left is None else left - 1

        asyncio.run(run())
        return self

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows."""
        assert self.records is not None
        return self.records.table(table).to_pylist()


def checks_by_round(run: Any) -> dict[int, set[tuple[str, str]]]:
    """The checks by which honest clients refused, and the stages, by round."""
    found: dict[int, set[tuple[str, str]]] = {}
    for event in run.rows("events"):
        if event["kind"] == "refusal" and int(event["party"].partition(":")[2]) not in run.plan.dishonest:
            found.setdefault(event["round"], set()).add((event["detail"].partition(":")[0], event["stage"]))
    return found
