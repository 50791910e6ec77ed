"""DP-SGD with random participation as one flat object: noise or epsilon by every analysis, and which one is sound."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Literal

from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.optimize import brentq

from analysis.bounds import random_participation as one_round
from analysis.bounds import random_participation_composed as many_rounds
from analysis.bounds.random_participation import Delta, Participation, epsilon_at, sigma_at
from analysis.bounds.rows import Row, require_at_least, require_inside

Soundness = Literal["guarantee", "other-mechanism", "as-published", "lower-bound"]
SOUND = "wcs"
"""The analysis whose numbers this project reports."""


@dataclass(frozen=True)
class Analysis:
    """One way to account for the same algorithm.

    Attributes:
        name: key in the report.
        soundness: ``guarantee``; ``other-mechanism``: a guarantee for another algorithm (without random participation,
            or with all samples shuffled); ``as-published``: no guarantee; ``lower-bound``: no guarantee can be better.
        source: where it comes from.
        delta: of one round.
        loss: of one round, to be composed.
    """

    name: str
    soundness: Soundness
    source: str
    delta: Delta
    loss: Callable[[Participation, float], PrivacyLossDistribution]


ANALYSES = (
    Analysis(
        "wcs",
        "guarantee",
        "weak client sampling, Theorem 5.2",
        one_round.weak_client_sampling,
        many_rounds.weak_client_sampling,
    ),
    Analysis(
        "ols",
        "other-mechanism",
        "only local sampling (all clients take part), Theorem 5.1",
        one_round.only_local_sampling,
        many_rounds.only_local_sampling,
    ),
    Analysis(
        "cs",
        "other-mechanism",
        "centralized shuffling, Corollary 5.3",
        one_round.centralized_shuffling,
        many_rounds.centralized_shuffling,
    ),
    Analysis(
        "theorem_4_1",
        "as-published",
        "Theorem 4.1 as printed; also a lower bound: all gradients parallel",
        one_round.as_printed,
        many_rounds.as_printed,
    ),
    Analysis(
        "theorem_4_1_recentred",
        "as-published",
        "Theorem 4.1 centred on x', which gives the paper's numbers",
        one_round.recentred,
        many_rounds.recentred,
    ),
    Analysis(
        "orthogonal_pair",
        "lower-bound",
        "two neighbouring data sets, others' gradients orthogonal",
        one_round.orthogonal_pair,
        many_rounds.orthogonal_pair,
    ),
)


def random_participation_bounds(
    who: Participation,
    delta: float,
    *,
    epsilon: float | None = None,
    sigma: float | None = None,
    rounds: int = 1,
    clients: int | None = None,
) -> Row:
    """Every analysis for one setting: the noise that `epsilon` takes, or the epsilon that `sigma` gives.

    One round is evaluated in closed form or by direct integration, several by composed privacy-loss distributions.

    Args:
        who: rates, samples, clipping norm.
        delta: in (0, 1), of all rounds together.
        epsilon, sigma: one of them; epsilon of all rounds together, sigma of the noise of a round's sum.
        rounds: T.
        clients: population, for a warning about a delta that allows to publish whole records.

    Raises:
        ValueError: a value out of range, with its name and what is allowed.
    """
    require_inside(delta=delta)
    require_at_least(1, rounds=rounds)
    if (epsilon is None) == (sigma is None):
        raise ValueError("epsilon: give either epsilon or sigma")
    if epsilon is not None and not 0 < epsilon < 1e3:
        raise ValueError(f"epsilon: {epsilon}; must be above 0 and below 1000")
    if sigma is not None and not 0 < sigma < float("inf"):
        raise ValueError(f"sigma: {sigma}; must be above 0 and finite")
    row: Row = {
        "local_samples": who.local_samples,
        "client_rate": who.client_rate,
        "sample_rate": who.sample_rate,
        "clip": who.clip,
        "delta": delta,
        "rounds": rounds,
        "epsilon" if sigma is None else "sigma": epsilon if sigma is None else sigma,
        "sound": SOUND,
        **_warning(who, delta, clients),
    }
    for analysis in ANALYSES:
        if sigma is not None:
            row[f"{analysis.name}_epsilon"] = _finite(epsilon_by(analysis, who, sigma, delta, rounds))
        else:
            assert epsilon is not None
            row[f"{analysis.name}_sigma"] = _finite(noise_by(analysis, who, epsilon, delta, rounds))
        row[f"{analysis.name}_standing"] = analysis.soundness
    return row


def epsilon_by(analysis: Analysis, who: Participation, sigma: float, delta: float, rounds: int) -> float:
    """The epsilon of all rounds together."""
    if rounds == 1:
        return epsilon_at(analysis.delta, who, sigma, delta)
    return float(analysis.loss(who, sigma).self_compose(rounds).get_epsilon_for_delta(delta))


def noise_by(analysis: Analysis, who: Participation, epsilon: float, delta: float, rounds: int) -> float:
    """The least sigma, to a relative 1e-9 for one round and 1e-4 for several."""
    if rounds == 1:
        return sigma_at(analysis.delta, who, epsilon, delta)

    def excess(logarithm: float) -> float:
        composed = analysis.loss(who, exp(logarithm)).self_compose(rounds)
        return log(max(float(composed.get_delta_for_epsilon(epsilon)), 1e-300) / delta)

    low = high = log(who.clip)
    if excess(high) > 0:
        while excess(high := high + log(2)) > 0:
            low = high
            if high > log(1e4 * who.clip):
                return float("inf")
    else:
        while excess(low := low - log(2)) <= 0:
            high = low
            if low < log(who.clip / 32):
                return 0.0
    return exp(brentq(excess, low, high, xtol=1e-4))


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _warning(who: Participation, delta: float, clients: int | None) -> Row:
    records = (clients or 0) * who.local_samples
    if not records or delta < 1 / records:
        return {}
    warning = f"delta {delta:g} is not below 1/{records}, one over the number of records: it would allow to publish"
    return {"warning": f"{warning} whole records"}


# -- as text ----------------------------------------------------------------------------------------------------------

_SOUNDNESS = {
    "guarantee": "the guarantee",
    "other-mechanism": "a guarantee of another algorithm",
    "as-published": "as published, not a guarantee",
    "lower-bound": "nothing can guarantee less",
}
_GIVEN = {"local_samples": "d", "client_rate": "p", "sample_rate": "q", "clip": "C", "delta": "delta"}


def text(row: Row) -> str:
    """What `random_participation_bounds` found, for a person."""
    given, wanted = ("epsilon", "sigma") if "epsilon" in row else ("sigma", "epsilon")
    first = ", ".join(f"{symbol} = {row[key]:g}" for key, symbol in _GIVEN.items())
    lines = [f"{first}, T = {row['rounds']}, {given} = {row[given]:g}"]
    width = max(len(one.name) for one in ANALYSES)
    for one in ANALYSES:
        value = row[f"{one.name}_{wanted}"]
        shown = ("none" if wanted == "sigma" else "inf") if value is None else f"{value:.5g}"
        lines.append(f"{one.name:{width}}  {wanted} {shown:>8}  {_SOUNDNESS[one.soundness]} ({one.source})")
    return "\n".join([*lines, ""])
