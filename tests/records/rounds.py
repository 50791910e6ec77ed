"""Rounds to record without running any."""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from testbed.network.exchanges import ANSWERED, DROPPED, Exchanges
from testbed.network.recorder import Event
from testbed.records import RunDirectory
from testbed.records.arrays import Checkpoint
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import events_table, exchanges_table, participation_table, privacy_table, staleness_table


@cache  # tables of Arrow do not change
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
        "started_s": float(number), "ended_s": number + 1.0, "behind_s": 0.0, "candidates": 3, "accuracy": number / 10,
    }  # fmt: skip
    events = [Event("check-in", "client:1", "refusal", f"test.check: in round {number}")] * (number % 2)
    return {
        "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
        "exchanges": exchanges_table(number, [stage]),
        "participation": participation_table(number, clients[: 0 if skipped else 2], clients[:1]),
        "events": events_table(number, events),
        "privacy": privacy_table(number, charged(clients[: 0 if skipped else 1])),
        "staleness": staleness_table(number, aged(clients[: 0 if skipped else 2])),
    }


def charged(clients: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of the privacy ledger."""
    numbers = dict.fromkeys(SCHEMAS["privacy"].names[2:], np.full(len(clients), 0.5))
    return numbers | {"client": clients, "noise": np.full(len(clients), np.nan)}


def aged(clients: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of the updates in a buffer."""
    numbers = dict.fromkeys(SCHEMAS["staleness"].names[3:], np.full(len(clients), 0.5))
    return numbers | {"client": clients, "staleness": clients + 3}


def checkpoint_of(number: int) -> Checkpoint:
    """Where the run stands after a round."""
    return Checkpoint(number, number + 1.0, np.full(4, number, np.float32), np.full(3, number), 2.0 * number)


def record_round(directory: RunDirectory, number: int) -> None:
    """Append a round."""
    directory.append_round(tables_of(number), checkpoint_of(number))


def expected_rows(table: str, rounds: int) -> list[dict[str, Any]]:
    """The rows of a table after a number of rounds."""
    return [row for number in range(1, rounds + 1) for row in tables_of(number)[table].to_pylist()]
