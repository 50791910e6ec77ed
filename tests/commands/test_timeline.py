"""``testbed timeline``: what it writes where, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def run(call: Call, written: Callable[..., Path], tmp_path: Path) -> Path:
    assert call("run", written(rounds=2), "--out", tmp_path / "run", "--quiet").code == 0
    return tmp_path / "run"


def test_the_file_lies_in_the_run_unless_it_is_named(call: Call, run: Path, tmp_path: Path) -> None:
    ended = call("timeline", run)
    assert ended.code == 0
    assert ended.out.strip() == str(run / "timeline.json")
    assert "1 round," in ended.err
    document = json.loads((run / "timeline.json").read_text())
    assert document["otherData"]["rounds"] == [2]
    assert call("timeline", run, "--rounds", "1-2", "--out", tmp_path / "new" / "two.json.gz").code == 0
    assert (tmp_path / "new" / "two.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert call("status", run).code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rounds", "7"], "there is no round 7; it has rounds 1 to 2"),
        (["--rounds", "x"], "--rounds 'x': give rounds as 3, 3-5 or 3,7-9"),
        (["--out", "trace.txt"], "--out: trace.txt is neither .json nor .json.gz"),
    ],
)
def test_bad_input_is_one_line(call: Call, run: Path, options: list[str], said: str) -> None:
    line = call("timeline", run, *options).line(2)
    assert said in line


def test_of_a_sweep_one_run_has_to_be_named(call: Call, written: Callable[..., Path], tmp_path: Path) -> None:
    sweep = written(rounds=1, sweep={"seed": [1, 2]})
    assert call("run", sweep, "--out", tmp_path / "sweep", "--quiet").code == 0
    ended = call("timeline", tmp_path / "sweep")
    assert ended.code == 2
    assert "2 runs; give one of them, e.g. " in ended.err
