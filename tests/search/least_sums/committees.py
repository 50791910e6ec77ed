"""Sums that a server has from holders that each answer once, for one set of clients: an integer program over counts.

One program for all protocols in which holders (a committee, all participants, a helper) open one sum for one set of
clients: `one-shot`, `lightsecagg`, `pine`, and the labels of `flamingo`. The server divides the honest holders between
two sets; dishonest holders answer for both. A set of which enough holders answer gives its sum; two sets give the sum
over the clients in which they differ.
"""

from dataclasses import dataclass

from tests.search.least_sums.programs import Program


@dataclass(frozen=True)
class LeastSum:
    """The server's choice with the fewest honest clients in a sum.

    Attributes:
        size: the honest clients.
        difference: whether it is the difference of two sums.
        nodes: of branch and bound.
    """

    size: int
    difference: bool
    nodes: int


@dataclass(frozen=True)
class Committee:
    """The holders of the shares that unmask a sum.

    Attributes:
        honest, dishonest: holders.
        threshold: of them, must answer for one set of clients.
    """

    honest: int
    dishonest: int
    threshold: int

    def least_sum(self, honest_clients: int, dishonest_clients: int, fewest: int, sets: int = 2) -> LeastSum:
        """The least sum that the server has.

        Args:
            honest_clients, dishonest_clients: that have sent an input.
            fewest: clients in each set for which an honest holder answers.
            sets: 2; 1: the server tells everybody the same.
        """
        program = Program()
        both, first, second = (program.integer(honest_clients) for _ in range(3))
        accomplices = [program.integer(dishonest_clients) for _ in range(2)]
        program.at_most({both: 1, first: 1, second: 1}, honest_clients)
        complete = [program.binary() for _ in range(2)]
        told = [program.integer(self.honest) for _ in range(2)]
        program.at_most(dict.fromkeys(told, 1), self.honest)
        for story, own in enumerate((first, second)):
            program.at_least({told[story]: 1, complete[story]: -self.threshold}, -self.dishonest)
            asked = program.binary()  # whether an honest holder is
            program.at_most({told[story]: 1, asked: -self.honest}, 0)
            program.at_least({both: 1, own: 1, accomplices[story]: 1, asked: -fewest}, 0)
        differs, size = program.integer(sets - 1), program.integer(honest_clients)
        for one in complete:
            program.implies(differs, one)
        program.at_least({complete[0]: 1}, 1)
        large = 2 * honest_clients
        program.at_least({size: 1, both: -1, first: -1, differs: large}, 0)
        program.at_least({size: 1, first: -1, second: -1, differs: -large}, -large)
        program.at_least({size: 1}, 1)
        program.at_least({first: 1, second: 1, differs: -1}, 0)  # neither sum is of nobody
        program.at_least({both: 1, first: 1, differs: 1}, 1)
        found = program.minimise({size: 1})
        assert found.is_exact
        if not found.values:
            return LeastSum(honest_clients + 1, False, found.nodes)
        return LeastSum(found.at(size), bool(found.at(differs)), max(1, found.nodes))
