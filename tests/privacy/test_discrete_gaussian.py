"""The distributed discrete Gaussian's accounting against sums of discrete Gaussians themselves, and dp_accounting."""

from math import inf, sqrt

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.privacy.accounting import REAL_ORDERS, DiscreteGaussian, RoundedAccountant, distance
from testbed.privacy.noise_plan import Accountant
from tests.messages_named import naming
from tests.thoroughness import examples


def sum_of(parts: int, variance: float) -> np.ndarray:
    """Probabilities of the sum of discrete Gaussians around 0, by convolution."""
    reach = int(12 * sqrt(variance)) + 12
    one = np.exp(-np.square(np.arange(-reach, reach + 1, dtype=np.longdouble)) / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    return total


def divergence(probabilities: np.ndarray, shift: int, order: float) -> float:
    """The Rényi divergence of the shifted from the unshifted, where neither has run out of digits."""
    moved, still = probabilities[:-shift], probabilities[shift:]
    there = (moved > 1e-300) & (still > 1e-300)
    return float(np.log((moved[there] ** order * still[there] ** (1 - order)).sum()) / (order - 1))


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("deviation", [0.5, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_bound_holds_for_the_sum_itself_and_is_close(parts: int, deviation: float, shift: int) -> None:
    probabilities = sum_of(parts, deviation**2)
    gaussian = shift / (deviation * sqrt(parts))
    tau = distance(parts, deviation**2)
    bound = min(sqrt(gaussian**2 + tau / 2), gaussian + tau) ** 2 / 2
    for order in (1.5, 2.0, 4.0, 8.0):
        exact = divergence(probabilities, shift, order)
        assert exact <= order * bound * (1 + 1e-9)
        if deviation >= 1:
            assert exact == pytest.approx(order * bound, rel=5e-3)


@pytest.mark.parametrize("multiplier", [1.0, 3.0, 20.0])
def test_one_share_is_the_discrete_gaussian_of_dp_accounting(multiplier: float) -> None:
    """With one coordinate of one step and no rounding slack to speak of: the same mechanism, accounted exactly."""
    scale = 10.0
    ours = RoundedAccountant(DiscreteGaussian(multiplier, 1, scale, 0.0))
    steps = scale + 1  # a coordinate of `scale` steps, rounded
    exact = from_discrete_gaussian_mechanism(multiplier * scale, sensitivity=int(steps))
    for delta in (1e-3, 1e-6):
        found = ours.epsilon({1.0: 1}, delta)
        least = exact.get_epsilon_for_delta(delta)
        assert least <= found <= 1.35 * least + 1e-3


@given(st.floats(0.3, 20), st.integers(1, 100), st.integers(1, 200), st.floats(1e-9, 1e-2))
@settings(deadline=None, max_examples=examples(30))
def test_fine_steps_cost_what_gaussian_noise_costs(
    multiplier: float, participants: int, rounds: int, delta: float
) -> None:
    accountant = RdpAccountant(REAL_ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), rounds)
    gaussian = accountant.get_epsilon(delta)
    ours = RoundedAccountant(DiscreteGaussian(multiplier, 2**20, 2.0**40, 0.5, participants))
    assert ours.epsilon({1.0: rounds}, delta) == pytest.approx(gaussian, rel=1e-4)


@given(st.floats(0.3, 2), st.integers(2, 60), st.data())
def test_missing_shares_leave_the_noise_of_fewer_participants(
    multiplier: float, participants: int, data: st.DataObject
) -> None:
    left = data.draw(st.integers(1, participants))
    scale = 20.0
    planned = DiscreteGaussian(multiplier, 1024, scale, 0.5, participants)
    fewer = DiscreteGaussian(multiplier * sqrt(left / participants), 1024, scale, 0.5, left)
    assert planned.concentration(left / participants) == pytest.approx(fewer.concentration(), rel=1e-9)
    assert planned.concentration(left / participants) >= planned.concentration() * (1 - 1e-9)


def test_many_shares_of_little_noise_are_further_from_gaussian() -> None:
    costs = [DiscreteGaussian(1.0, 2**10, 16.0, 0.5, participants).concentration() for participants in (1, 256, 400)]
    assert costs == sorted(costs)
    assert costs[1] > 1.01 * costs[0]
    assert DiscreteGaussian(1.0, 2**10, 16.0, 0.5, 2000).concentration() == inf  # 0.36 steps each: nothing is proven


def test_rounds_with_unlike_noise_add_up() -> None:
    accountant: Accountant = RoundedAccountant(DiscreteGaussian(2.0, 64, 1000.0, 0.5, 10))
    assert accountant.epsilon({1.0: 3, 0.5: 0}, 1e-5) == accountant.epsilon({1.0: 3}, 1e-5)
    assert (
        accountant.epsilon({1.0: 4}, 1e-5)
        < accountant.epsilon({1.0: 3, 0.5: 1}, 1e-5)
        < accountant.epsilon({0.5: 4}, 1e-5)
    )
    assert accountant.epsilon({}, 1e-5) == 0.0
    assert accountant.epsilon({1.0: 3, 0.0: 1}, 1e-5) == inf
    assert accountant.epsilon({1.0: 3, 0.0: 0}, 1e-5) < inf


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=naming("participants: 0", "at least 1")):
        DiscreteGaussian(1.0, 10, 10.0, 0.5, 0)
    with pytest.raises(ValueError, match=naming("noise_multiplier: 0")):
        DiscreteGaussian(0, 10, 10.0, 0.5, 3)
    with pytest.raises(ValueError, match=naming("delta: 0", "above 0", "below 1")):
        RoundedAccountant(DiscreteGaussian(1.0, 10, 10.0, 0.5, 3)).epsilon({1.0: 1}, 0)
