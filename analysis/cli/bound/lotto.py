"""``testbed bound lotto`` and ``bound lotto-dp``: the guarantees of Lotto's selection."""

from math import inf, isfinite, log10
from typing import TYPE_CHECKING, Annotated

from analysis.cli.bound.declaration import (
    Row,
    declare,
    finite,
    format_parameters,
    number,
    probability,
    results,
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
    Population,
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

SYMBOLS = {
    "population": "n",
    "announced": "announced n",
    "dishonest": "c",
    "participants": "s",
    "over_selection": "a",
    "min_population": "n_min",
    "threshold": "t",
    "eta": "eta",
    "rounds": "R",
    "round_gap": "G",
    "completed": "completed",
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
    "dishonest_fraction_exceeds_if_completed": "Theorem 2 for a completed round",
    "dishonest_fraction_exceeds_if_chosen": "Theorem 2 for a completed round, if the server ends rounds at will",
    "secagg_fails": "Pr[SecAgg fails: more than {dishonest_tolerated} dishonest participants] (Corollary 1)",
    "secagg_fails_if_completed": "Corollary 1 for a completed round",
    "secagg_fails_if_chosen": "Corollary 1 for a completed round, if the server ends rounds at will",
    "some_round_exceeds": "Pr[more than {dishonest_allowed} of {participants} dishonest in any of {rounds} rounds]",
    "exceeding_share_of_completed": "expected share of {completed} completed rounds with more than {dishonest_allowed}",
    "some_round_fails": "Pr[SecAgg fails in any of {rounds} rounds]",
    "failing_rounds_expected": "expected number of rounds of {rounds} in which SecAgg fails",
    "first_round_fails": "Pr[SecAgg fails in the first round that the server announces]",
    "failing_share_expected": "expected share of announced rounds in which SecAgg fails",
    "failing_share_of_completed": "expected share of {completed} completed rounds in which SecAgg fails",
    "round_fails_with_beacon": "Pr[SecAgg fails in the next round, given earlier rounds], with a beacon",
    "client_centric_epsilon": "epsilon, client-centric (Corollary 2)",
    "parallel_lists_epsilon": "epsilon, client-centric, several participant lists per round",
    "server_centric_epsilon": "epsilon, server-centric (Corollary 3)",
    "client_centric_dropouts_epsilon": "epsilon, client-centric, server claims dropouts",
    "server_centric_dropouts_epsilon": "epsilon, server-centric, server claims dropouts",
    "insecure_epsilon": "epsilon, if the server chooses the participants",
}


def _text(row: Row) -> str:
    return f"{format_parameters(row, SYMBOLS)}\n{results(row, _LABELS, format_result)}"


def format_result(row: Row, key: str) -> str:
    """Format a result, and in brackets the numbers that belong to it."""
    beside = {f"{key}_clients": "clients", key.replace("epsilon", "k"): "k", key.replace("epsilon", "r"): "r"}
    more = [f"{name} = {number(row[other])}" for other, name in beside.items() if other != key and other in row]
    more += [row[f"{key}_reason"]] if f"{key}_reason" in row else []
    return f"{probability(row, key)}{'  (' + ', '.join(more) + ')' if more else ''}"


def lotto_parameters(
    population: int, dishonest: int, participants: int, over_selection: float, min_population: int
) -> Row:
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
    "testbed bound lotto --population 100 --dishonest 10 --participants 10 --announced 130 --rounds 30 --completed 9",
    then="Probabilities are exact down to 5e-324; JSON holds their logarithms too. Theorem 2 and Corollary 1 hold for "
    "announced rounds; the lines below them are for completed rounds.",
)
def bound_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    announced: Annotated[
        int | None,
        option(
            "N",
            "Population that the server announces, for Theorem 1, at least n_min.  \\[default: the population]",
            min=1,
            max=MOST_CLIENTS,
        ),
    ] = None,
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
    completed: Annotated[
        int | None,
        option(
            "N",
            "Also bound the share of bad rounds among N completed of the R rounds, if the server ends rounds at will.",
            min=1,
            max=MOST_ROUNDS,
        ),
    ] = None,
) -> Row:
    """Bound Lotto in one round: too few candidates, too many dishonest participants, SecAgg broken.

    Theorem 1, lambda, Theorem 2 and Corollary 1 of the Lotto paper, for announced and for completed rounds. With
    --rounds, Corollary 1 also covers the rounds that a server announces.
    """
    from analysis.bounds import lotto, lotto_completed
    from analysis.bounds.lotto_rounds import BrokenRounds, at_least_one
    from analysis.bounds.tails import log10_survival

    if round_gap is not None and rounds is None:
        raise ValueError("round_gap: needs --rounds, the number of rounds over which it holds")
    if completed is not None and (rounds is None or completed > rounds):
        raise ValueError("completed: needs --rounds, the number of announced rounds, which is at least as large")
    c, t = number_of(dishonest, population), threshold_of(threshold)
    least = population if min_population is None else min_population
    parameters = lotto_parameters(population, c, participants, over_selection, least)
    if announced is not None and announced < least:
        raise ValueError(f"announced: clients refuse {announced}, which is below n_min = {least}")
    p = lotto.selection_probability(participants, over_selection, least)
    allowed = lotto.allowed(population, c, participants, eta)
    tolerated = lotto.tolerated(participants, t)
    never = f"it cannot happen: a round has {participants} participants" if allowed >= participants else ""
    exceeds_log10, fails_log10 = -inf if never else log10_survival(allowed, c, p), log10_survival(tolerated, c, p)

    enough = lotto.candidates_suffice(population, participants, over_selection, least)

    def for_completed(name: str, most: int, digits: float) -> Row:
        value, never = 0.0, digits == -inf
        if not never:
            value = lotto_completed.exceeds_if_completed(most, population, c, participants, over_selection, least)
        # Below all doubles the printed bound over Pr[|C| >= s] stands for the exact value.
        logarithm = log10(value) if value else digits - log10(enough)
        return {
            f"{name}_if_completed": value,
            **finite(f"{name}_if_completed_log10", logarithm, _NEVER),
            f"{name}_if_chosen": float(not never),  # such a server completes bad rounds alone
        }

    exceeds = lotto.dishonest_fraction_exceeds(population, c, participants, over_selection, eta, least)
    fails = lotto.secagg_fails(c, participants, over_selection, least, t)
    row = parameters | {
        **({} if announced is None else {"announced": announced}),
        "eta": eta,
        "threshold": lotto.threshold_of(participants, t),
        "selection_probability": float(p),
        "candidates_suffice": lotto.candidates_suffice(population, participants, over_selection, announced),
        "share_factor": lotto.share_factor(population, over_selection, least),
        "dishonest_share_expected": lotto_completed.expected_share(population, c, participants, over_selection, least),
        "dishonest_allowed": allowed,
        "dishonest_fraction_exceeds": exceeds,
        **({"dishonest_fraction_exceeds_reason": never} if never else {}),
        **finite("dishonest_fraction_exceeds_log10", exceeds_log10, never or _NEVER),
        **for_completed("dishonest_fraction_exceeds", allowed, exceeds_log10),
        "dishonest_tolerated": tolerated,
        "secagg_fails": fails,
        **finite("secagg_fails_log10", fails_log10, _NEVER),
        **for_completed("secagg_fails", tolerated, fails_log10),
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
    row |= {"failing_rounds_expected": broken.expected, "failing_share_expected": broken.share}
    row["some_round_exceeds"] = at_least_one(rounds, exceeds)
    if completed is not None:
        shares = {"exceeding_share_of_completed": exceeds, "failing_share_of_completed": fails}
        row["completed"] = completed
        row |= {key: lotto_completed.share_of_completed(q, rounds, completed) for key, q in shares.items()}
    return row


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
    parameters = lotto_parameters(population, c, participants, over_selection, least)
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
