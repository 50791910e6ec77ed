"""A run that is stopped at any moment resumes to the result of an uninterrupted run."""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import run
from testbed.engine.federation import RunProgress
from testbed.errors import RunError
from testbed.records.locks import run_lock
from testbed.running import Observer, PlannedRun
from tests.fingerprints import fingerprint

SWEEP = {"selection": [{"protocol": "random"}, {"protocol": "batch-partition", "privacy": 2}]}
LOTTO_UNDER_SECAGG = {
    "selection": {"protocol": "lotto-server-centric", "participants": 4},
    "aggregation": {"protocol": "secagg"},
    "availability": {"model": "bernoulli", "unavailable": [0.1, 0.2], "dropout": {"rate": 0.1, "stage": "random"}},
}
LIGHT = {"dataset": "benchmarks.breaking:Means"}  # without torch, for processes that start quickly
Call = Callable[..., Any]
Written = Callable[..., Path]


class StopAfter(Observer):
    """Interrupts the run after a number of stages and ends of rounds."""

    def __init__(self, reports: int) -> None:
        self.left = reports

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Reports(Observer):
    """Counts them."""

    def __init__(self) -> None:
        self.number = 0

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        self.number += 1


@pytest.mark.parametrize("changes", [{}, LOTTO_UNDER_SECAGG], ids=["random-plain", "lotto-secagg"])
def test_stopped_at_every_stage_it_ends_the_same(changes: dict[str, Any], written: Written, tmp_path: Path) -> None:
    """Interrupt at each report in turn, always resuming the same run: it is stopped many times over its life."""
    file, reports = written(**changes), Reports()
    run(file, out=tmp_path / "whole", observer=reports)
    assert reports.number > 6
    stopped, out = 0, tmp_path / "stopped"
    for report in range(1, reports.number):
        try:
            run(file, out=out, resume=True, observer=StopAfter(report))
        except KeyboardInterrupt:
            stopped += 1
            assert not (out / "summary.json").exists()
        else:
            break
    run(file, out=out, resume=True)
    assert stopped >= 3
    assert fingerprint(out) == fingerprint(tmp_path / "whole")
    assert (out / "summary.json").is_file()


STOPPED_BY_SIGNAL = """
import os, sys
from testbed.cli import main
from benchmarks.breaking import Means

evaluate, seen = Means.evaluate, []

def evaluate_and_be_stopped(self, model):
    seen.append(model)
    if len(seen) == 5:  # the second round of the second point is aggregated, and not recorded yet
        os.kill(os.getpid(), {number})
    return evaluate(self, model)

Means.evaluate = evaluate_and_be_stopped
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals(number: signal.Signals, call: Call, written: Written, ran: Written, tmp_path: Path) -> None:
    """Stopped in the middle of the second point of a sweep, the first is left alone and the second goes on."""
    file = written(workload=LIGHT, sweep=SWEEP)
    whole = ran("whole", workload=LIGHT, sweep=SWEEP)
    arguments = ["run", str(file), "--out", str(tmp_path / "stopped")]
    program = STOPPED_BY_SIGNAL.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    if number == signal.SIGKILL:
        assert done.returncode == -signal.SIGKILL
    else:
        assert done.returncode == 128 + number
        last = done.stderr.splitlines()[-1]
        assert last == f"stopped; resume with: {shlex.join(['testbed', *arguments])} --resume"
    random, batches = (tmp_path / "stopped" / name for name in ("random", "batch-partition"))
    assert not (batches / "summary.json").exists()
    before = {path.name: path.stat().st_mtime_ns for path in random.iterdir()}
    ended = call(*arguments, "--resume")
    assert ended.code == 0, ended.err
    assert "random: finished before" in ended.errors
    assert "batch-partition: resuming after round 1" in ended.errors
    assert {path.name: path.stat().st_mtime_ns for path in random.iterdir()} == before
    for point in ("random", "batch-partition"):
        assert fingerprint(tmp_path / "stopped" / point) == fingerprint(whole / point)


def test_resuming_what_is_done_does_nothing(call: Call, written: Written, ran: Written) -> None:
    out = ran()
    before = fingerprint(out)
    ended = call("run", written(), "--out", out, "--resume", "--hosts", 7, "--address", "x:1")  # where may change
    assert ended.code == 0
    assert ended.errors[0] == "small: finished before"
    assert "Round time" in ended.out
    assert fingerprint(out) == before


def test_a_point_is_found_by_its_values_whatever_its_directory_is_called(
    call: Call, written: Written, tmp_path: Path
) -> None:
    """Names of points change: with a version, with a label, with another value of the sweep beside it."""
    out = tmp_path / "out"
    two = [{"participants": 2}, {"participants": 3}]
    assert call("run", written(workload=LIGHT, sweep={"selection": two}), "--out", out).code == 0
    (out / "participants=2").rename(out / "as-it-was-called-before")
    before = {path.name: fingerprint(path) for path in out.iterdir()}
    file = written(workload=LIGHT, sweep={"selection": [*two, {"participants": 4}]})
    assert call("run", file, "--out", out, "--resume").code == 0
    after = {path.name: fingerprint(path) for path in out.iterdir()}
    assert after.keys() == before.keys() | {"participants=4"}  # a point that is missing is started
    assert before.items() <= after.items()


def test_a_summary_that_is_missing_is_made(call: Call, written: Written, ran: Written) -> None:
    """Stopped between the last round and the summary: nothing is run again."""
    file = ran() / "summary.json"
    summary = json.loads(file.read_text())
    file.unlink()
    ended = call("run", written(), "--out", file.parent, "--resume")
    assert ended.code == 0
    assert "small: resuming after round 3" in ended.errors
    assert json.loads(file.read_text()) == summary


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": 2}, "rounds: 3, the experiment has 2"),
        ({"links": {"latency_ms": 7}}, "links.latency_ms"),
        ({"seed": None}, "seed: 3, the experiment has None"),
    ],
)
def test_another_experiment_does_not_go_on_with_it(
    changes: dict[str, Any], said: str, call: Call, written: Written, ran: Written
) -> None:
    out = ran()
    line = call("run", written(**changes), "--out", out, "--resume").line(2)
    assert said in line


def test_without_a_seed_the_simulation_keeps_its_own(call: Call, written: Written, tmp_path: Path) -> None:
    """With plain aggregation nothing secret is drawn, so such a run goes on to the very same result too."""
    file, out = written(seed=None, rounds=4, sweep=SWEEP), tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run(file, out=out, observer=StopAfter(7))
    assert not (out / "batch-partition").exists()
    run(file, out=out, resume=True)
    origins = [yaml.safe_load((out / f"{p}/experiment.yaml").read_text()) for p in ("random", "batch-partition")]
    seeds = {origin["provenance"]["simulation_seed"] for origin in origins}
    assert len(seeds) == 1  # points of a sweep differ in what is swept, not in luck
    assert 0 <= min(seeds) < 2**63
    run(file, out=tmp_path / "other")
    assert fingerprint(tmp_path / "other" / "random") != fingerprint(out / "random")
    # The uninterrupted run with that very number is told by resuming an experiment without any round.
    whole = tmp_path / "whole" / "random"
    whole.mkdir(parents=True)
    (whole / "experiment.yaml").write_text((out / "random" / "experiment.yaml").read_text())
    run(file, out=tmp_path / "whole", resume=True)
    for point in ("random", "batch-partition"):
        assert fingerprint(tmp_path / "whole" / point) == fingerprint(out / point)


def test_two_at_once(call: Call, written: Written, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(written(), out=out, observer=StopAfter(7))
    with run_lock(out):
        line = call("run", written(), "--out", out, "--resume", "--quiet").line(3)
        assert "in use by another run" in line
        with pytest.raises(RunError, match="in use"), run_lock(out):
            pass
    assert call("run", written(), "--out", out, "--resume").code == 0


def test_a_damaged_checkpoint_is_one_line(call: Call, written: Written, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(written(), out=out, observer=StopAfter(7))
    for name in ("checkpoint.npz", "checkpoint-previous.npz"):
        (out / name).write_bytes(b"PK\x03\x04 and then nothing")
    line = call("run", written(), "--out", out, "--resume", "--quiet").line(3)
    assert "damaged checkpoint" in line


@pytest.mark.parametrize("rounds_before", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_full_disk(rounds_before: int, call: Call, written: Written, tmp_path: Path) -> None:
    """No file may grow beyond 12 kB, less than a checkpoint of the mlp: one line, and what was recorded stays."""
    file, out = written(workload={"dataset": "digits", "model": "mlp"}), tmp_path / "out"
    run(file, out=tmp_path / "whole")
    if rounds_before:
        with pytest.raises(KeyboardInterrupt):
            run(file, out=out, observer=StopAfter(7))
    command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(out), "--resume", "--quiet"]
    done = subprocess.run(
        command, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
    )  # fmt: skip
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {out / 'checkpoint.npz'}: cannot write: ")
    assert line.endswith("--resume")
    run(file, out=out, resume=True)
    assert fingerprint(out) == fingerprint(tmp_path / "whole")


def test_a_directory_that_cannot_be_written(call: Call, written: Written, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = call("run", written(), "--out", tmp_path / "file" / "out", "--quiet").line(3)
    assert "the directory: Not a directory" in line


def test_handlers_of_signals_are_put_back(written: Written, tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run(written(rounds=1), out=tmp_path / "out")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_callback_drops(written: Written, tmp_path: Path) -> None:
    """An exception that is raised there goes nowhere; the run is stopped all the same."""

    class Signalling:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    class Dropped(Observer):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            if progress.round_number == 2 and progress.stage == "train":
                Signalling()

    with pytest.raises(KeyboardInterrupt):
        run(written(rounds=30), out=tmp_path / "out", observer=Dropped())
    assert not (tmp_path / "out" / "summary.json").exists()
    run(written(rounds=3), out=tmp_path / "again")  # the signal was answered


def test_a_notebook_is_interrupted_too(written: Written, tmp_path: Path) -> None:
    """There the run is in a thread, and the signal reaches the notebook's own."""
    import asyncio

    class Interrupted(Observer):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            if progress.round_number == 2 and progress.stage == "train":
                os.kill(os.getpid(), signal.SIGINT)

    async def cell() -> None:
        run(written(rounds=30), out=tmp_path / "out", observer=Interrupted())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert not (tmp_path / "out" / "summary.json").exists()
    run(written(rounds=30), out=tmp_path / "out", resume=True)
    run(written(rounds=30), out=tmp_path / "whole")
    assert fingerprint(tmp_path / "out") == fingerprint(tmp_path / "whole")
