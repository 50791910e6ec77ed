"""The worked example of Lotto's section 3.6, which Figures 6 and 10 share (arXiv 2401.02880).

c = 1000 dishonest clients, s = n/1000 participants, a = 1.3, n_min = n.
"""

from functools import cache

from scipy.optimize import brentq

from analysis.bounds.lotto_dp import Training, cost_with_lotto, cost_without_lotto
from analysis.style import protocol_colours
from testbed.privacy.accounting import Skellam

DISHONEST, OVER_SELECTION, ROUNDS, DIMENSION = 1000, 1.3, 50, 2**20
MULTIPLIER = 6.27  # consistent with the paper's 1.8 and 265; the paper states none
POPULATIONS = tuple(range(100_000, 1_000_001, 100_000))
EXAMPLE_POPULATION = 200_000
CLIENT_CENTRIC_COLOUR, SERVER_CENTRIC_COLOUR, INSECURE_COLOUR = protocol_colours(
    ["lotto-client-centric", "lotto-server-centric", "random"]
).values()


def training(population: int, multiplier: float = MULTIPLIER) -> Training:
    """The paper's example: t = 0.7 s, delta = 1/n, 50 rounds."""
    mechanism = Skellam(multiplier, DIMENSION)
    return Training(DISHONEST, population // 1000, OVER_SELECTION, population, 0.7, ROUNDS, 1 / population, mechanism)


@cache
def epsilons(population: int, multiplier: float = MULTIPLIER) -> dict[str, float]:
    """The three epsilons of the example by name: client-centric, server-centric, insecure."""
    one = training(population, multiplier)
    return {
        "client-centric": cost_with_lotto(one, "client-centric").epsilon,
        "server-centric": cost_with_lotto(one, "server-centric").epsilon,
        "insecure": cost_without_lotto(one).epsilon,
    }


def consistent(name: str, least: float, most: float) -> tuple[float, float]:
    """The noise multipliers at which an epsilon of the example lies between `least` and `most`."""

    def excess(multiplier: float, edge: float) -> float:
        return epsilons(EXAMPLE_POPULATION, multiplier)[name] - edge

    low, high = (float(brentq(excess, 3, 12, args=(edge,), xtol=1e-5)) for edge in (most, least))
    return low, high
