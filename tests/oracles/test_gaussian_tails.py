"""Epsilon of the Gaussian mechanism against FLINT's balls, which enclose the true value of every expression."""

from typing import Any

import numpy as np
import pytest

from analysis.bounds.balls_in_bins import gaussian_epsilon as of_bins
from analysis.bounds.random_participation import gaussian_delta as of_pairs
from analysis.privacy.guesses import epsilon_of_separation
from testbed.privacy.matrix.accounting import gaussian_delta, gaussian_epsilon

flint = pytest.importorskip("flint", reason="needs python-flint: make oracles")

MUS = [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 40.0]
ROUNDING = 1e-10
"""Relative error of delta in doubles: the difference of two tails that are nearly equal for small mu."""
DELTAS = [1e-15, 1e-10, 1e-6, 1e-5, 1e-3, 0.1, 0.5]


def exact_delta(mu: float, epsilon: float) -> Any:
    """Return delta, enclosed (Balle and Wang, arXiv 1805.06530, Theorem 8)."""
    flint.ctx.prec = 200
    own, at, root = flint.arb(mu), flint.arb(epsilon), flint.arb(2).sqrt()

    def normal(x: Any) -> Any:
        return (-x / root).erfc() / 2

    return normal(own / 2 - at / own) - at.exp() * normal(-own / 2 - at / own)


@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_the_least_that_holds(delta: float) -> None:
    """The enclosure of delta is below the asked one, up to `ROUNDING`; an epsilon smaller by 1e-8 does not hold."""
    for mu, epsilon in zip(MUS, gaussian_epsilon(np.array(MUS), delta).tolist(), strict=True):
        if epsilon == 0:
            assert exact_delta(mu, 0.0) <= delta
            continue
        assert exact_delta(mu, epsilon) <= delta * (1 + ROUNDING)
        assert exact_delta(mu, epsilon * (1 - 1e-8)) > delta
        assert epsilon <= of_bins(mu, delta) <= epsilon * (1 + 1e-8)
        assert epsilon_of_separation(mu, delta) == pytest.approx(epsilon, rel=1e-7, abs=2e-9)


@pytest.mark.parametrize("mu", MUS)
def test_delta_has_no_cancellation(mu: float) -> None:
    epsilons = np.array([0.0, 1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0])
    other = of_pairs(epsilons, mu).tolist()
    for place, delta in enumerate(gaussian_delta(epsilons, np.full(len(epsilons), mu)).tolist()):
        exact = float(exact_delta(mu, float(epsilons[place])))
        # Below 1e-300 doubles have fewer digits.
        assert delta == pytest.approx(exact, rel=1e-9, abs=1e-300)
        assert other[place] == pytest.approx(exact, rel=1e-9, abs=1e-300)
