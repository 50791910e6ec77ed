"""The choices of a server of `secagg` and `secagg-plus`: the sharers and survivors that each client is told of."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.parties.pki import Directory
from tests.search.least_sums.circle import Circle
from tests.search.least_sums.contract import LeastSums, Result, stated_least
from tests.search.least_sums.masks_between_clients import Masking, Plan, least_sum
from tests.search.least_sums.stories import least_by_stories
from tests.search.least_sums.told_by_plan import execute
from tests.search.mixes import random
from tests.search.world import Federation, Mix

LARGE = (20, 100, 500, 2000)
SMALL = ((6, 4, 1), (8, 6, 3))  # s, t, accomplices as stated


def played(section: dict[str, Any], participants: int, accomplices: frozenset[int]) -> Federation:
    """All participants, with these parameters."""
    return Federation(Mix("least sums", random(participants), section, participants, accomplices))


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
    """By counts at any size: clients that are told the same are alike. Client by client at small sizes."""

    protocol: ClassVar[str] = "secagg"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """At the default threshold, with as many accomplices as are stated, and one more."""
        parameters = SecAggParameters()
        for participants in LARGE:
            tolerated = 2 * parameters.threshold_for(participants) - participants - 1
            for accomplices, is_control in ((0, False), (tolerated, False), (tolerated + 1, True)):
                yield self.by_stories(parameters, participants, accomplices, is_control=is_control)
        for participants, threshold, accomplices in (*SMALL, (9, 7, 4)) if budget > 1 else SMALL:
            for more in (0, 1):
                yield self.client_by_client(participants, threshold, accomplices + more, is_control=more == 1)

    def by_stories(
        self, parameters: SecAggParameters, participants: int, accomplices: int, *, is_control: bool
    ) -> Result:
        """Everybody has masked with everybody; which of two sets of survivors each client is told is optimised."""
        threshold = parameters.threshold_for(participants)
        least = least_by_stories(participants - accomplices, accomplices, threshold)
        stated = stated_least(parameters, participants, accomplices - is_control)
        words = f"s = {participants}, t = {threshold}, {accomplices} accomplices"
        return Result(self.protocol, words, stated, least.size, least.nodes, "exact", "", is_control)

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
            tolerated = 2 * threshold - neighbours - 2
            for more in (0, 1):
                yield self.client_by_client(participants, neighbours, threshold, tolerated + more, is_control=more == 1)
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
        section = {
            "protocol": "secagg-plus", "neighbours": neighbours, "threshold": threshold,
            "dropouts": 0.3, "accept_weaker": True,
        }  # fmt: skip
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
        section = {
            "protocol": "secagg-plus", "neighbours": 8, "threshold": 5, "dropouts": 0.4, "accept_weaker": True,
        }  # fmt: skip
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
        """The server looks at the graphs of so many rounds, with the accomplices that the parameters allow.

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


def graph_of(parameters: Any, public_seed: bytes, number: int, participants: int) -> RegularGraph:
    """The round's graph."""
    everybody = list(range(participants))
    return RegularGraph.of_round(public_seed, number, everybody, parameters.neighbourhood(participants))
