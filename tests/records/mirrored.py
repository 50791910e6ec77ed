"""Small runs with records mirrored at a URI, and ways to kill them."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.engine.federation import Federation
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords
from testbed.records.schemas import SCHEMAS
from testbed.records.store import Store
from testbed.workload.contract import LocalUpdate

ROUNDS = 3
EXPERIMENT = {
    "name": "mirrored", "seed": 3, "rounds": ROUNDS, "population": 8, "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"},
    "availability": {"dropout": {"rate": 0.3, "stage": "random"}},
}  # fmt: skip


class Killed(BaseException):
    """The process is gone."""


class Drifting:
    """A small workload: the update of a client depends on (client, round, model) alone."""

    dimension = 5
    sample_counts = np.arange(1, 9)

    def initial_model(self) -> np.ndarray:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> Any:
        delta = np.random.default_rng((client, round_number)).normal(0, 0.1, self.dimension) - 0.3 * model
        return LocalUpdate(delta=delta.astype(np.float32), samples=client + 1, loss=1.0, examples_processed=3)

    def evaluate(self, model: np.ndarray) -> Any:
        return SimpleNamespace(loss=float(np.abs(model).sum()), accuracy=0.5, samples=10)


def advance(federation: Federation, rounds: int) -> None:
    """Run the rounds up to this one that are left."""

    async def run() -> None:
        while federation.state.round_number < rounds:
            await federation.run_next_round()

    asyncio.run(run())


def live(path: Path, rounds: int = ROUNDS, *, finish: bool = True) -> None:
    """Begin or resume the run and bring it to its end."""
    experiment = Experiment.model_validate(EXPERIMENT)
    if (path / "experiment.yaml").is_file():
        records = RunDirectory.reopen(path)
    else:
        records = RunDirectory.create(path, experiment.plain())
    advance(federation_in_process(RunPlan(experiment, 0), Drifting(), records), rounds)
    if finish:
        records.finish()
        records.write_summary({"rounds": rounds})
    elif records._mirror is not None and (failure := records._mirror.failure()) is not None:
        raise failure


def contents(path: Path) -> dict[str, Any]:
    """All tables and the bits of the model; records of a resumption are left out."""
    run = RunRecords(path)
    tables = {name: RunDirectory(path).table(name).to_pylist() for name in SCHEMAS}
    tables["events"] = [row for row in tables["events"] if row["kind"] != "resume"]
    tables["clients"] = run.clients.to_dict("records")
    return tables | {"model": None if run.model is None else run.model.tobytes()}


def remote_names(uri: str) -> set[str]:
    """The files at a URI, without logs."""
    return {name for name in Store(uri).files() if not name.endswith("log.jsonl")}


def cut_off(monkeypatch: pytest.MonkeyPatch, uploads: int) -> None:
    """End the process when it begins the change at the URI after a number of changes."""
    count = itertools.count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Store, *arguments: Any) -> Any:
            if next(count) > uploads:
                raise Killed
            return real(self, *arguments)

        return call

    monkeypatch.setattr(Store, "put", dying(Store.put))
    monkeypatch.setattr(Store, "delete_below", dying(Store.delete_below))
