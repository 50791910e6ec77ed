"""Lotto's guarantees: the paper's numbers, the definitions in fractions, and monotonicity."""

from fractions import Fraction
from math import ceil, comb, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.bounds.lotto import (
    candidates_suffice,
    dishonest_fraction_exceeds,
    secagg_fails,
    selection_probability,
    threshold_of,
    tolerated,
)
from analysis.bounds.tails import survival
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto.sortition import under_threshold

FACTORS = st.integers(100, 300).map(lambda step: step / 100)


def more_than(k: int, clients: int, p: Fraction) -> Fraction:
    return 1 - sum(
        (comb(clients, i) * p**i * (1 - p) ** (clients - i) for i in range(min(k, clients) + 1)), Fraction(0)
    )


@pytest.mark.parametrize(("population", "participants", "expected"), [(100, 10, 0.852), (700, 70, 0.9937)])
def test_theorem_1_as_in_the_paper(population: int, participants: int, expected: float) -> None:
    assert candidates_suffice(population, participants, 1.3) == pytest.approx(expected, abs=5e-4)


def test_theorem_2_as_in_the_paper() -> None:
    assert dishonest_fraction_exceeds(200_000, 1000, 200, 1.3, 10) == pytest.approx(1.3132e-7, rel=5e-5)


def test_corollary_1_and_where_the_papers_number_comes_from() -> None:
    assert secagg_fails(1000, 200, 1.3, 200_000, 106) == pytest.approx(1.40e-8, rel=5e-3)
    assert secagg_fails(1000, 200, 1.3, 200_000, 0.53) == secagg_fails(1000, 200, 1.3, 200_000, 106)
    assert survival(8, 1000, selection_probability(200, 1.3, 200_000)) == pytest.approx(8.9e-6, rel=5e-3)


@given(st.integers(1, 60), FACTORS, st.data())
def test_theorem_1_with_another_population_than_the_announced_one(
    population: int, factor: float, data: st.DataObject
) -> None:
    participants, announced = data.draw(st.integers(1, population)), data.draw(st.integers(1, 200))
    p = min(Fraction(1), Fraction(str(factor)) * participants / announced)
    expected = more_than(participants - 1, population, p)
    computed = candidates_suffice(population, participants, factor, announced)
    assert computed == pytest.approx(float(expected), rel=1e-14, abs=0)
    assert candidates_suffice(population, participants, factor, announced + 1) <= computed


@given(st.integers(1, 50), FACTORS, st.integers(1, 10**6), st.sampled_from([8, 256, 512]))
def test_probability_counts_the_outputs_under_the_threshold(
    participants: int, factor: float, least: int, bits: int
) -> None:
    p = selection_probability(participants, factor, least, bits)
    exact = Fraction(str(factor)) * participants / least
    assert p == min(Fraction(1), Fraction(floor(exact * 2**bits), 2**bits))
    assert 0 <= min(Fraction(1), exact) - p < Fraction(1, 2**bits)


@given(st.integers(1, 30), FACTORS, st.integers(1, 1000))
def test_the_protocols_own_comparison_accepts_that_many_outputs(participants: int, factor: float, least: int) -> None:
    """Outputs of one byte can all be tried. As 0 counts, the paper's floor may be one output short of m."""
    exact = Fraction(str(factor))
    accepted = sum(under_threshold(bytes([beta]), exact, participants, least) for beta in range(256))
    assert accepted == min(256, ceil(exact * participants * 256 / least))


@given(st.integers(1, 60), st.data())
def test_definitions_in_fractions(population: int, data: st.DataObject) -> None:
    participants = data.draw(st.integers(1, population))
    dishonest = data.draw(st.integers(0, population))
    least = data.draw(st.integers(1, population))
    factor, eta = data.draw(FACTORS), data.draw(st.integers(1, 120).map(lambda step: step / 10))
    t = data.draw(st.integers(participants // 2 + 1, participants))
    p = selection_probability(participants, factor, least)
    suffice = more_than(
        participants - 1, population, min(Fraction(1), Fraction(str(factor)) * participants / population)
    )
    allowed = floor(Fraction(str(eta)) * dishonest * participants / population)
    exceed = more_than(allowed, dishonest, p) if allowed < participants else Fraction(0)  # x is at most s
    fail = more_than(2 * t - participants - 1, dishonest, p)
    assert candidates_suffice(population, participants, factor) == pytest.approx(float(suffice), rel=1e-14, abs=0)
    found = dishonest_fraction_exceeds(population, dishonest, participants, factor, eta, least)
    assert found == pytest.approx(float(exceed), rel=1e-14, abs=0)
    assert secagg_fails(dishonest, participants, factor, least, t) == pytest.approx(float(fail), rel=1e-14, abs=0)


@given(st.integers(2, 100), st.integers(1, 1000), FACTORS, st.integers(100, 10_000), st.data())
def test_secagg_fails_less_with_safer_parameters(
    participants: int, dishonest: int, factor: float, least: int, data: st.DataObject
) -> None:
    t = data.draw(st.integers(participants // 2 + 1, participants))
    fails = secagg_fails(dishonest, participants, factor, least, t)
    assert secagg_fails(dishonest, participants, factor, least + 1, t) <= fails
    assert secagg_fails(dishonest - 1, participants, factor, least, t) <= fails
    assert secagg_fails(dishonest, participants, max(1.0, factor - 0.01), least, t) <= fails
    if t < participants:
        assert secagg_fails(dishonest, participants, factor, least, t + 1) <= fails


def test_edges() -> None:
    assert dishonest_fraction_exceeds(10, 0, 5, 1.3, 2) == 0.0
    assert dishonest_fraction_exceeds(100, 50, 10, 2, 2) == 0.0  # more than 10 of 10 participants
    assert dishonest_fraction_exceeds(100, 50, 10, 2, 1.9) > 0.5  # more than 9 of 10
    assert secagg_fails(0, 5, 1.3, 10, 5) == 0.0
    assert candidates_suffice(5, 5, 1) == candidates_suffice(10, 8, 1.3) == 1.0  # p = 1
    assert selection_probability(10, 2, 15) == 1
    assert secagg_fails(100, 10, 2, 15, 10) == 1.0


@given(st.integers(1, 500), st.one_of(st.integers(1, 600), st.integers(1, 150).map(lambda step: step / 100)))
def test_thresholds_have_the_same_meaning_as_in_experiments(participants: int, threshold: int | float) -> None:
    parameters = SecAggParameters(threshold=threshold)
    try:
        parameters.check(max(2, participants))
    except ValueError:
        with pytest.raises(ValueError, match=r"^threshold: t = "):
            threshold_of(max(2, participants), threshold)
    else:
        assert threshold_of(max(2, participants), threshold) == parameters.threshold_for(max(2, participants))


def test_numpy_numbers_are_numbers() -> None:
    assert threshold_of(200, np.int64(106)) == threshold_of(200, np.float64(0.53)) == 106
    assert tolerated(200, np.int64(106)) == 11


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: candidates_suffice(10, 11, 1.3), "participants: 11 of a population of 10"),
        (lambda: candidates_suffice(10, 0, 1.3), "participants: 0; must be at least 1"),
        (lambda: candidates_suffice(10, 5, 1.3, 0), "announced: 0; must be at least 1"),
        (lambda: candidates_suffice(10, 5, 0.9), "over_selection: 0.9; must be at least 1"),
        (lambda: candidates_suffice(10, 5, float("nan")), "over_selection: nan is not a number"),
        (lambda: selection_probability(5, 1.3, 0), "min_population: 0; must be at least 1"),
        (lambda: dishonest_fraction_exceeds(10, 11, 5, 1.3, 2), "dishonest: 11 of a population of 10"),
        (lambda: dishonest_fraction_exceeds(10, -1, 5, 1.3, 2), "dishonest: -1; must be at least 0"),
        (lambda: dishonest_fraction_exceeds(10, 1, 5, 1.3, 0), "eta: 0; must be above 0"),
        (lambda: dishonest_fraction_exceeds(10, 1, 5, 1.3, 2, 11), "min_population: n_min = 11 of a population of 10"),
        (lambda: secagg_fails(1, 10, 1.3, 20, 5), r"threshold: t = 5 of 10 participants; allowed 6 to 10 \(or a"),
        (lambda: secagg_fails(1, 10, 1.3, 20, 1.1), "threshold: t = 11 of 10 participants; allowed 6 to 10"),
        (lambda: secagg_fails(-1, 10, 1.3, 20, 7), "dishonest: -1; must be at least 0"),
    ],
)  # fmt: skip
def test_mistakes(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
