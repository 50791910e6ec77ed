"""Rényi divergences of a round, and the epsilon of many.

Divergences of rounds add up (Mironov 2017, arXiv 1702.07476); dp_accounting converts the sum (Canonne, Kamath, Steinke
2020, arXiv 2004.00010).
"""

from collections.abc import Callable, Mapping, Sequence
from math import log, log1p

import numpy as np
import numpy.typing as npt

# What is proven for Skellam noise holds for integer orders. The published implementations end with 128 and 256; more
# orders only tighten.
ORDERS: tuple[int, ...] = (*range(2, 257), 288, 320, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 4096)
REAL_ORDERS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100) if tenth % 10), *map(float, ORDERS))
"""For what is proven for all orders above 1; those near 1 count where there is little noise."""

_WITHOUT_GAP = 256

Divergences = npt.NDArray[np.float64]


def epsilon(divergences: Divergences, rounds: int, delta: float, orders: Sequence[float] = ORDERS) -> float:
    """The epsilon of `rounds` rounds of these Rényi divergences at `delta`; 0 of no rounds."""
    from dp_accounting.rdp import compute_epsilon  # slow to import

    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta}; must be above 0 and below 1")
    if rounds == 0:
        return 0.0
    return float(compute_epsilon(orders, rounds * divergences, delta)[0])


def epsilon_of_rounds(
    divergences: Callable[[float], Divergences],
    rounds: Mapping[float, int],
    delta: float,
    orders: Sequence[float] = ORDERS,
) -> float:
    """The epsilon of rounds with unlike noise; 0 of no rounds.

    Args:
        divergences: of one round with a given share of the planned noise variance.
        rounds: how many rounds had which share.
        delta: in (0, 1).
        orders: of the divergences.
    """
    total = np.zeros(len(orders))
    for share, count in rounds.items():
        if count:
            total += count * divergences(share)
    return epsilon(total, int(any(rounds.values())), delta, orders)


def amplified(divergences: Divergences, sampling: float) -> Divergences:
    """What is left of the divergences when a client takes part with probability `sampling`, unseen.

    Zhu and Wang, Poisson Subsampled Renyi Differential Privacy, ICML 2019, Theorem 6 (for any mechanism): a sum over
    how often the client is taken, here in logarithms. It needs all orders from 2 up to the one in question; those
    beyond the first gap in `ORDERS` keep their divergence.
    """
    from scipy.special import gammaln, logsumexp  # slow to import

    if not 0 < sampling < 1:
        raise ValueError(f"sampling: {sampling}; must be above 0 and below 1")
    if not np.isfinite(divergences).all():
        return divergences
    orders, taken = np.arange(2, _WITHOUT_GAP + 1)[:, None], np.arange(2, _WITHOUT_GAP + 1)
    ways = gammaln(orders + 1) - gammaln(taken + 1) - gammaln(orders - taken + 1)  # -inf for more than there are
    chances = taken * log(sampling) + (orders - taken) * log1p(-sampling)
    terms = ways + chances + (taken - 1) * divergences[: len(taken)] + np.where(taken > 2, log(3), 0.0)
    never_or_once = (taken - 1) * log1p(-sampling) + np.log1p((taken - 1) * sampling)
    found = np.logaddexp(never_or_once, logsumexp(terms, axis=1)) / (taken - 1)
    return np.append(np.minimum(divergences[: len(taken)], found), divergences[len(taken) :])
