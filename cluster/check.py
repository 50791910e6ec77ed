"""``testbed cluster check``: whether a cluster fits an experiment, checked before anything runs.

Every line names the check, the place and the result; a line that is not ok also has advice. The checks are plain
functions of the nodes' facts (`cluster.probe`).

Estimate of memory: each host is a process of `HOST_BYTES` (Python, Ray and torch, as measured), with
`IDLE_CLIENT_BYTES` for each of its clients, `VECTORS_PER_PARTICIPANT` vectors of the model's size (the update and its
encoding) for each participant that it may hold, and the data, measured by the growth of this process when they are
loaded here.
"""

import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import ray

from cluster.hosts.connection import connect, disconnect
from cluster.hosts.placement import Node, hosts_for, runs_at_a_time, spread
from cluster.probe import NodeFacts, check_inputs_on, facts_here, start_probes
from testbed.engine.plan import RunPlan
from testbed.errors import ClusterError, ExperimentError, RunError, TraceError
from testbed.experiment.inputs import digests, located, plugin_classes
from testbed.experiment.schema import Experiment
from testbed.files.names import is_uri
from testbed.plugins import sources
from testbed.workload import building

Level = Literal["ok", "warn", "fail"]
HOST_BYTES = 600 * 2**20
IDLE_CLIENT_BYTES = 2 * 2**10
VECTORS_PER_PARTICIPANT = 3
MODELS_IN_STORE = 4  # this round's and the last one's broadcast, and sums on their way


@dataclass(frozen=True)
class CheckResult:
    """One line of the report; `advice` is empty if `level` is "ok"."""

    level: Level
    check: str
    where: str
    detail: str
    advice: str = ""


@dataclass(frozen=True)
class Demand:
    """Resources that one run of an experiment needs.

    Attributes:
        experiment: one point, without a sweep.
        dimension: number of parameters of its model.
        data_bytes: memory of its data in every process that holds clients.
    """

    experiment: Experiment
    dimension: int
    data_bytes: int

    def host_bytes(self, hosts: int) -> int:
        """Return the estimated memory in bytes of one of `hosts` host processes; see the module."""
        clients = math.ceil(self.experiment.population / hosts)
        most_at_once = min(clients, self.experiment.selection.participants)
        vectors = VECTORS_PER_PARTICIPANT * 4 * self.dimension * most_at_once
        return HOST_BYTES + self.data_bytes + IDLE_CLIENT_BYTES * clients + vectors


def demands_of(experiments: Sequence[Experiment]) -> tuple[list[Demand], list[CheckResult]]:
    """Return the demand of each point, and the problems of points that cannot be built.

    Data and models are built in this process, once for points that share them.
    """
    built: dict[str, tuple[Any, int]] = {}
    demands, problems = [], []
    for experiment in experiments:
        try:
            plan = RunPlan(experiment, 0)
            key = f"{experiment.workload.model_dump_json()} {experiment.population} {plan.seed}"
            if key not in built:
                # The growth of this process stands for that of each host, which loads the same data.
                before = psutil.Process().memory_info().rss
                workload = building.build(experiment.workload, experiment.population, plan.seed)
                built[key] = workload, max(0, psutil.Process().memory_info().rss - before)
            workload, data_bytes = built[key]
            plan.check_sums(workload)
            plan.read_files(workload)
            demands.append(Demand(experiment, workload.dimension, data_bytes))
        except (ExperimentError, TraceError) as error:
            advice = "`testbed run` would fail with the same message; correct the experiment, or the file that it names"
            problems.append(CheckResult("fail", "experiment", "here", " ".join(str(error).split()), advice))
    return demands, problems


def capacity(nodes: Sequence[NodeFacts], demands: Sequence[Demand]) -> Iterator[CheckResult]:
    """Check CPUs, GPUs, memory and object stores for the point of the sweep with the largest demand.

    Args:
        nodes: facts of the nodes that answer.
        demands: demands of all points, at least one.
    """
    cpus = max(1, int(sum(node.cpus for node in nodes)))
    first = demands[0].experiment.cluster
    at_once = runs_at_a_time(first, len(demands), cpus, sum(node.memory_bytes for node in nodes))
    most = max(
        demands, key=lambda demand: _hosts(demand, cpus, at_once) * demand.host_bytes(_hosts(demand, cpus, at_once))
    )
    hosts = _hosts(most, cpus, at_once)
    together = f" ({at_once} runs at the same time)" if at_once > 1 else ""
    if at_once * hosts > cpus:
        advice = "results are the same, but the run takes longer; lower cluster.hosts, or add nodes"
        detail = f"{quantity(at_once * hosts, 'host')}{together} share {cpus} CPUs"
        yield CheckResult("warn", "cpus", "cluster", detail, advice)
    else:
        yield CheckResult("ok", "cpus", "cluster", f"{quantity(at_once * hosts, 'host')}{together}, {cpus} CPUs")
    our_nodes = [Node(node.node_id, node.cpus, node.gpus) for node in nodes]
    try:
        places = spread(our_nodes, at_once * hosts, first.gpus_per_host)
    except ClusterError as error:
        detail, _, advice = str(error).partition("; ")
        yield CheckResult("fail", "gpus", "cluster", detail, f"{advice}, or use nodes with more GPUs")
        # Without GPUs, so that memory is checked nevertheless.
        places = spread(our_nodes, at_once * hosts, 0.0)
    on_node = Counter(place.node_id for place in places)
    need = most.host_bytes(hosts)
    for node in nodes:
        yield _memory(node, on_node[node.node_id], need)
        yield _object_store(node, at_once * MODELS_IN_STORE * 4 * most.dimension)


def _hosts(demand: Demand, cpus: int, at_once: int) -> int:
    return hosts_for(demand.experiment.cluster, demand.experiment.population, cpus, at_once)


def _memory(node: NodeFacts, hosts: int, host_bytes: int) -> CheckResult:
    need, free = hosts * host_bytes, node.memory_bytes
    detail = f"about {size(need)} for {quantity(hosts, 'host')}, {size(free)} free"
    if need > free:
        advice = "lower cluster.hosts, set cluster.parallel_runs: 1, or use nodes with more memory"
        return CheckResult("fail", "memory", node.address, detail, advice)
    if need > 0.8 * free:
        return CheckResult("warn", "memory", node.address, detail, "little is left; lower cluster.hosts to use less")
    return CheckResult("ok", "memory", node.address, detail)


def _object_store(node: NodeFacts, need: int) -> CheckResult:
    detail = f"about {size(need)} of models and sums, {size(node.object_store_bytes)} there"
    if need > node.object_store_bytes:
        advice = "start Ray there with a larger --object-store-memory (and /dev/shm), or Ray spills to disk"
        return CheckResult("warn", "object store", node.address, detail, advice)
    return CheckResult("ok", "object store", node.address, detail)


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed.

    Args:
        number: the number.
        noun: singular of the counted thing.

    Example:
        >>> quantity(1, "host"), quantity(2, "host")
        ('1 host', '2 hosts')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Return a number of bytes with a unit.

    Example:
        >>> size(512), size(10_000), size(1.4e9)
        ('512 B', '10 kB', '1.4 GB')
    """
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


CLOCK_SKEW_S = 1.0
_SAME_OR_FAIL = ("python", "testbed", "ray")  # Ray itself refuses the first and the last
_SAME_OR_WARN = ("torch", "numpy")


def check(address: str, experiments: Sequence[Experiment], out: str | None = None) -> list[CheckResult]:
    """Check a cluster, and whether the experiments fit it.

    Args:
        address: a running cluster, in the form of `testbed run --address`.
        experiments: the points of a sweep, or one experiment; empty: check the cluster alone.
        out: destination of the records, a directory or a URI; None: not checked.

    Raises:
        ClusterError: no cluster at `address`.
    """
    was_connected = ray.is_initialized()
    connect(address)
    probes: dict[str, Any] = {}
    try:
        nodes, probes = start_probes()
        alive = [node for node in nodes if not node.failure]
        here = facts_here()
        findings = [*reachable(nodes, sum(not row["Alive"] for row in ray.nodes()))]
        if alive:
            findings += [*same_versions(alive, here), clocks(alive), *processors(alive, experiments)]
        if alive and experiments:
            demands, problems = demands_of(experiments)
            findings += problems
            if not problems:
                findings += capacity(alive, demands)
                # Other versions fail in ways that their own line explains already.
                same = [node for node in alive if node.versions.get("testbed") == here.versions.get("testbed")]
                places = [located(experiment) for experiment in experiments]
                files = {path: digest for place in places for path, digest in digests(place).items()}
                files |= sources.digests(name for place in places for _, name in plugin_classes(place))
                answers_by_node = check_inputs_on({node.node_id: probes[node.node_id] for node in same}, places)
                findings += inputs(same, files, answers_by_node)
        if out is not None:
            findings.append(writable(out))
        return findings
    finally:
        for probe in probes.values():
            ray.kill(probe, no_restart=True)
        # A caller that was connected before goes on with its session.
        if not was_connected:
            disconnect()


def reachable(nodes: Sequence[NodeFacts], lost: int) -> Iterator[CheckResult]:
    """Report the nodes of the cluster, and nodes that do not answer.

    Args:
        nodes: facts of all living nodes.
        lost: number of nodes that have left the cluster.
    """
    alive = [node for node in nodes if not node.failure]
    cpus, gpus = sum(node.cpus for node in alive), sum(node.gpus for node in alive)
    if alive:
        yield CheckResult("ok", "nodes", "cluster", f"{quantity(len(alive), 'node')}, {cpus:g} CPUs, {gpus:g} GPUs")
    for node in nodes:
        if node.failure:
            advice = "look at Ray's logs there, or take the node out of the cluster"
            yield CheckResult("fail", "nodes", node.address, node.failure, advice)
    if lost:
        advice = "ignore this if they were removed on purpose; else start them again (`ray up`)"
        yield CheckResult(
            "warn", "nodes", "cluster", f"{quantity(lost, 'node')} left the cluster since it began", advice
        )


def same_versions(nodes: Sequence[NodeFacts], here: NodeFacts) -> Iterator[CheckResult]:
    """Check that every node has the same software as this process.

    Args:
        nodes: facts of the nodes that answer.
        here: facts of this process.
    """
    good = ", ".join(f"{name} {here.versions.get(name)}" for name in here.versions)
    differing = False
    for node in nodes:
        for name in (*_SAME_OR_FAIL, *_SAME_OR_WARN):
            node_version, own_version = node.versions.get(name), here.versions.get(name)
            if node_version == own_version and node_version is not None:
                continue
            differing = True
            level: Level = "fail" if node_version is None or name in _SAME_OR_FAIL else "warn"
            detail = f"{name} {node_version} there, {own_version} here" if node_version else f"{name} is missing there"
            yield CheckResult(
                level, "versions", node.address, detail, "install the same wheel and constraints.txt everywhere"
            )
        if node.versions.get("testbed") == here.versions.get("testbed") and node.code != here.code:
            differing = True
            detail = "the testbed has the same version there, but other code"
            advice = "build the wheel again (`make wheel`) and install it on all nodes (`ray up`)"
            yield CheckResult("fail", "versions", node.address, detail, advice)
    if not differing:
        yield CheckResult("ok", "versions", "all nodes", good)


def clocks(nodes: Sequence[NodeFacts]) -> CheckResult:
    """Check that the clocks agree; only log times and measured stage starts of live runs depend on them."""
    first = min(nodes, key=lambda node: node.clock_ahead_s)
    last = max(nodes, key=lambda node: node.clock_ahead_s)
    skew, error = last.clock_ahead_s - first.clock_ahead_s, last.clock_error_s + first.clock_error_s
    if len(nodes) > 1 and skew - error > CLOCK_SKEW_S:
        detail = f"{last.address} is {skew:.1f} s ahead of {first.address}"
        return CheckResult("warn", "clocks", "all nodes", detail, "let all nodes keep time by NTP (chrony)")
    return CheckResult("ok", "clocks", "all nodes", f"within {max(skew, error) * 1000:.0f} ms")


def processors(nodes: Sequence[NodeFacts], experiments: Sequence[Experiment]) -> Iterator[CheckResult]:
    """Check that the nodes have the same processor, on which measured compute times depend.

    Args:
        nodes: facts of the nodes that answer.
        experiments: the points; without measured compute nothing is reported.
    """
    kinds = Counter(node.processor for node in nodes if node.cpus)
    if len(kinds) > 1 and any(experiment.time.compute == "measured" for experiment in experiments):
        detail = "; ".join(f"{number} × {kind}" for kind, number in kinds.most_common())
        advice = "set time.compute: modelled, or use nodes of one kind: a client's speed depends on its node"
        yield CheckResult("warn", "processors", "all nodes", detail, advice)


def inputs(
    nodes: Sequence[NodeFacts], here: dict[str, str], there: dict[str, tuple[str, dict[str, str]]]
) -> Iterator[CheckResult]:
    """Check that the files and classes of the experiment are the same on every node.

    Args:
        nodes: nodes that were asked.
        here: digests of the files in this process, by absolute path.
        there: each node's answer; see `cluster.probe.check_inputs_on`.
    """
    trouble = False
    for node in nodes:
        problem, files = there[node.node_id]
        if problem:
            trouble = True
            advice = "put it there: file_mounts of the launch file, the image, or a shared file system"
            yield CheckResult("fail", "data", node.address, problem, advice)
            continue
        for path in sorted(here):
            if files.get(path) != here[path]:
                trouble = True
                detail = f"{path} {'is another file there' if path in files else 'is missing there'}"
                advice = (
                    "the same file at the same path on every node: file_mounts and `ray up`, or a shared file system"
                )
                yield CheckResult("fail", "data", node.address, detail, advice)
    if not trouble:
        what = quantity(len(here), "path") + " of the experiment" if here else "the experiment needs no files"
        yield CheckResult("ok", "data", "all nodes", what)


def writable(out: str) -> CheckResult:
    """Check that records can be written to `out`, a directory of the coordinator's node or a URI."""
    if is_uri(out):
        return _writable_uri(out)
    path = Path(out).absolute()
    folder = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):  # permissions alone do not decide (root, read-only mounts)
            pass
    except OSError as error:
        return CheckResult("fail", "output", "here", f"{folder}: {error.strerror}", "give another --out")
    return CheckResult("ok", "output", "here", f"{path}, {size(shutil.disk_usage(folder).free)} free")


def _writable_uri(uri: str) -> CheckResult:
    from testbed.records.store import Store

    try:
        store = Store(uri)
        store.probe()
    except (ExperimentError, RunError) as error:
        advice = "check the URI, and that this node's credentials or role may write there"
        return CheckResult("fail", "output", "here", str(error), advice)
    return CheckResult("ok", "output", "here", store.shown)
