"""Fingerprints of runs: two runs with the same records have the same one."""

from pathlib import Path
from typing import Any

from testbed.records import RunRecords
from testbed.records.clients import CLIENTS
from testbed.records.schemas import SCHEMAS


def fingerprint(path: Path) -> dict[str, Any]:
    """All tables as text and the bits of the model: equal for runs that are equal but for being resumed."""
    run = RunRecords(path)
    frames = {name: run.frame(name) for name in (*SCHEMAS, CLIENTS)}
    frames["events"] = frames["events"].query("kind != 'resume'")
    assert run.model is not None
    return {name: frame.to_csv(index=False) for name, frame in frames.items()} | {"model": run.model.tobytes()}
