"""Placement of hosts on nodes, with their reservations, and the tree that merges their partial sums."""

import math
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from testbed.errors import ClusterError
from testbed.experiment.sections import Cluster

MEMORY_PER_RUN_BYTES = 3 * 2**30  # a coordinator and two hosts, each with torch: limits parallel runs
ANSWER_TIMEOUT_S = 5.0
_RESERVED = 0.99  # of a CPU: the rest is for actors that reserve nothing


@dataclass(frozen=True)
class Node:
    """A living node of the cluster: its id, its total (not free) resources, and the address of its Ray."""

    node_id: str
    cpus: float
    gpus: float = 0.0
    address: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class Place:
    """The node of a host, and its reservations."""

    node_id: str
    cpus: float
    gpus: float


def alive_nodes(table: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the living nodes of Ray's node table (``ray.nodes()``), in the order of their ids."""
    nodes = [
        Node(
            row["NodeID"],
            row["Resources"].get("CPU", 0.0),
            row["Resources"].get("GPU", 0.0),
            (row["NodeManagerAddress"], row["NodeManagerPort"]),
        )
        for row in table
        if row["Alive"]
    ]
    # A fixed order, so that equal clusters get equal placements.
    return sorted(nodes, key=lambda node: node.node_id)


def living_nodes(table: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the `alive_nodes` that answer; all of them if none answers.

    Ray may take half a minute to notice that a node has gone.
    """
    listed = alive_nodes(table)
    # At once, as each node that has gone takes the whole time-out.
    with ThreadPoolExecutor(32) as threads:
        answering = list(threads.map(answers, listed))
    return [node for node, answered in zip(listed, answering, strict=True) if answered] or listed


def answers(node: Node) -> bool:
    """Return whether Ray on the node accepts connections."""
    try:
        socket.create_connection(node.address, timeout=ANSWER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def hosts_for(cluster: Cluster, population: int, cpus: int, at_once: int) -> int:
    """Return the number of host processes of a run.

    Args:
        cluster: the experiment's section.
        population: number of clients; there are never more hosts.
        cpus: CPUs of the whole cluster.
        at_once: number of runs that share it.
    """
    if cluster.clients_per_host is not None:
        return math.ceil(population / cluster.clients_per_host)
    count = max(1, cpus // at_once) if cluster.hosts == "auto" else cluster.hosts
    return min(count, population)


def runs_at_a_time(cluster: Cluster, points: int, cpus: int, memory_bytes: int) -> int:
    """Return how many of `points` runs are executed at the same time (if clock and network allow it).

    ``auto``: each run gets at least one CPU (or one for each of its fixed number of hosts), and `MEMORY_PER_RUN_BYTES`.

    Args:
        cluster: the experiment's section.
        points: number of runs.
        cpus: CPUs of the whole cluster.
        memory_bytes: memory of the whole cluster.
    """
    if cluster.parallel_runs != "auto":
        return min(cluster.parallel_runs, points)
    # A run's coordinator and its hosts take turns. With a CPU for each run, no CPU waits for either.
    cpus_per_run = 1 if cluster.hosts == "auto" else cluster.hosts
    return max(1, min(points, cpus // cpus_per_run, memory_bytes // MEMORY_PER_RUN_BYTES))


def spread(nodes: Sequence[Node], hosts: int, gpus_per_host: str | float = "auto", sessions: int = 1) -> list[Place]:
    """Return a place for each host, with CPUs used evenly.

    The next host goes to the node with the most CPUs per host. Nodes without CPUs (a head without work) get no hosts,
    unless there are no others. If there are more hosts than CPUs, they share them.

    Args:
        nodes: living nodes; at least one.
        hosts: number of hosts.
        gpus_per_host: GPUs, or the share of a GPU; "auto" divides each node's GPUs among its hosts so that they fit.
        sessions: number of runs that share the cluster: each reserves its part.

    Raises:
        ClusterError: the nodes do not have enough GPUs for the hosts.
    """
    usable = [node for node in nodes if node.cpus > 0] or list(nodes)
    gpus = 0.0 if gpus_per_host == "auto" else float(gpus_per_host)
    if gpus:
        capacity = sum(_fitting(node.gpus, gpus) for node in usable)
        if capacity < hosts:
            raise ClusterError(
                f"cluster.gpus_per_host: the cluster has GPUs for {capacity} hosts with {gpus:g} each, and the run has "
                f"{hosts}; lower it, or cluster.hosts"
            )
        usable = [node for node in usable for _ in range(min(hosts, _fitting(node.gpus, gpus)))]
    hosts_on: Counter[str] = Counter()
    chosen = []
    for _ in range(hosts):
        node = _roomiest(usable, hosts_on)
        if gpus:
            usable.remove(node)  # a node is in the list once per host that fits on its GPUs
        hosts_on[node.node_id] += 1
        chosen.append(node)
    return [
        Place(
            node.node_id,
            _RESERVED * min(1.0, node.cpus / (hosts_on[node.node_id] * sessions)),
            gpus or (_gpu_share(node.gpus, hosts_on[node.node_id] * sessions) if gpus_per_host == "auto" else 0.0),
        )
        for node in chosen
    ]


def replacement(nodes: Sequence[Node], lost: Place, others: Iterable[Place]) -> Place:
    """Return the place of the replacement of a lost host: its node if that lives, else the roomiest one.

    The replacement reserves no CPUs: those of the lost host may not be free yet.

    Args:
        nodes: living nodes.
        lost: place of the lost host.
        others: places of the other hosts.
    """
    if any(node.node_id == lost.node_id for node in nodes):
        return Place(lost.node_id, 0.0, lost.gpus)
    usable = [node for node in nodes if node.cpus > 0] or list(nodes)
    if lost.gpus:
        usable = [node for node in usable if node.gpus >= lost.gpus] or usable
    return Place(_roomiest(usable, Counter(place.node_id for place in others)).node_id, 0.0, lost.gpus)


def _roomiest(nodes: Sequence[Node], hosts_on: Counter[str]) -> Node:
    return max(nodes, key=lambda node: (node.cpus or 1.0) / (hosts_on[node.node_id] + 1))


def _fitting(gpus: float, each: float) -> int:
    """Return the number of hosts that fit on a node's GPUs; a share is of a single GPU."""
    # The small addend: 1 / each may round to just below a whole number.
    return int(gpus // each) if each >= 1 else int(gpus) * int(1 / each + 1e-9)


def _gpu_share(gpus: float, hosts: int) -> float:
    """Return a share with which `hosts` fit on whole GPUs: 6 hosts on 4 GPUs get a half each, not two thirds."""
    # Ray counts GPUs in ten-thousandths, so shares are cut off there.
    if gpus < 1:
        return 0.0
    return math.floor(gpus / hosts) if hosts <= gpus else math.floor(1e4 / math.ceil(hosts / math.floor(gpus))) / 1e4


# Bounds the vectors that one process receives and holds at a time.
FAN_IN = 8


@dataclass(frozen=True)
class Merge:
    """One step: host `at` adds the partial sums of the hosts `of` (itself among them)."""

    at: int
    of: tuple[int, ...]


def tree(holders: Sequence[int], node_of: Sequence[str], own_node: str) -> tuple[list[list[Merge]], list[int]]:
    """Return the merges that bring the partial sums of `holders` to the coordinator.

    Hosts of one node are merged there, so that one vector leaves the node; then groups of nodes, until no more than
    `FAN_IN` vectors travel to the coordinator. The sums of its own node do not travel; they are merged beforehand only
    if they are many.

    Args:
        holders: indices of the hosts with a partial sum.
        node_of: the node of every host.
        own_node: the coordinator's node.

    Returns:
        Levels of merges, each to be done after the one before; and the hosts with the sums for the coordinator.
    """
    by_node: dict[str, list[int]] = {}
    for host in holders:
        by_node.setdefault(node_of[host], []).append(host)
    own_hosts = by_node.pop(own_node, [])
    groups = [*_in_groups(own_hosts, FAN_IN if len(own_hosts) > FAN_IN else 1), *by_node.values()]
    levels = []
    while True:
        level = [Merge(group[0], tuple(group)) for group in groups if len(group) > 1]
        if level:
            levels.append(level)
        remaining = [group[0] for group in groups]
        if len(remaining) <= FAN_IN:
            return levels, remaining
        groups = _in_groups(remaining, FAN_IN)


def _in_groups(hosts: Sequence[int], size: int) -> list[list[int]]:
    return [list(hosts[begin : begin + size]) for begin in range(0, len(hosts), size)]
