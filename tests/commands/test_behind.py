"""A live run on a machine that cannot keep up says so wherever it is looked at."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.records import RunRecords
from testbed.running.status import status

Call = Callable[..., Any]
Written = Callable[..., Path]


def test_a_run_that_cannot_keep_up_says_so(call: Call, written: Written, tmp_path: Path) -> None:
    file, out = (
        written(
            population=3,
            workload={"dataset": "benchmarks.faulty_code:Heavy"},
            selection={"participants": 3},
            availability={"model": "always"},
            links={"latency_ms": 2},
            time={"clock": "wall", "compute": "modelled"},
        ),
        tmp_path / "out",
    )
    ran = call("run", file, "--out", out)
    assert ran.code == 0, ran.err
    summary = json.loads((out / "summary.json").read_text())
    rounds = RunRecords(out).rounds
    took_s = rounds["ended_s"] - rounds["started_s"]
    assert (rounds["behind_s"][1:] > 0.8).all()  # the last of three has waited for two
    assert (rounds["behind_s"] < took_s).all()
    behind = summary["behind_rounds"]
    assert behind >= 2  # a slow machine may be behind in round 1, too
    held_up = rounds.index >= 3 - behind
    due_s = (took_s - rounds["behind_s"])[held_up].sum()
    assert summary["behind_factor"] == pytest.approx(took_s[held_up].sum() / due_s)
    assert status(out).behind_rounds == behind
    said = f"the machine could not keep up in {behind} rounds"
    assert said in call("status", out).out
    more = f"{said}, which took {summary['behind_factor']:.2f} times as long as links and devices require"
    assert more in ran.err
    for format in ("text", "markdown", "latex"):
        assert more in " ".join(call("compare", out, "--format", format).out.split())
    (row,) = json.loads(call("compare", out, "--format", "json").out)["rows"]
    assert (row["behind_rounds"], row["behind_factor"]) == (behind, summary["behind_factor"])


def test_on_the_virtual_clock_no_machine_is_too_slow(call: Call, written: Written, tmp_path: Path) -> None:
    heavy = {"dataset": "benchmarks.faulty_code:Heavy"}
    file, out = written(workload=heavy, population=3, selection={"participants": 2}), tmp_path / "out"
    assert call("run", file, "--out", out).code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["behind_rounds"], summary["behind_factor"]) == (0, None)
    assert RunRecords(out).rounds["behind_s"].tolist() == [0.0] * 3
