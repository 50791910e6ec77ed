"""The choices of a server of `flamingo`: labels and round numbers."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from testbed.adversary.cut_off import CutOff, smallest_cut_off
from testbed.adversary.flamingo_labels import LabelNeighboursOffline
from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.aggregation.flamingo.graph import RoundGraph, round_graph
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from testbed.parties.pki import Directory
from tests.aggregation.flamingo_rounds import federation, played_from
from tests.search.least_sums.contract import FAILED, LeastSums, Result, stated_least
from tests.search.least_sums.labels import least_cut

NODES = 20_000
GROUND = {250: 70_000, 300: 1_000}  # rounds that are tried to find a client that labels isolate, by participants
LARGEST_GROUP = 6  # of those that grow; single clients and pairs are tried exhaustively
EXACT = (20, 40)
LARGE = (200, 500, 1000, 2000)
MENDED, NOT_MENDED = {"labels": "chosen", "tries": 40}, {"labels": "random"}
CUT_IN_SMALL = {"labels": "random", "dishonest": 0.2, "dropouts": 0.4, "security": 10, "correctness": 5}  # at n = 30


@dataclass(frozen=True)
class Setting:
    """Parameters, the number of participants, and the accomplices among them.

    Attributes:
        parameters: of the protocol.
        participants: n.
        accomplices: places in the list of participants, which are clients' numbers, too.
    """

    parameters: FlamingoParameters
    participants: int
    accomplices: frozenset[int]

    @property
    def dishonest(self) -> np.ndarray:
        """`(n,)` whether each participant is an accomplice."""
        return np.isin(np.arange(self.participants), sorted(self.accomplices))

    @property
    def budget(self) -> int:
        """The most clients that may be labelled offline."""
        return self.participants - self.parameters.density(self.participants).survivors

    @property
    def stated(self) -> int:
        """See `stated_least`."""
        return stated_least(self.parameters, self.participants, len(self.accomplices))

    def graph(self, round_number: int) -> RoundGraph:
        """The protocol's own graph of the round."""
        density = self.parameters.density(self.participants)
        return round_graph(Directory.empty(0).public_seed, round_number, list(range(self.participants)), density)

    @property
    def words(self) -> str:
        """For the report."""
        given = self.parameters
        labels = f"labels: {given.labels}" + (f", tries: {given.tries:g}" if given.labels == "chosen" else "")
        rates = f"eta = {given.dishonest:g}, delta = {given.dropouts:g}"
        return f"n = {self.participants}, {len(self.accomplices)} accomplices, {rates}, {labels}"


def setting(participants: int, seed: int, **more: Any) -> Setting:
    """As many accomplices as the parameters say, drawn without regard to the graph, and nobody of the committee."""
    parameters = FlamingoParameters(**{"weights": "equal", **more})
    dishonest, _ = parameters.requirements.counts(participants)
    drawn = np.random.default_rng(seed).permutation(participants)[:dishonest]
    accomplices = frozenset(drawn.tolist())
    committee = tuple(sorted(set(range(participants)) - accomplices)[:9])
    section = CommitteeSection(selection="given", members=committee, threshold=6)
    return Setting(parameters.model_copy(update={"committee": section}), participants, accomplices)


def cut_off(where: Setting, round_number: int) -> CutOff | None:
    """The smallest group that is found in the graph of a round."""
    graph = where.graph(round_number)
    everybody = np.ones(where.participants, np.bool_)
    counted, fewest = graph.adjacency.astype(np.float32), graph.density.neighbours

    def is_accepted(online: np.ndarray) -> bool:
        if (counted @ online.astype(np.float32))[online].min() < fewest:  # as `weakness` would say, in less time
            return False
        return not graph.weakness(np.flatnonzero(online).tolist())

    return smallest_cut_off(
        graph.adjacency, where.dishonest, everybody, where.budget, is_accepted, largest=LARGEST_GROUP
    )


def isolating_round(where: Setting, rounds: int, first: int = 1) -> tuple[int, int] | None:
    """Find a round with a client that labels isolate; return both numbers.

    Tries rounds from `first` on. One try costs a graph and two sums over it; the committee's check is called only if
    both are within limits.
    """
    dishonest, budget = where.dishonest, where.budget
    fewest = where.parameters.density(where.participants).neighbours
    for number in range(first, first + rounds):
        graph = where.graph(number)
        with_accomplices = graph.adjacency @ dishonest.astype(np.uint16)
        with_honest = graph.adjacency.sum(axis=1) - with_accomplices
        for client in np.flatnonzero(~dishonest & (with_accomplices >= fewest) & (with_honest <= budget)).tolist():
            gone = graph.adjacency[client] & ~dishonest
            if not graph.weakness(np.flatnonzero(~gone).tolist()):
                return number, client
    return None


class FlamingoSums(LeastSums):
    """See the module."""

    protocol: ClassVar[str] = "flamingo"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """Exactly at small n, by groups at large n, and by round numbers at n = 300."""
        for participants in EXACT if budget == 1 else (*EXACT, 60, 100):
            yield self.exactly(setting(participants, seed, **MENDED), budget)
        yield self.exactly(setting(30, 2, **CUT_IN_SMALL), budget, is_control=True)
        for participants in LARGE:
            yield self.by_groups(setting(participants, seed, **MENDED), budget if participants >= 2000 else 2 * budget)
        for participants in LARGE[1:]:
            yield self.by_groups(setting(participants, seed, **NOT_MENDED), 6 * budget, is_control=True)
        for participants in (300,) if budget == 1 else (250, 300):
            yield self.by_rounds(grinding(participants, **NOT_MENDED), GROUND[participants], is_control=True)
            yield self.by_rounds(grinding(participants, **MENDED), 1000 * budget)

    def whole(self, where: Setting) -> int:
        """The honest clients in the sum that everybody online has: as few as the server may label online."""
        return where.participants - where.budget - len(where.accomplices)

    def exactly(self, where: Setting, budget: int, round_number: int = 1, *, is_control: bool = False) -> Result:
        """By integer programming; a group that is found is cut off with real parties."""
        graph = where.graph(round_number)
        cut = least_cut(graph, where.dishonest, where.budget, NODES * budget)
        found = len(cut.group) or self.whole(where)
        stated = stated_if_mended(where) if is_control else where.stated
        executed = execute(where, round_number) if cut.group else ""
        method: Any = "exact" if cut.is_exact else "greedy"
        return Result(self.protocol, where.words, stated, found, max(1, cut.nodes), method, executed, is_control)

    def by_groups(self, where: Setting, rounds: int, *, is_control: bool = False) -> Result:
        """Single clients, pairs, and groups that grow, in the graphs of a few rounds."""
        sizes = [self.whole(where)]
        for tried in range(1, rounds + 1):
            group = cut_off(where, tried)
            if group is not None:
                sizes.append(len(group.group))
                break
        stated = stated_if_mended(where) if is_control else where.stated
        return Result(self.protocol, where.words, stated, min(sizes), tried, "greedy", "", is_control)

    def by_rounds(self, where: Setting, rounds: int, *, is_control: bool = False) -> Result:
        """The server looks through round numbers before it begins one."""
        hit = isolating_round(where, rounds)
        stated = stated_if_mended(where) if is_control else where.stated
        tried = rounds if hit is None else hit[0]
        found = self.whole(where) if hit is None else 1
        words = f"{where.words}, round numbers tried"
        return Result(self.protocol, words, stated, found, tried, "greedy", "", is_control)


def grinding(participants: int, **more: Any) -> Setting:
    """Accomplices for which round 331 isolates a client of 300, and round 68,072 one of 250, with random labels."""
    generator = np.random.default_rng(5)
    generator.uniform(-1, 1, (participants, 4))
    drawn = setting(participants, 0, **more)
    accomplices = frozenset(generator.permutation(participants)[: len(drawn.accomplices)].tolist())
    return Setting(drawn.parameters, participants, accomplices)


def stated_if_mended(where: Setting) -> int:
    """The statement for the same accomplices where the bound counts with labels that the server chooses."""
    mended = where.parameters.model_copy(update=MENDED)
    return stated_least(mended, where.participants, len(where.accomplices))


def execute(where: Setting, round_number: int) -> str:
    """Run the round with real parties, an honest committee and the misbehaviour; return the outcome in words."""
    deltas = np.random.default_rng(5).uniform(-1, 1, (where.participants, 3))
    server = malicious_server(Flamingo, [LabelNeighboursOffline], AttackContext(where.accomplices))
    small = federation(deltas, where.parameters, protocol=server)
    outcome = played_from(small, round_number, {})
    (detail,) = [event.detail for event in small.network.events if event.kind == "attack"]
    match = re.search(r"(?:victim|group of clients) ([\[\]\d, ]+):.*sha256 (\w+)$", detail)
    if match is None or small.refusals():
        return f"{FAILED}: {detail}, {len(small.refusals())} refusals"
    clients = [int(number) for number in re.findall(r"\d+", match[1])]
    total: Any = 0
    for client in clients:
        coins = small.randomness.simulation_key(client, round_number, "stochastic rounding")
        total = total + where.parameters.quantisation.encode(np.float32(deltas[client]), 1, coins)
    if hashlib.sha256(np.asarray(total).tobytes()).hexdigest() != match[2]:
        return f"{FAILED}: {detail}: not the sum of their updates"
    honest = where.participants - len(where.accomplices)
    return f"{len(clients)} of {honest} honest clients' sum bit for bit, no refusal, {len(outcome.survivors)} online"
