"""A small sweep, and a fingerprint of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import Experiment
from testbed.records import RunRecords
from testbed.records.tables import SCHEMAS

SMALL: dict[str, Any] = {
    "name": "lanes",
    "seed": 11,
    "rounds": 2,
    "population": 12,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"participants": 5},
    "aggregation": {"protocol": "plain"},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "time": {"compute": "modelled", "deadline_s": 10},
    "sweep": {"selection.protocol": ["random", "batch-partition", "lotto-server-centric"]},
}


@pytest.fixture(scope="session")
def experiment() -> Callable[..., Experiment]:
    """The small sweep with other values for some keys."""

    def experiment(**changes: Any) -> Experiment:
        return Experiment.model_validate(SMALL | changes)

    return experiment


@pytest.fixture(scope="session")
def fingerprint() -> Callable[[Path], dict[str, Any]]:
    """All tables as text and the bits of the model: equal for runs that are equal but for being resumed."""

    def fingerprint(path: Path) -> dict[str, Any]:
        run = RunRecords(path)
        frames = {name: run.frame(name) for name in SCHEMAS}
        frames["events"] = frames["events"].query("kind != 'resume'")
        assert run.model is not None
        return {name: frame.to_csv(index=False) for name, frame in frames.items()} | {"model": run.model.tobytes()}

    return fingerprint
