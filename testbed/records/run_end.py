"""Runs that end before their last round, because they may not go on: the last round's events say why."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from testbed.files import parquet as parquet_files
from testbed.records.chunks import damaged
from testbed.records.writer import part_of

STOPPED = "stopped"
"""The kind of that event."""


def stopped(path: Path, last_round: int) -> str:
    """Why a run ended after `last_round` (of its checkpoint), in one line; empty for one that goes on.

    Raises `RunError` when that round's events cannot be read.
    """
    if last_round == 0:
        return ""
    columns = ["round", "kind", "detail"]
    try:
        try:
            rows = parquet_files.read_table(part_of(path, last_round) / "events.parquet", columns=columns)
        except FileNotFoundError:  # merged
            rows = parquet_files.read_table(path / "events.parquet", columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, "events", error) from None
    said = rows.filter((pc.field("round") == last_round) & (pc.field("kind") == STOPPED))["detail"]
    return str(said[0].as_py()) if len(said) else ""
