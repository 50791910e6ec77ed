"""Composed rounds of DP-SGD against Microsoft's accountant of privacy random variables, which states its own errors.

Gopi, Lee, Wutschitz, Numerical Composition of Differential Privacy, NeurIPS 2021, arXiv 2106.02848: discretised
at the centres of cells, with an error of at most `EPSILON_ERROR` in epsilon (Theorem 5.5); dp_accounting rounds losses
up on a fixed grid. A pair of neighbouring data sets has two directions: dp_accounting takes the costlier one,
Microsoft's code the mixture with the sample against the noise alone. In these settings the other direction costs no
more, since the costlier of both is within Microsoft's bounds.
"""

from math import exp, log, log1p
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from testbed.privacy.gaussian import INTERVAL, SubsampledGaussianAccountant

prv_accountant = pytest.importorskip("prv_accountant", reason="needs prv_accountant: make oracles")

EPSILON_ERROR = 0.01
DELTA_ERROR = 1e-3  # of delta

# noise multiplier, sample rate, rounds, delta
GRID = [
    (1.0, 0.01, 1, 1e-5),
    (1.0, 0.01, 1000, 1e-5),
    (1.1, 0.00256, 10_000, 1e-5),
    pytest.param(0.7, 0.001, 5000, 1e-10, marks=pytest.mark.slow),
    (2.0, 0.1, 100, 1e-6),
    (5.0, 0.5, 10, 1e-10),
    (0.6, 0.2, 1, 1e-6),
    (1.2, 1e-5, 3000, 1e-6),
    (1.0, 1e-4, 1, 1e-6),
    (1.0, 1.0, 1, 1e-5),
    (3.0, 1.0, 50, 1e-10),
    (50.0, 1.0, 4000, 1e-6),
]


def random_variable(noise: float, sample_rate: float) -> Any:
    if sample_rate == 1:
        return prv_accountant.GaussianMechanism(noise)
    return prv_accountant.PoissonSubsampledGaussianMechanism(sample_rate, noise)


def bounds(variables: list[Any], rounds: list[int], delta: float) -> tuple[float, float, float]:
    """Return Microsoft's lower bound on epsilon, its estimate and its upper bound."""
    accountant = prv_accountant.PRVAccountant(
        variables, max_self_compositions=rounds, eps_error=EPSILON_ERROR, delta_error=DELTA_ERROR * delta
    )
    lower, estimate, upper = accountant.compute_epsilon(delta, rounds)
    return float(lower), float(estimate), float(upper)


@pytest.mark.parametrize(("noise", "sample_rate", "rounds", "delta"), GRID)
def test_epsilon_lies_between_microsofts_bounds(noise: float, sample_rate: float, rounds: int, delta: float) -> None:
    lower, estimate, upper = bounds([random_variable(noise, sample_rate)], [rounds], delta)
    ours = SubsampledGaussianAccountant(noise, sample_rate).epsilon({1.0: rounds}, delta)
    assert lower <= ours <= upper
    # In truth closer than the error bound. `test_the_grid_is_too_coarse_for_tiny_rates_and_errs_upwards` has the most.
    assert ours == pytest.approx(estimate, abs=0.003)


@pytest.mark.parametrize(
    "parts", [{1.0: 20, 0.5: 10}, {1.0: 1, 0.9: 30, 0.25: 2}, {0.5: 1}], ids=lambda parts: str(len(parts))
)
def test_rounds_with_different_shares_of_the_noise(parts: dict[float, int]) -> None:
    variables = [random_variable(1.5 * np.sqrt(share), 0.05) for share in parts]
    lower, estimate, upper = bounds(variables, list(parts.values()), 1e-6)
    ours = SubsampledGaussianAccountant(1.5, 0.05).epsilon(parts, 1e-6)
    assert lower <= ours <= upper
    assert ours == pytest.approx(estimate, abs=0.003)


@pytest.mark.parametrize(
    ("client_rate", "noise", "sample_rate", "rounds", "delta"),
    [
        (1.0, 1.2, 0.01, 200, 1e-6),
        (0.1, 1.2, 0.01, 200, 1e-6),
        (0.1, 1.0, 0.1, 300, 1e-10),
        (0.01, 1.0, 1.0, 500, 1e-5),
    ],
)
def test_rounds_in_which_the_client_takes_part_by_chance(
    client_rate: float, noise: float, sample_rate: float, rounds: int, delta: float
) -> None:
    """The mixture of a round with the client and of one without, by Microsoft's composition."""

    class Mixture(prv_accountant.PrivacyRandomVariable):  # type: ignore[name-defined]
        with_client = random_variable(noise, sample_rate)

        def cdf(self, t: Any) -> Any:
            return client_rate * self.with_client.cdf(t) + (1 - client_rate) * (np.asarray(t) >= 0)

        def rdp(self, alpha: float) -> float:
            of_client = (alpha - 1) * float(self.with_client.rdp(alpha))
            absent = log1p(-client_rate) if client_rate < 1 else -np.inf
            return float(np.logaddexp(log(client_rate) + of_client, absent)) / (alpha - 1)

    lower, estimate, upper = bounds([Mixture()], [rounds], delta)
    ours = SubsampledGaussianAccountant(noise, sample_rate, client_rate).epsilon({1.0: rounds}, delta)
    assert lower <= ours <= upper
    assert ours == pytest.approx(estimate, abs=0.003)


@pytest.mark.parametrize(("noise", "sample_rate", "rounds", "delta"), GRID)
def test_epsilon_is_that_of_dp_accounting_for_the_same_events(
    noise: float, sample_rate: float, rounds: int, delta: float
) -> None:
    """Google's events name the mechanism instead of its distributions; Rényi divergences only bound it from above."""
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise)), rounds
    )
    ours = SubsampledGaussianAccountant(noise, sample_rate).epsilon({1.0: rounds}, delta)
    assert ours == pytest.approx(
        PLDAccountant(value_discretization_interval=INTERVAL).compose(event).get_epsilon(delta)
    )
    assert ours <= RdpAccountant().compose(event).get_epsilon(delta)


def test_the_grid_is_too_coarse_for_tiny_rates_and_errs_upwards() -> None:
    """At a rate of 1e-5 the losses of a round are below one step of 1e-4: epsilon is 0.0025 too large after 3,000."""
    ours = SubsampledGaussianAccountant(1.2, 1e-5).epsilon({1.0: 3000}, 1e-6)
    fine = from_gaussian_mechanism(1.2, sampling_prob=1e-5, value_discretization_interval=1e-6)
    finer = fine.self_compose(3000).get_epsilon_for_delta(1e-6)
    assert finer < ours < finer + 0.003
    # One round, exactly: delta of the direction in which the sample is there, by hand.
    rate, noise, epsilon = 1e-4, 1.0, SubsampledGaussianAccountant(1.0, 1e-4).epsilon({1.0: 1}, 1e-6)
    assert exact_delta(noise, rate, epsilon) <= 1e-6 < exact_delta(noise, rate, epsilon - INTERVAL)


def exact_delta(noise: float, rate: float, epsilon: float) -> float:
    """Return delta of one round, of N(0, z^2) mixed with N(1, z^2) from N(0, z^2), in FLINT's arithmetic."""
    flint = pytest.importorskip("flint", reason="needs python-flint: make oracles")
    threshold = noise**2 * log((exp(epsilon) - 1 + rate) / rate) + 0.5  # the mixture is e^epsilon times as dense there

    def beyond(mean: float) -> Any:
        return (flint.arb((threshold - mean) / noise) / flint.arb(2).sqrt()).erfc() / 2

    return float(flint.arb(rate) * beyond(1.0) + (flint.arb(1 - rate) - flint.arb(epsilon).exp()) * beyond(0.0))
