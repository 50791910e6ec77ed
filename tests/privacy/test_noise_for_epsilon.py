"""The least noise for an epsilon: kept, and no less would do."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.privacy.accounting import DiscreteGaussian, RoundedAccountant, Skellam
from testbed.privacy.noise import noise_multiplier_for
from testbed.privacy.noise_plan import Accountant

MECHANISMS = (Skellam, partial(DiscreteGaussian, participants=20))


@settings(deadline=None, max_examples=10)
@given(st.sampled_from(MECHANISMS), st.floats(0.5, 30), st.sampled_from([1e-3, 1e-6]), st.integers(1, 500))
def test_least_multiplier(kind: Callable[..., Any], epsilon: float, delta: float, rounds: int) -> None:
    def accountant(multiplier: float) -> Accountant:
        return RoundedAccountant(kind(multiplier, 2**12, 2.0**12, 0.5))

    found = noise_multiplier_for(accountant, epsilon, delta, rounds)
    assert accountant(found).epsilon({1.0: rounds}, delta) <= epsilon
    assert accountant(found * (1 - 2e-6)).epsilon({1.0: rounds}, delta) > epsilon


def test_less_noise_than_the_least_is_not_looked_for() -> None:
    assert noise_multiplier_for(lambda m: RoundedAccountant(Skellam(m, 16, 2.0**12, 0.5)), 1e12, 1e-5, 1) == 2.0**-10


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds", "message"),
    [
        (0.0, 1e-5, 1, "epsilon: 0.0; must be above 0"),
        (float("nan"), 1e-5, 1, "epsilon: nan; must be above 0"),
        (1.0, 1e-5, 0, "rounds: 0; must be at least 1"),
        (1.0, 1.0, 1, "delta: 1.0; must be above 0 and below 1"),
        (
            1.0,
            1e-15,
            10**9,
            "epsilon: 1 cannot be kept over 1000000000 rounds at delta 1e-15: noise of 1.04858e[+]06 times the clip "
            "still costs 38.7; allow more",
        ),
    ],
)
@pytest.mark.parametrize("kind", MECHANISMS)
def test_mistakes(kind: Callable[..., Any], epsilon: float, delta: float, rounds: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        noise_multiplier_for(lambda m: RoundedAccountant(kind(m, 2**20, 4.0, 0.5)), epsilon, delta, rounds)
