"""The tree along which hosts' partial sums become one: first on each node, then in groups of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

FAN_IN = 8


@dataclass(frozen=True)
class Merge:
    """One step: host `at` adds the partial sums that `of` (itself among them) hold."""

    at: int
    of: tuple[int, ...]


def tree(holders: Sequence[int], node_of: Sequence[str], own_node: str) -> tuple[list[list[Merge]], list[int]]:
    """How the partial sums of `holders` get to the coordinator.

    Hosts of one node are merged there, so that one vector leaves it; then groups of nodes, until no more than
    `FAN_IN` vectors travel to the coordinator. Its own node's are merged beforehand only when they are many: they
    do not travel.

    Args:
        holders: indices of the hosts that hold a partial sum.
        node_of: the node of every host.
        own_node: the coordinator's.

    Returns:
        levels of merges, each to be done after the one before; and the hosts whose sums are left for the coordinator.
    """
    by_node: dict[str, list[int]] = {}
    for host in holders:
        by_node.setdefault(node_of[host], []).append(host)
    near = by_node.pop(own_node, [])
    groups = [*_in_groups(near, FAN_IN if len(near) > FAN_IN else 1), *by_node.values()]
    levels = []
    while True:
        level = [Merge(group[0], tuple(group)) for group in groups if len(group) > 1]
        if level:
            levels.append(level)
        left = [group[0] for group in groups]
        if len(left) <= FAN_IN:
            return levels, left
        groups = _in_groups(left, FAN_IN)


def _in_groups(hosts: Sequence[int], size: int) -> list[list[int]]:
    return [list(hosts[begin : begin + size]) for begin in range(0, len(hosts), size)]
