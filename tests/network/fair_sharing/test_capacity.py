"""Do rates add up to more than a capacity? Decided by a quick sum as by an exact one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.fair_sharing.transfers import exceeds

rates = st.lists(st.floats(0, 1e12), max_size=50)


def exactly(numbers: np.ndarray, capacity: float) -> bool:
    return math.fsum(numbers.tolist()) > capacity


@given(rates, st.floats(0, 1e13), st.integers(1, 40))
def test_as_the_exact_sum_says(numbers: list[float], capacity: float, repeats: int) -> None:
    array = np.array(numbers * repeats)
    assert exceeds(array, capacity) == exactly(array, capacity)


@given(rates, st.integers(-3, 3))
def test_also_within_a_few_roundings_of_the_capacity(numbers: list[float], steps: int) -> None:
    array = np.array(numbers)
    capacity = math.fsum(numbers)
    for _ in range(abs(steps)):
        capacity = max(0.0, math.nextafter(capacity, math.inf if steps > 0 else -math.inf))
    assert exceeds(array, capacity) == exactly(array, capacity)


@pytest.mark.parametrize("capacity", [0.0, 1.0, math.inf])
def test_infinite_rates_and_capacities(capacity: float) -> None:
    for numbers in ([math.inf], [1.0, math.inf], [2.0], []):
        array = np.array(numbers)
        assert exceeds(array, capacity) == exactly(array, capacity)
