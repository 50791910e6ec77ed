"""Flamingo's labels as an integer program: the least set of honest clients that labels cut off, and the proof of none.

The server labels clients offline. The committee accepts labels with enough survivors, k neighbours online of each
client online, and a connected graph. The server has the sum over a set A of honest clients if all honest neighbours of
A that are not in A are offline. The other honest clients online are then cut off as well, so the smaller side is looked
for.
"""

from dataclasses import dataclass

import numpy as np

from testbed.aggregation.flamingo.graph import RoundGraph
from tests.search.least_sums.programs import Program

AGAIN = 5  # labels that the program allows and the committee refuses, before the search gives up


@dataclass(frozen=True)
class Cut:
    """The outcome of the program.

    Attributes:
        group: places of the honest clients that are cut off; empty: none can be.
        offline: places that are labelled offline.
        is_exact: whether there is proof that no smaller set can be cut off.
        nodes: of branch and bound; 0 where neighbours alone are the proof.
    """

    group: tuple[int, ...]
    offline: tuple[int, ...]
    is_exact: bool
    nodes: int


def fewest_by_degree(graph: RoundGraph, dishonest: np.ndarray, budget: int) -> int:
    """Fewer honest clients than these are never cut off: one's honest neighbours are in the set, or are offline."""
    inside = graph.adjacency[np.ix_(~dishonest, ~dishonest)]
    return max(1, int(inside.sum(axis=1).min()) - budget + 1)


def least_cut(graph: RoundGraph, dishonest: np.ndarray, budget: int, nodes: int) -> Cut:
    """Solve the program; labels that it proposes are shown to the committee's own check (`RoundGraph.weakness`).

    Args:
        graph: of the round.
        dishonest: `(n,)` the server's accomplices.
        budget: the most clients that may be labelled offline.
        nodes: of branch and bound, at most.
    """
    honest = np.flatnonzero(~dishonest).tolist()
    fewest = fewest_by_degree(graph, dishonest, budget)
    if 2 * fewest > len(honest):
        return Cut((), (), True, 0)
    program, member, offline = _program(graph, honest, budget)
    program.at_least({member[place]: 1 for place in honest}, fewest)
    spent = 0
    for _ in range(AGAIN):
        found = program.minimise({member[place]: 1 for place in honest}, nodes)
        spent += found.nodes
        if not found.values:
            return Cut((), (), found.is_exact, spent)
        gone = [place for place in range(len(dishonest)) if found.at(offline[place])]
        online = [listed for place, listed in enumerate(graph.listed) if place not in set(gone)]
        if not graph.weakness(online):
            group = tuple(place for place in honest if found.at(member[place]))
            return Cut(group, tuple(gone), found.is_exact, spent)
        there = {offline[place]: -1 for place in gone}
        others = {offline[place]: 1 for place in range(len(dishonest)) if place not in set(gone)}
        program.at_least({**there, **others}, 1 - len(gone))  # any labels but these
    return Cut((), (), False, spent)


def _program(graph: RoundGraph, honest: list[int], budget: int) -> tuple[Program, dict[int, int], list[int]]:
    program, adjacency = Program(), graph.adjacency
    offline = [program.binary() for _ in graph.listed]
    member = {place: program.binary() for place in honest}
    program.at_most(dict.fromkeys(offline, 1), budget)
    for place in honest:
        program.at_most({member[place]: 1, offline[place]: 1}, 1)
        for other in np.flatnonzero(adjacency[place]).tolist():
            if other in member:
                program.at_most({member[place]: 1, member[other]: -1, offline[other]: -1}, 0)
    for place in range(len(graph.listed)):
        neighbours = np.flatnonzero(adjacency[place]).tolist()
        degree = len(neighbours)
        gone = {offline[other]: 1 for other in neighbours}
        program.at_most({**gone, offline[place]: -degree}, degree - graph.density.neighbours)
    smaller = {**{member[place]: 2 for place in honest}, **{offline[place]: 1 for place in honest}}
    program.at_most(smaller, len(honest))
    return program, member, offline
