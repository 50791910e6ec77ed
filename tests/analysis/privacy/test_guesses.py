"""Epsilon proven by guesses, against the paper's values, brute force, and mechanisms of known epsilon."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.privacy.guesses import epsilon_of_separation, epsilon_proven, p_value, separation
from tests.messages_named import naming
from tests.thoroughness import examples


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "printed"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],  # arXiv 2305.08846v1, p. 46 and p. 28
    ids=["appendix D", "section 7"],
)
def test_the_values_that_the_paper_prints(
    canaries: int, guesses: int, right: int, delta: float, printed: float
) -> None:
    assert epsilon_proven(canaries, guesses, right, delta) == pytest.approx(printed, abs=1e-3)


def test_all_right_without_delta_is_a_sum() -> None:
    proven = epsilon_proven(100, 100, 100, 0.0)
    assert (1 / (1 + exp(-proven))) ** 100 == pytest.approx(0.05, rel=1e-6)
    assert epsilon_proven(100, 50, 25, 0.0) == 0.0


@given(st.integers(1, 9), st.integers(0, 9), st.floats(0, 4), st.floats(1e-9, 0.1))
@settings(max_examples=examples(60))
def test_the_p_value_against_an_enumeration(guesses: int, right: int, epsilon: float, delta: float) -> None:
    right, canaries, chance = min(right, guesses), guesses + 3, 1 / (1 + exp(-epsilon))
    law = [0.0] * (guesses + 1)
    for coins in product((0, 1), repeat=guesses):
        law[sum(coins)] += float(np.prod([chance if coin else 1 - chance for coin in coins]))
    tail = sum(law[right:])
    most = max((sum(law[right - i : right]) / i for i in range(1, right + 1)), default=0.0)
    assert p_value(canaries, guesses, right, epsilon, delta) == pytest.approx(
        min(1.0, tail + 2 * canaries * delta * most), rel=1e-9
    )


def test_randomised_response_is_not_proven_to_be_worse_than_it_is() -> None:
    """Its guesses are the worst that epsilon allows: the bound is wrong as often as the error says, and no more."""
    rng, epsilon, trials = np.random.default_rng(7), 1.0, 2000
    right = rng.binomial(200, exp(epsilon) / (1 + exp(epsilon)), trials)
    proven = np.array([epsilon_proven(200, 200, int(one), 0.0) for one in right])
    wrong = float((proven > epsilon).mean())
    assert 0.02 < wrong <= 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5
    assert np.median(proven) > 0.6


@pytest.mark.parametrize("distance", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_estimate_is_epsilon_of_the_gaussian_mechanism(distance: float, delta: float) -> None:
    accounted = from_gaussian_mechanism(1 / distance, value_discretization_interval=1e-4).get_epsilon_for_delta(delta)
    assert epsilon_of_separation(distance, delta) == pytest.approx(accounted, abs=1e-3)


def test_scores_that_lie_apart() -> None:
    rng = np.random.default_rng(1)
    inserted = np.arange(4000) % 2 == 0
    assert separation(rng.normal(0, 2, 4000) + 3 * inserted, inserted) == pytest.approx(1.5, abs=0.1)
    assert separation(inserted * 1.0, inserted) == np.inf
    assert epsilon_of_separation(np.inf, 1e-5) == np.inf
    assert epsilon_of_separation(-1.0, 1e-5) == 0.0
    with pytest.raises(ValueError, match=naming("1 canaries", "two")):
        separation(np.array([1.0, 2.0, 3.0]), np.array([True, False, False]))


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match=naming("7 right", "6 guesses")):
        p_value(10, 6, 7, log(2), 0.0)
