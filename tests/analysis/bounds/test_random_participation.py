"""DP-SGD with random participation: the paper's numbers, numerical integration, relations between the analyses."""

from collections.abc import Callable
from math import exp, expm1, log1p

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, norm

from analysis.bounds import random_participation as one
from analysis.bounds import random_participation_composed as many
from analysis.bounds.random_participation import Participation
from analysis.bounds.random_participation_analyses import ANALYSES, epsilon_by, noise_by
from analysis.cli.bound.random_participation import bound_random_participation

SMALL, LARGE = Participation(30, 0.001, 0.1), Participation(1000, 0.1, 0.001)
EPSILON, DELTA = 0.015, 1e-6


def at_epsilon(analysis: one.Delta, who: one.Participation) -> Callable[[float], float]:
    return lambda sigma: analysis(who, sigma, EPSILON)


@pytest.mark.parametrize(
    ("analysis", "small", "large"),
    [
        (one.only_local_sampling, 22.497, 1.1035),
        (one.weak_client_sampling, 7.665, 0.8739),
        (one.as_printed, 2.371, 0.0),
        (one.recentred, 1.0664, 0.6466),
    ],
)
def test_the_noise_of_section_6(analysis: one.Delta, small: float, large: float) -> None:
    for who, expected in ((SMALL, small), (LARGE, large)):
        found = one.sigma_of(at_epsilon(analysis, who), DELTA)
        assert found == pytest.approx(expected, rel=3e-4)


def test_the_published_noise_is_not_enough() -> None:
    assert one.orthogonal_pair(SMALL, 1.065, EPSILON) == pytest.approx(1.132e-5, rel=1e-3)
    assert one.orthogonal_pair(LARGE, 0.646, EPSILON) == pytest.approx(2.041e-6, rel=1e-3)
    assert one.as_printed(LARGE, 0.05, EPSILON) < 1e-18  # no noise is needed for parallel gradients


def test_weak_client_sampling_is_theorem_5_2() -> None:
    """The theorem's own form, with epsilon'' and alpha', gives the same delta."""
    p, q, sigma = 0.1, 0.3, 1.7
    for inner in (0.1, 1.0, 3.0):
        epsilon = log1p(p * q * expm1(inner))
        share = exp(epsilon - inner)
        twice = inner + np.log(share + (1 - share) * p * (1 - q) / (1 - p * q))
        printed = (
            p
            * q
            * (norm.cdf(1 / (2 * sigma) - sigma * twice) - exp(twice) * norm.cdf(-1 / (2 * sigma) - sigma * twice))
        )
        assert one.weak_client_sampling(Participation(5, p, q), sigma, epsilon) == pytest.approx(printed, rel=1e-9)


def test_as_printed_is_equation_6_at_the_root_of_equation_7() -> None:
    d, p, q, sigma, inner = 6, 0.2, 0.3, 1.5, 1.2
    epsilon = log1p(p * q * expm1(inner))
    count = np.arange(d + 1)
    weight = binom.pmf(count, d, q)
    c1 = (1 - exp(epsilon - inner)) * (1 - p) / (1 - p * q)
    c2 = p * (1 - q) / (1 - p * q) * (1 - exp(epsilon - inner)) + exp(epsilon - inner)

    def equation_7(z: float) -> float:
        with_x = weight @ norm.pdf(z, count + 1, sigma) - exp(inner) * c2 * (weight @ norm.pdf(z, count, sigma))
        return float(with_x - exp(inner) * c1 * norm.pdf(z, 0, sigma))

    z = brentq(equation_7, 0, 40)
    cdf = exp(inner) * c2 * norm.cdf(z, count, sigma) - norm.cdf(z, count + 1, sigma)
    bracket = 1 - exp(inner) * c2 + exp(inner) * c1 * (norm.cdf(z, 0, sigma) - 1) + weight @ cdf
    assert one.as_printed(Participation(d, p, q), sigma, epsilon) == pytest.approx(p * q * bracket, rel=1e-9)


def test_the_orthogonal_pair_by_integration_in_two_dimensions() -> None:
    d, p, q, sigma, epsilon = 4, 0.3, 0.4, 1.3, 0.2
    unit = 1 / sigma
    weight = binom.pmf(np.arange(d + 1), d, q)
    u, v = np.meshgrid(np.arange(-9, 9 + d * unit, 0.02), np.arange(-9, 9 + unit, 0.02))
    others = sum(w * norm.pdf(u - i * unit) for i, w in enumerate(weight))
    absent = (1 - p) * norm.pdf(u) * norm.pdf(v)
    with_x = absent + p * others * ((1 - q) * norm.pdf(v) + q * norm.pdf(v - unit))
    without = absent + p * others * norm.pdf(v)
    expected = np.maximum(with_x - exp(epsilon) * without, 0).sum() * 0.02**2
    assert one.orthogonal_pair(Participation(d, p, q), sigma, epsilon) == pytest.approx(expected, rel=2e-3)


def test_a_hockey_stick_divergence_against_quadrature() -> None:
    upper, lower = one.parallel_pair(Participation(3, 0.5, 0.5), 0.8)
    for epsilon in (0.0, 0.1, 1.0):

        def integrand(z: float, epsilon: float = epsilon) -> float:
            at = np.array([z])
            return max(0.0, float(one.density(upper, at)[0] - exp(epsilon) * one.density(lower, at)[0]))

        expected, _ = quad(integrand, -10, 16, limit=400)
        assert one.hockey_stick(upper, lower, epsilon) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("who", [SMALL, LARGE, Participation(1, 0.1, 0.1), Participation(100, 0.1, 0.1)])
def test_relations_between_the_analyses_hold(who: Participation) -> None:
    for sigma in (0.7, 1.0, 2.0):
        for epsilon in (0.01, 0.3, 1.0):
            sound = one.weak_client_sampling(who, sigma, epsilon)
            assert one.orthogonal_pair(who, sigma, epsilon) <= sound * (1 + 1e-9)
            assert one.as_printed(who, sigma, epsilon) <= sound * (1 + 1e-9)
            assert one.centralized_shuffling(who, sigma, epsilon) <= one.orthogonal_pair(who, sigma, epsilon) + 1e-15
            assert sound <= one.only_local_sampling(who, sigma, epsilon)


def test_everybody_taking_part_makes_all_the_same() -> None:
    who = Participation(20, 1.0, 0.1)
    deltas = [analysis.delta(who, 1.0, 0.3) for analysis in ANALYSES if analysis.name != "theorem_4_1"]
    assert deltas == pytest.approx([deltas[0]] * len(deltas), rel=1e-9)


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda one: one.name)
def test_composed_once_is_one_round(analysis) -> None:
    who = Participation(30, 0.05, 0.1)
    loss = analysis.loss(who, 1.0)
    for epsilon in (0.05, 0.5):
        assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(analysis.delta(who, 1.0, epsilon), rel=3e-3)


def test_composed_epsilons_are_ordered_and_do_not_depend_on_the_grid() -> None:
    who = Participation(30, 0.01, 0.1)
    found = {one.name: one.loss(who, 1.0).self_compose(50).get_epsilon_for_delta(1e-6) for one in ANALYSES}
    assert found["cs"] < found["orthogonal_pair"] < found["wcs"] < found["ols"]
    fine = many.weak_client_sampling(who, 1.0, many.INTERVAL / 2).self_compose(50).get_epsilon_for_delta(1e-6)
    assert fine == pytest.approx(found["wcs"], rel=1e-3)


def test_noise_for_many_rounds_keeps_the_epsilon() -> None:
    who, sound = Participation(10, 0.02, 0.1), ANALYSES[0]
    sigma = noise_by(sound, who, 0.5, 1e-5, 20)
    assert epsilon_by(sound, who, sigma, 1e-5, 20) == pytest.approx(0.5, rel=2e-3)


def test_the_report_names_the_soundness_of_each_number() -> None:
    row = bound_random_participation(30, 0.001, 0.1, DELTA, epsilon=EPSILON)
    assert row[f"{row['sound']}_standing"] == "guarantee"
    assert row["wcs_sigma"] == pytest.approx(7.665, rel=1e-3)
    assert row["theorem_4_1_recentred_standing"] == "as-published"
    assert row["orthogonal_pair_standing"] == "lower-bound"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client_rate": 0.0}, "client_rate: 0.0; must be above 0"),
        ({"sample_rate": 1.5}, "sample_rate: 1.5; must be above 0 and at most 1"),
        ({"clip": 0.0}, "clip: 0.0; must be above 0"),
        ({"local_samples": -1}, "local_samples: -1; must be 0 or more"),
        ({"sigma": 0.0}, "sigma: 0.0; must be above 0"),
        ({"delta": 1.0}, "delta: 1.0; must be above 0 and below 1"),
        ({"epsilon": 1.0}, "epsilon: give either epsilon or sigma"),
        ({"rounds": 0}, "rounds: 0; must be at least 1"),
    ],
)
def test_bad_values(change: dict, message: str) -> None:
    given = {"local_samples": 30, "client_rate": 0.1, "sample_rate": 0.1, "clip": 1.0, "delta": 1e-6, "sigma": 1.0}
    with pytest.raises(ValueError, match=message):
        bound_random_participation(**given | change)


def test_a_delta_large_enough_to_publish_records_gives_a_warning() -> None:
    row = bound_random_participation(30, 0.001, 0.1, 1e-4, sigma=1.0, clients=23264)
    assert row["warning"].startswith("delta 0.0001 is not below 1/697920")
    assert "warning" not in bound_random_participation(30, 0.001, 0.1, 1e-6, sigma=1.0, clients=23264)


def test_hardly_any_noise_has_no_epsilon_to_speak_of() -> None:
    row = bound_random_participation(1, 0.001, 0.1, DELTA, sigma=0.02)
    assert (row["wcs_epsilon"], row["ols_epsilon"]) == (None, None)
