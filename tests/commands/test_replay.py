"""From one run to its replay by the command alone: record, run again on the schedule, compare round by round."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., object]


@pytest.fixture
def replayed(call: Callable, written: Callable, tmp_path: Path) -> tuple[Path, Path]:
    """The directories of a run and of its replay with other randomness."""
    first, again, schedule = tmp_path / "first", tmp_path / "again", tmp_path / "schedule.csv"
    away = {"model": "bernoulli", "unavailable": 0.2, "dropout": {"rate": 0.4, "stage": "random"}}
    assert call("run", written(selection={"participants": 4}, availability=away), "--out", first).code == 0
    assert call("trace", "record", first, "--out", schedule).code == 0
    keys = {
        "name": "replayed", "seed": 11,
        "selection": {"participants": 4, "recorded": str(schedule)},
        "availability": {"model": "schedule", "path": str(schedule)},
    }  # fmt: skip
    ended = call("run", written(**keys), "--out", again)
    assert ended.code == 0, ended.err
    return first, again


def test_a_replay_meets_the_same_round_by_round(replayed: tuple[Path, Path], call: Callable) -> None:
    first, again = replayed
    ended = call("compare", first, again, "--paired", "--baseline", "small", "--format", "json")
    assert ended.code == 0, ended.err
    rows = {row["label"]: row for row in json.loads(ended.out)["rows"]}
    assert rows["replayed"]["pairs"] == rows["replayed"]["pairs_same_stages"] == rows["small"]["pairs"] > 0
    lost = [json.loads(call("dropouts", path, "--format", "json").out)["rows"] for path in (first, again)]
    for before, after in zip(*lost, strict=True):
        assert {key: before[key] for key in before if key != "label"} == {
            key: after[key] for key in after if key != "label"
        }
    assert sum(row["participants_dropped"] for row in lost[0]) > 0


def test_dropouts_of_a_run_as_text(replayed: tuple[Path, Path], call: Callable) -> None:
    ended = call("dropouts", *replayed)
    assert ended.code == 0
    assert [line for line in ended.out.splitlines() if ": 3 rounds" in line] == [
        "small: 3 rounds",
        "replayed: 3 rounds",
    ]


def test_a_schedule_that_cannot_be_used_is_one_line_and_nothing_runs(
    call: Callable, written: Callable, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("round,client,stage,fate\n1,2,,away\n")
    bad = str(tmp_path / "bad.csv")
    for keys in (
        {"availability": {"model": "schedule", "path": bad}},
        {"selection": {"participants": 4, "recorded": bad}},
    ):
        ended = call("run", written(**keys), "--out", tmp_path / "out")
        assert ended.code == 2
        assert len(ended.errors) == 1
        assert f"{bad}: row 1: unknown fate 'away'" in ended.err
        assert not (tmp_path / "out").exists()
