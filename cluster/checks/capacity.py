"""Does a cluster have the room that an experiment needs: CPUs, GPUs, memory, object stores.

How memory is estimated: each host is a process of `HOST_BYTES` (Python, Ray and torch, as measured), with
`IDLE_CLIENT_BYTES` for each of its clients, `VECTORS_PER_PARTICIPANT` vectors of the model's size (the update and what
is sent of it) for each participant that it may hold, and the data as they grew this process when they were loaded here.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from cluster.checks.probe import NodeFacts
from cluster.hosts.placement import Node, hosts_for, runs_at_a_time, spread
from testbed.engine.plan import Plan
from testbed.errors import ClusterError, ExperimentError, TraceError
from testbed.experiment.schema import Experiment

Level = Literal["ok", "warn", "fail"]
HOST_BYTES = 600 * 2**20
IDLE_CLIENT_BYTES = 2 * 2**10
VECTORS_PER_PARTICIPANT = 3
MODELS_IN_STORE = 4  # this round's and the last one's broadcast, and sums on their way


@dataclass(frozen=True)
class Finding:
    """One line: `advice` is empty when `level` is "ok"."""

    level: Level
    check: str
    where: str
    detail: str
    advice: str = ""


@dataclass(frozen=True)
class Demand:
    """What one run of an experiment needs.

    Attributes:
        experiment: one point, without a sweep.
        dimension: parameters of its model.
        data_bytes: memory that its data take in every process that holds clients.
    """

    experiment: Experiment
    dimension: int
    data_bytes: int

    def host_bytes(self, hosts: int) -> int:
        """Estimated memory of one of `hosts` host processes (see the module)."""
        clients = math.ceil(self.experiment.population / hosts)
        most_at_once = min(clients, self.experiment.selection.participants)
        vectors = VECTORS_PER_PARTICIPANT * 4 * self.dimension * most_at_once
        return HOST_BYTES + self.data_bytes + IDLE_CLIENT_BYTES * clients + vectors


def demands_of(experiments: Sequence[Experiment]) -> tuple[list[Demand], list[Finding]]:
    """What each point needs: its data and its model are made here, once for points that share them."""
    import workloads

    built: dict[str, tuple[Any, int]] = {}
    demands, problems = [], []
    for experiment in experiments:
        try:
            plan = Plan(experiment, 0)
            key = f"{experiment.workload.model_dump_json()} {experiment.population} {plan.seed}"
            if key not in built:
                before = psutil.Process().memory_info().rss
                workload = workloads.build(experiment.workload, experiment.population, plan.seed)
                built[key] = workload, max(0, psutil.Process().memory_info().rss - before)
            workload, data_bytes = built[key]
            plan.check_sums(workload)
            plan.read_files(workload)
            demands.append(Demand(experiment, workload.dimension, data_bytes))
        except (ExperimentError, TraceError) as error:
            advice = "`testbed run` would say the same: put it right in the experiment, or the file where it says"
            problems.append(Finding("fail", "experiment", "here", " ".join(str(error).split()), advice))
    return demands, problems


def capacity(nodes: Sequence[NodeFacts], demands: Sequence[Demand]) -> Iterator[Finding]:
    """CPUs, GPUs, memory and object stores, for the point of the sweep that asks for most."""
    cpus = max(1, int(sum(node.cpus for node in nodes)))
    first = demands[0].experiment.cluster
    at_once = runs_at_a_time(first, len(demands), cpus, sum(node.memory_bytes for node in nodes))
    most = max(
        demands, key=lambda demand: _hosts(demand, cpus, at_once) * demand.host_bytes(_hosts(demand, cpus, at_once))
    )
    hosts = _hosts(most, cpus, at_once)
    together = f" ({at_once} runs at the same time)" if at_once > 1 else ""
    if at_once * hosts > cpus:
        advice = "results stay the same, time does not: fewer cluster.hosts, or more nodes"
        detail = f"{counted(at_once * hosts, 'host')}{together} share {cpus} CPUs"
        yield Finding("warn", "cpus", "cluster", detail, advice)
    else:
        yield Finding("ok", "cpus", "cluster", f"{counted(at_once * hosts, 'host')}{together}, {cpus} CPUs")
    there = [Node(node.node_id, node.cpus, node.gpus) for node in nodes]
    try:
        places = spread(there, at_once * hosts, first.gpus_per_host)
    except ClusterError as error:
        detail, _, advice = str(error).partition("; ")
        yield Finding("fail", "gpus", "cluster", detail, f"{advice}, or use nodes with more GPUs")
        places = spread(there, at_once * hosts, 0.0)
    on_node = Counter(place.node_id for place in places)
    need = most.host_bytes(hosts)
    for node in nodes:
        yield _memory(node, on_node[node.node_id], need)
        yield _object_store(node, at_once * MODELS_IN_STORE * 4 * most.dimension)


def _hosts(demand: Demand, cpus: int, at_once: int) -> int:
    return hosts_for(demand.experiment.cluster, demand.experiment.population, cpus, at_once)


def _memory(node: NodeFacts, hosts: int, host_bytes: int) -> Finding:
    need, free = hosts * host_bytes, node.memory_bytes
    detail = f"about {size(need)} for {counted(hosts, 'host')}, {size(free)} free"
    if need > free:
        advice = "fewer cluster.hosts or cluster.parallel_runs: 1, or nodes with more memory"
        return Finding("fail", "memory", node.address, detail, advice)
    if need > 0.8 * free:
        return Finding("warn", "memory", node.address, detail, "it is close: fewer cluster.hosts leave more")
    return Finding("ok", "memory", node.address, detail)


def _object_store(node: NodeFacts, need: int) -> Finding:
    detail = f"about {size(need)} of models and sums, {size(node.object_store_bytes)} there"
    if need > node.object_store_bytes:
        advice = "start Ray there with a larger --object-store-memory (and /dev/shm), or Ray spills to disk"
        return Finding("warn", "object store", node.address, detail, advice)
    return Finding("ok", "object store", node.address, detail)


def counted(number: int, what: str) -> str:
    """1 host, 2 hosts."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Bytes as a person would say them: 512 B, 10 kB, 1.4 GB."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
