"""The least noise of any round, against the share of every size that a round may have."""

from typing import Any

import pytest

from testbed.aggregation.plain import PlainParameters
from testbed.aggregation.secagg.server import SecAggParameters
from testbed.aggregation.secagg_plus.server import SecAggPlusParameters
from testbed.engine.planned_privacy import least_noise

NOISY: Any = {"weights": "equal", "noise": {"noise_multiplier": 1.0}}
REMOVED: Any = {
    "weights": "equal",
    "noise": {"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 30}},
}


def least(parameters: Any, minimum: int, maximum: int) -> float:
    return least_noise(parameters, minimum, maximum)


def of_each(parameters: Any, minimum: int, maximum: int) -> float:
    found = [1.0]
    for size in range(minimum, maximum + 1):
        try:
            found.append(parameters.least_noise(size))
        except ValueError:
            continue
    return min(found)


@pytest.mark.parametrize(
    ("parameters", "minimum", "maximum"),
    [
        (SecAggParameters(threshold=0.7, **NOISY), 2, 99),
        (SecAggParameters(threshold=0.7, **NOISY), 11, 19),
        (SecAggParameters(threshold=0.7, **NOISY), 13, 13),
        (SecAggParameters(threshold=55, **NOISY), 60, 99),
        (SecAggParameters(threshold=0.501, **NOISY), 2, 9_999),
        (SecAggParameters(threshold=0.6, **REMOVED), 31, 300),
        (SecAggPlusParameters(dropouts=0.2, **NOISY), 2, 260),
        (PlainParameters(), 2, 3_000),
    ],
)
def test_it_is_that_of_the_worst_size(parameters: Any, minimum: int, maximum: int) -> None:
    assert least(parameters, minimum, maximum) == of_each(parameters, minimum, maximum)


def test_neither_end_of_the_range_need_be_the_worst() -> None:
    parameters = SecAggParameters(threshold=0.7, **NOISY)
    assert least(parameters, 11, 33) == parameters.least_noise(20) == 0.7
    assert parameters.least_noise(11) > 0.7
    assert parameters.least_noise(33) > 0.7


@pytest.mark.parametrize("threshold", [0.7, 0.6667, 20_000])
def test_among_very_large_sums_it_is_bounded_closely(threshold: float) -> None:
    parameters = SecAggParameters(threshold=threshold, **NOISY)
    exact = of_each(parameters, 20_001, 30_000)
    assert 0.997 * exact <= least(parameters, 20_001, 30_000) <= exact
    assert 0.997e-6 <= least(PlainParameters(), 2, 10**6) <= 1e-6
