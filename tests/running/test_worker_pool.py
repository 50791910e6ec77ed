"""Points of a sweep at the same time, on real Ray: the same results, and an end to all when one ends."""

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.federation import RunProgress
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment
from testbed.records.locks import is_held
from testbed.records.log import RunLog
from testbed.running import Observer, PlannedRun
from testbed.running.data_checks import group_by_resources
from testbed.running.execution import requires_exclusive_access, run_all
from testbed.running.observers import Serialised
from testbed.running.preparation import planned
from tests.fingerprints import fingerprint
from tests.observers import StopIn
from tests.running.sweeps import small_sweep

POINTS = ("random", "batch-partition", "lotto-server-centric")
TWO_WORKERS = {"network": "ray", "parallel_runs": 2, "hosts": 1}
LIGHT = {"dataset": "benchmarks.breaking:Means"}  # without torch, so that hosts start quickly
WAIT_S = 120  # turns a deadlock into a failure


class Watching(Observer):
    """An observer that stores events, and the runs in progress at the same time."""

    def __init__(self) -> None:
        self.going: set[str] = set()
        self.most_at_once = 0
        self.heard: list[tuple[str, str]] = []
        self.threads: set[str] = set()

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        assert run.label not in self.going
        self.heard.append(("started", run.label))
        self.going.add(run.label)
        self.most_at_once = max(self.most_at_once, len(self.going))
        self.threads.add(threading.current_thread().name)

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        if progress.outcome:
            self.heard.append((f"round {progress.round_number}", run.label))
        if progress.outcome and progress.round_number == progress.rounds:
            self.going.discard(run.label)  # only the summary remains, in the main thread

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        self.heard.append(("ended", run.label))
        assert run.label not in self.going
        assert summary["label"] == run.label
        assert threading.current_thread() is threading.main_thread()


def points(experiment: Experiment, tmp_path: Path) -> list[PlannedRun]:
    """The runs of a sweep that is not there yet."""
    from testbed.experiment.schema import points

    return planned(list(points(experiment, "test")), tmp_path / "none", resume=False)


# -- without Ray ----------------------------------------------------------------------------------------------------


def test_points_with_one_cluster_section_and_clock_share_workers(tmp_path: Path) -> None:
    sweep = {"cluster.hosts": [1, 2], "time.clock": ["virtual", "wall"], "seed": [1, 2]}
    groups = group_by_resources(points(small_sweep(sweep=sweep), tmp_path))
    assert [[run.label for run in group] for group in groups] == [
        [f"hosts={hosts},clock={clock},seed={seed}" for seed in (1, 2)]
        for hosts in (1, 2)
        for clock in ("virtual", "wall")
    ]
    mixed = group_by_resources(points(small_sweep(sweep={"seed": [1, 2], "cluster.hosts": [1, 2]}), tmp_path))
    assert [[run.label for run in group] for group in mixed] == [
        ["seed=1,hosts=1", "seed=2,hosts=1"], ["seed=1,hosts=2", "seed=2,hosts=2"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("clock", "network", "expected"),
    [("virtual", "ray", False), ("wall", "ray", True), ("virtual", "in-process", True), ("wall", "in-process", True)],
)
def test_experiments_that_need_the_machine_alone(clock: str, network: str, expected: bool) -> None:
    one = small_sweep(sweep={}, time={"clock": clock}, cluster={"network": network, "parallel_runs": 8})
    assert requires_exclusive_access(one) is expected


def test_without_ray_points_run_in_order_in_this_thread(tmp_path: Path) -> None:
    watching = Watching()
    several = small_sweep(cluster={"network": "in-process", "parallel_runs": 3})
    paths = run_all(several, tmp_path / "out", where="test", observer=watching)
    assert [path.name for path in paths] == list(POINTS)
    assert watching.most_at_once == 1
    assert watching.threads == {threading.main_thread().name}
    assert [label for what, label in watching.heard if what == "started"] == list(POINTS)
    log = RunLog(paths[1]).read()
    assert [entry["event"] for entry in log] == ["run-started", "round-ended", "round-ended", "run-ended"]
    assert (log[0]["label"], log[0]["point"], log[0]["points"]) == ("batch-partition", 2, 3)


def test_one_cluster_for_all_points(tmp_path: Path) -> None:
    several = small_sweep(sweep={"cluster.address": ["one:1", "other:1"]})
    with pytest.raises(ExperimentError, match=r"cluster\.address"):
        run_all(several, tmp_path / "out", where="test")
    assert not (tmp_path / "out").exists()


def test_an_error_names_its_point_and_the_log_names_the_failed_run(tmp_path: Path) -> None:
    class Breaking(Observer):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            if run.label == "batch-partition":
                raise RunError("no more room\nnowhere")

    several = small_sweep(cluster={"network": "in-process"})
    with pytest.raises(RunError) as caught:
        run_all(several, tmp_path / "out", where="test", observer=Breaking())
    assert str(caught.value).splitlines() == [
        "sweep point batch-partition: no more room", "sweep point batch-partition: nowhere"
    ]  # fmt: skip
    last = {name: RunLog(tmp_path / "out" / name).read()[-1] for name in POINTS[:2]}
    assert last["random"]["event"] == "run-ended"
    failed = last["batch-partition"]
    assert (failed["event"], failed["error"]) == ("run-failed", "no more room nowhere")
    assert not (tmp_path / "out" / POINTS[2]).exists()


def test_a_run_that_is_stopped_and_resumed_says_so_in_its_log(tmp_path: Path) -> None:

    single, out = small_sweep(sweep={}, cluster={"network": "in-process"}), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_all(single, out, where="test", observer=StopIn(2))
    assert is_held(out) is False
    run_all(single, out, where="test", resume=True)
    told = [entry for entry in RunLog(out).read() if entry["event"].startswith("run-")]
    assert [entry["event"] for entry in told] == ["run-started", "run-stopped", "run-resumed", "run-ended"]
    assert told[2]["after_round"] == 1


def test_a_run_with_a_closed_output_pipe_is_stopped_and_has_not_failed(tmp_path: Path) -> None:
    class Unread(Observer):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            try:
                raise BrokenPipeError
            except BrokenPipeError:
                raise SystemExit(1)  # noqa: B904 - as a rich console does

    single, out = small_sweep(sweep={}, cluster={"network": "in-process"}), tmp_path / "out"
    with pytest.raises(SystemExit):
        run_all(single, out, where="test", observer=Unread())
    last = RunLog(out).read()[-1]
    assert last["event"] == "run-stopped"
    assert last["error"]


def test_calls_of_an_observer_do_not_overlap(tmp_path: Path) -> None:
    """Two threads: the second calls while the first is in a call, and must wait until that has returned."""
    run = points(small_sweep(), tmp_path)[0]
    inside, second_calls, order = threading.Event(), threading.Event(), list[str]()

    class Slow(Observer):
        def doing(self, what: str, run: PlannedRun | None = None) -> None:
            inside.set()
            assert second_calls.wait(WAIT_S)
            order.append(what)

        def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
            order.append("started")

    observer = Serialised(Slow())
    first = threading.Thread(target=observer.doing, args=("first",))
    first.start()
    assert inside.wait(WAIT_S)

    def call_second() -> None:
        second_calls.set()
        observer.started(run, [])

    second = threading.Thread(target=call_second)
    second.start()
    first.join(WAIT_S)
    second.join(WAIT_S)
    assert order == ["first", "started"]


# -- on Ray ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep in this process."""
    out = tmp_path_factory.mktemp("reference") / "sweep"
    run_all(small_sweep(workload=LIGHT, cluster={"network": "in-process"}), out, where="test")
    return out


@pytest.mark.ray
def test_workers_change_no_result(ray_here: None, reference: Path, tmp_path: Path) -> None:
    watching = Watching()
    paths = run_all(small_sweep(workload=LIGHT, cluster=TWO_WORKERS), tmp_path / "out", where="test", observer=watching)
    assert [path.name for path in paths] == list(POINTS)  # in the order of the sweep, not of the ends
    for name in POINTS:
        assert fingerprint(tmp_path / "out" / name) == fingerprint(reference / name)
        mine, theirs = (json.loads((out / name / "summary.json").read_text()) for out in (tmp_path / "out", reference))
        assert mine | {"wall_s": 0} == theirs | {"wall_s": 0}
        assert {what for what, label in watching.heard if label == name} == {"started", "round 1", "round 2", "ended"}
        assert RunLog(tmp_path / "out" / name).read()[-1]["event"] == "run-ended"
    assert watching.most_at_once == 2
    assert watching.threads == {"worker-1", "worker-2"}


class OnceBothGoOn(Watching):
    """Does something once, in the worker that is first to finish a round, when both workers have begun."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action = action
        self.acted = ""

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        super().progressed(run, progress)
        if len(self.going) == 2 and (progress.outcome or progress.round_number > 1) and not self.acted:
            self.acted = run.label
            self.action()


def workers_alive() -> list[str]:
    """Names of workers' threads that live."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("worker-")]


@pytest.mark.ray
@pytest.mark.parametrize("what", ["error", "signal"])
def test_one_ends_all_and_every_run_is_resumable(what: str, ray_here: None, tmp_path: Path) -> None:
    """With an error in one worker, or a signal for the main thread, in the middle of two runs."""
    seeds = {
        "workload": LIGHT,
        "rounds": 20,
        "selection": {"participants": 5, "protocol": "random"},
        "sweep": {"seed": [1, 2, 3]},
    }
    out, here = tmp_path / "out", {"network": "in-process"}

    def act() -> None:
        if what == "error":
            raise RunError("no more room")
        os.kill(os.getpid(), signal.SIGTERM)

    watching = OnceBothGoOn(act)
    with pytest.raises(RunError if what == "error" else KeyboardInterrupt) as caught:
        run_all(small_sweep(**seeds, cluster=TWO_WORKERS), out, where="test", observer=watching)
    if what == "error":
        assert str(caught.value) == f"sweep point {watching.acted}: no more room"
    assert not workers_alive()
    assert watching.acted
    assert not (out / "seed=3").exists()
    for label in ("seed=1", "seed=2"):
        last = RunLog(out / label).read()[-1]
        assert last["event"] == ("run-failed" if what == "error" and label == watching.acted else "run-stopped")
        assert is_held(out / label) is False
        assert not (out / label / "summary.json").exists()
    run_all(small_sweep(**seeds, cluster=here), out, where="test", resume=True)
    run_all(small_sweep(**seeds, cluster=here), tmp_path / "whole", where="test")
    for label in ("seed=1", "seed=2", "seed=3"):
        assert fingerprint(out / label) == fingerprint(tmp_path / "whole" / label)
