"""Binomial tails against sums of fractions."""

from fractions import Fraction
from math import comb, inf, log10

import gmpy2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.bounds.tails import cdf, log10_survival, survival, survivals, survivals_over_trials
from tests.thoroughness import examples

PROBABILITIES = st.one_of(
    st.fractions(0, 1, max_denominator=1000),
    st.floats(0, 1, allow_subnormal=False),
    st.floats(1e-12, 1e-3),
)


def exact(k: int, trials: int, p: Fraction | float) -> Fraction:
    """The definition, in whole numbers over one denominator."""
    success, outcomes = Fraction(p).as_integer_ratio()
    failure = outcomes - success
    ways = (comb(trials, i) * success**i * failure ** (trials - i) for i in range(max(0, k + 1), trials + 1))
    return Fraction(sum(ways), outcomes**trials)


def nearest(value: Fraction) -> float:
    """The double next to a fraction, also where numerator and denominator are beyond doubles."""
    with gmpy2.context(precision=200, emin=gmpy2.get_emin_min()):
        return float(gmpy2.mpfr(gmpy2.mpq(value.numerator, value.denominator)))


@settings(max_examples=examples(300))
@given(st.integers(0, 120), st.integers(-2, 122), PROBABILITIES)
@example(100, 99, 1e-3)  # 1e-300
@example(100, 60, 1e-4)
def test_both_tails_are_the_sums_to_the_last_digit(trials: int, k: int, p: Fraction | float) -> None:
    above = exact(k, trials, p)
    assert survival(k, trials, p) == pytest.approx(nearest(above), rel=1e-15, abs=0)
    assert cdf(k, trials, p) == pytest.approx(nearest(1 - above), rel=1e-15, abs=0)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1_000, 2_000), st.data())
def test_large_numbers_of_trials(trials: int, data: st.DataObject) -> None:
    p = Fraction(data.draw(st.integers(1, 99)), 100)
    k = data.draw(st.integers(0, trials))
    assert survival(k, trials, p) == pytest.approx(nearest(exact(k, trials, p)), rel=1e-15, abs=0)


@pytest.mark.parametrize(
    ("k", "trials", "p", "above"),
    [
        (-1, 0, 0.5, 1.0), (0, 0, 0.5, 0.0), (-5, 10, 0.0, 1.0), (0, 10, 0.0, 0.0), (9, 10, 1, 1.0), (10, 10, 1, 0.0),
        (11, 10, 0.5, 0.0), (9, 10, 0.5, 2.0**-10), (0, 1, 1e-320, 1e-320), (199, 200, Fraction(1, 10), 1e-200),
        (299, 300, Fraction(1, 10), 1e-300), (399, 400, Fraction(1, 10), 0.0),
    ],
)  # fmt: skip
def test_edges(k: int, trials: int, p: Fraction | float, above: float) -> None:
    assert survival(k, trials, p) == above
    assert cdf(k, trials, p) == pytest.approx(1 - above, abs=1e-15)


def test_a_billion_clients() -> None:
    assert survival(500_000_000 - 1, 10**9, Fraction(1, 2)) == pytest.approx(
        float(stats.binom.sf(500_000_000 - 1, 10**9, 0.5)), rel=1e-9
    )
    assert survival(3, 10**9, 1e-12) == pytest.approx(float(stats.binom.sf(3, 10**9, 1e-12)), rel=1e-9)


def test_below_every_exponent_there_is_still_a_logarithm() -> None:
    """Pr[X > 8 10^9] of 10^10 trials at 0.35 is about exp(-n D(0.8 || 0.35)), beyond the range of MPFR's exp."""
    divergence = 0.8 * log10(0.8 / 0.35) + 0.2 * log10(0.2 / 0.65)
    assert log10_survival(8 * 10**9, 10**10, Fraction(35, 100)) == pytest.approx(-divergence * 10**10, rel=1e-8)
    assert survival(8 * 10**9, 10**10, Fraction(35, 100)) == 0.0
    assert survival(2 * 10**9, 10**10, Fraction(65, 100)) == 1.0


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 10**6), 1 - Fraction(1, 10**6)])
def test_the_middle_of_ten_billion_trials(p: Fraction) -> None:
    """About half, and the tail two standard deviations further (Gaussian, with its first correction)."""
    trials, mean = 10**10, 10**10 * p
    deviation = float(mean * (1 - p)) ** 0.5
    assert survival(int(mean), trials, p) == pytest.approx(0.5, abs=1 / deviation)
    further = int(mean + int(2 * deviation))
    assert survival(further, trials, p) == pytest.approx(stats.norm.sf(2), abs=1 / deviation)


@given(st.integers(1, 100), st.integers(0, 99), st.floats(1e-9, 1 - 1e-9))
def test_logarithms_go_below_the_smallest_double(trials: int, k: int, p: float) -> None:
    k = min(k, trials - 1)
    with gmpy2.context(precision=200, emin=gmpy2.get_emin_min()):
        above = exact(k, trials, p)
        expected = float(gmpy2.log10(gmpy2.mpfr(gmpy2.mpq(above.numerator, above.denominator))))
    assert log10_survival(k, trials, p) == pytest.approx(expected, rel=1e-13, abs=1e-15)


def test_logarithm_of_nothing() -> None:
    assert log10_survival(5, 5, 0.5) == -inf
    assert log10_survival(999, 1000, 1e-3) == pytest.approx(-3000 + 1000 * log10(1e-3 / 1e-3), rel=1e-12)


@given(st.integers(0, 40), st.integers(0, 45), PROBABILITIES)
def test_many_at_once_are_the_same_as_one_by_one(trials: int, last: int, p: Fraction | float) -> None:
    assert survivals(last, trials, p) == pytest.approx(
        [survival(k, trials, p) for k in range(last + 1)], rel=1e-15, abs=0
    )


@given(st.integers(0, 40), st.integers(0, 45), PROBABILITIES)
def test_one_trial_more_at_a_time(k: int, last: int, p: Fraction | float) -> None:
    one_by_one = [survival(k, trials, p) for trials in range(last + 1)]
    assert survivals_over_trials(k, last, p) == pytest.approx(one_by_one, rel=1e-15, abs=0)


@pytest.mark.parametrize(("trials", "p"), [(-1, 0.5), (5, -0.1), (5, 1.1), (5, float("nan"))])
def test_invalid_binomial_parameters_are_refused(trials: int, p: float) -> None:
    with pytest.raises(ValueError, match=r"^(trials|p): "):
        survival(2, trials, p)
