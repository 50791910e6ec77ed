"""The analyses of DP-SGD with random participation, for one round and composed over several, and their soundness."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Literal

from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.optimize import brentq

from analysis.bounds import random_participation as one_round
from analysis.bounds import random_participation_composed as many_rounds
from analysis.bounds import revealed_samples
from analysis.bounds.gradient_configurations import OtherRounds
from analysis.bounds.neighbouring_pairs import angled_pair, worst_angle
from analysis.bounds.pair_search import coarse_interval, worst_angle_of_rounds, worst_cosine
from analysis.bounds.random_participation import Delta, Participation, epsilon_at, sigma_at

Soundness = Literal["guarantee", "hidden-participants", "other-mechanism", "as-published", "lower-bound"]
SOUND = "wcs"
"""The analysis whose numbers this project reports."""


@dataclass(frozen=True)
class Analysis:
    """One way to account for the same algorithm.

    Attributes:
        name: key in the report.
        soundness: ``guarantee``; ``hidden-participants``: a guarantee where no observer sees the participants;
            ``other-mechanism``: a guarantee for another algorithm (without random participation,
            or with all samples shuffled); ``as-published``: no guarantee; ``lower-bound``: no guarantee can be better.
        source: theorem or pair behind it.
        delta: of one round.
        loss: privacy-loss distribution of one round, to be composed.
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
    Analysis(
        "revealed_samples",
        "hidden-participants",
        "the client's other samples revealed instead",
        revealed_samples.revealed_samples,
        revealed_samples.composed,
    ),
)


def angled_analysis(cosine: float) -> Analysis:
    """Return the analysis of the pair whose other gradients are parallel, with x' at an angle.

    Args:
        cosine: between the gradient of x' and the others, in [-1, 1].
    """

    def delta(participation: Participation, sigma: float, epsilon: float) -> float:
        return angled_pair(participation, sigma, epsilon, cosine)

    def loss(participation: Participation, sigma: float) -> PrivacyLossDistribution:
        return many_rounds.angled_pair(participation, sigma, cosine)

    return Analysis(
        "angled_pair", "lower-bound", f"two neighbouring data sets at the worst angle, cosine {cosine:.2f}", delta, loss
    )


def worst_cosine_at_noise(participation: Participation, sigma: float, delta: float, rounds: int) -> float:
    """Return the cosine of the angled pair that loses most at a noise.

    Args:
        participation, sigma: as of `Delta`.
        delta: in (0, 1), of all rounds together.
        rounds: number of rounds.
    """
    if rounds > 1:
        return worst_angle_of_rounds(participation, sigma, delta, rounds).cosine
    cosine = 0.0
    for _ in range(2):  # the angle depends on epsilon, and epsilon on the angle
        epsilon = epsilon_at(angled_analysis(cosine).delta, participation, sigma, delta)
        if not isfinite(epsilon):
            break
        cosine, _ = worst_angle(participation, sigma, epsilon)
    return cosine


def worst_cosine_at_epsilon(participation: Participation, epsilon: float, delta: float, rounds: int) -> float:
    """Return the cosine of the angled pair that needs most noise, to the accuracy of a search at about that noise.

    Args:
        participation, epsilon: as of `Delta`.
        delta: in (0, 1), of all rounds together.
        rounds: number of rounds.
    """
    analysis = next(analysis for analysis in ANALYSES if analysis.name == "orthogonal_pair")
    sigma = noise_by(analysis, participation, epsilon, delta, rounds)
    if not 0 < sigma < float("inf"):
        return 0.0
    if rounds == 1:
        return worst_angle(participation, sigma, epsilon)[0]
    loss = many_rounds.angled_pair(participation, sigma, 0.0, coarse_interval(rounds))
    return worst_cosine(participation, sigma, OtherRounds.alike(loss, rounds, epsilon))


def epsilon_by(analysis: Analysis, participation: Participation, sigma: float, delta: float, rounds: int) -> float:
    """Return the epsilon of all rounds together.

    Args:
        analysis: way to account.
        participation, sigma: as of `Delta`.
        delta: in (0, 1).
        rounds: number of rounds.

    Example:
        >>> participation = Participation(local_samples=100, client_rate=0.1, sample_rate=0.1)
        >>> epsilons = [epsilon_by(analysis, participation, 2.0, 1e-5, rounds=1) for analysis in ANALYSES[:2]]
        >>> [analysis.name for analysis in ANALYSES[:2]], [round(epsilon, 3) for epsilon in epsilons]
        (['wcs', 'ols'], [0.252, 0.369])
    """
    if rounds == 1:
        return epsilon_at(analysis.delta, participation, sigma, delta)
    return float(analysis.loss(participation, sigma).self_compose(rounds).get_epsilon_for_delta(delta))


def noise_by(analysis: Analysis, participation: Participation, epsilon: float, delta: float, rounds: int) -> float:
    """Return the least sigma, to a relative 1e-9 for one round and 1e-4 for several.

    Args:
        analysis: way to account.
        participation, epsilon: as of `Delta`.
        delta: in (0, 1), of all rounds together.
        rounds: number of rounds.
    """
    if rounds == 1:
        return sigma_at(analysis.delta, participation, epsilon, delta)

    def excess(logarithm: float) -> float:
        composed = analysis.loss(participation, exp(logarithm)).self_compose(rounds)
        # In logarithms, as delta spans hundreds of orders of magnitude, and each evaluation is a slow composition.
        return log(max(float(composed.get_delta_for_epsilon(epsilon)), 1e-300) / delta)

    low = high = log(participation.clip)
    if excess(high) > 0:
        while excess(high := high + log(2)) > 0:
            low = high
            if high > log(1e4 * participation.clip):
                return float("inf")
    else:
        while excess(low := low - log(2)) <= 0:
            high = low
            if low < log(participation.clip / 32):
                return 0.0
    return exp(brentq(excess, low, high, xtol=1e-4))
