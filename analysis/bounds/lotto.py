"""Lotto's guarantees as numbers.

Jiang, Ye, Chen, et al., Lotto: Secure Participant Selection against Adversarial Servers in Federated Learning, USENIX
Security 2024, arXiv 2401.02880, sections 3.4 and 3.6.

A client is a candidate with probability at most p = floor(a s m / n_min) / m, for all announcements of the server:
clients refuse a population below n_min. Of the c dishonest clients at most Binomial(c, p) are candidates, and a server
that removes only honest candidates keeps all of them. These are bounds for one round, and the way back from a target to
parameters; `analysis.bounds.lotto_completed` covers completed rounds, and `analysis.bounds.lotto_rounds` many rounds.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from numbers import Integral

from analysis.bounds.checks import require_at_least, require_inside
from analysis.bounds.tails import survival


def selection_probability(
    participants: int, over_selection: float | Fraction, min_population: int, output_bits: int = 512
) -> Fraction:
    """Return a client's probability to be a candidate: min(1, floor(a s m / n_min) / m), exactly (proof of Theorem 2).

    Args:
        participants: s, at least 1.
        over_selection: a, at least 1; a float is the decimal fraction that it prints as.
        min_population: n_min, at least 1: the smallest population that clients accept.
        output_bits: log2 m: 512 for the VRF of the client-centric variant, 256 for the PRF of the server-centric one.

    Raises:
        ValueError: if a number is out of range.
    """
    require_at_least(1, participants=participants)
    require_at_least(1, min_population=min_population)
    # The paper's floor misses beta = floor(a s m / n_min) where the division has a remainder: one of m outputs.
    return min(
        Fraction(1),
        Fraction(floor(_factor(over_selection) * participants * 2**output_bits / min_population), 2**output_bits),
    )


def candidates_suffice(
    population: int, participants: int, over_selection: float | Fraction, announced: int | None = None
) -> float:
    """Return Pr[|C| >= s], when all clients are available (Theorem 1).

    Args:
        population: n_true, at least s.
        participants: s.
        over_selection: a.
        announced: n, the population that the server announces, at least 1; None: n_true.

    Example:
        >>> round(candidates_suffice(100, 10, 1.3), 4), round(candidates_suffice(100, 10, 1.3, announced=130), 4)
        (0.8523, 0.5487)
    """
    _check_population(population, participants)
    size = population if announced is None else announced
    require_at_least(1, announced=size)
    p = min(Fraction(1), _factor(over_selection) * participants / size)
    return survival(participants - 1, population, p)


def dishonest_fraction_exceeds(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    eta: float | Fraction,
    min_population: int | None = None,
) -> float:
    """Bound Pr[x/s > eta c/n]: x dishonest participants are more than eta times the expected number (Theorem 2).

    The paper's sum counts candidates and continues beyond s, while a round has s participants. So where floor(eta c s /
    n) is s or more, the event cannot happen, and the result is 0; everywhere else it is the bound as printed.

    Args:
        population: n, at least s.
        dishonest: c, from 0 to n.
        participants: s.
        over_selection: a.
        eta: the factor, positive; the paper has it above 1.
        min_population: n_min, at most n; None: n.
    """
    least = population if min_population is None else min_population
    check_counts(population, dishonest, participants, least)
    p = selection_probability(participants, over_selection, least)
    most = allowed(population, dishonest, participants, eta)
    return 0.0 if most >= participants else survival(most, dishonest, p)


def share_factor(population: int, over_selection: float | Fraction, min_population: int) -> float:
    """Return lambda = a n_true / n: the growth of the dishonest share of a round over that of the population.

    It holds in expectation, about, when the server keeps all dishonest candidates and announces n = n_min (section
    3.4).

    Args:
        population: n_true.
        over_selection: a.
        min_population: n_min.
    """
    require_at_least(1, population=population, min_population=min_population)
    return float(_factor(over_selection) * population / min_population)


def secagg_fails(
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    min_population: int,
    threshold: int | float | Fraction,
) -> float:
    """Bound Pr[x >= 2t - s]: enough dishonest participants to see an honest client's update (Corollary 1).

    Args:
        dishonest: c, at least 0.
        participants: s.
        over_selection: a.
        min_population: n_min.
        threshold: t, a number above s/2 and at most s, or a fraction of s, rounded up.
    """
    require_at_least(0, dishonest=dishonest)
    p = selection_probability(participants, over_selection, min_population)
    return survival(tolerated(participants, threshold), dishonest, p)


def allowed(population: int, dishonest: int, participants: int, eta: float | Fraction) -> int:
    """Return floor(eta c s / n): the most dishonest participants that are at most eta times the expected number.

    Args:
        population: n.
        dishonest: c.
        participants: s.
        eta: above 0.

    Example:
        >>> allowed(population=1000, dishonest=50, participants=100, eta=2)
        10
    """
    factor = decimal("eta", eta)
    if factor <= 0:
        raise ValueError(f"eta: {eta}; must be above 0")
    return floor(factor * dishonest * participants / population)


def threshold_of(participants: int, threshold: int | float | Fraction) -> int:
    """Return t, given as a number or as a fraction of s, rounded up as `SecAggParameters.threshold_for` does.

    Args:
        participants: s.
        threshold: number or fraction.

    Raises:
        ValueError: unless s/2 < t <= s.

    Example:
        >>> threshold_of(70, 0.7)
        49
    """
    t = int(threshold) if isinstance(threshold, Integral) else ceil(decimal("threshold", threshold) * participants)
    if not participants < 2 * t <= 2 * participants:
        allowed = f"allowed {participants // 2 + 1} to {participants} (or a fraction above 0.5, at most 1.0)"
        raise ValueError(f"threshold: t = {t} of {participants} participants; {allowed}")
    return t


def tolerated(participants: int, threshold: int | float | Fraction) -> int:
    """Return 2t - s - 1: the most dishonest participants with which SecAgg with signed survivor lists is secure.

    Args:
        participants: s.
        threshold: t, a number or a fraction of s.
    """
    return 2 * threshold_of(participants, threshold) - participants - 1


def check_counts(population: int, dishonest: int, participants: int, min_population: int) -> None:
    """Raise `ValueError` unless s, c and n_min are at most n.

    Args:
        population: n.
        dishonest: c.
        participants: s.
        min_population: n_min.
    """
    _check_population(population, participants)
    require_at_least(0, dishonest=dishonest)
    if dishonest > population:
        raise ValueError(f"dishonest: {dishonest} of a population of {population}")
    require_at_least(1, min_population=min_population)
    if min_population > population:
        raise ValueError(f"min_population: n_min = {min_population} of a population of {population}")


def decimal(name: str, value: float | Fraction) -> Fraction:
    """Return the number as written: 1.3 is 13/10, as in an experiment.

    Args:
        name: of the number, for messages.
        value: the number.

    Raises:
        ValueError: if it is not a number.
    """
    try:
        return Fraction(str(value))
    except ValueError:
        raise ValueError(f"{name}: {value} is not a number") from None


def _factor(over_selection: float | Fraction) -> Fraction:
    factor = decimal("over_selection", over_selection)
    if factor < 1:
        raise ValueError(f"over_selection: {over_selection}; must be at least 1")
    return factor


def _check_population(population: int, participants: int) -> None:
    require_at_least(1, participants=participants)
    if participants > population:
        raise ValueError(f"participants: {participants} of a population of {population}")


# -- from a target to parameters --------------------------------------------------------------------------------------
# Each function returns the loosest value of one parameter that keeps a target, with the others as given. All search by
# bisection in whole numbers, on bounds that are monotone in that parameter, so that the answer is exact: it keeps the
# target, its neighbour does not. None means that no value keeps it.


MAXIMUM_OVER_SELECTION = 100  # the limit in experiments
_STEPS = 1000  # over-selection factors are searched in thousandths


def smallest_min_population(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    threshold: int | float | Fraction,
    target: float,
) -> int | None:
    """Return the smallest n_min, from s to n, with Pr[SecAgg fails] <= target (Corollary 1).

    Args:
        population, dishonest, participants, over_selection, threshold: see `secagg_fails`.
        target: in (0, 1).
    """
    require_inside(target=target)
    return _smallest(
        lambda least: secagg_fails(dishonest, participants, over_selection, least, threshold) <= target,
        participants,
        population,
    )


def smallest_min_population_for_fraction(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    eta: float | Fraction,
    target: float,
) -> int | None:
    """Return the smallest n_min, from s to n, with Pr[x/s > eta c/n] <= target (Theorem 2).

    Args:
        population, dishonest, participants, over_selection, eta: see `dishonest_fraction_exceeds`.
        target: in (0, 1).
    """
    require_inside(target=target)
    return _smallest(
        lambda least: (
            dishonest_fraction_exceeds(population, dishonest, participants, over_selection, eta, least) <= target
        ),
        participants,
        population,
    )


def smallest_threshold(
    dishonest: int, participants: int, over_selection: float | Fraction, min_population: int, target: float
) -> int | None:
    """Return the smallest t, above s/2 and at most s, with Pr[SecAgg fails] <= target: it tolerates the most dropouts.

    Args:
        dishonest, participants, over_selection, min_population: see `secagg_fails`.
        target: in (0, 1).
    """
    require_inside(target=target)
    return _smallest(
        lambda t: secagg_fails(dishonest, participants, over_selection, min_population, t) <= target,
        participants // 2 + 1,
        participants,
    )


def largest_exclusion(population: int, dishonest: int, base_rate: float | Fraction) -> int | None:
    """Return the most clients that refinement may leave out while dishonest ones stay within `base_rate` of the rest.

    In the worst case all excluded clients are honest (section 3.5): c / (n - excluded) <= base_rate.

    Args:
        population: n.
        dishonest: c.
        base_rate: above 0 and at most 1.
    """
    rate = decimal("base_rate", base_rate)
    if not 0 < rate <= 1:
        raise ValueError(f"base_rate: {base_rate}; must be above 0 and at most 1")
    left = max(1, ceil(dishonest / rate))  # at least one client stays
    return population - left if left <= population else None


def smallest_over_selection(population: int, participants: int, sufficiency: float) -> Fraction | None:
    """Return the smallest a, in thousandths, with Pr[|C| >= s] >= `sufficiency` (Theorem 1).

    Args:
        population: n.
        participants: s.
        sufficiency: in (0, 1).
    """
    require_inside(sufficiency=sufficiency)
    step = _smallest(
        lambda step: candidates_suffice(population, participants, Fraction(step, _STEPS)) >= sufficiency,
        _STEPS,
        MAXIMUM_OVER_SELECTION * _STEPS,
    )
    return None if step is None else Fraction(step, _STEPS)


def largest_over_selection(
    dishonest: int, participants: int, min_population: int, threshold: int | float | Fraction, target: float
) -> Fraction | None:
    """Return the largest a, in thousandths, with Pr[SecAgg fails] <= target: more candidates are more to choose from.

    Args:
        dishonest, participants, min_population, threshold: see `secagg_fails`.
        target: in (0, 1).
    """
    require_inside(target=target)
    broken = _smallest(
        lambda step: secagg_fails(dishonest, participants, Fraction(step, _STEPS), min_population, threshold) > target,
        _STEPS,
        MAXIMUM_OVER_SELECTION * _STEPS,
    )
    if broken == _STEPS:  # a = 1 already misses the target
        return None
    return Fraction(MAXIMUM_OVER_SELECTION if broken is None else Fraction(broken - 1, _STEPS))


def exclusion(excluded: int, population: int) -> float:
    """Return the fraction d of n clients, rounded down to six digits, so that it never stands for more clients.

    Args:
        excluded: number of clients.
        population: n.
    """
    return floor(Fraction(excluded, population) * 10**6) / 10**6


def smallest(holds: Callable[[int], bool], first: int, last: int) -> int:
    """Return the smallest number for which a monotone condition holds.

    Args:
        holds: the condition, which holds for `last` and, if it holds for a number, for all larger ones.
        first, last: ends of the range, both included.

    Example:
        >>> smallest(lambda number: number * number >= 50, 0, 10)
        8
    """
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if holds(middle) else (middle + 1, last)
    return first


def _smallest(holds: Callable[[int], bool], first: int, last: int) -> int | None:
    """Return `smallest`; None if the condition does not hold for `last`."""
    return smallest(holds, first, last) if holds(last) else None
