"""The membership attack on one round, against the exact divergence of the same pair of data sets."""

import numpy as np
import pytest

from analysis.attacks.membership import Advantage, attack_membership, coupled_delta
from analysis.bounds.random_participation import Participation, orthogonal_pair, recentred

WHO, SIGMA, EPSILON = Participation(30, 0.1, 0.3), 1.0, 0.05


def test_the_attack_attains_the_exact_delta() -> None:
    exact = orthogonal_pair(WHO, SIGMA, EPSILON)
    seen = attack_membership(WHO, SIGMA, EPSILON, 1_000_000, np.random.default_rng(1))
    assert seen.delta == pytest.approx(exact, abs=4 * np.sqrt(2 * 0.05 / 1_000_000))
    assert seen.least_delta() < seen.delta
    coupled, half_width = coupled_delta(WHO, SIGMA, EPSILON, 1_000_000, np.random.default_rng(2))
    assert half_width < 0.05 * exact
    assert coupled == pytest.approx(exact, abs=2.5 * half_width)


def test_it_breaks_the_published_bound_and_not_the_sound_one() -> None:
    who, sigma = Participation(30, 0.001, 0.1), 1.065
    coupled, half_width = coupled_delta(who, sigma, 0.015, 1_000_000, np.random.default_rng(3))
    assert recentred(who, sigma, 0.015) < 1.02e-6 < coupled - half_width


def test_the_confidence_bound() -> None:
    assert Advantage(1000, 0, 0, 0.1).least_delta() < 0
    assert Advantage(1000, 900, 10, 0.1).least_delta() == pytest.approx(0.85, abs=0.03)
