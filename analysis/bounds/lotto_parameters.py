"""From a promise to parameters: the loosest setting of Lotto (arXiv 2401.02880) that keeps a target.

Each function turns one knob and leaves the others where they are. All are searched by bisection in whole numbers, on
bounds that are monotone in that knob, so that the answer is exact: it keeps the target, its neighbour does not. None
means that no setting keeps it.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

from analysis.bounds.lotto import candidates_suffice, decimal, dishonest_fraction_exceeds, secagg_fails
from analysis.bounds.validation import require_inside

MAXIMUM_OVER_SELECTION = 100  # what an experiment may say
_STEPS = 1000  # over-selection factors are searched in thousandths


def smallest_min_population(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    threshold: int | float | Fraction,
    target: float,
) -> int | None:
    """The smallest n_min, from s to n, with Pr[SecAgg fails] <= target (Corollary 1)."""
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
    """The smallest n_min, from s to n, with Pr[x/s > eta c/n] <= target (Theorem 2)."""
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
    """The smallest t, above s/2 and at most s, with Pr[SecAgg fails] <= target: it bears the most drop-outs."""
    require_inside(target=target)
    return _smallest(
        lambda t: secagg_fails(dishonest, participants, over_selection, min_population, t) <= target,
        participants // 2 + 1,
        participants,
    )


def largest_exclusion(population: int, dishonest: int, base_rate: float | Fraction) -> int | None:
    """How many clients refinement may leave out so that dishonest ones stay within `base_rate` of the rest.

    In the worst case all that are left out are honest (section 3.5): c / (n - excluded) <= base_rate.
    """
    rate = decimal("base_rate", base_rate)
    if not 0 < rate <= 1:
        raise ValueError(f"base_rate: {base_rate}; must be above 0 and at most 1")
    left = max(1, ceil(dishonest / rate))
    return population - left if left <= population else None


def smallest_over_selection(population: int, participants: int, sufficiency: float) -> Fraction | None:
    """The smallest a, in thousandths, with Pr[|C| >= s] >= `sufficiency` (Theorem 1)."""
    require_inside(sufficiency=sufficiency)
    found = _smallest(
        lambda step: candidates_suffice(population, participants, Fraction(step, _STEPS)) >= sufficiency,
        _STEPS,
        MAXIMUM_OVER_SELECTION * _STEPS,
    )
    return None if found is None else Fraction(found, _STEPS)


def largest_over_selection(
    dishonest: int, participants: int, min_population: int, threshold: int | float | Fraction, target: float
) -> Fraction | None:
    """The largest a, in thousandths, with Pr[SecAgg fails] <= target: more candidates are more to choose from."""
    require_inside(target=target)
    broken = _smallest(
        lambda step: secagg_fails(dishonest, participants, Fraction(step, _STEPS), min_population, threshold) > target,
        _STEPS,
        MAXIMUM_OVER_SELECTION * _STEPS,
    )
    if broken == _STEPS:
        return None
    return Fraction(MAXIMUM_OVER_SELECTION if broken is None else Fraction(broken - 1, _STEPS))


def exclusion(excluded: int, population: int) -> float:
    """The fraction d of n clients, rounded down to six digits, so that it never stands for more clients."""
    return floor(Fraction(excluded, population) * 10**6) / 10**6


def _smallest(holds: Callable[[int], bool], first: int, last: int) -> int | None:
    """The smallest number from `first` to `last` for which it holds, given that it then holds for all larger ones."""
    if not holds(last):
        return None
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
