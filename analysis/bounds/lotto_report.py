"""Lotto's bounds as flat objects, for scripts and for the command."""

from fractions import Fraction
from math import isfinite

from analysis.bounds import lotto
from analysis.bounds.lotto_rounds import (
    BrokenRounds,
    PrivacyCost,
    Training,
    cost_with_lotto,
    cost_with_parallel_lists,
    cost_without_lotto,
)
from analysis.bounds.rows import (
    Row,
    finite,
    found,
    given,
    number,
    require_at_least,
    require_honest_clients,
    results,
    target_line,
)
from analysis.bounds.tails import log10_survival


def lotto_bounds(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    min_population: int | None,
    eta: float | Fraction,
    threshold: int | float,
    rounds: int | None = None,
    round_gap: int | None = None,
) -> Row:
    """Theorems 1 and 2 and Corollary 1 for one setting; `min_population` None: the population.

    With `rounds`, Corollary 1 over that many, for a server that may skip rounds; `round_gap` None: any.
    """
    least = population if min_population is None else min_population
    setting = _setting(population, dishonest, participants, over_selection, least)
    p = lotto.selection_probability(participants, over_selection, least)
    allowed = lotto.allowed(population, dishonest, participants, eta)
    tolerated = lotto.tolerated(participants, threshold)
    row = setting | {
        "eta": float(eta),
        "threshold": lotto.threshold_of(participants, threshold),
        "selection_probability": float(p),
        "candidates_suffice": lotto.candidates_suffice(population, participants, over_selection),
        "share_factor": lotto.share_factor(population, over_selection, least),
        "dishonest_share_expected": lotto.expected_share(population, dishonest, participants, over_selection, least),
        "dishonest_allowed": allowed,
        "dishonest_fraction_exceeds": lotto.dishonest_fraction_exceeds(
            population, dishonest, participants, over_selection, eta, least
        ),
        **_fraction_remarks(allowed, dishonest, participants, p),
        "dishonest_tolerated": tolerated,
        "secagg_fails": lotto.secagg_fails(dishonest, participants, over_selection, least, threshold),
        **_logarithm("secagg_fails", tolerated, dishonest, p),
    }
    if rounds is not None:
        row |= _over_rounds(BrokenRounds(dishonest, participants, over_selection, least, threshold, rounds, round_gap))
    return row


def _over_rounds(broken: BrokenRounds) -> Row:
    """Corollary 1 for a server that chooses which round numbers happen."""
    numbers_of = {
        "some_round_fails": broken.rounds,
        "first_round_fails": broken.reached(1),
        "round_fails_with_beacon": broken.reached(1),
    }
    row: Row = {"rounds": broken.rounds, **found("round_gap", broken.gap, "clients accept any later number")}
    for name, numbers in numbers_of.items():
        value = broken.log10_some_of(numbers)
        row |= {name: broken.some_of(numbers)}
        row |= finite(f"{name}_log10", value, "it cannot happen")
    return row | {"failing_rounds_expected": broken.expected, "failing_share_expected": broken.share}


def lotto_dp_costs(training: Training, population: int, *, parallel_lists: bool = False) -> Row:
    """Corollaries 2 and 3, and the epsilon without Lotto, for one training; and with several lists in a round."""
    setting = _setting(
        population, training.dishonest, training.participants, training.over_selection, training.min_population
    )
    if training.maximum_population < population:
        raise ValueError(f"maximum_population: n_max = {training.maximum_population} with a population of {population}")
    mechanism = training.mechanism
    return setting | {
        "maximum_population": training.maximum_population,
        "threshold": lotto.threshold_of(training.participants, training.threshold),
        "rounds": training.rounds,
        "delta": training.delta,
        "noise_multiplier": mechanism.noise_multiplier,
        "dimension": mechanism.dimension,
        "scale": mechanism.scale,
        "selection_probability": float(training.p),
        **_cost("client_centric", cost_with_lotto(training, "client-centric")),
        **(_cost("parallel_lists", cost_with_parallel_lists(training, population)) if parallel_lists else {}),
        **_cost("server_centric", cost_with_lotto(training, "server-centric")),
        **_cost("client_centric_dropouts", cost_with_lotto(training, "client-centric", claimed_dropouts=True)),
        **_cost("server_centric_dropouts", cost_with_lotto(training, "server-centric", claimed_dropouts=True)),
        **_cost("insecure", cost_without_lotto(training)),
    }


def lotto_plan(
    population: int,
    dishonest: int,
    participants: int,
    over_selection: float | Fraction,
    min_population: int | None,
    threshold: int | float,
    target: float,
    sufficiency: float,
    base_rate: float | None = None,
    eta: float | None = None,
    rounds: int | None = None,
) -> Row:
    """The loosest value of each parameter that keeps Pr[SecAgg fails] <= target, the others left where they are.

    With `rounds`, the target is for that many together: each has target / rounds (union bound).
    """
    if rounds is not None:
        require_at_least(1, rounds=rounds)
    whole, target = target, target if rounds is None else target / rounds
    least = population if min_population is None else min_population
    setting = _setting(population, dishonest, participants, over_selection, least)
    require_honest_clients(population, dishonest)
    t = lotto.threshold_of(participants, threshold)
    smallest = lotto.smallest_min_population(population, dishonest, participants, over_selection, t, target)
    plan: Row = setting | {
        "threshold": t,
        "target": whole,
        **({} if rounds is None else {"rounds": rounds}),
        "target_in_a_round": target,
        "sufficiency": sufficiency,
        "secagg_fails": lotto.secagg_fails(dishonest, participants, over_selection, least, t),
        "candidates_suffice": lotto.candidates_suffice(population, participants, over_selection),
    }
    highest = lotto.smallest_threshold(dishonest, participants, over_selection, least, target)
    missed = f"SecAgg fails with a probability above {target:g} in a round even"
    if highest is None:
        change = "take more --participants, fewer --dishonest or a higher --target"
    else:
        change = f"--threshold {highest} is enough with n_min = {least}" if highest > t else "raise --threshold"
    plan |= found("smallest_min_population", smallest, f"{missed} with the whole population as n_min; {change}")
    plan |= _exclusion("largest_exclusion", smallest, population, f"{missed} with nobody left out; {change}")
    plan |= found("smallest_threshold", highest, f"{missed} with a threshold of all {participants}; {change}")
    enough = lotto.smallest_over_selection(population, participants, sufficiency)
    too_few = (
        f"fewer than {100 * sufficiency:g}% of the rounds have enough candidates up to a = "
        f"{lotto.MAXIMUM_OVER_SELECTION}; take fewer --participants or a lower --sufficiency"
    )
    plan |= found("smallest_over_selection", None if enough is None else float(enough), too_few)
    most = lotto.largest_over_selection(dishonest, participants, least, t, target)
    plan |= found("largest_over_selection", None if most is None else float(most), f"{missed} with a = 1; {change}")
    if base_rate is not None:
        excluded = lotto.largest_exclusion(population, dishonest, base_rate)
        rest = None if excluded is None else population - excluded
        plan["base_rate"] = base_rate
        worse = f"{dishonest} of {population} are more than {base_rate:g} with nobody left out"
        plan |= _exclusion("largest_exclusion_for_base_rate", rest, population, worse)
    if eta is not None:
        bound = lotto.smallest_min_population_for_fraction(
            population, dishonest, participants, over_selection, eta, target
        )
        plan["eta"] = eta
        above = (
            f"the dishonest share exceeds {eta:g} times its due with a probability above {target:g} in a round even "
            "with the whole population as n_min; take a higher --eta, more --participants or a higher --target"
        )
        plan |= found("smallest_min_population_for_eta", bound, above)
    return plan


def _setting(
    population: int, dishonest: int, participants: int, over_selection: float | Fraction, min_population: int
) -> Row:
    """What was given, checked."""
    lotto.check_counts(population, dishonest, participants, min_population)
    return {
        "population": population,
        "dishonest": dishonest,
        "participants": participants,
        "over_selection": float(over_selection),
        "min_population": min_population,
    }


def _fraction_remarks(allowed: int, dishonest: int, participants: int, p: Fraction) -> Row:
    """The logarithm of Theorem 2's bound, or why there is none."""
    name = "dishonest_fraction_exceeds"
    if allowed < participants:
        return _logarithm(name, allowed, dishonest, p)
    reason = f"it cannot happen: a round has {participants} participants"
    return {f"{name}_reason": reason, **found(f"{name}_log10", None, reason)}


def _logarithm(name: str, k: int, dishonest: int, p: Fraction) -> Row:
    return finite(f"{name}_log10", log10_survival(k, dishonest, p), "it cannot happen")


def _cost(name: str, cost: PrivacyCost) -> Row:
    row = finite(f"{name}_epsilon", cost.epsilon, cost.reason or "no noise is left in the sum")
    row |= {f"{name}_k": cost.dishonest, f"{name}_r": cost.rounds}
    if name != "insecure" and isfinite(cost.epsilon):
        row |= {f"{name}_p_k": cost.p_k, f"{name}_q_r": cost.q_r}
    return row


def _exclusion(name: str, rest: int | None, population: int, reason: str) -> Row:
    """The fraction d, and how many clients that is, when `rest` of the population remain."""
    excluded = None if rest is None else population - rest
    fraction = None if excluded is None else lotto.exclusion(excluded, population)
    return found(name, fraction, reason) | {f"{name}_clients": excluded}


# -- as text ----------------------------------------------------------------------------------------------------------

_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "s",
    "over_selection": "a",
    "min_population": "n_min",
    "threshold": "t",
    "eta": "eta",
    "rounds": "R",
    "round_gap": "G",
    "delta": "delta",
    "noise_multiplier": "noise multiplier",
    "dimension": "dimension",
    "scale": "scale",
    "sufficiency": "sufficiency",
    "base_rate": "base rate",
}
_LABELS = {
    "selection_probability": "a client is a candidate",
    "candidates_suffice": "at least s candidates (Theorem 1)",
    "share_factor": "growth of the dishonest share, about (lambda)",
    "dishonest_share_expected": "share of dishonest participants, expected",
    "dishonest_fraction_exceeds": "more than {dishonest_allowed} of {participants} dishonest (Theorem 2)",
    "secagg_fails": "SecAgg fails: more than {dishonest_tolerated} dishonest (Corollary 1)",
    "some_round_fails": "SecAgg fails in some round of {rounds}",
    "failing_rounds_expected": "rounds of {rounds} in which it fails, expected",
    "first_round_fails": "it fails in the first round that the server announces",
    "failing_share_expected": "share of announced rounds in which it fails, expected",
    "round_fails_with_beacon": "with a beacon: in the next round, whatever went before",
    "client_centric_epsilon": "epsilon, client-centric (Corollary 2)",
    "parallel_lists_epsilon": "epsilon, client-centric, several lists a round",
    "server_centric_epsilon": "epsilon, server-centric (Corollary 3)",
    "client_centric_dropouts_epsilon": "client-centric, drop-outs claimed",
    "server_centric_dropouts_epsilon": "server-centric, drop-outs claimed",
    "insecure_epsilon": "epsilon, the server chooses",
}
_PLAN_LABELS = {
    "secagg_fails": "SecAgg fails, as given",
    "candidates_suffice": "at least s candidates, as given",
    "smallest_min_population": "smallest n_min",
    "smallest_min_population_for_eta": "smallest n_min for eta",
    "largest_exclusion": "largest exclusion d",
    "largest_exclusion_for_base_rate": "largest exclusion d for the base rate",
    "smallest_threshold": "smallest threshold t",
    "smallest_over_selection": "smallest over-selection a",
    "largest_over_selection": "largest over-selection a",
}


def text(row: Row) -> str:
    """What one of the functions above found, for a person."""
    planned = "target" in row
    target = f"{target_line(row)}\n" if planned else ""
    return f"{given(row, _GIVEN)}\n{target}{results(row, _PLAN_LABELS if planned else _LABELS, _value)}"


def _value(row: Row, key: str) -> str:
    """A result with what belongs to it."""
    beside = {f"{key}_clients": "clients", key.replace("epsilon", "k"): "k", key.replace("epsilon", "r"): "r"}
    more = [f"{name} = {number(row[other])}" for other, name in beside.items() if other != key and other in row]
    if row[key] == 0.0 and row.get(f"{key}_log10") is not None:
        return f"10^{row[f'{key}_log10']:.1f}"
    if f"{key}_reason" in row:
        more.append(row[f"{key}_reason"])
    return f"{number(row[key])}{'  (' + ', '.join(more) + ')' if more else ''}"
