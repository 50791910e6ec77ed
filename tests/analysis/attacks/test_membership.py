"""The membership attack on one round, against the exact divergence of the same pair of data sets."""

import numpy as np
import pytest

from analysis.attacks.membership import Advantage, attack_coupled_rounds, attack_membership
from analysis.attacks.membership_of_models import PairedAdvantage, attack_models
from analysis.bounds.random_participation import Participation, orthogonal_pair, recentred

WHO, SIGMA, EPSILON = Participation(30, 0.1, 0.3), 1.0, 0.05


def test_the_attack_attains_the_exact_delta() -> None:
    exact = orthogonal_pair(WHO, SIGMA, EPSILON)
    seen = attack_membership(WHO, SIGMA, EPSILON, 1_000_000, np.random.default_rng(1))
    assert seen.delta == pytest.approx(exact, abs=4 * np.sqrt(2 * 0.05 / 1_000_000))
    coupled = attack_coupled_rounds(WHO, SIGMA, EPSILON, 1_000_000, np.random.default_rng(2)).interval()
    assert coupled.half_width is not None
    assert coupled.half_width < 0.05 * exact
    assert coupled.mean == pytest.approx(exact, abs=2.5 * coupled.half_width)


def test_it_breaks_the_published_bound_and_not_the_sound_one() -> None:
    who, sigma = Participation(30, 0.001, 0.1), 1.065
    coupled = attack_coupled_rounds(who, sigma, 0.015, 1_000_000, np.random.default_rng(3)).interval()
    assert coupled.mean is not None
    assert coupled.half_width is not None
    assert recentred(who, sigma, 0.015) < 1.02e-6 < coupled.mean - coupled.half_width


def test_the_interval_covers_the_rates_it_is_made_of() -> None:
    seen = Advantage(1000, 900, 10, 0.1)
    interval = seen.interval()
    assert interval.mean == seen.delta
    assert interval.half_width == pytest.approx(0.0222, abs=0.001)
    assert Advantage(1000, 0, 0, 0.1).interval().half_width == pytest.approx(0.00407, abs=0.0001)
    assert Advantage(1000, 1000, 0, 0.1).interval().half_width < 0.01


def test_the_models_of_a_federation_give_away_what_the_integral_says() -> None:
    seen = attack_models(WHO, SIGMA, EPSILON, population=1000, rounds=20, seed=4)
    assert (seen.trials, seen.lost) == (20_000, 0)
    assert seen.interval().half_width < 2e-3
    assert seen.delta == pytest.approx(orthogonal_pair(WHO, SIGMA, EPSILON), abs=2 * seen.interval().half_width)
    simulated = attack_membership(WHO, SIGMA, EPSILON, 1_000_000, np.random.default_rng(5))
    without = simulated.yes_without / simulated.trials
    assert seen.yes_without / seen.trials == pytest.approx(without, abs=4 * np.sqrt(without / seen.trials))


def test_the_interval_of_pairs() -> None:
    seen = PairedAdvantage(10_000, gained=100, lost=0, yes_without=0, epsilon=0.1)
    assert seen.interval().mean == seen.delta == 0.01
    assert seen.interval().half_width == pytest.approx(1.96 * np.sqrt(0.01 * 0.99 / 10_000), rel=1e-4)
    assert PairedAdvantage(10_000, 100, 100, 500, 0.1).delta == pytest.approx(-np.expm1(0.1) * 0.05)
