"""``testbed bound random-participation``: noise or epsilon of DP-SGD with random participation, by every analysis."""

from math import isfinite
from typing import TYPE_CHECKING, Annotated

from analysis.cli.bound.declaration import Row, declare
from testbed.cli.invocation import option

if TYPE_CHECKING:
    from analysis.bounds.random_participation import Participation

_WHO = "--local-samples 30 --client-rate 0.001 --sample-rate 0.1"
_SYMBOLS = {"local_samples": "d", "client_rate": "p", "sample_rate": "q", "clip": "C", "delta": "delta"}
_SOUNDNESS = {
    "guarantee": "guarantee for this algorithm",
    "hidden-participants": "guarantee for this algorithm if nobody sees the participants",
    "other-mechanism": "guarantee for another algorithm",
    "as-published": "as published, not a guarantee",
    "lower-bound": "lower bound: no analysis can guarantee less",
}


def _text(row: Row) -> str:
    from analysis.bounds.random_participation_analyses import ANALYSES

    given_name, result_name = ("epsilon", "sigma") if "epsilon" in row else ("sigma", "epsilon")
    first = ", ".join(f"{symbol} = {row[key]:g}" for key, symbol in _SYMBOLS.items())
    lines = [f"{first}, T = {row['rounds']}, {given_name} = {row[given_name]:g}"]
    results = [(analysis.name, analysis.soundness, analysis.source) for analysis in ANALYSES]
    angle = f"two neighbouring data sets at the worst angle, cosine {row['angled_pair_cosine']:.2f}"
    results.append(("angled_pair", "lower-bound", angle))
    if "search_restarts" in row:
        starts = f"{row['search_restarts']} searches over all angles ({row['search_agreeing']} end there)"
        searched = f"worst of {starts}: {row['search_result']}"
        results.append(("searched_pair", "lower-bound", searched))
    width = max(len(name) for name, _, _ in results)
    for name, soundness, source in results:
        value = _shown(row[f"{name}_{result_name}"], result_name)
        lines.append(f"{name:{width}}  {result_name} {value:>8}  {_SOUNDNESS[soundness]} ({source})")
    least, most = (_shown(row[f"{end}_{result_name}"], result_name) for end in ("at_least", "at_most"))
    subject = {"epsilon": "the worst data sets lose", "sigma": "the noise for the worst data sets is"}[result_name]
    lines.append(f"If nobody sees the participants, {subject} {result_name} {least} to {most}.")
    return "\n".join([*lines, ""])


def _shown(value: float | None, result_name: str) -> str:
    return ("none" if result_name == "sigma" else "inf") if value is None else f"{value:.5g}"


@declare(
    _text,
    f"testbed bound random-participation {_WHO} --epsilon 0.015 --delta 1e-6",
    f"testbed bound random-participation {_WHO} --sigma 1.065 --delta 1e-6 --rounds 1000 --format json",
    f"testbed bound random-participation {_WHO} --sigma 1.065 --delta 1e-6 --rounds 1000 --search 12",
    then="Guarantees for this algorithm are wcs and, where nobody sees the participants, revealed_samples. The "
    "published bound (theorem_4_1) is none: see docs/papers/random-participation.md.",
)
def bound_random_participation(
    local_samples: Annotated[int, option("D", "Number of samples of each client, d.", min=0, max=10**6)],
    client_rate: Annotated[float, option("P", "Probability p that a client takes part in a round.")],
    sample_rate: Annotated[float, option("Q", "Probability q that a participant uses a sample.")],
    delta: Annotated[float, option("D", "delta of all rounds together, above 0 and below 1.")],
    epsilon: Annotated[float | None, option("E", "Print the noise for this epsilon.")] = None,
    sigma: Annotated[
        float | None, option("S", "Print the epsilon for noise with this standard deviation in a round's sum.")
    ] = None,
    clip: Annotated[float, option("C", "Largest norm of a sample's gradient.")] = 1.0,
    rounds: Annotated[int, option("T", "Number of rounds, T.", min=1, max=100_000)] = 1,
    clients: Annotated[
        int | None, option("N", "Clients in the population; a warning is printed if delta is above 1/(N D).", min=1)
    ] = None,
    search: Annotated[
        int | None,
        option("R", "With --sigma: also search all angles between gradients, from R random starts.", min=1, max=1000),
    ] = None,
) -> Row:
    """Compute the noise for an epsilon, or epsilon for a noise, of DP-SGD with random participation, by analysis.

    Hasircioglu and Gunduz, arXiv 2205.01556: Theorems 4.1, 5.1, 5.2 and Corollary 5.3, composed over rounds.
    """
    from analysis.bounds.checks import require_at_least, require_inside
    from analysis.bounds.random_participation import Participation
    from analysis.bounds.random_participation_analyses import ANALYSES, SOUND, epsilon_by, noise_by

    participation = Participation(local_samples, client_rate, sample_rate, clip)
    require_inside(delta=delta)
    require_at_least(1, rounds=rounds)
    if (epsilon is None) == (sigma is None):
        raise ValueError("epsilon: give either epsilon or sigma, not both")
    if search is not None and sigma is None:
        raise ValueError("search: needs --sigma, as the worst pair depends on the noise")
    if epsilon is not None and not 0 < epsilon < 1e3:
        raise ValueError(f"epsilon: {epsilon}; must be above 0 and below 1000")
    if sigma is not None and not 0 < sigma < float("inf"):
        raise ValueError(f"sigma: {sigma}; must be above 0 and finite")
    row: Row = {
        "local_samples": local_samples,
        "client_rate": client_rate,
        "sample_rate": sample_rate,
        "clip": clip,
        "delta": delta,
        "rounds": rounds,
        "epsilon" if sigma is None else "sigma": epsilon if sigma is None else sigma,
        "sound": SOUND,
    }
    records = (clients or 0) * local_samples
    if records and delta >= 1 / records:
        row["warning"] = (
            f"delta {delta:g} is not below 1/{records}, one over the number of records: a mechanism that publishes "
            "whole records would satisfy it"
        )
    for analysis in ANALYSES:
        if sigma is not None:
            name, value = "epsilon", epsilon_by(analysis, participation, sigma, delta, rounds)
        else:
            assert epsilon is not None
            name, value = "sigma", noise_by(analysis, participation, epsilon, delta, rounds)
        row[f"{analysis.name}_{name}"] = value if isfinite(value) else None
        row[f"{analysis.name}_standing"] = analysis.soundness
    return row | _bracket(row, participation, search)


def _bracket(row: Row, participation: "Participation", restarts: int | None) -> Row:
    """Return the worst pairs, and the ends between which the loss of the worst data sets lies."""
    from analysis.bounds.random_participation_analyses import (
        angled_analysis,
        epsilon_by,
        noise_by,
        worst_cosine_at_epsilon,
        worst_cosine_at_noise,
    )

    sigma, delta, rounds = row.get("sigma"), row["delta"], row["rounds"]
    pairs: Row = {"angled_pair_standing": "lower-bound"}
    if sigma is not None:
        name = "epsilon"
        cosine = worst_cosine_at_noise(participation, sigma, delta, rounds)
        value = epsilon_by(angled_analysis(cosine), participation, sigma, delta, rounds)
    else:
        name = "sigma"
        cosine = worst_cosine_at_epsilon(participation, row["epsilon"], delta, rounds)
        value = noise_by(angled_analysis(cosine), participation, row["epsilon"], delta, rounds)
    pairs |= {f"angled_pair_{name}": value if isfinite(value) else None, "angled_pair_cosine": cosine}
    if restarts is not None and sigma is not None:
        pairs |= _searched(participation, sigma, delta, rounds, restarts, cosine, value)
    lower = (row[f"orthogonal_pair_{name}"], pairs[f"angled_pair_{name}"], pairs.get(f"searched_pair_{name}", 0.0))
    upper = [row[f"{analysis}_{name}"] for analysis in ("wcs", "revealed_samples")]
    pairs[f"at_least_{name}"] = None if None in lower else max(lower)
    pairs[f"at_most_{name}"] = min((value for value in upper if value is not None), default=None)
    return pairs


def _searched(
    participation: "Participation",
    sigma: float,
    delta: float,
    rounds: int,
    restarts: int,
    cosine: float,
    epsilon: float,
) -> Row:
    """Return the worst pair of a search over all angles."""
    from analysis.bounds.pair_search import WorstAngle, search_pairs
    from analysis.bounds.random_participation_composed import configured_pair

    worst = WorstAngle(cosine, epsilon)
    result = search_pairs(participation, sigma, rounds, worst, restarts)
    row: Row = {
        "search_restarts": restarts,
        "search_agreeing": result.agreeing,
        "search_gain": result.gain,
        "searched_pair_epsilon": epsilon,
    }
    if result.exceeds:
        loss = configured_pair(result.configuration, participation, sigma)
        row["searched_pair_epsilon"] = max(epsilon, float(loss.self_compose(rounds).get_epsilon_for_delta(delta)))
    worse = row["searched_pair_epsilon"] > epsilon
    row["search_result"] = "several angles are worse than one" if worse else "none is worse than angled_pair"
    return row
