"""Lotto's lists: of the candidates of a round the server lists all accomplices, and as few honest ones as it may.

Candidates are drawn by the protocol's own PRF (`lotto-server-centric`) from random keys of clients, at the smallest
population that clients accept. The server cannot choose the round (`max_round_gap: 1`), and plays all rounds of a run.
Selection states a probability (Theorem 2). So the accomplices on a list are compared with the number that is exceeded
in any of these rounds with at most 2**-20. The control skips rounds: it looks for one with many accomplices.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from analysis.bounds.lotto import selection_probability
from analysis.bounds.tails import survival
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto import prf
from testbed.selection.lotto.messages import selection_input, which_stand
from testbed.selection.lotto.variants import ServerCentricParameters
from tests.aggregation.federations import EXPERIMENT
from tests.search.least_sums.contract import LeastSums, Result, stated_least
from tests.search.least_sums.stories import least_by_stories

SIZES = ((200, 40), (2000, 100))  # n, s
ROUNDS, SKIPPED = 200, 4000
BITS = 20  # the number of accomplices that is stated is exceeded in a run with at most 2**-20
DISHONEST = 0.05


class ListsSums(LeastSums):
    """The list of each round, and the least sum that the accomplices on it give the server under `secagg`."""

    protocol: ClassVar[str] = "lotto-server-centric"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """All rounds of a run; and the control, which takes the best of many more."""
        for population, participants in SIZES:
            yield self.over_rounds(population, participants, ROUNDS * budget, seed)
        yield self.over_rounds(*SIZES[0], SKIPPED, seed, skips=True)

    def over_rounds(self, population: int, participants: int, rounds: int, seed: int, *, skips: bool = False) -> Result:
        """The list with the most accomplices of so many rounds."""
        selection = ServerCentricParameters(participants=participants)
        sums = SecAggParameters(weights="equal")
        generator = np.random.default_rng(seed)
        keys = generator.integers(0, 256, (population, 32), np.uint8)
        dishonest = generator.permutation(population)[: int(DISHONEST * population)]
        announced = selection.min_population or population
        most = 0
        for number in range(1, rounds + 1):
            outputs = prf.evaluate_many(keys, selection_input(EXPERIMENT, number))
            candidates = which_stand(outputs, selection, announced)
            if int(candidates.sum()) >= participants:
                most = max(most, min(participants, int(candidates[dishonest].sum())))
        played = 1 if skips else rounds
        expected = most_in(played, len(dishonest), participants, selection, announced)
        threshold = sums.threshold_for(participants)
        least = least_by_stories(participants - most, most, threshold)
        words = (
            f"n = {population}, s = {participants}, {len(dishonest)} accomplices, {rounds} rounds "
            f"{'looked through' if skips else 'played'}, at most {most} listed"
        )
        stated = stated_least(sums, participants, expected)
        return Result(self.protocol, words, stated, least.size, rounds, "exact", is_control=skips)


def most_in(
    rounds: int, dishonest: int, participants: int, selection: ServerCentricParameters, population: int
) -> int:  # fmt: skip
    """The accomplices on a list that are exceeded in so many rounds with at most 2**-BITS; in one: in half of them."""
    p = selection_probability(participants, selection.factor, population, output_bits=256)
    allowed = 0.5 if rounds == 1 else 2.0**-BITS / rounds
    return next(x for x in range(dishonest + 1) if survival(x, dishonest, p) <= allowed)
