"""Small real runs with recorded server views."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workloads
from testbed.engine.in_process import federation_in_process, to_the_end
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.records import RunDirectory, RunRecords

BASE = {
    "name": "seen", "seed": 4, "rounds": 24, "population": 8,
    "workload": {
        "dataset": "digits", "model": "mlp", "samples_per_client": 1, "batch_size": 1, "momentum": 0.0,
        "learning_rate": 0.0005, "evaluate_every": 24,
    },
    "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"},
    "time": {"compute": "modelled"},
    "records": {"aggregates": "all"},
}  # fmt: skip


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunRecords]:
    """A run of `BASE` with other sections; the same is run once only."""
    known: dict[str, RunRecords] = {}

    def make(**sections: Any) -> RunRecords:
        key = repr(sorted(sections.items()))
        if key not in known:
            experiment = validated(BASE | sections, "test")
            path: Path = tmp_path_factory.mktemp("run") / "run"
            directory = RunDirectory.create(path, experiment.plain())
            workload = workloads.build(experiment.workload, experiment.population, 4)
            asyncio.run(to_the_end(federation_in_process(RunPlan(experiment, 0), workload, directory)))
            directory.finish()
            known[key] = RunRecords(path)
        return known[key]

    return make
