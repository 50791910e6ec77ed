"""How likely a round finds enough clients, against the binomial distribution of scipy."""

import pytest
from scipy.stats import binom

from testbed.selection.supply import at_least


@pytest.mark.parametrize("chance", [0.0, 1e-6, 0.02, 0.3, 0.999999, 1.0])
@pytest.mark.parametrize("trials", [1, 10, 1000, 4999, 6000])
@pytest.mark.parametrize("count", [0, 1, 10, 200, 7000])
def test_the_probability_is_the_binomial_tail(count: int, trials: int, chance: float) -> None:
    assert at_least(count, trials, chance) == pytest.approx(float(binom.sf(count - 1, trials, chance)), abs=1e-10)
