"""A plan of `masks_between_clients`, carried out with real clients; the oracle finds the sum that the server has."""

from typing import Any

from tests.search.choices import Choices
from tests.search.knowledge import Knowledge
from tests.search.least_sums.contract import FAILED
from tests.search.least_sums.masks_between_clients import Plan
from tests.search.oracle import carried_out, derivable, smallest
from tests.search.summing import Summing
from tests.search.summing_among_neighbours import SummingAmongNeighbours
from tests.search.world import Clients, Federation, remembered


class _ByPlan:
    """The decisions of a server that are a plan's; the others are an honest server's."""

    plan: Plan

    def mask_all(self: Any) -> None:
        """Each is told of the peers that the plan says."""
        for client in sorted(self.sealed):
            self.mask(client, self.listed[client] & self.plan.shared[client])

    def sign_all(self: Any) -> None:
        """Each is told its story."""
        for client, story in sorted(self.plan.told.items()):
            if client in self.masked:
                self.sign(client, self.plan.survivors[story])

    def unmask_all(self: Any) -> None:
        """Shares are asked of those that are shown enough signatures."""
        for client in sorted(self.plan.reveals):
            self.unmask(client)


class _Summing(_ByPlan, Summing):
    pass


class _SummingAmongNeighbours(_ByPlan, SummingAmongNeighbours):
    pass


def execute(federation: Federation, plan: Plan) -> str:
    """Carry the plan out; return in words whether its sum follows from the bytes of real messages."""
    among_neighbours = federation.aggregation.protocol == "secagg-plus"
    kind = _SummingAmongNeighbours if among_neighbours else _Summing
    with remembered():
        clients, knowledge = Clients(federation), Knowledge()
        clients.begin_round()
        server: Any = kind(clients, knowledge, Choices(), 1, None)
        server.plan = plan
        server.run()
        basis = derivable(knowledge, 1)
        found = smallest(basis, (), len(plan.members) + 1)
        exact = found is not None and carried_out(knowledge, found)
    if found is None or not exact or clients.refusals or clients.crashes:
        return f"{FAILED}: {found}, {dict(clients.refusals)}, {clients.crashes}"
    return f"{len(found.updates)} of {len(federation.honest)} honest clients' sum bit for bit, no refusal"
