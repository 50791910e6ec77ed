"""Skellam and discrete Gaussian noise against exact loss distributions of dp_accounting and SciPy's probabilities.

The theorems behind the accountants bound Rényi divergences, so their epsilons are upper bounds. In one dimension the
exact distribution of the loss is at hand: no bound may be below its epsilon, and the bounds of the theorems are loose
by a stated factor.
"""

from math import isclose, sqrt

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_discrete_gaussian_mechanism,
    from_two_probability_mass_functions,
)
from dp_accounting.pld.privacy_loss_mechanism import DiscreteGaussianPrivacyLoss
from scipy import stats
from scipy.special import ive, logsumexp

from testbed.arrays import Floats
from testbed.privacy.accounting import ORDERS, REAL_ORDERS, DiscreteGaussian, RoundedAccountant, Skellam
from testbed.privacy.sampling import Mechanism, table_of

STEP = 1e-4
# noise multiplier, steps to the clip, rounds, delta
GRID = [
    (1.0, 4, 1, 1e-5),
    (10.0, 3, 1, 1e-5),
    (1.0, 50, 10, 1e-6),
    (4.0, 20, 1, 1e-10),
    (0.5, 64, 1, 1e-5),
    (2.0, 16, 1000, 1e-6),
    pytest.param(3.0, 100, 3000, 1e-10, marks=pytest.mark.slow),
]
LOOSE_GAUSSIAN, LOOSE_SKELLAM, LOOSE_SUM, LOOSE_ORDER_8 = 1.11, 1.36, 1.85, 1.61
"""Largest ratios of bound and exact epsilon: conversion from Rényi divergences; also Theorem 3.5's term beyond the
Gaussian's; also tau, largest for shares of a deviation of half a step. And of the theorem's divergence and the exact
one, up to order 8 and for noise of a deviation of 4 steps; from 30 steps on it is 1.06.
"""


def epsilon_of(losses: PrivacyLossDistribution, rounds: int, delta: float) -> float:
    return float(losses.self_compose(rounds).get_epsilon_for_delta(delta))


def exact_losses(logarithms: Floats, shift: int) -> PrivacyLossDistribution:
    """Return the losses of noise on integers from the same noise with a contribution, rounded down to steps.

    Args:
        logarithms: of the probabilities of -K, ..., K.
        shift: the contribution. Outcomes of only one of the two distributions have less than 1e-30 of the probability,
            and are left out.
    """
    half = len(logarithms) // 2
    noise = dict(zip(range(-half, half + 1), logarithms.tolist(), strict=True))
    # Below e^-100 a sum of all of them is no part of any delta; below e^-690 doubles have fewer digits.
    common = [place for place in range(-half + shift, half + 1) if noise[place - shift] > -100 and noise[place] > -690]
    return from_two_probability_mass_functions(
        {place: noise[place] for place in common},
        {place: noise[place - shift] for place in common},
        pessimistic_estimate=False,
        value_discretization_interval=STEP,
    )


@pytest.mark.parametrize(("multiplier", "scale", "rounds", "delta"), GRID)
def test_discrete_gaussian_in_one_dimension(multiplier: float, scale: int, rounds: int, delta: float) -> None:
    mechanism = DiscreteGaussian(multiplier, 1, scale, 0.0)
    contribution = mechanism.sensitivities[1]
    assert contribution == scale + 1  # rounding adds up to one step
    exact = from_discrete_gaussian_mechanism(
        sqrt(mechanism.variance(1.0)), int(contribution), value_discretization_interval=STEP
    )
    ours, least = epsilon_of_bound(mechanism, rounds, delta), epsilon_of(exact, rounds, delta)
    assert least <= ours <= LOOSE_GAUSSIAN * least


def epsilon_of_bound(mechanism: DiscreteGaussian, rounds: int, delta: float) -> float:
    return RoundedAccountant(mechanism).epsilon({1.0: rounds}, delta)


def skellam_logarithms(variance: float) -> Floats:
    """Return the logarithms of the probabilities of -K, ..., K: exp(-v) I_k(v), as far out as doubles reach.

    By SciPy's Bessel functions: its own distribution `skellam` has no right digits some ten deviations out.
    """
    probabilities = ive(np.arange(int(40 * sqrt(variance)) + 60), variance)
    one_sided = np.log(probabilities[probabilities > 1e-300])
    return np.concatenate((one_sided[:0:-1], one_sided))


@pytest.mark.parametrize(("multiplier", "scale", "rounds", "delta"), GRID)
def test_skellam_in_one_dimension(multiplier: float, scale: int, rounds: int, delta: float) -> None:
    mechanism = Skellam(multiplier, 1, scale, 0.0)
    contribution, variance = int(mechanism.sensitivities[1]), mechanism.variance(1.0)
    losses = exact_losses(skellam_logarithms(variance), contribution)
    exact = epsilon_of(losses, rounds, delta)
    assert exact <= mechanism.epsilon(rounds, delta) <= LOOSE_SKELLAM * exact


@pytest.mark.parametrize(("multiplier", "scale"), [(1.0, 4), (10.0, 3), (1.0, 50), (0.5, 64), (3.0, 100)])
def test_divergences_in_one_dimension(multiplier: float, scale: int) -> None:
    """The discrete Gaussian's are the Gaussian's at integer orders; Skellam's are smaller, the theorem's larger."""
    skellam, gaussian = Skellam(multiplier, 1, scale, 0.0), DiscreteGaussian(multiplier, 1, scale, 0.0)
    contribution, variance = int(skellam.sensitivities[1]), skellam.variance(1.0)
    symmetric = skellam_logarithms(variance)
    half = len(symmetric) // 2
    for order in (2, 3, 5, 8):
        exact = divergence(symmetric, contribution, order)
        bound = skellam.divergences()[ORDERS.index(order)]
        of_gaussian = gaussian.divergences()[REAL_ORDERS.index(order)]
        assert exact < of_gaussian < bound < LOOSE_ORDER_8 * exact
        discrete = -(np.arange(-half, half + 1) ** 2) / (2 * variance)
        assert divergence(discrete - logsumexp(discrete), contribution, order) == pytest.approx(of_gaussian, rel=1e-9)


def divergence(logarithms: Floats, shift: int, order: int) -> float:
    """Return the Rényi divergence of noise with a contribution from the same noise.

    Args:
        logarithms: of the probabilities of -K, ..., K.
        shift: the contribution.
        order: above 1.
    """
    with_one, without = logarithms[:-shift], logarithms[shift:]
    return float(logsumexp(order * with_one + (1 - order) * without)) / (order - 1)


@pytest.mark.parametrize(
    ("participants", "of_one", "rounds"), [(2, 0.25, 1), (2, 1.0, 1), (10, 1.0, 1), (100, 0.25, 1), (100, 4.0, 20)]
)
def test_sums_of_discrete_gaussians(participants: int, of_one: float, rounds: int) -> None:
    """The exact distribution of the sum of shares, which is no discrete Gaussian."""
    scale = 8
    multiplier = sqrt(participants * of_one) / scale
    mechanism = DiscreteGaussian(multiplier, 1, scale, 0.0, participants=participants)
    share = masses_of(of_one)
    total = share
    for _ in range(participants - 1):
        total = np.convolve(total, share)
    with np.errstate(divide="ignore"):
        losses = exact_losses(np.log(total), scale + 1)
    exact = epsilon_of(losses, rounds, 1e-6)
    ours = epsilon_of_bound(mechanism, rounds, 1e-6)
    assert exact <= ours <= LOOSE_SUM * exact


def masses_of(variance: float) -> Floats:
    """Return the probabilities of a discrete Gaussian, from their definition."""
    half = int(14 * sqrt(variance)) + 14
    places = np.arange(-half, half + 1)
    weights = np.exp(-(places**2) / (2 * variance))
    masses: Floats = weights / weights.sum()
    return masses


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("variance", [2.0**-32, 0.01, 0.25, 1.0, 7.3, 4096.0, 1e6])
def test_tables_of_probabilities(mechanism: Mechanism, variance: float) -> None:
    table = table_of(mechanism, variance).masses
    magnitudes = np.arange(len(table))
    if mechanism == "skellam":
        one_sided = stats.skellam.pmf(magnitudes, variance / 2, variance / 2)
    else:
        of_google = DiscreteGaussianPrivacyLoss(sqrt(variance), 1)
        one_sided = of_google.noise_cdf(magnitudes) - of_google.noise_cdf(magnitudes - 1)
    both = one_sided * np.where(magnitudes == 0, 1, 2)
    for ours, theirs in zip(table, both.tolist(), strict=True):
        # SciPy's Skellam has about 11 digits, differences of Google's distribution function 16 places.
        assert isclose(float(ours), theirs, rel_tol=1e-9, abs_tol=1e-14)
