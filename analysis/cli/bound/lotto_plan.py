"""``testbed plan lotto``: parameters of Lotto's selection that meet a target."""

from typing import Annotated

from analysis.cli.bound.declaration import Row, declare, format_parameters, results, target_line, value_or_reason
from analysis.cli.bound.lotto import SYMBOLS, Participants, format_result, lotto_parameters
from analysis.cli.bound.options import (
    LARGE,
    Dishonest,
    MinPopulation,
    OverSelection,
    PlannedRounds,
    Population,
    Sufficiency,
    Target,
    Threshold,
    number_of,
    threshold_of,
)
from testbed.cli.invocation import option

_PLAN_LABELS = {
    "secagg_fails": "Pr[SecAgg fails] with these parameters",
    "candidates_suffice": "Pr[at least s candidates] with these parameters",
    "smallest_min_population": "smallest n_min",
    "smallest_min_population_for_eta": "smallest n_min for eta",
    "largest_exclusion": "largest share d that refinement may exclude",
    "largest_exclusion_for_base_rate": "largest share d for the base rate",
    "smallest_threshold": "smallest threshold t",
    "smallest_over_selection": "smallest over-selection factor a",
    "largest_over_selection": "largest over-selection factor a",
}


def _plan_text(row: Row) -> str:
    return f"{format_parameters(row, SYMBOLS)}\n{target_line(row)}\n{results(row, _PLAN_LABELS, format_result)}"


@declare(
    _plan_text,
    f"testbed plan lotto {LARGE} --over-selection 1.3 --threshold 0.7 --target 1e-9",
    "testbed plan lotto --population 1000 --dishonest 5% --participants 70 --target 1e-6 --rounds 100",
    "testbed plan lotto --population 1000 --dishonest 50 --participants 70 --target 1e-6 --base-rate 0.2 --format json",
    then="Each line changes one parameter and keeps the others.",
)
def plan_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    target: Target,
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    threshold: Threshold = "0.7",
    sufficiency: Sufficiency = 0.99,
    base_rate: Annotated[
        float | None, option("F", "Largest share of dishonest clients after population refinement.")
    ] = None,
    eta: Annotated[float | None, option("E", "Also plan n_min for Pr\\[x/s > E c/n] <= target.")] = None,
    rounds: PlannedRounds = None,
) -> Row:
    """Plan Lotto's parameters: smallest n_min and threshold, largest excluded share, range of over-selection."""
    from analysis.bounds import lotto
    from analysis.bounds.checks import require_at_least, require_honest_clients

    c, t = number_of(dishonest, population), threshold_of(threshold)
    if rounds is not None:
        require_at_least(1, rounds=rounds)
    a_round = target if rounds is None else target / rounds
    least = population if min_population is None else min_population
    parameters = lotto_parameters(population, c, participants, over_selection, least)
    require_honest_clients(population, c)
    t = lotto.threshold_of(participants, t)
    smallest = lotto.smallest_min_population(population, c, participants, over_selection, t, a_round)
    highest = lotto.smallest_threshold(c, participants, over_selection, least, a_round)
    plan: Row = parameters | {
        "threshold": t,
        "target": target,
        **({} if rounds is None else {"rounds": rounds}),
        "target_in_a_round": a_round,
        "sufficiency": sufficiency,
        "secagg_fails": lotto.secagg_fails(c, participants, over_selection, least, t),
        "candidates_suffice": lotto.candidates_suffice(population, participants, over_selection),
    }
    if highest is None:
        change = "use more --participants, fewer --dishonest or a higher --target"
    else:
        change = f"--threshold {highest} is enough with n_min = {least}" if highest > t else "raise --threshold"

    def missed(even: str) -> str:
        return f"SecAgg fails with a probability above {a_round:g} in a round even with {even}; {change}"

    plan |= value_or_reason("smallest_min_population", smallest, missed("the whole population as n_min"))
    plan |= _exclusion("largest_exclusion", smallest, population, missed("no client excluded"))
    plan |= value_or_reason("smallest_threshold", highest, missed(f"a threshold of all {participants}"))
    enough = lotto.smallest_over_selection(population, participants, sufficiency)
    too_few = (
        f"fewer than {100 * sufficiency:g}% of the rounds have enough candidates up to a = "
        f"{lotto.MAXIMUM_OVER_SELECTION}; use fewer --participants or a lower --sufficiency"
    )
    plan |= value_or_reason("smallest_over_selection", None if enough is None else float(enough), too_few)
    most = lotto.largest_over_selection(c, participants, least, t, a_round)
    plan |= value_or_reason("largest_over_selection", None if most is None else float(most), missed("a = 1"))
    if base_rate is not None:
        excluded = lotto.largest_exclusion(population, c, base_rate)
        rest = None if excluded is None else population - excluded
        plan["base_rate"] = base_rate
        worse = f"{c} of {population} are more than {base_rate:g} if no client is excluded"
        plan |= _exclusion("largest_exclusion_for_base_rate", rest, population, worse)
    if eta is not None:
        enough_for_eta = lotto.smallest_min_population_for_fraction(
            population, c, participants, over_selection, eta, a_round
        )
        plan["eta"] = eta
        above = (
            f"the dishonest share exceeds {eta:g} times its expectation with a probability above {a_round:g} in "
            "a round even with the whole population as n_min; use a higher --eta, more --participants or a higher "
            "--target"
        )
        plan |= value_or_reason("smallest_min_population_for_eta", enough_for_eta, above)
    return plan


def _exclusion(name: str, rest: int | None, population: int, reason: str) -> Row:
    """Return the fraction d, and its number of clients, when `rest` of the population remain."""
    from analysis.bounds.lotto import exclusion

    excluded = None if rest is None else population - rest
    fraction = None if excluded is None else exclusion(excluded, population)
    return value_or_reason(name, fraction, reason) | {f"{name}_clients": excluded}
