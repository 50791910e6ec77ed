"""``testbed bound lotto``, ``bound lotto-dp`` and ``plan lotto``: the guarantees of Lotto's selection."""

from math import inf, isfinite
from typing import TYPE_CHECKING, Annotated

from analysis.cli.bound.declaration import (
    Row,
    declare,
    finite,
    format_parameters,
    number,
    probability,
    results,
    target_line,
    value_or_reason,
)
from analysis.cli.bound.options import (
    LARGE,
    MOST_CLIENTS,
    MOST_ROUNDS,
    Dishonest,
    Eta,
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
from testbed.cli.invocation import flag, option

if TYPE_CHECKING:
    from analysis.bounds.lotto_rounds import PrivacyCost

_MOST_DP_ROUNDS = 100_000
_SUMMED = 10**6  # most participants; the guarantee is minimised over the dishonest ones, which takes seconds
_COULD_BE = 10**9  # devices that could register, unless the population is larger

_NEVER = "it cannot happen"

Participants = Annotated[int, option("S", "Participants of a round, s.", min=1)]

_SYMBOLS = {
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
    "selection_probability": "Pr[a client is a candidate]",
    "candidates_suffice": "Pr[at least s candidates] (Theorem 1)",
    "share_factor": "growth factor lambda of the dishonest share, approximate",
    "dishonest_share_expected": "expected share of dishonest participants",
    "dishonest_fraction_exceeds": "Pr[more than {dishonest_allowed} of {participants} dishonest] (Theorem 2)",
    "secagg_fails": "Pr[SecAgg fails: more than {dishonest_tolerated} dishonest participants] (Corollary 1)",
    "some_round_fails": "Pr[SecAgg fails in any of {rounds} rounds]",
    "failing_rounds_expected": "expected number of rounds of {rounds} in which SecAgg fails",
    "first_round_fails": "Pr[SecAgg fails in the first round that the server announces]",
    "failing_share_expected": "expected share of announced rounds in which SecAgg fails",
    "round_fails_with_beacon": "Pr[SecAgg fails in the next round, given earlier rounds], with a beacon",
    "client_centric_epsilon": "epsilon, client-centric (Corollary 2)",
    "parallel_lists_epsilon": "epsilon, client-centric, several participant lists per round",
    "server_centric_epsilon": "epsilon, server-centric (Corollary 3)",
    "client_centric_dropouts_epsilon": "epsilon, client-centric, server claims dropouts",
    "server_centric_dropouts_epsilon": "epsilon, server-centric, server claims dropouts",
    "insecure_epsilon": "epsilon, if the server chooses the participants",
}
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


def _text(row: Row) -> str:
    return f"{format_parameters(row, _SYMBOLS)}\n{results(row, _LABELS, _result)}"


def _plan_text(row: Row) -> str:
    return f"{format_parameters(row, _SYMBOLS)}\n{target_line(row)}\n{results(row, _PLAN_LABELS, _result)}"


def _result(row: Row, key: str) -> str:
    """Format a result, and in brackets the numbers that belong to it."""
    beside = {f"{key}_clients": "clients", key.replace("epsilon", "k"): "k", key.replace("epsilon", "r"): "r"}
    more = [f"{name} = {number(row[other])}" for other, name in beside.items() if other != key and other in row]
    more += [row[f"{key}_reason"]] if f"{key}_reason" in row else []
    return f"{probability(row, key)}{'  (' + ', '.join(more) + ')' if more else ''}"


def _parameters(population: int, dishonest: int, participants: int, over_selection: float, min_population: int) -> Row:
    """Check and return the parameters that all bounds of Lotto have."""
    from analysis.bounds.lotto import check_counts

    check_counts(population, dishonest, participants, min_population)
    return {
        "population": population,
        "dishonest": dishonest,
        "participants": participants,
        "over_selection": over_selection,
        "min_population": min_population,
    }


@declare(
    _text,
    f"testbed bound lotto {LARGE} --over-selection 1.3 --eta 10 --threshold 0.53",
    "testbed bound lotto --population 700 --dishonest 70 --participants 70 --over-selection 1.3 --format json",
    "testbed bound lotto --population 100 --dishonest 20 --participants 10 --threshold 9 --rounds 3000 --round-gap 1",
    then="Probabilities are exact down to 5e-324; JSON holds their logarithms too.",
)
def bound_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    eta: Eta = 10.0,
    threshold: Threshold = "0.7",
    rounds: Annotated[
        int | None,
        option(
            "R",
            "Also compute the probabilities for R rounds, if the server chooses the rounds that happen.",
            min=1,
            max=MOST_ROUNDS,
        ),
    ] = None,
    round_gap: Annotated[
        int | None,
        option(
            "G",
            "Largest step of round numbers that a client accepts (max_round_gap).  \\[default: any later round]",
            min=1,
            max=MOST_ROUNDS,
        ),
    ] = None,
) -> Row:
    """Bound Lotto in one round: too few candidates, too many dishonest participants, SecAgg broken.

    Theorem 1, lambda, Theorem 2 and Corollary 1 of the Lotto paper. With --rounds, Corollary 1 also covers the rounds
    that a server announces.
    """
    from analysis.bounds import lotto
    from analysis.bounds.lotto_rounds import BrokenRounds
    from analysis.bounds.tails import log10_survival

    if round_gap is not None and rounds is None:
        raise ValueError("round_gap: needs --rounds, the number of rounds over which it holds")
    c, t = number_of(dishonest, population), threshold_of(threshold)
    least = population if min_population is None else min_population
    parameters = _parameters(population, c, participants, over_selection, least)
    p = lotto.selection_probability(participants, over_selection, least)
    allowed = lotto.allowed(population, c, participants, eta)
    tolerated = lotto.tolerated(participants, t)
    never = f"it cannot happen: a round has {participants} participants" if allowed >= participants else ""
    exceeds_log10 = -inf if never else log10_survival(allowed, c, p)
    row = parameters | {
        "eta": eta,
        "threshold": lotto.threshold_of(participants, t),
        "selection_probability": float(p),
        "candidates_suffice": lotto.candidates_suffice(population, participants, over_selection),
        "share_factor": lotto.share_factor(population, over_selection, least),
        "dishonest_share_expected": lotto.expected_share(population, c, participants, over_selection, least),
        "dishonest_allowed": allowed,
        "dishonest_fraction_exceeds": lotto.dishonest_fraction_exceeds(
            population, c, participants, over_selection, eta, least
        ),
        **({"dishonest_fraction_exceeds_reason": never} if never else {}),
        **finite("dishonest_fraction_exceeds_log10", exceeds_log10, never or _NEVER),
        "dishonest_tolerated": tolerated,
        "secagg_fails": lotto.secagg_fails(c, participants, over_selection, least, t),
        **finite("secagg_fails_log10", log10_survival(tolerated, c, p), _NEVER),
    }
    if rounds is None:
        return row
    broken = BrokenRounds(c, participants, over_selection, least, t, rounds, round_gap)
    row |= {"rounds": rounds, **value_or_reason("round_gap", round_gap, "clients accept any later number")}
    numbers = {
        "some_round_fails": rounds,
        "first_round_fails": broken.reached(1),
        "round_fails_with_beacon": broken.reached(1),
    }
    for name, count in numbers.items():
        row |= {name: broken.some_of(count), **finite(f"{name}_log10", broken.log10_some_of(count), _NEVER)}
    return row | {"failing_rounds_expected": broken.expected, "failing_share_expected": broken.share}


@declare(
    _text,
    f"testbed bound lotto-dp {LARGE} --threshold 0.7 --rounds 50 --noise-multiplier 6.27",
    f"testbed bound lotto-dp {LARGE} --rounds 50 --noise-multiplier 6.27 --delta 1e-6 --scale 1024 --format json",
    then="The noise multiplier is that of the sum over all participants: standard deviation over clipping norm.",
)
def bound_lotto_dp(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[int, option("S", "Participants of a round, s.", min=1, max=_SUMMED)],
    rounds: Annotated[int, option("R", "Rounds, R.", min=1, max=_MOST_DP_ROUNDS)],
    noise_multiplier: Annotated[
        float, option("Z", "Standard deviation of the noise in the sum, divided by the clipping norm.")
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    maximum_population: Annotated[
        int | None,
        option(
            "M",
            "n_max, largest number of clients that may register (server-centric).  \\[default: 1000000000, or N]",
            min=1,
            max=MOST_CLIENTS,
        ),
    ] = None,
    threshold: Threshold = "0.7",
    delta: Annotated[
        float | None, option("D", "delta of differential privacy, above 0 and below 1.  \\[default: 1/N]")
    ] = None,
    dimension: Annotated[int, option("D", "Number of coordinates of an update, padded to a power of two.", min=1)] = 2
    ** 20,
    scale: Annotated[float, option("K", "Clipping norm, in steps of the quantisation.")] = 2.0**15,
    parallel_lists: Annotated[
        bool, flag("Also bound a server that announces several participant lists in a round.", "--parallel-lists")
    ] = False,
) -> Row:
    """Bound epsilon for Lotto over a training with distributed differential privacy (Skellam).

    Corollaries 2 (client-centric) and 3 (server-centric) of the Lotto paper, with the k and r that minimise it, and
    the epsilon when a malicious server chooses the participants.
    """
    from analysis.bounds.lotto import threshold_of as whole_threshold
    from analysis.bounds.lotto_rounds import Training, cost_with_lotto, cost_with_parallel_lists, cost_without_lotto
    from testbed.privacy.accounting import Skellam

    c, t = number_of(dishonest, population), threshold_of(threshold)
    least = population if min_population is None else min_population
    most = max(_COULD_BE, population) if maximum_population is None else maximum_population
    delta = 1 / population if delta is None else delta
    mechanism = Skellam(noise_multiplier, dimension, scale)
    training = Training(c, participants, over_selection, least, t, rounds, delta, mechanism, most)
    parameters = _parameters(population, c, participants, over_selection, least)
    if most < population:
        raise ValueError(f"maximum_population: n_max = {most} is below the population of {population}")
    return parameters | {
        "maximum_population": most,
        "threshold": whole_threshold(participants, t),
        "rounds": rounds,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "dimension": dimension,
        "scale": scale,
        "selection_probability": float(training.p),
        **_cost("client_centric", cost_with_lotto(training, "client-centric")),
        **(_cost("parallel_lists", cost_with_parallel_lists(training, population)) if parallel_lists else {}),
        **_cost("server_centric", cost_with_lotto(training, "server-centric")),
        **_cost("client_centric_dropouts", cost_with_lotto(training, "client-centric", claimed_dropouts=True)),
        **_cost("server_centric_dropouts", cost_with_lotto(training, "server-centric", claimed_dropouts=True)),
        **_cost("insecure", cost_without_lotto(training)),
    }


def _cost(name: str, cost: "PrivacyCost") -> Row:
    row = finite(f"{name}_epsilon", cost.epsilon, cost.reason or "no noise is left in the sum")
    row |= {f"{name}_k": cost.dishonest, f"{name}_r": cost.rounds}
    if name != "insecure" and isfinite(cost.epsilon):
        row |= {f"{name}_p_k": cost.p_k, f"{name}_q_r": cost.q_r}
    return row


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
    parameters = _parameters(population, c, participants, over_selection, least)
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
