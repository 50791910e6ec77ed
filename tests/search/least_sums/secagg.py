"""The choices of a server of `secagg` and `secagg-plus`: the sharers and survivors that each client is told of."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.parties.pki import Directory
from tests.search.choices import Choices
from tests.search.knowledge import Knowledge
from tests.search.least_sums.circle import Circle
from tests.search.least_sums.contract import FAILED, LeastSums, Result, stated_colluders, stated_least
from tests.search.least_sums.masks_between_clients import Masking, Plan, least_sum
from tests.search.mixes import random
from tests.search.oracle import carried_out, derivable, smallest
from tests.search.summing import Summing
from tests.search.summing_among_neighbours import SummingAmongNeighbours
from tests.search.world import Clients, Federation, Mix, remembered

LARGE = (20, 100, 500, 2000)
SMALL = ((6, 4), (8, 6))  # s, t


def played(section: dict[str, Any], participants: int, accomplices: frozenset[int]) -> Federation:
    """All participants, with these parameters."""
    return Federation(Mix("least sums", random(participants), section, participants, accomplices))


class _ByPlan:
    """The decisions of a server that follow a plan; the other decisions are an honest server's."""

    plan: Plan

    def mask_all(self: Any) -> None:
        """Tell each client of the peers that the plan says."""
        for client in sorted(self.sealed):
            self.mask(client, self.listed[client] & self.plan.shared[client])

    def sign_all(self: Any) -> None:
        """Tell each client its story."""
        for client, story in sorted(self.plan.told.items()):
            if client in self.masked:
                self.sign(client, self.plan.survivors[story])

    def unmask_all(self: Any) -> None:
        """Ask the clients that are shown enough signatures for shares."""
        for client in sorted(self.plan.reveals):
            self.unmask(client)


def execute(federation: Federation, plan: Plan) -> str:
    """Carry the plan out with real clients; the oracle says whether its sum follows from the bytes of the messages."""
    among_neighbours = federation.aggregation.protocol == "secagg-plus"
    kind = type("ByPlan", (_ByPlan, SummingAmongNeighbours if among_neighbours else Summing), {"plan": plan})
    with remembered():
        clients, knowledge = Clients(federation), Knowledge()
        clients.begin_round()
        kind(clients, knowledge, Choices(), 1, None).run()
        found = smallest(derivable(knowledge, 1), (), len(plan.members) + 1)
        exact = found is not None and carried_out(knowledge, found)
    if found is None or not exact or clients.refusals or clients.crashes:
        return f"{FAILED}: {found}, {dict(clients.refusals)}, {clients.crashes}"
    return f"{len(found.updates)} of {len(federation.honest)} honest clients' sum bit for bit, no refusal"


def planned(
    protocol: str, masking: Masking, federation: Federation, words: str, stated: int, *, is_control: bool
) -> Result:
    """The least sum over all choices, carried out with real clients."""
    plan: Plan | None = least_sum(masking)
    if plan is None:
        return Result(protocol, words, stated, None, 1, "exact", "", is_control)
    executed = execute(federation, plan)
    method: Any = "exact" if plan.is_exact else "greedy"
    return Result(protocol, words, stated, len(plan.members), max(1, plan.nodes), method, executed, is_control)


class SecAggSums(LeastSums):
    """Client by client, at small sizes; `tests/adversary/test_contradictions.py` counts for all sizes."""

    protocol: ClassVar[str] = "secagg"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """With as many accomplices as are stated, and one more."""
        for participants, threshold in (*SMALL, (9, 7)) if budget > 1 else SMALL:
            accomplices = stated_colluders(SecAggParameters(threshold=threshold), participants)
            for more in (0, 1):
                yield self.client_by_client(participants, threshold, accomplices + more, is_control=more == 1)

    def client_by_client(self, participants: int, threshold: int, accomplices: int, *, is_control: bool) -> Result:
        """The sharers that each client is told of are optimised, too."""
        section = {"protocol": "secagg", "threshold": threshold}
        helpers = frozenset(range(participants - accomplices, participants))
        federation = played(section, participants, helpers)
        everybody = frozenset(range(participants))
        needed = federation.aggregation.threshold_for(participants)
        masking = Masking(dict.fromkeys(range(participants), everybody), helpers, needed, needed, acknowledges=False)
        stated = stated_least(federation.aggregation, participants, accomplices - is_control)
        words = f"s = {participants}, t = {needed}, {accomplices} accomplices, any sharing"
        return planned(self.protocol, masking, federation, words, stated, is_control=is_control)


class SecAggPlusSums(LeastSums):
    """Client by client at small sizes; parts of the circle at the protocol's own."""

    protocol: ClassVar[str] = "secagg-plus"
    small: ClassVar[tuple[tuple[int, int, int], ...]] = ((8, 4, 4), (10, 4, 4))  # s, k, t

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """With as many accomplices as are stated for all participants; at large sizes with those of the parameters."""
        for participants, neighbours, threshold in self.small:
            stated = SecAggPlusParameters(**section_of(neighbours, threshold))
            accomplices = stated_colluders(stated, participants)
            for more in (0, 1):
                yield self.client_by_client(
                    participants, neighbours, threshold, accomplices + more, is_control=more == 1
                )
        yield self.cut_apart()
        for participants in LARGE:
            yield self.by_parts(participants, 50 * budget, seed)

    def client_by_client(
        self, participants: int, neighbours: int, threshold: int, accomplices: int, *, is_control: bool,
        acknowledges: bool = True,
    ) -> Result:  # fmt: skip
        """On the protocol's own graph; the accomplices are all in one neighbourhood.

        `acknowledges` is False for clients that leave out a check (`Masking.acknowledges`).
        """
        section = section_of(neighbours, threshold)
        drawn = played(section, participants, frozenset())
        graph = graph_of(drawn.aggregation, drawn.environment.directory.public_seed, 1, participants)
        helpers = frozenset(sorted(graph.around(0) - {0})[:accomplices])
        federation = played(section, participants, helpers)
        around = {client: graph.around(client) for client in range(participants)}
        masking = Masking(around, helpers, graph.threshold, graph.min_survivors, acknowledges)
        stated = stated_least(federation.aggregation, participants, accomplices - is_control)
        words = f"s = {participants}, k = {neighbours}, t = {threshold}, {accomplices} accomplices, any sharing"
        return planned(self.protocol, masking, federation, words, stated, is_control=is_control)

    def cut_apart(self) -> Result:
        """Parts of the circle can be cut off where t is as small as it may be, k/2 + 1: the least one, carried out."""
        section = section_of(8, 5, 0.4)
        participants = 20
        federation = played(section, participants, frozenset())
        graph = graph_of(federation.aggregation, federation.environment.directory.public_seed, 1, participants)
        part, tried = Circle(graph, frozenset()).least_part()
        stated = stated_least(federation.aggregation, participants, 0)
        words = f"s = {participants}, k = 8, t = 5, no accomplice, one set of survivors"
        if part is None:
            return Result(self.protocol, words, stated, None, tried, "exact for one set of survivors")
        online = frozenset(range(participants)) - part.gone
        shared = {client: graph.around(client) - {client} for client in range(participants)}
        revealing = frozenset(c for c in online if len(graph.around(c) & online) >= graph.threshold)
        plan = Plan(shared, dict.fromkeys(online, 0), revealing, [online], part.members, True, tried)
        method: Any = "exact for one set of survivors"
        executed = execute(federation, plan)
        return Result(self.protocol, words, stated, len(part.members), tried, method, executed)

    def by_parts(self, participants: int, rounds: int, seed: int) -> Result:
        """The server looks at the graphs of a number of rounds, with the accomplices that the parameters allow.

        The statement goes beyond `guarantees` (docs/explanation/secagg-plus.md): t - x, with x in a neighbourhood.
        """
        parameters = SecAggPlusParameters()
        chosen, (dishonest, gone) = parameters.neighbourhood(participants), parameters.requirements.counts(participants)
        drawn = np.random.default_rng(seed).permutation(participants)[:dishonest].tolist()
        found, most, tried = participants - gone - dishonest, 0, 0
        for number in range(1, rounds + 1):
            circle = Circle(
                graph_of(parameters, Directory.empty(0).public_seed, number, participants), frozenset(drawn)
            )
            part, pairs = circle.least_part()
            tried += pairs
            most = max(most, int(circle.accomplices_around().max()))
            found = found if part is None else min(found, len(part.members))
        contradicted = most >= 2 * chosen.threshold - (chosen.neighbours + 1)
        words = (
            f"s = {participants}, k = {chosen.neighbours}, t = {chosen.threshold}, {dishonest} accomplices, "
            f"{rounds} rounds looked at, at most {most} in a neighbourhood"
        )
        least = 1 if contradicted else found
        return Result(
            self.protocol, words, chosen.threshold - most, least, tried, "exact for one set of survivors"
        )  # fmt: skip


def section_of(neighbours: int, threshold: int, dropouts: float = 0.3) -> dict[str, Any]:
    """The section of `secagg-plus` in a small round."""
    small = {"neighbours": neighbours, "threshold": threshold, "dropouts": dropouts, "accept_weaker": True}
    return {"protocol": "secagg-plus", **small}


def graph_of(parameters: Any, public_seed: bytes, number: int, participants: int) -> RegularGraph:
    """The round's graph."""
    everybody = list(range(participants))
    return RegularGraph.of_round(public_seed, number, everybody, parameters.neighbourhood(participants))
