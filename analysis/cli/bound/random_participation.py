"""``testbed bound random-participation``: noise or epsilon of DP-SGD with random participation, by every analysis."""

from math import isfinite
from typing import Annotated

from analysis.cli.bound.declaration import Row, declare
from testbed.cli.invocation import option

_WHO = "--local-samples 30 --client-rate 0.001 --sample-rate 0.1"
_SYMBOLS = {"local_samples": "d", "client_rate": "p", "sample_rate": "q", "clip": "C", "delta": "delta"}
_SOUNDNESS = {
    "guarantee": "guarantee for this algorithm",
    "other-mechanism": "guarantee for another algorithm",
    "as-published": "as published, not a guarantee",
    "lower-bound": "lower bound: no analysis can guarantee less",
}


def _text(row: Row) -> str:
    from analysis.bounds.random_participation_analyses import ANALYSES

    given_name, result_name = ("epsilon", "sigma") if "epsilon" in row else ("sigma", "epsilon")
    first = ", ".join(f"{symbol} = {row[key]:g}" for key, symbol in _SYMBOLS.items())
    lines = [f"{first}, T = {row['rounds']}, {given_name} = {row[given_name]:g}"]
    width = max(len(analysis.name) for analysis in ANALYSES)
    for analysis in ANALYSES:
        value = row[f"{analysis.name}_{result_name}"]
        shown = ("none" if result_name == "sigma" else "inf") if value is None else f"{value:.5g}"
        lines.append(
            f"{analysis.name:{width}}  {result_name} {shown:>8}  {_SOUNDNESS[analysis.soundness]} ({analysis.source})"
        )
    return "\n".join([*lines, ""])


@declare(
    _text,
    f"testbed bound random-participation {_WHO} --epsilon 0.015 --delta 1e-6",
    f"testbed bound random-participation {_WHO} --sigma 1.065 --delta 1e-6 --rounds 1000 --format json",
    then="Only wcs is a guarantee for this algorithm. Its published bound (theorem_4_1) is not: "
    "see docs/papers/random-participation.md.",
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
    return row
