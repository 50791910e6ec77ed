"""Gaussian noise and coins from a key stream: distributed as they should be, and a function of the seed."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, norm

from testbed.aggregation.dp_sgd_random_participation import _LARGEST_SIGMA
from testbed.privacy.gaussian import GRID, coins, gaussian, with_noise

SUSPICIOUS = 1e-4
SEED = bytes(range(32))


def test_it_is_a_standard_normal_distribution() -> None:
    drawn = gaussian(SEED, 400_001)
    assert len(drawn) == 400_001
    assert kstest(drawn, norm.cdf).pvalue > SUSPICIOUS
    for beyond in (3.0, 4.0):  # tails that a test of the whole distribution does not see
        count = int((np.abs(drawn) > beyond).sum())
        assert binomtest(count, len(drawn), 2 * norm.sf(beyond)).pvalue > SUSPICIOUS
    # Both numbers of a pair are independent, and so are neighbours.
    for other in (np.roll(drawn, 1), np.roll(drawn, 200_001)):
        assert abs(np.corrcoef(drawn, other)[0, 1]) < 5 / math.sqrt(len(drawn))
        assert abs(np.corrcoef(drawn**2, other**2)[0, 1]) < 5 / math.sqrt(len(drawn))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_any_count_is_possible(count: int) -> None:
    assert len(gaussian(SEED, count)) == count


def test_it_is_a_function_of_the_seed() -> None:
    assert gaussian(SEED, 9).tobytes() == gaussian(SEED, 9).tobytes()
    assert not np.isin(gaussian(bytes(32), 9), gaussian(SEED, 9)).any()


def test_values_and_noise_are_added_exactly_on_one_grid() -> None:
    values = np.random.default_rng(1).normal(0, 3, 5000).astype(np.float32)
    plain, noisy = with_noise(values, 0.0, SEED), with_noise(values, 2.5, SEED)
    assert np.abs(plain - values).max() <= GRID / 2
    for found in (plain / GRID, noisy / GRID, (noisy - plain) / GRID):
        assert (found == np.rint(found)).all()
    # The added noise does not depend on the value: the last bits do not reveal it.
    assert ((noisy - plain) == with_noise(np.zeros(5000), 2.5, SEED)).all()
    assert kstest((noisy - plain) / 2.5, norm.cdf).pvalue > SUSPICIOUS


def test_the_largest_noise_is_exact_for_all_values() -> None:
    """The noise alone is on the grid and below 2**21, so that float64 holds it and its sum with any such value."""
    noise = with_noise(np.zeros(100_000), _LARGEST_SIGMA, SEED)
    assert 8.57 * _LARGEST_SIGMA + 2**19 < 2**21
    assert (noise / GRID == np.rint(noise / GRID)).all()
    assert (np.unique(noise / GRID % 2) == [0, 1]).all()  # the last bit is there
    values = np.random.default_rng(2).uniform(-(2**19), 2**19, 100_000).astype(np.float32)
    assert (with_noise(values, _LARGEST_SIGMA, SEED) - np.rint(values / GRID) * GRID == noise).all()


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.3, 1.0])
def test_coins_fall_at_their_rate(rate: float) -> None:
    fallen = coins(SEED, 200_000, rate)
    assert binomtest(int(fallen.sum()), len(fallen), rate).pvalue > SUSPICIOUS
    if 0 < rate < 1:
        both = int((fallen[1:] & fallen[:-1]).sum())
        assert binomtest(both, len(fallen) - 1, rate**2).pvalue > SUSPICIOUS
