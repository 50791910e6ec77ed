"""Clients in secret bins against JAX-Privacy's Monte Carlo accounting, which draws losses without any splitting."""

import numpy as np
import pytest

from analysis.bounds.balls_in_bins import BallsInBins, toeplitz_means

pytest.importorskip("jax_privacy", reason="needs jax-privacy: make oracles")
from jax_privacy.batch_selection import BallsInBinsSampling
from jax_privacy.experimental.monte_carlo import sample_generation

SAMPLES = 4_000
DEVIATIONS = 5.0  # of both estimates: a chance of 6e-7 for each comparison, with fixed seeds

# coefficients of C, rounds, bins, noise multiplier, epsilon
GRID = [
    ([1.0], 1, 1, 1.0, 0.5),
    ([1.0], 8, 4, 1.0, 0.5),
    ([1.0], 60, 10, 1.5, 0.2),
    ([1.0], 10, 10, 0.5, 1.0),
    ([1.0, 0.5, 0.375], 24, 6, 1.5, 0.5),
    ([1.0, 0.5, 0.375, 0.3125], 40, 4, 2.0, 1.0),
    ([1.0, 1.0], 7, 3, 3.0, 0.1),
]


@pytest.mark.parametrize(("coefficients", "rounds", "bins", "noise", "epsilon"), GRID)
def test_delta_is_that_of_plain_draws(
    coefficients: list[float], rounds: int, bins: int, noise: float, epsilon: float
) -> None:
    of_direction = []
    for positive in (True, False):
        losses, _ = sample_generation.get_privacy_loss_sample(
            BallsInBinsSampling(rounds, bins), noise, np.array(coefficients), 7, positive, SAMPLES
        )
        # The part of the probability that e^epsilon times the other side's does not cover.
        values = np.maximum(0.0, -np.expm1(epsilon - np.asarray(losses)))
        of_direction.append((float(values.mean()), float(values.std()) / SAMPLES**0.5))
    mean, deviation = max(of_direction)
    pair = BallsInBins(toeplitz_means(coefficients, rounds, bins), noise)
    estimate = pair.delta(epsilon, 80 * SAMPLES, 0.99, np.random.default_rng(3))
    assert estimate.mean == pytest.approx(mean, abs=DEVIATIONS * 1.1 * deviation)
    assert estimate.at_most >= mean - DEVIATIONS * deviation
    assert deviation < 0.1 * mean  # else nothing was compared
