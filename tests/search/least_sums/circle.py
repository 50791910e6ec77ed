"""`secagg-plus` at its own sizes: which parts of the circle a server can cut off by calling clients gone.

Everybody has masked with the k nearest on the circle, k/2 on either side. A part is cut off from the rest where, on
either side of it, k/2 places in a row hold nobody but accomplices and clients that are called gone. The masks with
those that are gone must be known, so that t of the holders of each one's mask key must remain. In a row of k/2 places
with j accomplices, each of the others has k/2 + 1 + j holders that remain. So all rows with enough accomplices are
looked at, and all pairs of them: that is exact where all clients are told the same survivors.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from testbed.aggregation.secagg_plus.graph import RegularGraph


@dataclass(frozen=True)
class Part:
    """Honest clients that are cut off, and the clients that are called gone for it."""

    members: frozenset[int]
    gone: frozenset[int]


@dataclass(frozen=True)
class Circle:
    """A round's participants in the circle's order.

    Attributes:
        graph: the protocol's own.
        accomplices: clients that work for the server.
    """

    graph: RegularGraph
    accomplices: frozenset[int]

    @property
    def order(self) -> list[int]:
        """The participants, around the circle."""
        return self.graph._graph.circle()

    def accomplices_around(self) -> np.ndarray:
        """`(s,)` accomplices in each honest participant's neighbourhood; -1 for accomplices."""
        half = self.graph.chosen.neighbours // 2
        flags = np.isin(self.order, sorted(self.accomplices))
        around = _windows(flags, -half, half + 1)
        return np.where(flags, -1, around)

    def gaps(self) -> list[int]:
        """The places with which a row of k/2 begins that the server can empty."""
        half, t = self.graph.chosen.neighbours // 2, self.graph.threshold
        flags = np.isin(self.order, sorted(self.accomplices))
        found: list[int] = np.flatnonzero(_windows(flags, 0, half) >= t - half - 1).tolist()
        return found

    def least_part(self) -> tuple[Part | None, int]:
        """The smallest part that two such rows cut off, or None; and the number of rows and pairs that were tried."""
        half, size, tried = self.graph.chosen.neighbours // 2, self.graph.participants, self.graph.participants
        if self.graph.chosen.complete:
            return None, tried
        order, best = self.order, None
        for one, other in combinations(self.gaps(), 2):
            for begin, end in ((one, other), (other, one)):
                tried += 1
                inside = [order[place % size] for place in range(begin + half, begin + (end - begin) % size)]
                row = {order[(start + step) % size] for start in (begin, end) for step in range(half)}
                part = Part(frozenset(inside) - self.accomplices, frozenset(row) - self.accomplices)
                if (best is None or len(part.members) < len(best.members)) and self.is_unmasked(part):
                    best = part
        return best, tried

    def is_unmasked(self, part: Part) -> bool:
        """Whether honest clients reveal enough for the part's sum."""
        graph, t, online = self.graph, self.graph.threshold, frozenset(self.order) - part.gone
        if not part.members or part.members & part.gone or len(online) < graph.min_survivors:
            return False
        revealing = {c for c in online if c in self.accomplices or len(graph.around(c) & online) >= t}
        wanted = part.members | {c for c in part.gone if graph.around(c) & part.members}
        return all(len(graph.around(c) & revealing) >= t for c in wanted)


def _windows(flags: np.ndarray, begin: int, end: int) -> np.ndarray:
    """`(s,)` how many flags are set from `begin` to before `end` places after each place, around the circle."""
    return np.sum([np.roll(flags, -step) for step in range(begin, end)], axis=0)
