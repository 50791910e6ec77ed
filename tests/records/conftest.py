"""Rounds to record, without running any."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from testbed.network.bookkeeping import ANSWERED, DROPPED, Event, Exchanges
from testbed.records import RunDirectory
from testbed.records.tables import SCHEMAS, events_table, exchanges_table, participation_table
from testbed.records.writing import Checkpoint


def tables_of(number: int) -> dict[str, pa.Table]:
    """A round's rows; round 2 is skipped, only odd rounds have events, later ones another stage."""
    skipped = number == 2
    clients = np.arange(3, dtype=np.int64)
    stage = Exchanges(
        "check-in" if number < 3 else f"stage-{number}", False, clients, float(number),
        np.array([number + 0.5, np.nan, number + 1]), clients + number, clients, clients * 2, clients * 3,
        clients * 0, clients * 0,
        np.array([0.1, 0.0, 0.2]), np.array([ANSWERED, DROPPED, ANSWERED], np.int8),
    )  # fmt: skip
    row = dict.fromkeys(SCHEMAS["rounds"].names) | {
        "round": number, "outcome": "skipped" if skipped else "completed", "reason": "too-few" if skipped else "",
        "started_s": float(number), "ended_s": number + 1.0, "candidates": 3, "accuracy": number / 10,
    }  # fmt: skip
    events = [Event("check-in", "client:1", "refusal", f"test.check: in round {number}")] * (number % 2)
    return {
        "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
        "exchanges": exchanges_table(number, [stage]),
        "participation": participation_table(number, clients[: 0 if skipped else 2], clients[:1]),
        "events": events_table(number, events),
    }


def checkpoint_of(number: int) -> Checkpoint:
    """Where the run stands after a round."""
    return Checkpoint(number, number + 1.0, np.full(4, number, np.float32), np.full(3, number), 2.0 * number)


def record(directory: RunDirectory, number: int) -> None:
    """Append a round."""
    directory.append_round(tables_of(number), checkpoint_of(number))


@pytest.fixture
def record_round() -> Callable[[RunDirectory, int], None]:
    """See `record`."""
    return record


@pytest.fixture
def expected_rows() -> Callable[[str, int], list[dict]]:
    """The rows of a table after so many rounds."""

    def rows(table: str, rounds: int) -> list[dict]:
        return [row for number in range(1, rounds + 1) for row in tables_of(number)[table].to_pylist()]

    return rows


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Where a run goes."""
    return tmp_path / "run"
