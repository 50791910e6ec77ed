"""Monte Carlo accounting for balls in bins, against exact results."""

import itertools
from collections.abc import Callable
from math import exp, pi, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import binom, norm

from analysis.bounds.balls_in_bins import (
    BallsInBins,
    gaussian_delta,
    gaussian_epsilon,
    mean_at_most,
    square_root_coefficients,
    toeplitz_means,
)
from testbed.privacy.gaussian import SubsampledGaussianAccountant
from tests.thoroughness import examples

SAMPLES = 200_000
CONFIDENCE = 1 - 1e-6  # chance alone fails a test in no lifetime


def estimated(pair: BallsInBins, epsilon: float, samples: int = SAMPLES) -> tuple[float, float]:
    """Return the estimate of delta, and its upper bound."""
    found = pair.delta(epsilon, samples, CONFIDENCE, np.random.default_rng(3))
    return found.mean, found.at_most


def integrated(means: np.ndarray, sigma: float, epsilon: float) -> float:
    """delta of two bins in two rounds by numerical integration, the greater direction."""

    def densities(x: float, y: float) -> tuple[float, float]:
        point = np.array([x, y])
        here = [exp(-float(((point - mean) ** 2).sum()) / (2 * sigma**2)) for mean in (*means, np.zeros(2))]
        scale = 2 * pi * sigma**2
        return sum(here[:-1]) / (2 * scale), here[-1] / scale

    def beyond(y: float, x: float, back: bool) -> float:
        p, q = densities(x, y)
        return max(0.0, (q - exp(epsilon) * p) if back else (p - exp(epsilon) * q))

    ends = (-6 * sigma, float(means.max()) + 6 * sigma)
    return max(dblquad(beyond, *ends, *ends, (back,), epsabs=1e-7)[0] for back in (False, True))


@pytest.mark.parametrize(("column", "sigma"), [([1.0], 1.0), ([1.0, 0.6], 1.3)])
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_two_bins_match_numerical_integration(column: list[float], sigma: float, epsilon: float) -> None:
    means = toeplitz_means(column, 2, 2)
    exact = integrated(means, sigma, epsilon)
    mean, at_most = estimated(BallsInBins(means, sigma), epsilon)
    assert mean == pytest.approx(exact, rel=0.02)
    assert exact <= at_most < 1.1 * exact


@pytest.mark.parametrize("bins", [2, 16])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_one_round_is_the_sampled_gaussian_mechanism(bins: int, epsilon: float) -> None:
    """Only one bin has a round: the client is in it with probability 1/b. Zhu et al. 2022, arXiv 2106.08567."""
    means = np.zeros((bins, 1))
    means[0] = 1.0
    mean, at_most = estimated(BallsInBins(means, 0.8), epsilon)
    loss = lambda x: np.log1p((np.exp((2 * x - 1) / (2 * 0.64)) - 1) / bins)  # noqa: E731
    grid = np.linspace(-10, 12, 2_000_001)
    q, p = norm.pdf(grid, 0, 0.8), (norm.pdf(grid, 1, 0.8) + (bins - 1) * norm.pdf(grid, 0, 0.8)) / bins
    there = np.trapezoid(np.maximum(0, p - exp(epsilon) * q), grid)
    away = np.trapezoid(np.maximum(0, q - exp(epsilon) * p), grid)
    assert np.allclose(loss(grid[900_000:1_000_000]), np.log(p / q)[900_000:1_000_000])
    exact = max(there, away)
    assert mean == pytest.approx(exact, rel=0.03)
    assert exact <= at_most < 1.3 * exact


def test_one_bin_is_the_gaussian_mechanism() -> None:
    pair = BallsInBins(toeplitz_means([1.0, 0.5], 6, 1), 5.0)
    sensitivity = sqrt(float((np.convolve(np.ones(6), [1, 0.5])[:6] ** 2).sum())) / 5
    for epsilon in (0.1, 1.0, 3.0):
        mean, at_most = estimated(pair, epsilon)
        assert mean == pytest.approx(gaussian_delta(sensitivity, epsilon), rel=0.02)
        assert at_most > gaussian_delta(sensitivity, epsilon)
    assert verified(pair, 1e-5, 1000) == (gaussian_epsilon(sensitivity, 1e-5),) * 2
    assert gaussian_delta(sensitivity, gaussian_epsilon(sensitivity, 1e-5)) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(("bins", "rounds", "column"), [(4, 8, [1.0]), (5, 13, [1.0, 0.5, 0.375])])
def test_the_estimate_matches_plain_sampling(bins: int, rounds: int, column: list[float]) -> None:
    """The oracle draws outputs of the mechanism itself, all rounds of them, and evaluates both densities."""
    means, sigma, epsilon, rng = toeplitz_means(column, rounds, bins), 1.4, 0.8, np.random.default_rng(8)
    noise = sigma * rng.standard_normal((400_000, rounds))
    losses = []
    for centre in (means[rng.integers(0, bins, len(noise))], np.zeros(rounds)):
        output = noise + centre
        away = [-((output - mean) ** 2).sum(axis=1) / (2 * sigma**2) for mean in (*means, np.zeros(rounds))]
        losses.append(logsumexp(away[:-1], axis=0) - np.log(bins) - away[-1])
    there, away_ = np.maximum(0, -np.expm1(epsilon - losses[0])), np.maximum(0, -np.expm1(epsilon + losses[1]))
    plain = max(there.mean(), away_.mean())
    error = 5 * max(there.std(), away_.std()) / sqrt(len(noise))
    mean, at_most = estimated(BallsInBins(means, sigma), epsilon)
    assert abs(mean - plain) < error + 0.02 * plain
    assert at_most > plain - error


def verified(pair: BallsInBins, delta: float, samples: int = SAMPLES) -> tuple[float, float]:
    """Return the estimated epsilon, and a verified one."""
    drawn = pair.drawn_epsilon(delta, samples // 4)
    return drawn, pair.epsilon(drawn, delta, samples, 0.999, np.random.default_rng(2))


def test_small_deltas_are_estimated_as_well_as_large_ones() -> None:
    """Where plain sampling would see nothing."""
    pair = BallsInBins(toeplitz_means([1.0], 16, 4), 2.0)
    found = [estimated(pair, epsilon) for epsilon in (1.0, 3.0, 6.0)]
    assert found[-1][0] < 1e-12
    for mean, at_most in found:
        assert 0 < mean < at_most < 20 * mean


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_epsilon_is_between_its_bounds(sigma: float) -> None:
    """With little noise, hiding the bins lowers epsilon by log b at most, as an observer can guess them."""
    pair, rng = BallsInBins(toeplitz_means([1.0], 24, 6), sigma), np.random.default_rng(9)
    drawn, found = verified(pair, 1e-5)
    assert drawn <= found < pair.seen_epsilon(1e-5)
    assert found < 1.1 * drawn
    assert pair.delta(drawn * 0.97, SAMPLES, CONFIDENCE, rng).mean > 1e-5 > pair.delta(found, SAMPLES, 0.5, rng).mean
    if sigma == 0.5:
        assert found == pytest.approx(pair.seen_epsilon(1e-5) - np.log(6), rel=0.02)


def test_with_much_noise_it_is_near_poisson_sampling_and_with_little_it_is_not() -> None:
    """The bins are thrown once: where a client's rounds add up to much, they are found out."""
    ratios = []
    for sigma in (0.8, 4.0):
        drawn, _ = verified(BallsInBins(toeplitz_means([1.0], 40, 10), sigma), 1e-5, 40_000)
        ratios.append(drawn / SubsampledGaussianAccountant(sigma, 1 / 10).epsilon({1.0: 40}, 1e-5))
    assert ratios[0] > 1.4
    assert ratios[1] < 1.3


def test_in_one_cycle_it_costs_about_as_little_as_poisson_sampling() -> None:
    """Chua et al., arXiv 2412.16802, section 1: similar or better; here is nothing thrown twice."""
    drawn, found = verified(BallsInBins(toeplitz_means([1.0], 10, 10), 0.7), 1e-4)
    poisson = SubsampledGaussianAccountant(0.7, 1 / 10).epsilon({1.0: 10}, 1e-4)
    assert drawn < 1.05 * poisson
    assert found < 1.3 * poisson


@pytest.mark.parametrize("means", [np.zeros((3, 4)), np.ones(3), np.full((1, 1), -1.0), np.full((1, 1), np.inf)])
def test_means_that_are_no_contributions_are_refused(means: npt.NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="means"):
        BallsInBins(means, 1.0)


def test_more_bins_or_noise_cost_less_and_correlation_more() -> None:
    def cost(bins: int, sigma: float, bands: int = 1) -> float:
        return verified(BallsInBins(toeplitz_means(square_root_coefficients(bands), 24, bins), sigma), 1e-4, 40_000)[0]

    assert cost(4, 1.0) > cost(8, 1.0)
    assert cost(4, 1.0) > cost(4, 2.0)
    assert cost(4, 1.0) < cost(4, 1.0, 4)


@given(rounds=st.integers(1, 20), bins=st.integers(1, 6), bands=st.integers(1, 25))
@settings(max_examples=examples(40))
def test_means_are_those_of_the_matrix(rounds: int, bins: int, bands: int) -> None:
    column = square_root_coefficients(bands)
    strategy = np.zeros((rounds, rounds))
    for row, place in itertools.product(range(rounds), repeat=2):
        if 0 <= row - place < bands:
            strategy[row, place] = column[row - place]
    if bins > rounds:
        with pytest.raises(ValueError, match=f"separation: {bins} of {rounds} rounds"):
            toeplitz_means(column, rounds, bins)
        return
    of_bins = np.stack([strategy[:, first::bins].sum(axis=1) for first in range(bins)])
    assert np.allclose(of_bins, toeplitz_means(column, rounds, bins), rtol=1e-14)
    if bands >= rounds:
        assert np.allclose(strategy @ strategy, np.tril(np.ones((rounds, rounds))))  # its square is the prefix sums


@pytest.mark.parametrize(("rounds", "bins", "sigma"), [(10, 10, 0.8), (100, 10, 3.0), (200, 20, 2.0)])
def test_epsilons_are_those_of_numerical_convolution(rounds: int, bins: int, sigma: float) -> None:
    """With independent noise b e^L is a sum of b independent lognormals, one of them shifted; the oracle convolves."""
    deviation, cells, most = sqrt(rounds / bins) / sigma, 1 << 19, 4e4
    with np.errstate(divide="ignore"):
        normal = (np.log(np.linspace(0, most, cells + 1)) + deviation**2 / 2) / deviation
    others, own = (np.fft.rfft(np.diff(ndtr(normal - shift)), 2 * cells) for shift in (0, deviation))
    mass = own
    for _ in range(bins - 1):  # mass beyond the grid counts as lost altogether
        mass = np.fft.rfft(np.fft.irfft(mass * others, 2 * cells)[:cells], 2 * cells)
    mass = np.maximum(np.fft.irfft(mass, 2 * cells)[:cells], 0)
    loss = np.log((np.arange(cells) + bins / 2) * (most / cells) / bins)

    def excess(epsilon: float) -> float:
        return float((mass * np.maximum(0, -np.expm1(np.minimum(epsilon - loss, 0)))).sum()) + 1 - mass.sum() - 1e-6

    exact = brentq(excess, 0.1, 12)
    pair = BallsInBins(toeplitz_means([1.0], rounds, bins), sigma)
    drawn, found = verified(pair, 1e-6, 200_000)
    assert drawn == pytest.approx(exact, rel=0.02)
    assert pair.least_epsilon(1e-6) < exact < found < 1.35 * exact


@pytest.mark.parametrize(("bins", "sigma", "column"), [(2, 1.0, [1.0]), (10, 3.0, [1.0]), (6, 4.0, [1.0, 0.5, 0.375])])
def test_no_epsilon_is_below_the_cost_of_one_bin(bins: int, sigma: float, column: list[float]) -> None:
    """Also where delta is so small that a few samples see nothing of it."""
    pair = BallsInBins(toeplitz_means(column, 60, bins), sigma)
    for delta in (1e-5, 1e-30, 1e-100):
        least = pair.least_epsilon(delta)
        assert least <= pair.drawn_epsilon(delta, 2000) <= pair.seen_epsilon(delta) * 1.01
        estimate = pair.delta(least, 400_000, 0.999, np.random.default_rng(4))
        assert estimate.at_most >= delta
        assert delta < 1e-9 or estimate.mean > 0.9 * delta
    assert pair.least_epsilon(0.6) == 0


@given(mean=st.floats(0, 1), samples=st.integers(1, 10**6), failing=st.floats(1e-9, 0.5))
@settings(max_examples=examples(60))
def test_chernoffs_bound_is_no_less_than_the_mean(mean: float, samples: int, failing: float) -> None:
    assert mean <= mean_at_most(mean, samples, failing) <= 1


def test_chernoffs_bound_fails_as_rarely_as_it_says() -> None:
    """Exactly, for coins: the chance that the bound from k heads of n lies below their rate."""
    samples, failing = 60, 0.05
    bounds = np.array([mean_at_most(heads / samples, samples, failing) for heads in range(samples + 1)])
    for rate in (0.02, 0.1, 0.5, 0.9):
        missed = binom.pmf(np.flatnonzero(bounds < rate), samples, rate).sum()
        assert missed <= failing
    assert binom.pmf(np.flatnonzero(bounds < 0.5), samples, 0.5).sum() > failing / 50  # and is not empty


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: toeplitz_means([0.0, 1.0], 3, 2), "coefficients: the first must be above 0"),
        (lambda: BallsInBins(np.ones((2, 2)), 0.0), "noise_multiplier: 0.0; must be above 0"),
        (lambda: BallsInBins(-np.ones((2, 2)), 1.0), "means: an array"),
    ],
)
def test_unproven_arguments_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
