"""Privacy cost of rounds of DP-SGD, against the analytic bounds of one round and their composition."""

import math
from functools import partial

import pytest

from analysis.bounds.random_participation import (
    Participation,
    epsilon_of,
    gaussian_delta,
    only_local_sampling,
    orthogonal_pair,
    weak_client_sampling,
)
from analysis.bounds.random_participation_composed import only_local_sampling as composed_ols
from analysis.bounds.random_participation_composed import weak_client_sampling as composed_wcs
from testbed.privacy.gaussian import SubsampledGaussianAccountant

WHO = Participation(30, 0.01, 0.1, clip=0.5)
SIGMA = 0.6
DELTA = 1e-6


@pytest.mark.parametrize("rounds", [1, 12, 200])
def test_counted_participations_cost_as_only_local_sampling(rounds: int) -> None:
    found = SubsampledGaussianAccountant(SIGMA / WHO.clip, WHO.sample_rate).epsilon({1.0: rounds}, DELTA)
    assert found == pytest.approx(composed_ols(WHO, SIGMA).self_compose(rounds).get_epsilon_for_delta(DELTA), rel=1e-9)


@pytest.mark.parametrize("rounds", [1, 200])
def test_unseen_participation_costs_as_weak_client_sampling(rounds: int) -> None:
    accountant = SubsampledGaussianAccountant(SIGMA / WHO.clip, WHO.sample_rate, WHO.client_rate)
    found = accountant.epsilon({1.0: rounds}, DELTA)
    assert found == pytest.approx(composed_wcs(WHO, SIGMA).self_compose(rounds).get_epsilon_for_delta(DELTA), rel=1e-9)


def test_one_round_is_the_analytic_value_rounded_up() -> None:
    for rate, delta_of in ((1.0, only_local_sampling), (WHO.client_rate, weak_client_sampling)):
        exact = epsilon_of(partial(delta_of, WHO, SIGMA), DELTA)
        found = SubsampledGaussianAccountant(SIGMA / WHO.clip, WHO.sample_rate, rate).epsilon({1.0: 1}, DELTA)
        assert exact <= found <= exact * 1.01 + 1e-3
    lost = epsilon_of(lambda epsilon: orthogonal_pair(WHO, SIGMA, epsilon), DELTA)
    assert lost <= found  # the exact loss of two data sets is below the guarantee


def test_less_noise_costs_more_and_none_everything() -> None:
    accountant = SubsampledGaussianAccountant(1.2, 0.1)
    whole, half = accountant.epsilon({1.0: 10}, DELTA), accountant.epsilon({0.5: 10}, DELTA)
    mixed = accountant.epsilon({1.0: 5, 0.5: 5}, DELTA)
    assert whole < mixed < half
    assert half == pytest.approx(
        SubsampledGaussianAccountant(1.2 * math.sqrt(0.5), 0.1).epsilon({1.0: 10}, DELTA), rel=1e-9
    )
    assert accountant.epsilon({1.0: 10, 0.0: 1}, DELTA) == math.inf
    assert SubsampledGaussianAccountant(0.0, 0.1).epsilon({1.0: 1}, DELTA) == math.inf
    assert accountant.epsilon({}, DELTA) == accountant.epsilon({1.0: 0}, DELTA) == 0.0


def test_hardly_any_noise_is_accounted_in_bounded_memory_and_never_too_low() -> None:
    exact = epsilon_of(lambda epsilon: float(gaussian_delta(epsilon, 1 / 0.05)), DELTA)
    assert exact <= SubsampledGaussianAccountant(0.05, 1.0).epsilon({1.0: 1}, DELTA) <= 1.001 * exact
    half = 0.5e6  # of noise 1/1000 the loss is normal around 0.5e6, with a deviation of 1000
    assert half + 4.7e3 <= SubsampledGaussianAccountant(1e-3, 1.0).epsilon({1.0: 1}, DELTA) <= half + 4.8e3


def test_noise_too_little_for_any_accounting_is_no_privacy() -> None:
    assert SubsampledGaussianAccountant(1e-9, 0.2).epsilon({1.0: 5}, 1e-6) == float("inf")
