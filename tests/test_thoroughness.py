"""Combinations of parameters: all of them in `make test-all`, every pair of values in `make test`."""

from itertools import product

import pytest

from tests.thoroughness import each_pair, each_value

PARAMETERS = (["a", "b"], range(7), ["x", "y", "z"])


def test_all_combinations_are_there_in_their_order() -> None:
    assert [case.values for case in each_pair(*PARAMETERS)] == list(product(*PARAMETERS))


def test_every_two_values_meet_in_a_combination_that_is_not_slow() -> None:
    quick = [case.values for case in each_pair(*PARAMETERS) if not case.marks]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        met = {(values[one], values[other]) for values in quick}
        assert met == set(product(PARAMETERS[one], PARAMETERS[other]))


def test_about_half_of_the_combinations_are_slow() -> None:
    """No fewer than 21 hold all pairs of a stage and a protocol."""
    cases = each_pair(*PARAMETERS)
    slow = [case for case in cases if case.marks]
    assert all(mark.name == pytest.mark.slow.name for case in slow for mark in case.marks)
    assert 21 <= len(cases) - len(slow) <= 24


def test_of_two_parameters_nothing_is_slow() -> None:
    assert not any(case.marks for case in each_pair(["a", "b"], range(3)))


def test_every_value_is_in_a_combination_that_is_not_slow() -> None:
    cases = each_value([1, 4], "abcdefg")
    assert [case.values for case in cases] == list(product([1, 4], "abcdefg"))
    quick = [case.values for case in cases if not case.marks]
    assert sorted(letter for _, letter in quick) == list("abcdefg")
    assert {number for number, _ in quick} == {1, 4}
