"""Evaluations of a former last round of a run that was later given more rounds.

The last round of a run is always evaluated, even if ``workload.evaluate_every`` skips it. A run planned with more
rounds would not have this evaluation, so it moves from the table of the rounds to the run's provenance.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from testbed.files import parquet as parquet_files
from testbed.files import plain_yaml
from testbed.records.arrays import replacing
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import ROWS
from testbed.records.uploads import EXPERIMENT
from testbed.workload.client_accuracy import CLIENT_ACCURACY

MORE_ROUNDS = "more_rounds"
"""Key of a run's provenance with an entry for each extension of the run by more rounds."""
_COLUMNS = ("accuracy", "loss", "recalls", "metrics", "attack_success", *CLIENT_ACCURACY)
_EVALUATION = "evaluation"


def more_rounds_entry(rounds: pa.Table, former: int, to: int, evaluate_every: int, at: str) -> dict[str, Any]:
    """Return the entry of `MORE_ROUNDS` for a run that is extended by more rounds.

    Args:
        rounds: the recorded table of the rounds.
        former: the former number of planned rounds.
        to: the new number of planned rounds.
        evaluate_every: of its workload.
        at: the time, in UTC.
    """
    done = len(rounds)
    entry: dict[str, Any] = {"rounds": former, "to": to, "after_round": done, "at": at}
    if done == former and done % evaluate_every:
        last = rounds.slice(done - 1).to_pylist()[0]
        entry[_EVALUATION] = {name: last[name] for name in _COLUMNS if last.get(name) is not None}
    return entry


def drop_moved_evaluations(path: Path, metadata: dict[bytes, bytes]) -> None:
    """Remove the evaluations that are in the run's provenance from its merged table of rounds.

    Args:
        path: the run's directory.
        metadata: of the table.
    """
    moved = _moved(path)
    if not moved:
        return
    file = path / "rounds.parquet"
    rounds = _without_evaluations(parquet_files.read_table(file, SCHEMAS["rounds"]), moved)
    schema = SCHEMAS["rounds"].with_metadata(metadata)
    with replacing(file) as new, parquet_files.writer(new, schema) as writer:
        writer.write_table(rounds.cast(schema), row_group_size=ROWS)


def _moved(path: Path) -> set[int]:
    """Return the rounds with evaluations in the run's provenance."""
    text = (path / EXPERIMENT).read_text()
    # Most runs: the text alone decides, without parsing.
    if MORE_ROUNDS not in text:
        return set()
    stored: Mapping[str, Any] = plain_yaml.parsed(text)
    history = (stored.get("provenance") or {}).get(MORE_ROUNDS) or []
    return {int(entry["after_round"]) for entry in history if _EVALUATION in entry}


def _without_evaluations(rounds: pa.Table, moved: Collection[int]) -> pa.Table:
    gone = [number in moved for number in rounds["round"].to_pylist()]
    for name in _COLUMNS:
        at = rounds.schema.get_field_index(name)
        values = zip(gone, rounds.column(at).to_pylist(), strict=True)
        values_left = [None if is_gone else value for is_gone, value in values]
        rounds = rounds.set_column(at, rounds.schema.field(at), pa.array(values_left, rounds.schema.field(at).type))
    return rounds
