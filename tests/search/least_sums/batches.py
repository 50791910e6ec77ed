"""Whole batches over several rounds: which batches the server lets come whole in which round, against T.

Selection states that a client is never seen without the other members of its batch, over all rounds (multi-round
privacy). A client's updates are taken to be the same in all rounds, which is the worst case. The server picks the
batches that are summed in each round, with t clients or more in each. It combines the rounds' sums: each of them is
added once, subtracted, or left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import RoundAborted
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection
from tests.aggregation.federations import SmallFederation
from tests.search.least_sums.contract import FAILED, LeastSums, Result
from tests.search.least_sums.programs import Program

ROUNDS = 3
SIZES = ((20, 10, 5), (100, 20, 5), (500, 50, 10), (2000, 100, 20))  # n, K, T
SMALL = (12, 12, 3)  # everybody takes part


@dataclass(frozen=True)
class Combination:
    """A combination of the sums of a few rounds.

    Attributes:
        rounds: the batches in the sum of each round.
        signs: how often each round's sum counts: 1, 0 or -1.
        clients: honest ones whose updates are in the combination.
        nodes: of branch and bound.
    """

    rounds: Sequence[Sequence[int]]
    signs: Sequence[int]
    clients: int
    nodes: int


def least_combination(weights: Sequence[int], sizes: Sequence[int], most: int, fewest: int) -> Combination:
    """The combination with the fewest honest clients.

    Args:
        weights: honest members of each batch, or of each client by itself.
        sizes: members of each.
        most, fewest: clients in a round's sum.
    """
    program, count = Program(), len(sizes)
    signs = [(program.binary(), program.binary()) for _ in range(ROUNDS)]
    summed = [[program.binary() for _ in range(count)] for _ in range(ROUNDS)]
    used = [program.binary() for _ in range(count)]
    terms: list[dict[int, float]] = [{} for _ in range(count)]
    for sign, row in zip(signs, summed, strict=True):
        program.at_most(dict.fromkeys(sign, 1), 1)
        sum_of = dict(zip(row, sizes, strict=True))
        program.at_least(sum_of, fewest)
        program.at_most(sum_of, most)
        for place, unit in enumerate(row):
            for side, value in zip(sign, (1, -1), strict=True):
                part = program.binary()  # the product of the two
                program.implies(part, unit)
                program.implies(part, side)
                program.at_least({part: 1, unit: -1, side: -1}, -1)
                terms[place][part] = value
    for place in range(count):
        program.at_most({**terms[place], used[place]: -ROUNDS}, 0)
        program.at_most({**{part: -value for part, value in terms[place].items()}, used[place]: -ROUNDS}, 0)
    positive = [program.binary() for _ in range(count)]
    for place in range(count):
        program.at_least({**terms[place], positive[place]: -(ROUNDS + 1)}, -ROUNDS)
    program.at_least(dict.fromkeys(positive, 1), 1)
    found = program.minimise(dict(zip(used, weights, strict=True)))
    assert found.is_exact
    rounds = [[place for place in range(count) if found.at(row[place])] for row in summed]
    chosen = [found.at(plus) - found.at(minus) for plus, minus in signs]
    clients = sum(weight for unit, weight in zip(used, weights, strict=True) if found.at(unit))
    return Combination(rounds, chosen, clients, max(1, found.nodes))


class BatchesSums(LeastSums):
    """`batch-partition` with `secagg`, batches whole; single clients, where they are ignored, as the control."""

    protocol: ClassVar[str] = "batch-partition"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """At several sizes, and three rounds with real parties."""
        for population, participants, privacy in SIZES[: 2 + budget]:
            yield self.over_rounds(population, participants, privacy)
        yield self.over_rounds(*SMALL, is_executed=True)
        yield self.over_rounds(*SMALL, is_executed=True, whole=False)

    def over_rounds(
        self, population: int, participants: int, privacy: int, *, is_executed: bool = False, whole: bool = True
    ) -> Result:
        """The least combination of three rounds' sums."""
        selection = BatchPartitionParameters(participants=participants, privacy=privacy)
        batches = BatchPartitionSelection(selection, population).batches
        parameters = SecAggParameters(threshold=0.6, weights="equal", batches="whole" if whole else "ignored")
        sizes = batches.sizes.tolist() if whole else [1] * population
        fewest = parameters.threshold_for(participants)
        least = least_combination(sizes, sizes, participants, fewest)
        executed = execute(batches, parameters, least, sizes) if is_executed else ""
        words = f"n = {population}, K = {participants}, T = {privacy}, {'whole' if whole else 'ignored'} batches"
        return Result(self.protocol, words, privacy, least.clients, least.nodes, "exact", executed, not whole)


class Chosen(SecAgg):
    """A server that names the survivors of its choice, as many as it likes of those that have sent an input."""

    choice: ClassVar[Sequence[Sequence[int]]]

    def choose_survivors(self, state: object) -> Ids:
        """Those of this round."""
        number: int = state.start.number  # type: ignore[attr-defined]
        return np.array(self.choice[number - 1], np.int64)


def execute(batches: Batches, parameters: SecAggParameters, least: Combination, sizes: Sequence[int]) -> str:
    """The rounds with real parties, and the combination of their sums."""
    population = len(batches.of)
    units = [batches.members([unit]).tolist() for unit in range(len(batches))]
    if len(sizes) == population:
        units = [[client] for client in range(population)]
    choice = [sorted(client for unit in units_of for client in units[unit]) for units_of in least.rounds]
    deltas = np.random.default_rng(3).choice([-1.0, 1.0], (population, 20))  # levels without rounding, in each round
    server = type("ChosenSums", (Chosen,), {"choice": choice})
    small = SmallFederation(deltas, parameters, protocol=server, batches=batches)
    total, truth = np.zeros(20), np.zeros(20)
    for number, (clients, sign) in enumerate(zip(choice, least.signs, strict=True), 1):
        try:
            outcome = small.run(number)
        except RoundAborted as ended:
            return f"{FAILED}: round {number}: {ended}, {small.refusals()}"
        total += sign * outcome.mean * outcome.weight
        truth += sign * deltas[clients].sum(axis=0)
    if small.refusals() or not np.allclose(total, truth, atol=1e-9):
        return f"{FAILED}: another combination, or {small.refusals()}"
    return f"{least.clients} of {population} clients' sum of {len(choice)} rounds' sums, no refusal"
