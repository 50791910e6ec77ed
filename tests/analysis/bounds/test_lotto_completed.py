"""Lotto's bounds for completed rounds: definitions in fractions, the worst announcement, and servers in simulation."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.bounds.lotto import dishonest_fraction_exceeds, secagg_fails, selection_probability, share_factor
from analysis.bounds.lotto_completed import (
    exceeds_and_completed,
    exceeds_if_completed,
    expected_share,
    largest_freely_chosen,
    share_of_completed,
)
from tests.messages_named import naming

FACTORS = st.integers(100, 300).map(lambda step: step / 100)


def exactly(k: int, clients: int, p: Fraction) -> Fraction:
    return comb(clients, k) * p**k * (1 - p) ** (clients - k)


def more_than(k: int, clients: int, p: Fraction) -> Fraction:
    return sum((exactly(i, clients, p) for i in range(max(0, k + 1), clients + 1)), Fraction(0))


@given(st.integers(1, 40), FACTORS, st.data())
def test_the_expected_share_is_the_sum_over_all_outcomes(population: int, factor: float, data: st.DataObject) -> None:
    participants, dishonest = data.draw(st.integers(1, population)), data.draw(st.integers(0, population))
    least = data.draw(st.integers(1, population))
    p = selection_probability(participants, factor, least)
    honest = population - dishonest
    outcomes = {x: exactly(x, dishonest, p) * more_than(participants - x - 1, honest, p) for x in range(dishonest + 1)}
    expected = sum(min(x, participants) * mass for x, mass in outcomes.items()) / sum(outcomes.values())
    found = expected_share(population, dishonest, participants, factor, least)
    assert found == pytest.approx(float(expected / participants), rel=1e-9, abs=1e-15)


def test_lambda_is_the_growth_of_the_expected_share() -> None:
    """Where candidates are enough for sure and x stays below s, the paper's approximation is the sum."""
    assert share_factor(200_000, 1.3, 200_000) == 1.3
    assert share_factor(200_000, 1.3, 100_000) == 2.6
    for least in (200_000, 100_000):
        share = expected_share(200_000, 1000, 200, 1.3, least)
        assert share == pytest.approx(share_factor(200_000, 1.3, least) * 1000 / 200_000, rel=1e-4)
    assert expected_share(100, 20, 10, 1.3, 100) == pytest.approx(0.27756, abs=1e-5)  # and not 0.26
    assert expected_share(100, 0, 10, 1.3, 100) == 0.0
    assert expected_share(100, 100, 10, 1.3, 100) == pytest.approx(1.0)


@given(st.integers(1, 40), FACTORS, st.data())
def test_completed_rounds_by_the_sum_over_all_outcomes(population: int, factor: float, data: st.DataObject) -> None:
    participants, dishonest = data.draw(st.integers(1, population)), data.draw(st.integers(0, population))
    least, most = data.draw(st.integers(1, population)), data.draw(st.integers(-1, population))
    largest = data.draw(st.integers(0, population))
    p = selection_probability(participants, factor, least)
    honest = population - dishonest
    outcomes = {
        x: exactly(x, dishonest, p) * more_than(participants - x - 1, honest, p) for x in range(most + 1, dishonest + 1)
    }
    setting = (most, population, dishonest, participants, factor, least)
    both = sum(outcomes.values(), Fraction(0))
    assert exceeds_and_completed(*setting) == pytest.approx(float(both), rel=1e-9, abs=1e-25)
    enough = more_than(participants - 1, population, p)
    assert exceeds_if_completed(*setting) == pytest.approx(float(both / enough), rel=1e-9, abs=1e-25)
    few = sum((mass for x, mass in outcomes.items() if x <= largest), Fraction(0))
    assert exceeds_and_completed(*setting, largest) == pytest.approx(float(few), rel=1e-9, abs=1e-25)


@given(st.integers(2, 40), FACTORS, st.data())
def test_no_larger_announcement_gives_more_dishonest_participants(
    population: int, factor: float, data: st.DataObject
) -> None:
    participants, dishonest = data.draw(st.integers(1, population)), data.draw(st.integers(0, population))
    least, most = data.draw(st.integers(1, population - 1)), data.draw(st.integers(0, population))
    worst, other = (
        exceeds_if_completed(most, population, dishonest, participants, factor, n) for n in (least, least + 1)
    )
    assert other <= worst * (1 + 1e-9) + 1e-25


@pytest.mark.parametrize(("n", "c", "s", "eta", "ratio"), [(100, 10, 10, 2, 1.13031), (700, 70, 70, 2, 1.00615)])
def test_completed_rounds_exceed_theorem_2(n: int, c: int, s: int, eta: int, ratio: float) -> None:
    """The paper's condition "without abortion" makes the printed bound too small."""
    printed = dishonest_fraction_exceeds(n, c, s, 1.3, eta)
    completed = exceeds_if_completed(eta * c * s // n, n, c, s, 1.3, n)
    assert completed / printed == pytest.approx(ratio, abs=5e-6)
    assert completed <= printed / float(stats.binom.sf(s - 1, n, 1.3 * s / n))


def test_simulated_servers_attain_the_bounds_for_completed_rounds() -> None:
    """One server ends no other round; one completes bad rounds alone, and then the bound is that of all rounds."""
    n, c, s, t, rounds = 100, 20, 10, 7, 40_000
    candidates = np.random.default_rng(5).random((rounds, n)) < 0.13
    x, enough = candidates[:, :c].sum(axis=1), candidates.sum(axis=1) >= s
    bad = x >= 2 * t - s
    exact = exceeds_if_completed(2 * t - s - 1, n, c, s, 1.3, n)
    low, high = stats.binomtest(int((bad & enough).sum()), int(enough.sum())).proportion_ci(0.9999)
    assert low <= exact <= high
    chosen = bad & enough
    assert bad[chosen].mean() == 1.0
    q = secagg_fails(c, s, 1.3, n, t)
    assert share_of_completed(q, rounds, int(chosen.sum())) == pytest.approx(1.0, abs=0.02)
    assert share_of_completed(q, rounds, rounds) == q


def test_edges() -> None:
    assert exceeds_if_completed(3, 10, 3, 5, 1.3, 10) == 0.0
    assert exceeds_if_completed(-1, 10, 3, 5, 1.3, 10) == pytest.approx(1.0)
    assert largest_freely_chosen(1000, 200, victims=1) == 199
    assert largest_freely_chosen(5, 200) == 5
    with pytest.raises(ValueError, match=naming("completed", 5, 4)):
        share_of_completed(0.1, 4, 5)
    with pytest.raises(ValueError, match=naming("dishonest", 11, 10)):
        exceeds_if_completed(1, 10, 11, 5, 1.3, 10)
