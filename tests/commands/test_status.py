"""`testbed status`: runs that go on, were stopped or killed, have ended, and what a kill leaves torn."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import run
from testbed.engine.federation import RunProgress
from testbed.records import RunRecords
from testbed.records.locks import is_held, run_lock
from testbed.records.log import RunLog
from testbed.running import Observer, PlannedRun
from testbed.running.status import RunsAt, statuses
from tests.finished_runs import FinishedRuns

Call = Callable[..., Any]
Written = Callable[..., Path]


class Stopping(Observer):
    """Interrupts in a round, or does something else there."""

    def __init__(self, round_number: int, action: Callable[[], None] | None = None) -> None:
        self.round_number = round_number
        self.action = action

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        if progress.round_number == self.round_number and progress.stage == "train":
            if self.action is None:
                raise KeyboardInterrupt
            self.action()


def only(call: Call, *arguments: object) -> dict[str, Any]:
    """The one run that `testbed status` tells of."""
    ended = call("status", *arguments, "--format", "json")
    assert ended.code == 0, ended.err
    (found,) = json.loads(ended.out)["runs"]
    return found


@pytest.fixture
def stopped(written: Written, finished_runs: FinishedRuns, tmp_path: Path) -> Path:
    """A run that was stopped in its third round."""

    def stop(out: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            run(written(), out=out, observer=Stopping(3))

    written()
    return finished_runs.copy("stopped in its third round", tmp_path / "stopped", stop)


def test_a_finished_run(call: Call, ran: Written) -> None:
    out = ran()
    found, records = only(call, out), RunRecords(out)
    assert (found["state"], found["rounds_done"], found["rounds"]) == ("finished", 3, 3)
    assert found["outcomes"] == records.rounds["outcome"].value_counts().to_dict()
    assert found["accuracy"] == records.rounds["accuracy"].dropna().iloc[-1]
    assert found["now_s"] == records.rounds["ended_s"].iloc[-1]
    assert found["wall_s"] == records.wall_s
    assert found["left_s"] == 0
    text = call("status", out).out
    assert "finished" in text
    assert "--resume" not in text
    (out / "exchanges.parquet").write_bytes(b"not a table")  # neither exchanges nor the model are read
    (out / "participation.parquet").unlink()
    assert only(call, out) | {"seen_s": 0} == found | {"seen_s": 0}


def test_a_stopped_run_says_how_to_go_on(call: Call, stopped: Path) -> None:
    found = only(call, stopped)
    assert (found["state"], found["ending"], found["rounds_done"]) == ("interrupted", "run-stopped", 2)
    assert found["left_s"] == pytest.approx(found["round_s"])
    text = call("status", stopped).out
    assert "interrupted (stopped; last activity" in text
    (command,) = re.findall(r"resume with: testbed (.*)", text)
    assert call(*command.split()).code == 0
    assert only(call, stopped)["state"] == "finished"


def test_a_run_that_goes_on_is_running_and_is_not_disturbed(call: Call, written: Written, tmp_path: Path) -> None:
    """Looked at from within, in its second round, before and while its folder is torn as a crash might leave it."""
    out, seen = tmp_path / "out", []

    def look() -> None:
        (out / "parts" / "round-000002").mkdir()  # a part of which nothing vouches yet
        (out / "parts" / "round-000002" / "rounds.parquet").write_bytes(b"PAR1")
        with (out / "log.jsonl").open("ab") as log:
            log.write(b'{"time": "2026-')
        seen.append(only(call, out))
        seen.append(call("status", out).out)

    run(written(), out=out, observer=Stopping(2, look))
    assert (seen[0]["state"], seen[0]["rounds_done"], seen[0]["rounds"]) == ("running", 1, 3)
    assert "running (last activity" in seen[1]
    assert only(call, out)["state"] == "finished"


def test_looking_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    assert is_held(tmp_path) is False
    assert not (tmp_path / ".lock").exists()
    with run_lock(tmp_path):
        assert is_held(tmp_path) is True
        assert is_held(tmp_path) is True
    assert is_held(tmp_path) is False
    with run_lock(tmp_path):
        pass


def test_a_killed_run(call: Call, written: Written, tmp_path: Path) -> None:
    """Killed in its second round: nothing in its log says how it ended."""
    program = """
import os, signal, sys
from testbed import run
from testbed.running import Observer
class Killing(Observer):
    def progressed(self, run, progress):
        if progress.round_number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
run(sys.argv[1], out=sys.argv[2], observer=Killing())
"""
    file = written(workload={"dataset": "benchmarks.breaking:Means"})  # without torch: it starts quickly
    done = subprocess.run([sys.executable, "-c", program, str(file), str(tmp_path / "out")])
    assert done.returncode == -9
    found = only(call, tmp_path / "out")
    assert (found["state"], found["ending"], found["rounds_done"]) == ("interrupted", "", 1)
    assert "interrupted (killed; last activity" in call("status", tmp_path / "out").out


def test_a_sweep_with_points_that_have_not_begun(call: Call, written: Written, tmp_path: Path) -> None:
    class StopLater(Stopping):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            if run.label == "weighted-random":
                super().progressed(run, progress)

    out, sweep = tmp_path / "out", {"selection.protocol": ["random", "weighted-random", "lotto-server-centric"]}
    with pytest.raises(KeyboardInterrupt):
        run(written(sweep=sweep), out=out, observer=StopLater(2))
    found = json.loads(call("status", out, "--format", "json").out)
    assert [(one["label"], one["state"]) for one in found["runs"]] == [
        ("random", "finished"), ("weighted-random", "interrupted"),
    ]  # fmt: skip
    assert found["points_not_started"] == 1
    text = call("status", out).out
    assert "3 points: 1 finished, 1 interrupted, 1 not started" in text
    assert f"testbed run EXPERIMENT.yaml --out {out} --resume" in text
    one = json.loads(call("status", out / "random", "--format", "json").out)
    assert one["points_not_started"] == 0  # of a run itself nothing is missing


def test_the_time_left_counts_points_that_have_not_begun(stopped: Path) -> None:
    """A point runs for another 6 rounds of 2 s, a finished one took 10 of 4 s: each of three to come takes 30 s."""
    (one,) = statuses(stopped)
    lives = replace(one, state="running", rounds=10, rounds_done=4, round_s=2.0, point=1, points=5)
    ended = replace(lives, state="finished", rounds_done=10, round_s=4.0, path=lives.path.parent / "other")
    assert RunsAt("out", [lives, ended], is_run=False).left_s == 6 * 2 + 3 * 30
    both = replace(ended, state="running", rounds_done=0)
    assert RunsAt("out", [lives, both], is_run=False).left_s == max(12 + 30 + 30, 40 + 30)
    assert RunsAt("out", [ended], is_run=False).left_s is None  # nothing runs


def test_without_its_log_a_run_tells_the_same_from_its_parts(call: Call, stopped: Path) -> None:
    with_log = only(call, stopped)
    (stopped / "log.jsonl").unlink()
    without = only(call, stopped)
    same = ("label", "rounds_done", "outcomes", "accuracy", "accuracy_round", "now_s", "wall_s", "refusals")
    assert {key: without[key] for key in same} == {key: with_log[key] for key in same}


def test_restarts_and_clients_left_out(call: Call, stopped: Path) -> None:
    """Of events in the tables and in the log each counts once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from testbed.records.schemas import SCHEMAS

    rows = [
        {"round": 2, "stage": "train", "party": party, "kind": kind, "detail": "x"}
        for party, kind in [
            ("host:1", "restart"), ("host:0", "restart"), ("client:7", "poisoned"), ("client:3", "refusal"),
            ("coordinator", "restart"),
        ]
    ]  # fmt: skip
    part = stopped / "parts" / "round-000002" / "events.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["events"]), part)
    log = RunLog(stopped)
    log.write("host-restarted", host="1", detail="x")
    log.write("coordinator-restarted", round=2, reason="x")
    found = only(call, stopped)
    assert (found["host_restarts"], found["coordinator_restarts"]) == (2, 1)
    assert (found["poisoned"], found["refusals"]) == ([7], 1)
    text = call("status", stopped).out
    assert "2 of hosts, 1 of the coordinator" in text
    assert "1 clients that crashed their hosts: 7" in text
    assert "coordinator restarted" in text  # among the last events


def test_a_copy_of_what_is_written_elsewhere_is_unclear(call: Call, stopped: Path) -> None:
    """Nobody holds a copy, so its lock tells nothing: only a log that says how it ended does."""
    (stopped / ".mirror").write_text("")
    assert only(call, stopped)["state"] == "interrupted"
    log = stopped / "log.jsonl"
    log.write_bytes(b"".join(line for line in log.read_bytes().splitlines(True) if b"run-stopped" not in line))
    assert only(call, stopped)["state"] == "unclear"
    assert "running on another machine, or killed; last activity" in call("status", stopped).out


def test_follow_ends_with_the_runs(
    call: Call, stopped: Path, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds the run at the first look; by the second it has ended, and nothing new is printed after."""
    import time

    somebody, looks = contextlib.ExitStack(), []

    def meanwhile(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            somebody.close()
            run(written(), out=stopped, resume=True)

    monkeypatch.setattr(time, "sleep", meanwhile)
    somebody.enter_context(run_lock(stopped))
    ended = call("status", stopped, "--follow")
    assert ended.code == 0, ended.err
    assert re.findall(r"state +\w+|\d/3", ended.out) == ["state     running", "2/3", "state     finished", "3/3"]
    assert len(looks) == 2


@pytest.mark.parametrize("damage", ["checkpoint.npz", "experiment.yaml"])
def test_a_damaged_run_is_one_line(damage: str, call: Call, stopped: Path) -> None:
    (stopped / damage).write_bytes(b"PK\x03\x04 and: then: nothing")
    (stopped / "checkpoint-previous.npz").unlink()
    line = call("status", stopped).line(3)
    assert line.startswith(f"error: {stopped}")
    assert "damaged" in line


def test_where_nothing_is(call: Call, tmp_path: Path) -> None:
    assert "no such directory" in call("status", tmp_path / "nowhere").err
    (tmp_path / "empty").mkdir()
    ended = call("status", tmp_path / "empty")
    assert ended.code == 3
    assert "no runs here" in ended.err


def test_many_runs_are_found_below(call: Call, stopped: Path) -> None:
    shutil.copytree(stopped, stopped.parent / "more" / "a")
    shutil.copytree(stopped, stopped.parent / "more" / "deep" / "b")
    found = json.loads(call("status", stopped.parent / "more", "--format", "json").out)["runs"]
    assert [os.path.basename(one["path"]) for one in found] == ["a", "b"]
