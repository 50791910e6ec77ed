"""Runs with one seed that differ in files alone have unrelated secrets, and a resumed run has its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import run
from testbed.engine import plan
from testbed.experiment.inputs import secrets_context
from tests.observers import StopIn

EXPERIMENT: dict[str, Any] = {
    "name": "files", "seed": 3, "rounds": 2, "population": 4,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"protocol": "random", "participants": 3},
    "aggregation": {"protocol": "plain"},
    "availability": {"model": "trace", "path": "trace.csv"},
    "time": {"compute": "modelled"},
    "cluster": {"network": "in-process"},
}  # fmt: skip
MONDAY = "client,online_from_s,online_until_s\n" + "".join(f"{name},0,100000\n" for name in range(4))
TUESDAY = MONDAY.replace("\n3,0", "\n3,1")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """Runs the experiment with a trace, in a folder of its own; returns the context of the secrets that it ran with."""
    contexts: list[bytes] = []

    def noted(experiment: Any) -> bytes:
        contexts.append(secrets_context(experiment))
        return contexts[-1]

    def ran(name: str, trace: str, **more: Any) -> bytes:
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        Path("trace.csv").write_text(trace)
        Path("files.yaml").write_text(yaml.safe_dump(EXPERIMENT))
        run(Path("files.yaml"), out=Path("out"), **more)
        return contexts[-1]  # the last plan is the one that runs

    monkeypatch.setattr(plan, "secrets_context", noted)
    return ran


def test_another_trace_is_another_context(ran: Callable[..., bytes]) -> None:
    monday, again, tuesday = ran("monday", MONDAY), ran("copy", MONDAY), ran("tuesday", TUESDAY)
    assert monday == again != tuesday


def test_a_resumed_run_has_the_same_context(ran: Callable[..., bytes], tmp_path: Path) -> None:
    whole = ran("whole", MONDAY)
    with pytest.raises(KeyboardInterrupt):
        ran("stopped", MONDAY, observer=StopIn(2))
    assert ran("stopped", MONDAY, resume=True) == whole
    tables = [(tmp_path / name / "out" / "rounds.parquet").read_bytes() for name in ("whole", "stopped")]
    assert tables[0] == tables[1]
