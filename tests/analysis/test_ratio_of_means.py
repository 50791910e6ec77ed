"""The ratio of two independent means."""

import numpy as np

from analysis.statistics import Interval, mean_interval, ratio_interval, ratio_of_means


def test_its_interval_holds_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        one, two = generator.normal(20, 3, 8), generator.normal(10, 1, 8)
        found = ratio_of_means(mean_interval(one), mean_interval(two), 8, 8)
        assert found.mean is not None
        assert found.half_width is not None
        inside += abs(found.mean - 2) <= found.half_width
    assert 375 <= inside < 400


def test_beside_a_constant_it_is_the_interval_of_the_other() -> None:
    found = ratio_of_means(mean_interval([1.0, 2.0, 4.0]), mean_interval([5.0, 5.0, 5.0]), 3, 3)
    assert found == ratio_interval([1.0, 2.0, 4.0], [5.0, 5.0, 5.0])


def test_without_a_mean_there_is_none_and_of_one_value_no_interval() -> None:
    nothing, one, two = mean_interval([]), mean_interval([3.0]), mean_interval([1.0, 2.0])
    assert ratio_of_means(nothing, two, 0, 2) == ratio_of_means(two, nothing, 2, 0) == Interval(None, None)
    assert ratio_of_means(one, two, 1, 2) == Interval(2.0, None)
