"""Random check-ins: the formula against exact divergences; assumed pure privacy against what is published."""

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from analysis.bounds.random_check_ins import fixed_window, fixed_window_approximate, pure_privacy_assumed, steps_to


def exact_delta(local: float, rate: float, steps: int, epsilon: float) -> float:
    """Randomised response of one bit in every step; the client in question holds 1 where the others and dummies hold 0.

    With probability `rate` one step's answer is its own. The number of ones tells all there is to tell.
    """
    lie = 1 / (1 + exp(local))
    ones = np.arange(steps + 1)
    others = binom.pmf(ones, steps - 1, lie)
    mine = lie * others + (1 - lie) * np.concatenate(([0.0], others[:-1]))
    absent = binom.pmf(ones, steps, lie)
    present = rate * mine + (1 - rate) * absent
    return max(np.maximum(p - exp(min(epsilon, 600)) * q, 0).sum() for p, q in ((present, absent), (absent, present)))


@settings(deadline=None)
@given(st.floats(0.05, 3), st.floats(0.01, 1), st.integers(1, 2000), st.floats(1e-9, 1e-2))
def test_formula_bounds_what_randomised_response_loses(local: float, rate: float, steps: int, delta: float) -> None:
    assert exact_delta(local, rate, steps, fixed_window(local, rate, steps, delta)) <= delta * (1 + 1e-6) + 1e-12


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 10**6), st.floats(1e-12, 1e-2))
def test_short_form_for_little_privacy_loss(local: float, rate: float, steps: int, delta: float) -> None:
    """For eps0 <= 1 and delta <= 1/100 the theorem's short form is 7 p0 eps0 sqrt(log(1/delta) / m)."""
    assert fixed_window(local, rate, steps, delta) <= 7 * rate * local * sqrt(log(1 / delta) / steps) * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [3.0, 50.0, 300.0])
@pytest.mark.parametrize("steps", [1, 10**4])
def test_what_is_granted_is_less_than_what_is_published(sigma: float, steps: int) -> None:
    assert 0 < pure_privacy_assumed(sigma, 0.01, steps, 1e-3) <= fixed_window_approximate(sigma, 0.01, steps, 1e-3)


def test_published_form_needs_much_noise() -> None:
    assert fixed_window_approximate(3.0, 0.01, 10**6, 1e-3) == inf
    assert fixed_window_approximate(100.0, 0.01, 1, 1e-3) < 1


def test_steps_to_a_target() -> None:
    steps = steps_to(lambda m: 10 / sqrt(m), 0.1)
    assert steps == pytest.approx(10_000, rel=1e-3)
    assert steps_to(lambda m: 10.0, 1.0) == inf
    assert steps_to(lambda m: 0.5, 1.0) == 1.0
    assert fixed_window(400.0, 0.1, 10, 1e-3) == inf
