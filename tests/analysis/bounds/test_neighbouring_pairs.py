"""Pairs of neighbouring data sets: one integral against one over the plane, and against pairs that are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from analysis.bounds.neighbouring_pairs import angled_pair, orthogonal_pair_in_a_crowd, worst_angle
from analysis.bounds.random_participation import (
    Participation,
    as_printed,
    orthogonal_pair,
    recentred,
    weak_client_sampling,
)
from tests.thoroughness import examples

EPSILON = 0.015
FIRST, SECOND = Participation(30, 0.001, 0.1), Participation(1000, 0.1, 0.001)


def in_the_plane(who: Participation, sigma: float, epsilon: float, cosine: float) -> float:
    """[with - e^epsilon without]+ summed over the plane, from the explicit densities of the server's view."""
    unit, (p, q) = who.clip / sigma, (who.client_rate, who.sample_rate)
    across = np.sqrt(1 - cosine**2) * unit
    step = 0.05
    a = np.arange(-9 - unit, (who.local_samples + 1) * unit + 9, step)[:, None]
    b = np.arange(-9, across + 9, step)[None, :]
    count = np.arange(who.local_samples + 1)
    weight = binom.pmf(count, who.local_samples, q)
    bare = (weight * norm.pdf(a[..., None] - count * unit)).sum(-1) * norm.pdf(b)
    moved = (weight * norm.pdf(a[..., None] - count * unit - cosine * unit)).sum(-1) * norm.pdf(b - across)
    away = norm.pdf(a) * norm.pdf(b)
    with_x, without = (1 - p) * away + p * ((1 - q) * bare + q * moved), (1 - p) * away + p * bare
    return float(np.maximum(with_x - np.exp(epsilon) * without, 0).sum() * step**2)


@settings(deadline=None, max_examples=examples(20))
@given(
    st.integers(1, 6), st.floats(0.05, 0.9), st.floats(0.05, 0.9), st.floats(0.5, 2), st.floats(0.01, 1),
    st.floats(-0.95, 0.95),
)  # fmt: skip
def test_one_integral_is_that_over_the_plane(
    size: int, p: float, q: float, sigma: float, epsilon: float, cosine: float
) -> None:
    who = Participation(size, p, q)
    found = angled_pair(who, sigma, epsilon, cosine)
    assert found == pytest.approx(in_the_plane(who, sigma, epsilon, cosine), rel=0.02, abs=2e-6)
    assert found <= weak_client_sampling(who, sigma, epsilon) * (1 + 1e-9)


@pytest.mark.parametrize(("who", "sigma"), [(FIRST, 1.065), (SECOND, 0.646)])
def test_the_ends_are_the_orthogonal_and_the_parallel_pair(who: Participation, sigma: float) -> None:
    assert angled_pair(who, sigma, EPSILON, 0.0) == pytest.approx(orthogonal_pair(who, sigma, EPSILON), rel=1e-9)
    assert angled_pair(who, sigma, EPSILON, 1.0) == as_printed(who, sigma, EPSILON)
    nearly = angled_pair(FIRST, 1.065, EPSILON, 0.9999)
    assert nearly == pytest.approx(as_printed(FIRST, 1.065, EPSILON), rel=1e-2)


def test_both_forms_of_the_theorem_are_exceeded_in_both_scenarios() -> None:
    """The numbers of docs/papers/random-participation-theorem.md."""
    cosine, first = worst_angle(FIRST, 1.065, EPSILON)
    assert (round(cosine, 2), first) == (0.66, pytest.approx(1.577e-5, rel=1e-3))
    assert first / as_printed(FIRST, 1.065, EPSILON) == pytest.approx(1.17, abs=0.005)
    cosine, second = worst_angle(SECOND, 0.646, EPSILON)
    assert (round(cosine, 2), second) == (0.30, pytest.approx(2.698e-6, rel=1e-3))
    for who, sigma, worst in ((FIRST, 1.065, first), (SECOND, 0.646, second)):
        assert max(as_printed(who, sigma, EPSILON), recentred(who, sigma, EPSILON)) < worst
        assert worst < weak_client_sampling(who, sigma, EPSILON)


def test_a_crowd_along_the_same_direction_hides_participation() -> None:
    alone = orthogonal_pair(FIRST, 1.065, EPSILON)
    losses = [orthogonal_pair_in_a_crowd(FIRST, 1.065, EPSILON, clients) for clients in (0, 1, 10, 100, 23_263)]
    assert losses[0] == alone
    assert sorted(losses, reverse=True) == losses
    assert losses[-1] == pytest.approx(1.33e-11, rel=0.01)


def test_a_crowd_of_one_is_that_client_written_out() -> None:
    who = Participation(3, 0.2, 0.5)
    other = 0.2 * binom.pmf(np.arange(4), 3, 0.5) + np.array([0.8, 0, 0, 0])
    step = 0.01
    u = np.arange(-12, 20, step)[:, None]
    absent = (other * norm.pdf(u - np.arange(4))).sum(1)
    present = sum(binom.pmf(own, 3, 0.5) * (other * norm.pdf(u - own - np.arange(4))).sum(1) for own in range(4))
    seen = 0.2 * present + 0.8 * absent
    v = np.arange(-10, 12, step)
    rate = 0.5 * 0.2 * present / seen
    ratio = np.maximum(1 + rate[:, None] * (np.exp(v - 0.5) - 1) - np.exp(0.3), 0) * norm.pdf(v)
    expected = float((seen * ratio.sum(1)).sum() * step**2)
    assert orthogonal_pair_in_a_crowd(who, 1.0, 0.3, 1) == pytest.approx(expected, rel=1e-3)
