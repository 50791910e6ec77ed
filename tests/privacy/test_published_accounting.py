"""The accountants behind the ledger against values that dp_accounting (0.6.0, Apache 2.0) expects of its own tests."""

import math

import numpy as np
import pytest

from analysis.bounds.random_participation import gaussian_delta
from testbed.privacy.accounting import REAL_ORDERS, epsilon
from testbed.privacy.gaussian import SubsampledGaussianAccountant


@pytest.mark.parametrize(
    ("deviation", "sensitivity", "rounds", "sample_rate"),
    [(0.67379294682, 1, 1, 0.01), (3.20956502598, 6, 25, 0.001)],
)
def test_the_least_subsampled_noise_for_epsilon_1(
    deviation: float, sensitivity: float, rounds: int, sample_rate: float
) -> None:
    """pld/accountant_test.py, test_get_smallest_subsampled_gaussian_noise: epsilon 1 at delta 1e-5."""
    accountant = SubsampledGaussianAccountant(deviation / sensitivity, sample_rate)
    assert accountant.epsilon({1.0: rounds}, 1e-5) == pytest.approx(1.0, abs=2e-3)
    less = SubsampledGaussianAccountant(0.97 * deviation / sensitivity, sample_rate)
    assert less.epsilon({1.0: rounds}, 1e-5) > 1.0


@pytest.mark.parametrize(("deviation", "sensitivity", "rounds"), [(1 / 3, 1, 1), (10, 6, 25)])
def test_the_least_noise_for_a_large_delta(deviation: float, sensitivity: float, rounds: int) -> None:
    """pld/accountant_test.py, test_get_smallest_gaussian_noise: epsilon 1 at delta 0.78760074."""
    found = SubsampledGaussianAccountant(deviation / sensitivity, 1.0).epsilon({1.0: rounds}, 0.78760074)
    assert found == pytest.approx(1.0, abs=2e-3)
    assert gaussian_delta(1.0, math.sqrt(rounds) * sensitivity / deviation) == pytest.approx(0.78760074, abs=1e-8)


@pytest.mark.parametrize("parts", [{1.0: 3}, {1.0: 1, 0.5: 1}])
def test_three_rounds_of_little_noise(parts: dict[float, int]) -> None:
    """pld/pld_privacy_accountant_test.py, test_gaussian_basic: three of noise sqrt(3) have delta 0.126936 at epsilon 1.

    A round with half of the planned noise variance costs as much as two with all of it.
    """
    found = SubsampledGaussianAccountant(math.sqrt(3), 1.0).epsilon(parts, 0.126936)
    assert found == pytest.approx(1.0, abs=2e-3)


def test_divergences_of_the_gaussian_mechanism() -> None:
    """rdp/rdp_privacy_accountant_test.py, test_compute_epsilon_delta_gaussian: 4.530877117 is (1, 1e-6)."""
    orders = [order for order in REAL_ORDERS if order < 100]
    divergences = np.array(orders) / (2 * 4.530877117**2)
    assert epsilon(divergences, 1, 1e-6, orders) == pytest.approx(1.0, abs=1e-3)  # there with orders 0.001 apart


def test_divergences_that_do_not_depend_on_the_order() -> None:
    """rdp/rdp_privacy_accountant_test.py, test_compute_epsilon_delta_pure_dp: 1.1 at orders 2 to 32, delta 1e-5."""
    orders = range(2, 33)
    assert epsilon(np.full(31, 1.1), 1, 1e-5, orders) == pytest.approx(1.32783806176, abs=1e-9)
