"""The least noise of any round, against the share of every size that a round may have."""

from typing import Any

import pytest

from testbed.aggregation.plain import PlainParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.engine.registry import aggregation_protocol
from testbed.privacy.noise_plan import NoisePlan

NOISY: Any = {"weights": "equal", "noise": {"noise_multiplier": 1.0}}
REMOVED: Any = {
    "weights": "equal",
    "noise": {"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 30}},
}


def least(parameters: Any, minimum: int, maximum: int) -> float:
    accountant: Any = None  # not asked
    return NoisePlan(accountant, aggregation_protocol(parameters).guarantees, minimum, maximum).min_share


def of_each(parameters: Any, minimum: int, maximum: int) -> float:
    found, protocol = [1.0], aggregation_protocol(parameters)
    for size in range(minimum, maximum + 1):
        try:
            found.append(protocol.guarantees(size).min_noise_share)
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
    protocol = SecAgg(parameters)
    assert least(parameters, 11, 33) == protocol.guarantees(20).min_noise_share == 0.7
    assert protocol.guarantees(11).min_noise_share > 0.7
    assert protocol.guarantees(33).min_noise_share > 0.7


@pytest.mark.parametrize("threshold", [0.7, 0.6667, 20_000])
def test_among_very_large_sums_it_is_bounded_closely(threshold: float) -> None:
    parameters = SecAggParameters(threshold=threshold, **NOISY)
    exact = of_each(parameters, 20_001, 30_000)
    assert 0.997 * exact <= least(parameters, 20_001, 30_000) <= exact
    assert 0.997e-6 <= least(PlainParameters(), 2, 10**6) <= 1e-6
