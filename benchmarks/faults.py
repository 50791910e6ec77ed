"""Kill processes and nodes at chosen moments of a run, and compare its result with that of an undisturbed run.

    python -m benchmarks.faults [--format json] [--only NAME]

Three Ray nodes on this machine (a head and two more), one host of clients on each, client-centric Lotto with SecAgg.
Each row is a run in which something is killed with SIGKILL, in the middle of a stage; "identical" compares the rounds,
exchanges and participation tables and the bits of the final model with those of an undisturbed run in one process.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.cluster_utils import Cluster

import workloads
from benchmarks import breaking
from benchmarks.breaking import SUM, Moment, Poison
from benchmarks.report import arguments, emit
from cluster.hosts.session import RaySession
from testbed.engine.in_process import run_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ClusterError
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords
from testbed.records.log import RunLog

TABLES = ("rounds", "exchanges", "participation")
ROUNDS = 5
HOSTS = 3


def experiment(rounds: int = ROUNDS, **changes: Any) -> Experiment:
    """Small, and with everything in it that could go wrong."""
    described: dict[str, Any] = {
        "name": "faults", "seed": 5, "rounds": rounds, "population": 24,
        "workload": {"dataset": "benchmarks.breaking:Means"},
        "selection": {"protocol": "lotto-client-centric", "participants": 8, "over_selection": 2},
        "aggregation": {"protocol": "secagg", "threshold": 0.6},
        "availability": {"dropout": {"rate": 0.1}},
        "time": {"compute": "modelled", "deadline_s": 5, "disconnects": "invisible"},
    }  # fmt: skip
    return Experiment.model_validate(described | changes)


def undisturbed(described: Experiment, directory: Path) -> RunRecords:
    """The run in this process, without Ray."""
    records = RunDirectory.create(directory, described.plain())
    workload = workloads.build(described.workload, described.population, 5)
    run_in_process(described, workload, 0, records, lambda progress: None)
    return RunRecords(directory)


def identical(run: RunRecords, reference: RunRecords) -> bool:
    """Whether tables and model are the same, bit for bit."""
    same = all(run.frame(table).equals(reference.frame(table)) for table in TABLES)
    assert run.model is not None
    assert reference.model is not None
    return same and run.model.tobytes() == reference.model.tobytes()


class Nodes:
    """A head and two more Ray nodes on this machine; a context manager, connected to the head."""

    def __enter__(self) -> "Nodes":
        ray.shutdown()
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.complete()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        return self

    def __exit__(self, *exception: object) -> None:
        ray.shutdown()
        self.cluster.shutdown()

    def complete(self) -> None:
        """Bring the number of nodes back to three."""
        for node in list(self.cluster.worker_nodes):
            if any(info.process.poll() is not None for info in node.all_processes["raylet"]):
                node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
                self.cluster.worker_nodes.remove(node)
        while len(self.cluster.worker_nodes) < 2:
            self.cluster.add_node(num_cpus=1)

    def raylets(self, node: Any) -> list[int]:
        """Return the process of a node; the node dies with it."""
        return [info.process.pid for info in node.all_processes["raylet"]]

    @property
    def far(self) -> list[Any]:
        """The nodes other than the head."""
        return list(self.cluster.worker_nodes)


@dataclass
class Row:
    """One line of the table.

    Attributes:
        killed: the processes that were killed.
        when: at which moment.
        outcome: how the run ended.
        hosts_restarted: how many hosts were started anew.
        rounds_repeated: rounds that were run again, by a new coordinator or after `--resume`.
        identical: whether the result is that of the undisturbed run.
        seconds: wall time.
    """

    killed: str
    when: str
    outcome: str
    hosts_restarted: int
    rounds_repeated: int
    identical: bool
    seconds: float = field(default=0.0)


class Trials:
    """Runs with faults, each in a directory of its own below `directory`.

    Args:
        nodes: the Ray nodes.
        directory: a scratch directory.
    """

    def __init__(self, nodes: Nodes, directory: Path) -> None:
        self.nodes = nodes
        self.directory = directory
        self.described = experiment()
        self.plan = RunPlan(self.described, 0)
        self.reference = undisturbed(self.described, directory / "reference")

    def fault(
        self,
        killed: str,
        when: str,
        *faults: tuple[int, str, breaking.Victims, int],
        described: Experiment | None = None,
        reference: RunRecords | None = None,
    ) -> Row:
        """Kill the victims `times` times at (round, stage) of a run; resume it if that ends it."""
        described, reference = described or self.described, reference or self.reference
        path = self.directory / f"run-{len(list(self.directory.iterdir()))}"
        RunDirectory.create(path, described.plain())
        moments = [
            (Moment(round_number, stage, path.with_name(f"{path.name}.marker-{number}"), times), victims)
            for number, (round_number, stage, victims, times) in enumerate(faults)
        ]
        outcome = "continued"
        began = time.monotonic()
        with RaySession(None, HOSTS, coordinator_class=breaking.breaking(*moments)) as session:
            try:
                session.run(described, 0, path, lambda progress: None)
            except ClusterError as error:
                outcome = f"stopped ({str(error).split(';')[0]}), resumed"
        if outcome != "continued":
            with RaySession(None, HOSTS) as session:
                session.run(described, 0, path, lambda progress: None)
        missed = [moment.stage for moment, _ in moments if not moment.marker.exists()]
        if missed:
            raise AssertionError(f"{killed}: nothing was killed at {', '.join(missed)}; the run {outcome}")
        row = self.row(killed, when, outcome, path, reference)
        row.seconds = time.monotonic() - began
        return row

    def row(self, killed: str, when: str, outcome: str, path: Path, reference: RunRecords | None = None) -> Row:
        """Return the row that follows from a run's records."""
        run = RunRecords(path)
        restarts = [entry for entry in RunLog(path).read() if entry["event"] == "host-restarted"]
        resumes = run.events[(run.events["kind"] == "resume")]
        return Row(killed, when, outcome, len(restarts), len(resumes), identical(run, reference or self.reference))

    # -- the command, killed from outside ------------------------------------------------------------------

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """``testbed`` in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "testbed", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )  # fmt: skip

    def killed_from_outside(self, killed: str, kill: Callable[[subprocess.Popen[bytes]], None], address: str) -> Row:
        """The command, `kill`ed after its second round, and then again with ``--resume``."""
        described = experiment(rounds=40)
        path = self.directory / f"run-{len(list(self.directory.iterdir()))}"
        file = path.with_suffix(".yaml")
        file.write_text(yaml.safe_dump(described.plain()))
        reference = undisturbed(described, path.with_suffix(".reference"))
        run = ["run", str(file), "--out", str(path), "--hosts", str(HOSTS), "--quiet"]
        began = time.monotonic()
        process = self.command(*run, *(["--address", address] if address else []))
        while len([entry for entry in RunLog(path).read() if entry["event"] == "round-ended"]) < 2:
            if process.poll() is not None:
                raise AssertionError(f"{killed}: the run ended before anything was killed")
            time.sleep(0.02)
        kill(process)
        code = process.wait()
        done = len(RunRecords(path).rounds)
        again = self.command(*run, "--resume")
        if again.wait() != 0:
            raise AssertionError(f"{killed}: --resume failed")
        row = self.row(killed, f"after round {done} of 40", f"ended ({_ended(code)}), resumed", path, reference)
        row.seconds = time.monotonic() - began
        return row


def _ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def trials(at: Trials) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield all rows: a name for ``--only``, and the function that measures."""
    one, two = breaking.host(1), breaking.host(2)
    stages = (*at.plan.selection.stages, "train", *at.plan.aggregation.stages, SUM)
    for stage in stages:
        yield (
            f"host at {stage}",
            partial(at.fault, "a host's process", f"round 2, {stage}", (2, stage, one, 1)),
        )
    yield "two hosts", lambda: at.fault(
        "two hosts at once", "round 3, train",
        (3, "train", lambda hosts: [hosts.processes[1], hosts.processes[2]], 1),
    )  # fmt: skip
    yield (
        "host and replacement",
        lambda: at.fault("a host, and the one in its place", "round 2, secagg/unmask", (2, "secagg/unmask", two, 2)),
    )
    yield "host for ever", lambda: at.fault("a host, again and again", "round 2, train", (2, "train", one, 5))
    for stage in ("train", "secagg/masked-input", "secagg/unmask"):
        yield f"node at {stage}", partial(node_lost, at, stage)
    for stage in ("lotto/announce", "train", "secagg/unmask"):
        yield (
            f"coordinator at {stage}",
            partial(at.fault, "the coordinator", f"round 3, {stage}", (3, stage, breaking.coordinator, 1)),
        )
    yield "coordinator and host", lambda: at.fault(
        "the coordinator and a host", "round 3, secagg/share-keys",
        (3, "secagg/share-keys", lambda hosts: [hosts.processes[1], os.getpid()], 1),
    )  # fmt: skip
    yield "poison", lambda: poisoned(at)
    yield "driver", lambda: at.killed_from_outside("the driver", lambda process: process.kill(), "")
    yield "head", lambda: _head_lost(at)


def node_lost(at: Trials, stage: str) -> Row:
    """A node dies with all its processes."""
    at.nodes.complete()
    raylets = at.nodes.raylets(at.nodes.far[0])
    row = at.fault("a node", f"round 2, {stage}", (2, stage, breaking.processes(*raylets), 1))
    at.nodes.complete()
    return row


def poisoned(at: Trials) -> Row:
    """No undisturbed run to compare with: the client can do nothing else. One host, and three, must agree instead."""
    described = experiment(
        workload={"dataset": "benchmarks.breaking:Poison"},
        on_crash="drop",
        selection={"protocol": "random", "participants": 20},
        aggregation={"protocol": "plain"},
    )
    paths = []
    began = time.monotonic()
    for hosts in (1, HOSTS):
        paths.append(at.directory / f"poison-{hosts}")
        RunDirectory.create(paths[-1], described.plain())
        with RaySession(None, hosts) as session:
            session.run(described, 0, paths[-1], lambda progress: None)
    row = at.row(
        "a host, by each message to one client",
        "train",
        "client left out, run continued",
        paths[1],
        RunRecords(paths[0]),
    )
    left_out = RunRecords(paths[1]).events.query("kind == 'poisoned'")["party"].tolist()
    assert left_out == [f"client:{Poison.KILLS}"], left_out
    row.seconds = time.monotonic() - began
    return row


def _head_lost(at: Trials) -> Row:
    """Everything of a cluster of its own is killed, driver's connection and all; the run resumes on another."""
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})

    def kill(process: subprocess.Popen[bytes]) -> None:
        assert head.head_node is not None
        for infos in head.head_node.all_processes.values():
            for info in infos:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(info.process.pid, signal.SIGKILL)

    try:
        return at.killed_from_outside("the head node with all its processes", kill, head.address)
    finally:
        with contextlib.suppress(Exception):
            head.shutdown()


def main(given: Sequence[str] | None = None) -> None:
    """Run the trials from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", help="only trials with this text in their names")
    options = parser.parse_args(given)
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    rows = []
    try:
        with Nodes() as nodes:
            at = Trials(nodes, directory)
            began = time.monotonic()
            at.fault("nothing", "")
            floor_s = time.monotonic() - began
            for name, trial in trials(at):
                if options.only is None or options.only in name:
                    print(name, file=sys.stderr)
                    rows.append(trial())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    survived = [row for row in rows if row.identical]
    emit(
        {
            "seconds": max(row.seconds for row in rows), "floor_seconds": floor_s,
            "ratio": max(row.seconds for row in rows) / floor_s, "faults": len(rows), "identical": len(survived),
        },
        [vars(row) for row in rows],
        options.format == "json",
    )  # fmt: skip
    sys.exit(len(survived) < len(rows))


if __name__ == "__main__":
    main()
