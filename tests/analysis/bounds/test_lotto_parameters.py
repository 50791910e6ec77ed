"""Plans keep their target, and their neighbours do not."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bounds import lotto
from analysis.bounds.lotto import candidates_suffice, dishonest_fraction_exceeds, secagg_fails
from tests.thoroughness import examples

TARGETS = st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 0.9])
STEP = Fraction(1, 1000)


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(20, 2000), st.integers(0, 200), st.integers(2, 20), TARGETS, st.data())
def test_smallest_min_population(
    population: int, dishonest: int, participants: int, target: float, data: st.DataObject
) -> None:
    t = data.draw(st.integers(participants // 2 + 1, participants))
    found = lotto.smallest_min_population(population, dishonest, participants, 1.3, t, target)
    if found is None:
        assert secagg_fails(dishonest, participants, 1.3, population, t) > target
        return
    assert secagg_fails(dishonest, participants, 1.3, found, t) <= target
    assert found == participants or secagg_fails(dishonest, participants, 1.3, found - 1, t) > target


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(20, 2000), st.integers(0, 20), st.integers(2, 20), TARGETS, st.sampled_from([1.5, 3, 10]))
def test_smallest_min_population_for_a_fraction(
    population: int, dishonest: int, participants: int, target: float, eta: float
) -> None:
    found = lotto.smallest_min_population_for_fraction(population, dishonest, participants, 1.3, eta, target)
    if found is None:
        assert dishonest_fraction_exceeds(population, dishonest, participants, 1.3, eta) > target
        return
    assert dishonest_fraction_exceeds(population, dishonest, participants, 1.3, eta, found) <= target
    if found > participants:
        assert dishonest_fraction_exceeds(population, dishonest, participants, 1.3, eta, found - 1) > target


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 200), st.integers(2, 60), st.integers(60, 2000), TARGETS)
def test_smallest_threshold(dishonest: int, participants: int, least: int, target: float) -> None:
    found = lotto.smallest_threshold(dishonest, participants, 1.3, least, target)
    if found is None:
        assert secagg_fails(dishonest, participants, 1.3, least, participants) > target
        return
    assert secagg_fails(dishonest, participants, 1.3, least, found) <= target
    lowest = participants // 2 + 1
    assert found == lowest or secagg_fails(dishonest, participants, 1.3, least, found - 1) > target


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(10, 500), st.integers(1, 10), st.sampled_from([0.5, 0.9, 0.99, 0.999999]))
def test_smallest_over_selection(population: int, participants: int, sufficiency: float) -> None:
    found = lotto.smallest_over_selection(population, participants, sufficiency)
    assert found is not None
    assert candidates_suffice(population, participants, found) >= sufficiency
    assert found == 1 or candidates_suffice(population, participants, found - STEP) < sufficiency


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 100), st.integers(2, 20), st.integers(50, 2000), TARGETS, st.data())
def test_largest_over_selection(
    dishonest: int, participants: int, least: int, target: float, data: st.DataObject
) -> None:
    t = data.draw(st.integers(participants // 2 + 1, participants))
    found = lotto.largest_over_selection(dishonest, participants, least, t, target)
    if found is None:
        assert secagg_fails(dishonest, participants, 1, least, t) > target
        return
    assert secagg_fails(dishonest, participants, found, least, t) <= target
    if found < lotto.MAXIMUM_OVER_SELECTION:
        assert secagg_fails(dishonest, participants, found + STEP, least, t) > target


@given(st.integers(1, 10_000), st.data(), st.integers(1, 1000))
def test_largest_exclusion(population: int, data: st.DataObject, permille: int) -> None:
    dishonest = data.draw(st.integers(0, population))
    rate = Fraction(permille, 1000)
    found = lotto.largest_exclusion(population, dishonest, float(rate))
    if found is None:
        assert Fraction(dishonest, population) > rate
        return
    assert Fraction(dishonest, population - found) <= rate
    assert found == population - 1 or Fraction(dishonest, population - found - 1) > rate
    assert lotto.exclusion(found, population) * population <= found


def test_the_papers_example_of_exclusion() -> None:
    assert lotto.largest_exclusion(1000, 50, 0.2) == 750
    assert lotto.exclusion(750, 1000) == 0.75


@pytest.mark.parametrize("target", [0, 1, -1, float("nan")])
def test_targets_are_probabilities(target: float) -> None:
    for call in (
        lambda: lotto.smallest_min_population(100, 10, 10, 1.3, 7, target),
        lambda: lotto.smallest_min_population_for_fraction(100, 10, 10, 1.3, 2, target),
        lambda: lotto.smallest_threshold(10, 10, 1.3, 100, target),
        lambda: lotto.largest_over_selection(10, 10, 100, 7, target),
    ):
        with pytest.raises(ValueError, match=r"^target: "):
            call()
    with pytest.raises(ValueError, match=r"^sufficiency: "):
        lotto.smallest_over_selection(100, 10, target)
