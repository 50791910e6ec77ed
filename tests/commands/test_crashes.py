"""A bug in code of the user's own: the run ends with one line that says where, or the crashes are counted."""

import inspect
import json
import sys
from bdb import BdbQuit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faulty_code
from testbed.crashes import is_crash
from testbed.records import RunRecords
from testbed.records.log import RunLog
from testbed.running.status import status

Call = Callable[..., Any]
Written = Callable[..., Path]

OWN: dict[str, Any] = {
    "population": 6,
    "rounds": 3,
    "workload": {"dataset": "benchmarks.faulty_code:Learning"},
    "selection": {"protocol": "benchmarks.faulty_code:Selecting", "participants": 5},
    "aggregation": {"protocol": "benchmarks.faulty_code:Summing"},
    "availability": {"model": "benchmarks.faulty_code:There"},
    "devices": {"model": "benchmarks.faulty_code:Slow"},
}
WALL = {"clock": "wall", "compute": "modelled", "deadline_s": 60}


def line_of(place: str) -> int:
    """Where `bug(place)` stands."""
    lines = inspect.getsource(faulty_code).splitlines()
    return 1 + next(number for number, line in enumerate(lines) if f'bug("{place}")' in line)


@pytest.mark.parametrize(
    ("place", "begins"),
    [
        ("train", "client 2 crashed in round 2 at train: ZeroDivisionError: a bug ("),
        ("check-in", "client 1 crashed in round 1 at check-in: ZeroDivisionError: a bug ("),
        ("send", "client 3 crashed in round 1 at plain/update: ZeroDivisionError: a bug ("),
        ("select", "the server's side of round 1 crashed: ZeroDivisionError: a bug ("),
        ("aggregate", "the server's side of round 1 crashed: ZeroDivisionError: a bug ("),
        ("evaluate", "the server's side of round 1 crashed: ZeroDivisionError: a bug ("),
        ("presence", "the server's side of round 1 crashed: ZeroDivisionError: a bug ("),
        ("devices", "small.yaml: its preparation crashed: ZeroDivisionError: a bug ("),
        ("workload", "small.yaml: its preparation crashed: ZeroDivisionError: a bug ("),
    ],
)
def test_a_bug_ends_the_run_with_one_line_that_says_where(
    place: str, begins: str, call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faulty_code.AT, place)
    ended = call("run", written(**OWN), "--out", tmp_path / "out", "--quiet")
    assert ended.code == 3
    assert len(ended.errors) == 1
    assert begins in ended.errors[0]
    # The place is that of the caller: `bug` itself stands for a line of the user's own, too.
    assert f"{Path('benchmarks') / 'faulty_code.py'}, line {line_of_bug()}, in bug)" in ended.errors[0]
    debugged = call("run", written(**OWN), "--out", tmp_path / "debugged", "--quiet", "--debug")
    assert f'faulty_code.py", line {line_of(place)}' in debugged.err


def line_of_bug() -> int:
    """Where it is raised."""
    lines, first = inspect.getsourcelines(faulty_code.bug)
    return first + next(number for number, line in enumerate(lines) if "raise" in line)


@pytest.mark.parametrize("time", [{"compute": "modelled", "deadline_s": 5}, WALL], ids=["virtual", "wall"])
def test_finished_rounds_are_kept_and_the_run_goes_on_once_it_is_mended(
    time: dict[str, Any], call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = written(**OWN, time=time), tmp_path / "out"
    monkeypatch.setenv(faulty_code.AT, "train")
    assert call("run", file, "--out", out, "--quiet").code == 3
    assert RunRecords(out).rounds["outcome"].tolist() == ["completed"]
    (failed,) = (entry for entry in RunLog(out).read() if entry["event"] == "run-failed")
    assert failed["error"].startswith("client 2 crashed in round 2 at train: ZeroDivisionError: a bug (")
    assert f'faulty_code.py", line {line_of("train")}' in failed["traceback"]
    shown = call("status", out).out
    assert "client 2 crashed in round 2 at train: ZeroDivisionError: a bug (" in shown
    assert "Traceback" not in shown
    monkeypatch.delenv(faulty_code.AT)
    assert call("run", file, "--out", out, "--resume", "--quiet").code == 0
    assert RunRecords(out).rounds["outcome"].tolist() == ["completed"] * 3
    assert json.loads((out / "summary.json").read_text())["crashes"] == 0


@pytest.mark.parametrize("time", [{"compute": "modelled", "deadline_s": 2}, WALL | {"deadline_s": 2}], ids=["v", "w"])
def test_dropped_crashes_are_counted_where_people_look(
    time: dict[str, Any], call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = written(**OWN, time=time, on_crash="drop"), tmp_path / "out"
    monkeypatch.setenv(faulty_code.AT, "train")
    ran = call("run", file, "--out", out)
    assert ran.code == 0
    records = RunRecords(out)
    crashes = records.events[records.events["kind"] == "crash"]
    assert crashes["party"].tolist() == ["client:2"] * 2
    assert crashes["detail"].tolist() == [f"ZeroDivisionError: a bug (faulty_code.py:{line_of_bug()})"] * 2
    assert records.rounds["survivors"].tolist() == [5, 4, 4]
    assert json.loads((out / "summary.json").read_text())["crashes"] == 2
    assert status(out).crashes == 2
    logged = [entry for entry in RunLog(out).read() if entry["event"] == "client-crashed"]
    assert [(entry["client"], entry["round"], entry["stage"]) for entry in logged] == [(2, 2, "train")]
    assert f'faulty_code.py", line {line_of("train")}' in logged[0]["traceback"]
    counted = "2 crashes of clients' code"
    assert counted in ran.err  # where the run ends
    assert counted in call("status", out).out
    assert counted in ran.out  # the table
    for format in ("text", "markdown", "latex"):
        assert counted in call("compare", out, "--format", format).out.replace("\n", " ")
    assert json.loads(call("compare", out, "--format", "json").out)["rows"][0]["crashes"] == 2
    lost = call("dropouts", out, "--format", "json").out
    assert {row["stage"]: row["participants_crashed"] for row in json.loads(lost)["rows"]} == {
        "check-in": 0, "train": 2, "plain/update": 0,
    }  # fmt: skip


@pytest.mark.parametrize("time", [{"compute": "modelled", "deadline_s": 2}, WALL | {"deadline_s": 2}], ids=["v", "w"])
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("train", "client 2 crashed in round 2 at train: SystemExit: 0 ("),
        ("check-in", "client 1 crashed in round 1 at check-in: SystemExit: 0 ("),
        ("evaluate", "the server's side of round 1 crashed: SystemExit: 0 ("),
        ("workload", "small.yaml: its preparation crashed: SystemExit: 0 ("),
    ],
)
def test_code_that_exits_has_crashed_and_does_not_end_the_run_as_if_all_were_well(
    place: str, says: str, time: dict[str, Any], call: Call, written: Written, tmp_path: Path, monkeypatch: Any
) -> None:
    def leaving(where: str) -> None:
        if where == place:
            sys.exit(0)

    monkeypatch.setattr(faulty_code, "bug", leaving)
    ended = call("run", written(**OWN, time=time), "--out", tmp_path / "out", "--quiet")
    assert ended.code == 3
    assert says in ended.err
    if place == "train":
        out = tmp_path / "dropped"
        assert call("run", written(**OWN, time=time, on_crash="drop"), "--out", out, "--quiet").code == 0
        assert RunRecords(out).rounds["survivors"].tolist() == [5, 4, 4]
        assert json.loads((out / "summary.json").read_text())["crashes"] == 2


@pytest.mark.parametrize("place", ["train", "select", "workload"])
def test_leaving_the_debugger_stops_the_run(
    place: str, call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`q` at a breakpoint is no bug of the code: the run stops as by Ctrl-C."""

    def leave_debugger(at: str) -> None:
        if at == place:
            raise BdbQuit

    monkeypatch.setattr(faulty_code, "bug", leave_debugger)
    ended = call("run", written(**OWN), "--out", tmp_path / "out", "--quiet")
    assert ended.code == 130
    assert "stopped; resume with: testbed run" in " ".join(ended.err.split())
    assert "crashed" not in ended.err


def test_what_ends_a_process_on_ray_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray answers SIGTERM with `SystemExit`, in whatever code is running: the host is to be replaced."""
    handler = compile("import sys\nsys.exit(1)", "/somewhere/site-packages/ray/_private/worker.py", "exec")
    with pytest.raises(SystemExit) as ended:
        exec(handler)
    assert not is_crash(ended.value)

    def exit(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(sys, "exit", exit)  # as wandb does
    with pytest.raises(SystemExit) as ended:
        exec(handler)
    assert not is_crash(ended.value)
    with pytest.raises(SystemExit) as exited:
        sys.exit(1)
    assert is_crash(exited.value)
    assert not is_crash(KeyboardInterrupt())


def test_a_bug_that_validate_comes_upon_says_where(call: Call, written: Written, monkeypatch: Any) -> None:
    monkeypatch.setenv(faulty_code.AT, "devices")
    ended = call("validate", written(**OWN), "--import-classes")
    assert ended.code == 3
    assert len(ended.errors) == 1
    assert "its preparation crashed: ZeroDivisionError: a bug (" in ended.errors[0]
    assert f"faulty_code.py, line {line_of_bug()}, in bug)" in ended.errors[0]
