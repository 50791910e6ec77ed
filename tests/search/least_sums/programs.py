"""Integer programs of a server's choices: variables by name, linear constraints, and HiGHS (`scipy.optimize.milp`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Terms = Mapping[int, float]
NODES = 200_000  # of branch and bound; a program that needs more is not solved exactly


@dataclass(frozen=True)
class Solution:
    """The outcome of an integer program.

    Attributes:
        values: by variable; empty where there is no solution.
        is_exact: whether the solver has proven it (or that there is none), within its nodes.
        nodes: of branch and bound.
    """

    values: list[int]
    is_exact: bool
    nodes: int

    def at(self, variable: int) -> int:
        """The value of a variable."""
        return self.values[variable]


@dataclass
class Program:
    """An integer program to be minimised.

    Attributes:
        uppers: by variable, its largest value; the smallest is 0.
        rows: `(terms, least, most)` of each constraint.
    """

    uppers: list[float] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)

    def integer(self, upper: float) -> int:
        """A new variable from 0 to `upper`."""
        self.uppers.append(upper)
        return len(self.uppers) - 1

    def binary(self) -> int:
        """A new variable that is 0 or 1."""
        return self.integer(1)

    def at_least(self, terms: Terms, least: float) -> None:
        """The terms' sum is at least so much."""
        self.rows.append((terms, least, np.inf))

    def at_most(self, terms: Terms, most: float) -> None:
        """The terms' sum is at most so much."""
        self.rows.append((terms, -np.inf, most))

    def implies(self, one: int, other: int) -> None:
        """Where the binary `one` is 1, the binary `other` is."""
        self.at_most({one: 1, other: -1}, 0)

    def minimise(self, cost: Terms, nodes: int = NODES) -> Solution:
        """Solve it. One thread and a count of nodes, not of seconds: the same program has the same solution."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        count = len(self.uppers)
        places = [(row, column) for row, (terms, _, _) in enumerate(self.rows) for column in terms]
        data = [value for terms, _, _ in self.rows for value in terms.values()]
        matrix = coo_array((data, tuple(np.array(places).T)), shape=(len(self.rows), count)).tocsr()
        lower, upper = ([row[side] for row in self.rows] for side in (1, 2))
        objective = np.zeros(count)
        for column, value in cost.items():
            objective[column] = value
        found: Any = milp(
            objective,
            integrality=np.ones(count),
            bounds=Bounds(0, self.uppers),
            constraints=LinearConstraint(matrix, lower, upper),
            options={"node_limit": nodes},
        )
        values = [] if found.x is None else [round(value) for value in found.x]
        return Solution(values, found.status in (0, 2), int(found.mip_node_count or 0))
