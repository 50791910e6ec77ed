"""Lotto's bounds for completed rounds: Theorem 2, Corollary 1 and the dishonest share, given at least s candidates.

Jiang, Ye, Chen, et al., USENIX Security 2024, arXiv 2401.02880, sections 3.4 and 3.6. Theorem 2 begins with "if the
protocol proceeds without abortion", while its proof bounds the dishonest candidates of an announced round. Rounds with
fewer than s candidates end. So if the printed probability is q for an announced round, it is up to q / Pr[|C| >= s] for
a completed round of a server that ends no other round. A server that ends rounds at will is bounded only over all
announced rounds.
"""

from fractions import Fraction
from math import ceil, floor, sqrt

import numpy as np
from scipy.stats import binom

from analysis.bounds.checks import require_at_least
from analysis.bounds.lotto import check_counts, selection_probability
from analysis.bounds.tails import survival
from testbed.arrays import Floats, Ids


def exceeds_and_completed(
    most: int,
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    min_population: int,
    largest: int | None = None,
) -> float:
    """Return Pr[x > most and |C| >= s]: an announced round is completed, with more than `most` dishonest candidates.

    The server announces n_min, keeps all dishonest candidates, and ends only rounds with fewer than s candidates.

    Args:
        most: largest number of dishonest candidates that does not count.
        population: n, the true population.
        dishonest: c.
        participants: s.
        over_selection: a.
        min_population: n_min.
        largest: largest number of dishonest candidates that counts; None: c.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> round(exceeds_and_completed(2, 100, 10, 10, 1.3, 100), 5)  # Theorem 2: 0.13076
        0.12597
    """
    check_counts(population, dishonest, participants, min_population)
    p = float(selection_probability(participants, over_selection, min_population))
    last = dishonest if largest is None else min(largest, dishonest)
    x, masses = _candidates(max(0, most + 1), last, dishonest, p)
    # |C| >= s needs s - x honest candidates.
    return float((masses * binom.sf(participants - x - 1, population - dishonest, p)).sum())


def _candidates(first: int, last: int, clients: int, p: float) -> tuple[Ids, Floats]:
    """Return numbers of candidates from `first` to `last` and their probabilities, without negligible ones (10^-30)."""
    mean, wide = clients * p, 40 + ceil(12 * sqrt(clients * p * (1 - p)))
    first = max(first, floor(mean) - wide)
    x = np.arange(first, min(last, max(first, ceil(mean)) + wide) + 1)
    return x, binom.pmf(x, clients, p)


def exceeds_if_completed(
    most: int,
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    min_population: int,
) -> float:
    """Return Pr[x > most, given |C| >= s]: the exact value that bounds completed rounds.

    No announcement n >= n_min gives more: given |C|, the dishonest candidates are hypergeometric, and a larger p makes
    larger |C| more likely. All clients are available and hear of the round, and the server ends no round with s
    candidates. Honest clients out of reach make completed rounds rarer, and the share of bad ones larger.

    Args:
        most, population, dishonest, participants, over_selection, min_population: see `exceeds_and_completed`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> round(exceeds_if_completed(2, 100, 10, 10, 1.3, 100), 5)  # 0.12597 / 0.85227
        0.1478
    """
    both = exceeds_and_completed(most, population, dishonest, participants, over_selection, min_population)
    p = selection_probability(participants, over_selection, min_population)
    return both / survival(participants - 1, population, p)


def share_of_completed(chance: float, announced: int, completed: int) -> float:
    """Bound the expected share of bad rounds among the completed ones, if the server ends rounds at will.

    At most all bad rounds of the announced ones are completed: R q in expectation.

    Args:
        chance: q, probability of an announced round to be bad.
        announced: R, number of announced rounds.
        completed: N, number of them that are completed, at least 1.

    Raises:
        ValueError: if N is not from 1 to R.

    Example:
        >>> share_of_completed(0.25, announced=8, completed=4)
        0.5
    """
    require_at_least(1, announced=announced, completed=completed)
    if completed > announced:
        raise ValueError(f"completed: {completed} of {announced} announced rounds")
    return min(1.0, announced * chance / completed)


def expected_share(
    population: int, dishonest: int, participants: int, over_selection: float | Fraction, min_population: int
) -> float:
    """Return E[x/s, given |C| >= s]: the expected share of dishonest participants in a round that is run.

    The server is that of `lotto.share_factor`. The paper has lambda c / n_true, without the condition and with x beyond
    s; this is the sum itself.

    Args:
        population, dishonest, participants, over_selection, min_population: see `exceeds_and_completed`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> round(expected_share(100, 20, 10, 1.3, 100), 4)  # lambda c / n_true is 0.26
        0.2776
    """
    check_counts(population, dishonest, participants, min_population)
    p = float(selection_probability(participants, over_selection, min_population))
    x, masses = _candidates(0, dishonest, dishonest, p)
    happens = masses * binom.sf(participants - x - 1, population - dishonest, p)
    # Of more than s dishonest candidates only s fit into the round.
    return float((np.minimum(x, participants) * happens).sum() / happens.sum() / participants)


def largest_freely_chosen(dishonest: int, participants: int, victims: int = 0) -> int:
    """Return the dishonest participants of a server that selects without Lotto: all places but the victims'.

    Args:
        dishonest: c.
        participants: s.
        victims: number of places for honest clients.

    Example:
        >>> largest_freely_chosen(dishonest=1000, participants=200, victims=1)
        199
    """
    require_at_least(0, dishonest=dishonest, victims=victims)
    return min(dishonest, participants - victims)
