"""The Skellam mechanism's accounting against its own distribution, and against the Gaussian limit."""

from math import inf, log, sqrt

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import skellam

from testbed.privacy.accounting import ORDERS, RoundedAccountant, Skellam, amplified, epsilon
from testbed.privacy.noise_plan import Accountant
from tests.thoroughness import examples


def divergence(order: int, shift: int, variance: float) -> float:
    """The Renyi divergence of one coordinate, summed over its values."""
    reach = int(12 * sqrt(variance) + 4 * order * shift + 60)
    values = np.arange(-reach, reach + 1)
    with np.errstate(divide="ignore"):
        p, q = (skellam.logpmf(values - by, variance / 2, variance / 2) for by in (shift, 0))
    there = np.isfinite(p) & np.isfinite(q)
    return float(logsumexp(order * p[there] - (order - 1) * q[there])) / (order - 1)


@pytest.mark.parametrize(("multiplier", "steps"), [(1.0, 4), (2.0, 3), (5.0, 2), (3.0, 10)])
def test_bound_holds_for_the_distribution_itself_and_is_close(multiplier: float, steps: int) -> None:
    """One coordinate, no rounding slack: a shift by `steps` whole steps has exactly that sensitivity."""
    mechanism = Skellam(multiplier, 1, steps)
    l1, l2 = mechanism.sensitivities
    variance = (multiplier * steps) ** 2
    for place, order in enumerate(ORDERS[:6]):
        bound = order * steps**2 / (2 * variance) + min(
            ((2 * order - 1) * steps**2 + 6 * steps) / (4 * variance**2), 3 * steps / (2 * variance)
        )
        exact = divergence(order, steps, variance)
        assert exact <= bound * (1 + 1e-9)
        assert exact > 0.7 * order * steps**2 / (2 * variance)
        assert mechanism.divergences()[place] >= bound  # longer by rounding, never less
    assert l1 >= l2 >= steps


@settings(deadline=None, max_examples=examples(30))
@given(st.floats(0.5, 20), st.integers(1, 200), st.floats(1e-9, 1e-2))
def test_fine_steps_cost_what_gaussian_noise_costs(multiplier: float, rounds: int, delta: float) -> None:
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), rounds)
    gaussian = accountant.get_epsilon(delta)
    ours = Skellam(multiplier, 2**20, 2.0**40).epsilon(rounds, delta)
    assert ours == pytest.approx(gaussian, rel=1e-4)
    assert ours >= gaussian * (1 - 1e-9)


@given(st.floats(0.5, 10), st.integers(0, 19))
def test_missing_shares_are_missing_variance(multiplier: float, missing: int) -> None:
    share = (20 - missing) / 20
    left = Skellam(multiplier, 64).divergences(share)
    assert left == pytest.approx(Skellam(multiplier * sqrt(share), 64).divergences(), rel=1e-12)


def test_coarser_steps_cost_more() -> None:
    costs = [Skellam(5, 2**20, scale).epsilon(50, 1e-5) for scale in (100, 1000, 10_000, 100_000)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1.5 * costs[-1]


def test_no_noise_is_no_privacy_and_no_rounds_cost_nothing() -> None:
    mechanism = Skellam(5, 100)
    assert mechanism.epsilon(1, 1e-5, share=0.0) == inf
    assert mechanism.epsilon(0, 1e-5, share=0.0) == 0.0


@given(st.floats(1, 10), st.integers(1, 100), st.integers(1, 100), st.floats(1e-12, 1e-2))
def test_epsilon_grows_with_rounds_and_shrinks_with_delta(
    multiplier: float, rounds: int, more: int, delta: float
) -> None:
    divergences = Skellam(multiplier, 2**10).divergences()
    assert epsilon(divergences, rounds + more, delta) >= epsilon(divergences, rounds, delta)
    assert epsilon(divergences, rounds, delta / 2) >= epsilon(divergences, rounds, delta)


@pytest.mark.parametrize("sampling", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_amplification_is_a_bound_on_the_exact_one_for_gaussian_noise(sampling: float, multiplier: float) -> None:
    """For Gaussian noise the exact divergence is known; the theorem for any mechanism has up to three times its sum."""
    gaussian = np.array([order / (2 * multiplier**2) for order in ORDERS])
    found = amplified(gaussian, sampling)
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(sampling, dp_accounting.GaussianDpEvent(multiplier)))
    for place, order in enumerate(ORDERS[:255]):
        exact = accountant._rdp[place]
        assert found[place] >= exact * (1 - 1e-9)
        assert found[place] <= min(exact + log(3) / (order - 1), gaussian[place]) * (1 + 1e-9)
    assert found[0] == pytest.approx(accountant._rdp[0])  # at order 2 the two are the same
    assert (found <= gaussian).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Skellam(0, 10), "noise_multiplier: 0; must be a number from 1e-09 to 1e[+]09"),
        (lambda: Skellam(float("nan"), 10), "noise_multiplier: nan; must be a number from 1e-09 to"),
        (lambda: Skellam(1, 0), "dimension: 0; must be"),
        (lambda: Skellam(1, 10, inf), "scale: inf; must be"),
        (lambda: Skellam(1e-300, 10), "noise_multiplier: 1e-300; must be"),
        (lambda: Skellam(1e300, 10), r"noise_multiplier: 1e[+]300; must be"),
        (lambda: Skellam(5, 10, 1e-300), "scale: 1e-300; must be"),
        (lambda: Skellam(1, 10**400), "dimension: 10+; must be"),
        (lambda: Skellam(1, 10, bias=1), "bias: 1; must be"),
        (lambda: Skellam(1, 10).divergences(1.1), "share: 1.1; must be"),
        (lambda: Skellam(1, 10).divergences(1, 0), "sampling: 0; must be"),
    ],
)
def test_mistakes(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_accountant_adds_up_rounds_with_unlike_noise() -> None:
    mechanism = Skellam(2.0, 64, 1000.0, 0.5)
    accountant: Accountant = RoundedAccountant(mechanism)
    assert accountant.epsilon({1.0: 4}, 1e-5) == mechanism.epsilon(4, 1e-5)
    together = 3 * mechanism.divergences() + mechanism.divergences(0.5)
    assert accountant.epsilon({1.0: 3, 0.5: 1, 0.1: 0}, 1e-5) == pytest.approx(epsilon(together, 1, 1e-5))
    assert accountant.epsilon({}, 1e-5) == 0.0
    assert accountant.epsilon({1.0: 3, 0.0: 1}, 1e-5) == inf
