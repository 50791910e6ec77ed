"""Recording: the schedule that follows from given exchanges."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from testbed.errors import RunError
from testbed.network.exchanges import OUTCOMES, Exchanges
from testbed.records import RunDirectory, RunRecords
from testbed.records.arrays import Checkpoint
from testbed.records.reader import recorded_schedule
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import events_table, exchanges_table, participation_table

Asked = tuple[str, dict[int, str]]  # a stage, and the outcome of each client


def written(path: Path, rounds: Sequence[tuple[list[Asked], list[int]]], *, finish: bool = True) -> RunRecords:
    """A run of these stages and participants."""
    directory = RunDirectory.create(path, {"name": "n", "population": 9})
    for number, (stages, participants) in enumerate(rounds, start=1):
        exchanges = []
        for place, (stage, outcomes) in enumerate(stages):
            zeros = np.zeros(len(outcomes), np.int64)
            codes = np.array([OUTCOMES.index(outcome) for outcome in outcomes.values()], np.int8)
            exchanges.append(
                Exchanges(
                    stage, True, np.array(list(outcomes), np.int64), number + place / 10, zeros / 1.0, zeros, zeros,
                    zeros, zeros, zeros, zeros, zeros / 1.0, codes,
                )
            )  # fmt: skip
        row = dict.fromkeys(SCHEMAS["rounds"].names) | {"round": number, "outcome": "completed", "reason": ""}
        tables = {
            "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
            "exchanges": exchanges_table(number, exchanges),
            "participation": participation_table(number, participants, participants),
            "events": events_table(number, []),
        }
        directory.append_round(tables, Checkpoint(number, 1.0, np.zeros(2, np.float32), np.zeros(9, np.int64), 1.0))
    if finish:
        directory.finish()
    return RunRecords(path)


ROUNDS: list[tuple[list[Asked], list[int]]] = [
    (
        [
            ("check-in", {0: "answered", 1: "offline", 2: "answered", 3: "answered", 4: "dropped", 5: "answered"}),
            ("train", {0: "answered", 2: "answered", 3: "offline", 5: "late"}),
            ("secagg/masked-input", {0: "dropped", 2: "refused", 5: "silent"}),
            ("secagg/unmask", {0: "offline", 2: "answered", 5: "offline"}),
        ],
        [0, 2, 3, 5],
    ),
    ([("check-in", {0: "offline", 1: "offline", 2: "answered"})], []),  # skipped
    ([("train", {7: "offline", 8: "answered"})], [7, 8]),  # a protocol that asks nobody before training
]
EXPECTED = [
    (1, 0, "", "participant"),
    (1, 0, "secagg/masked-input", "dropped"),  # the earliest
    (1, 1, "", "offline"),  # never reached
    (1, 2, "", "participant"),  # a refusal is no dropout
    (1, 3, "", "participant"),
    (1, 3, "train", "offline"),
    (1, 4, "check-in", "dropped"),
    (1, 5, "", "participant"),
    (1, 5, "secagg/unmask", "offline"),
    (2, 0, "", "offline"),
    (2, 1, "", "offline"),
    (3, 7, "", "participant"),
    (3, 7, "train", "offline"),  # it took part, and so was not away for the whole round
    (3, 8, "", "participant"),
]


@pytest.mark.parametrize("finish", [True, False])
def test_what_is_recorded_of_a_run(tmp_path: Path, finish: bool) -> None:
    assert list(recorded_schedule(written(tmp_path / "run", ROUNDS, finish=finish)).rows()) == EXPECTED


def test_a_schedule_is_as_it_would_be_read(tmp_path: Path) -> None:
    schedule = recorded_schedule(written(tmp_path / "run", ROUNDS))
    for name in ("s.csv", "s.parquet"):
        schedule.write(tmp_path / name)
        assert list(schedule.read(tmp_path / name).rows()) == EXPECTED
    assert schedule.source == str(tmp_path / "run")
    assert [column.dtype for column in (schedule.round, schedule.client, schedule.stage, schedule.fate)] == [
        np.int64, np.int64, np.int16, np.int8,
    ]  # fmt: skip


def test_a_run_without_rounds_or_losses_gives_an_empty_schedule_or_participants_alone(tmp_path: Path) -> None:
    assert list(recorded_schedule(written(tmp_path / "none", [], finish=False)).rows()) == []
    quiet = written(tmp_path / "quiet", [([("train", {3: "answered", 4: "late"})], [3, 4])])
    assert list(recorded_schedule(quiet).rows()) == [(1, 3, "", "participant"), (1, 4, "", "participant")]


def test_a_damaged_run_is_an_error(tmp_path: Path) -> None:
    run = written(tmp_path / "run", ROUNDS)
    (tmp_path / "run" / "exchanges.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(RunError):
        recorded_schedule(run)
