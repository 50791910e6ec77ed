"""The guarantee for hidden participants: brute force over tiny data sets, its own pairs by quadrature, its limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from analysis.bounds import random_participation_composed as many_rounds
from analysis.bounds import revealed_samples as revealed
from analysis.bounds.random_participation import Participation, as_printed, sigma_at, weak_client_sampling
from tests.analysis.bounds.configurations_by_quadrature import densities, divergence
from tests.thoroughness import examples

MANY_CLIENTS, FEW_CLIENTS = Participation(30, 0.001, 0.1), Participation(1000, 0.1, 0.001)
SLACK = 3e-5  # error of the sums over the plane, whose terms have kinks


def by_quadrature(who: Participation, sigma: float, epsilon: float) -> float:
    """Mean over the number k of used samples of three Gaussians' divergence, on a line."""
    p, q, s = who.client_rate, who.sample_rate, who.clip / sigma
    total = 0.0
    for k in range(who.local_samples + 1):

        def integrand(z: float, k: int = k) -> float:
            present, moved = norm.pdf(z - k * s), norm.pdf(z - (k + 1) * s)
            lower = (1 - p) * norm.pdf(z) + p * present
            return max(0.0, (1 - p) * norm.pdf(z) + p * ((1 - q) * present + q * moved) - np.exp(epsilon) * lower)

        value, _ = quad(integrand, (k + 0.5) * s, (k + 1) * s + 12, limit=400)
        total += binom.pmf(k, who.local_samples, q) * value
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.7])
@pytest.mark.parametrize("who", [Participation(0, 0.3, 0.2), Participation(3, 0.05, 0.4), Participation(6, 0.5, 0.9)])
def test_its_pairs_by_quadrature(who: Participation, epsilon: float) -> None:
    assert revealed.revealed_samples(who, 0.9, epsilon) == pytest.approx(by_quadrature(who, 0.9, epsilon), rel=1e-5)


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 6.3)), min_size=2, max_size=4),
    st.floats(0.05, 0.9), st.floats(0.05, 0.9), st.floats(0.6, 2),
)  # fmt: skip
def test_no_data_set_loses_more_in_either_direction(
    polar: list[tuple[float, float]], p: float, q: float, sigma: float
) -> None:
    """Any norms, any angles; the last gradient is that of x'."""
    vectors = np.array([[norm * np.cos(angle), norm * np.sin(angle)] for norm, angle in polar])
    who = Participation(len(polar) - 1, p, q)
    upper, lower = densities(who, sigma, vectors[:-1], vectors[-1])
    dominating = revealed.composed(who, sigma, interval=1e-3)
    for epsilon in (0.0, 0.02, 0.1, 0.5, 1.5):
        with_x, without = divergence(upper, lower, epsilon), divergence(lower, upper, epsilon)
        assert with_x <= revealed.revealed_samples(who, sigma, epsilon) + SLACK
        assert max(with_x, without) <= dominating.get_delta_for_epsilon(epsilon) + SLACK


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 5), st.floats(0.05, 0.9), st.floats(0.05, 0.9), st.floats(0.6, 2), st.floats(-1, 1))
def test_the_composed_pair_dominates_each_angle_in_both_directions(
    k: int, p: float, q: float, sigma: float, cosine: float
) -> None:
    """One revealed sum of norm k at an angle to x': the divergences of both directions, against those of the bound."""
    s = 1 / sigma
    alphas = np.exp([0.0, 0.02, 0.1, 0.5])
    # k samples that are always used: the revealed sum is certain.
    who = Participation(k, p, q)
    step = 0.05
    a = np.arange(-9 - s, (k + 1) * s + 9, step)[:, None]
    b = np.arange(-9, s + 9, step)[None, :]
    absent = norm.pdf(a) * norm.pdf(b)
    present = norm.pdf(a - k * s) * norm.pdf(b)
    moved = norm.pdf(a - k * s - cosine * s) * norm.pdf(b - np.sqrt(1 - cosine**2) * s)
    lower = (1 - p) * absent + p * present
    upper = (1 - p) * absent + p * ((1 - q) * present + q * moved)
    with_x, without = revealed._of_count(k * s, s, who, alphas, alphas)
    for index, alpha in enumerate(alphas):
        assert np.maximum(upper - alpha * lower, 0).sum() * step**2 <= with_x[index] + SLACK
        assert np.maximum(lower - alpha * upper, 0).sum() * step**2 <= without[index] + SLACK


def test_the_papers_scenarios_need_less_noise() -> None:
    """docs/papers/random-participation-worst-pair.md has these numbers."""
    for who, expected, visible in ((MANY_CLIENTS, 2.4903, 7.6651), (FEW_CLIENTS, 0.8151, 0.8739)):
        sigma = sigma_at(revealed.revealed_samples, who, 0.015, 1e-6)
        assert sigma == pytest.approx(expected, rel=1e-3)
        assert sigma_at(weak_client_sampling, who, 0.015, 1e-6) == pytest.approx(visible, rel=1e-3)
        assert sigma_at(as_printed, who, 0.015, 1e-6) < sigma
    assert by_quadrature(MANY_CLIENTS, 2.4903, 0.015) == pytest.approx(1e-6, rel=1e-3)


def test_sums_that_show_participation_make_it_weak_client_sampling() -> None:
    for who, sigma in ((Participation(60, 0.01, 1.0), 0.5), (Participation(10**6, 0.01, 0.1), 20.0)):
        for epsilon in (0.01, 0.5):
            visible = weak_client_sampling(who, sigma, epsilon)
            assert revealed.revealed_samples(who, sigma, epsilon) == pytest.approx(visible, rel=1e-9)


@pytest.mark.parametrize("q", [0.5, 1.0])
def test_without_random_participation_it_composes_as_weak_client_sampling(q: float) -> None:
    who, sigma, rounds = Participation(20, 1.0, q), 3.0, 3
    visible = many_rounds.weak_client_sampling(who, sigma).self_compose(rounds).get_epsilon_for_delta(1e-6)
    composed = revealed.composed(who, sigma).self_compose(rounds)
    assert composed.get_epsilon_for_delta(1e-6) == pytest.approx(visible, rel=1e-5)


def test_many_numbers_of_samples_are_rounded_to_more(monkeypatch: pytest.MonkeyPatch) -> None:
    who, sigma = Participation(4000, 0.01, 0.5), 2000.0
    rounded = [revealed.revealed_samples(who, sigma, epsilon) for epsilon in (1e-7, 1e-6)]
    monkeypatch.setattr(revealed, "_MOST_COUNTS", 10_000)
    exact = [revealed.revealed_samples(who, sigma, epsilon) for epsilon in (1e-7, 1e-6)]
    for more, less in zip(rounded, exact, strict=True):
        assert less < more < 1.01 * less


def test_a_thousand_rounds_of_the_papers_scenario() -> None:
    composed = revealed.composed(MANY_CLIENTS, 1.065).self_compose(1000)
    assert composed.get_epsilon_for_delta(1e-6) == pytest.approx(1.9273, rel=1e-3)
