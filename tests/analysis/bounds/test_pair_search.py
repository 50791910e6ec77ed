"""The search for the worst pair: exhaustive grids over tiny data sets, sampled rounds, and its complaints."""

import numpy as np
import pytest
from scipy.stats import binom

from analysis.bounds import pair_search
from analysis.bounds import random_participation_composed as many
from analysis.bounds.gradient_configurations import GradientConfiguration, OtherRounds, round_delta
from analysis.bounds.neighbouring_pairs import angled_pair, worst_angle
from analysis.bounds.pair_search import WorstAngle, search_pairs, worst_angle_of_rounds
from analysis.bounds.random_participation import Participation, orthogonal_pair
from analysis.bounds.random_participation_analyses import (
    ANALYSES,
    epsilon_by,
    worst_cosine_at_epsilon,
    worst_cosine_at_noise,
)

SMALL = Participation(30, 0.001, 0.1)


def test_the_composed_angled_pair_is_that_of_one_round() -> None:
    who = Participation(30, 0.05, 0.1)
    for cosine in (-0.4, 0.0, 0.5, 1.0):
        loss = many.angled_pair(who, 1.0, cosine)
        for epsilon in (0.05, 0.5):
            expected = angled_pair(who, 1.0, epsilon, cosine)
            assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=5e-3)


def test_the_composed_angled_pair_by_sampled_rounds() -> None:
    """The mean of [1 - e^(epsilon - L)]+ over sampled rounds with x', L the sum of their losses."""
    who, sigma, cosine, rounds, epsilon, trials = Participation(4, 0.3, 0.4), 0.8, 0.3, 6, 1.0, 400_000
    random, unit = np.random.default_rng(77), 1 / 0.8
    sine = np.sqrt(1 - cosine**2)
    weights = binom.pmf(np.arange(5), 4, who.sample_rate)
    total = np.zeros(trials)
    for _ in range(rounds):
        present = random.random(trials) < who.client_rate
        used = present & (random.random(trials) < who.sample_rate)
        counts = random.binomial(4, who.sample_rate, trials) * present
        along = unit * (counts + cosine * used) + random.normal(size=trials)
        across = unit * sine * used + random.normal(size=trials)
        places = unit * np.arange(5)
        others = np.exp(-((along[:, None] - places) ** 2) / 2) @ weights * np.exp(-(across**2) / 2)
        with_x = np.exp(-((along[:, None] - places - cosine * unit) ** 2) / 2) @ weights
        with_x *= np.exp(-((across - sine * unit) ** 2) / 2)
        absent = np.exp(-(along**2 + across**2) / 2)
        lower = 0.7 * absent + 0.3 * others
        total += np.log(lower + 0.3 * 0.4 * (with_x - others)) - np.log(lower)
    excess = np.maximum(1 - np.exp(epsilon - total), 0)
    error = 4 * excess.std() / np.sqrt(trials)
    composed = many.angled_pair(who, sigma, cosine).self_compose(rounds)
    assert composed.get_delta_for_epsilon(epsilon) == pytest.approx(excess.mean(), abs=error)
    assert error < 0.05 * excess.mean()


def test_the_papers_thousand_rounds() -> None:
    worst = worst_angle_of_rounds(SMALL, 1.065, 1e-6, 1000)
    assert worst.cosine == pytest.approx(0.193, abs=0.005)
    assert worst.epsilon == pytest.approx(1.6789, abs=2e-4)
    for cosine in (worst.cosine - 0.05, worst.cosine + 0.05):
        beside = many.angled_pair(SMALL, 1.065, cosine).self_compose(1000).get_epsilon_for_delta(1e-6)
        assert beside < worst.epsilon
    fine = many.angled_pair(SMALL, 1.065, worst.cosine, many.INTERVAL / 2).self_compose(1000)
    assert fine.get_epsilon_for_delta(1e-6) == pytest.approx(worst.epsilon, abs=2e-5)


def test_the_worst_cosines_of_one_and_of_several_rounds() -> None:
    epsilon = 0.015
    assert worst_cosine_at_epsilon(SMALL, epsilon, 1e-6, 1) == pytest.approx(1.0, abs=1e-3)
    cosine = worst_cosine_at_noise(SMALL, 1.065, 1.577e-5, 1)  # delta at which a round loses epsilon 0.015
    assert cosine == pytest.approx(worst_angle(SMALL, 1.065, epsilon)[0], abs=0.02)
    orthogonal = next(one for one in ANALYSES if one.name == "orthogonal_pair")
    sigma_cosine = worst_cosine_at_epsilon(SMALL, epsilon_by(orthogonal, SMALL, 1.065, 1e-6, 5), 1e-6, 5)
    assert sigma_cosine == pytest.approx(worst_angle_of_rounds(SMALL, 1.065, 1e-6, 5).cosine, abs=0.03)


def test_the_search_attains_the_worst_of_a_grid_over_all_angles_of_two_samples() -> None:
    sigma, rounds = 0.7, 50
    who = Participation(2, 0.01, 0.5)
    worst = worst_angle_of_rounds(who, sigma, 1e-5, rounds)
    result = search_pairs(who, sigma, rounds, worst, restarts=6, seed=1)
    loss = many.angled_pair(who, sigma, worst.cosine, pair_search.coarse_interval(rounds))
    others = OtherRounds.alike(loss, rounds, worst.epsilon)

    def gain(gradients: np.ndarray) -> float:
        return round_delta(GradientConfiguration((1, 1), gradients), who, sigma, others, 0.5)[0] - others.unchanged

    def in_space(first: float, second: float, turn: float) -> np.ndarray:
        """x' along the axis; the two others at these angles to it, one turned about it."""
        return np.array(
            [
                [np.cos(first), np.sin(first), 0.0],
                [np.cos(second), np.sin(second) * np.cos(turn), np.sin(second) * np.sin(turn)],
                [1.0, 0.0, 0.0],
            ]
        )

    angles = np.linspace(0, np.pi, 13)
    grid = max(
        gain(in_space(a, b, turn)) for a in angles for b in angles if b >= a for turn in (0, 0.8, 1.6, 2.4, 3.14)
    )
    reference = gain(np.array([[1.0, 0, 0], [1.0, 0, 0], [worst.cosine, np.sqrt(1 - worst.cosine**2), 0]]))
    assert result.gain >= grid / reference * (1 - 5e-3)


def test_a_search_beats_a_poor_angle_and_says_so() -> None:
    who = Participation(5, 0.05, 0.3)
    poor = WorstAngle(-0.5, float(many.angled_pair(who, 1.0, -0.5).self_compose(20).get_epsilon_for_delta(1e-5)))
    result = search_pairs(who, 1.0, 20, poor, restarts=2)
    assert result.exceeds
    assert result.gain == result.gains.max() > 1.1
    assert result.agreeing == sum(gain >= 0.99 * result.gain for gain in result.gains) >= 1
    found = many.configured_pair(result.configuration, who, 1.0).self_compose(20).get_epsilon_for_delta(1e-5)
    assert found > poor.epsilon
    again = search_pairs(who, 1.0, 20, poor, restarts=2)
    assert again.gains == pytest.approx(result.gains, rel=1e-12)


def test_several_angles_can_be_worse_than_one() -> None:
    """docs/papers/random-participation-worst-pair.md has this example."""
    who, sigma, rounds = Participation(3, 0.01, 0.5), 0.7, 100
    worst = worst_angle_of_rounds(who, sigma, 1e-6, rounds)
    result = search_pairs(who, sigma, rounds, worst, restarts=3)
    assert result.exceeds
    assert result.gain == pytest.approx(1.0135, abs=1e-3)
    composed = many.configured_pair(result.configuration, who, sigma).self_compose(rounds)
    assert worst.epsilon == pytest.approx(8.647, abs=2e-3)
    assert composed.get_epsilon_for_delta(1e-6) == pytest.approx(8.669, abs=2e-3)


def test_what_cannot_be_searched() -> None:
    with pytest.raises(ValueError, match="local_samples: 0"):
        search_pairs(Participation(0, 0.1, 0.1), 1.0, 1, WorstAngle(0.0, 1.0), restarts=1)
    with pytest.raises(ValueError, match=r"sigma: 0\.01"):
        search_pairs(Participation(3, 0.1, 0.1), 0.01, 1, WorstAngle(0.0, float("inf")), restarts=1)


def test_the_angled_pair_loses_no_less_than_the_orthogonal_one() -> None:
    cosine, worst = worst_angle(SMALL, 1.065, 0.3)
    assert worst >= orthogonal_pair(SMALL, 1.065, 0.3)
    assert 0 < cosine < 1
