"""Corollaries 2 and 3: the paper's numbers, the recursion in fractions, the search against trying everything."""

from dataclasses import replace
from fractions import Fraction
from math import comb, inf
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bounds.lotto_rounds import (
    PrivacyCost,
    Training,
    Variant,
    cost_with_lotto,
    cost_without_lotto,
    repeated,
    too_many_dishonest,
)
from testbed.privacy.accounting import Skellam
from tests.thoroughness import examples

PAPER = Training(1000, 200, 1.3, 200_000, 140, 50, 1 / 200_000, Skellam(6.27, 2**20))
SMALL = Training(30, 10, 1.3, 300, 8, 12, 1e-3, Skellam(4.0, 2**10), 10**4)
VARIANTS: tuple[Variant, ...] = ("client-centric", "server-centric")


def at_most(k: int, trials: int, p: Any) -> Any:
    return sum((comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(min(k, trials) + 1)), 0 * p)


def by_recursion(training: Training, p: Any, r: int) -> Any:
    """phi as the corollary defines it."""
    if r == 0:
        return Fraction(1)  # g(j, 0) is an empty sum
    phi = 0 * p
    for j in range(r + 1, training.rounds + 1):
        g = at_most(r - 1, j - 1, p) ** training.participants
        phi = 1 - g + g * phi
    return phi


def test_the_papers_example_is_consistent_with_a_multiplier_of_6_27() -> None:
    client, server = (cost_with_lotto(PAPER, variant) for variant in VARIANTS)
    assert client.epsilon == pytest.approx(1.8, abs=0.05)
    assert server.epsilon == pytest.approx(2.08, abs=0.005)  # the paper: 2.3
    assert cost_without_lotto(PAPER).epsilon == pytest.approx(265, abs=0.5)
    assert (cost_without_lotto(PAPER).dishonest, cost_without_lotto(PAPER).rounds) == (199, 50)


@pytest.mark.parametrize("variant", VARIANTS)
def test_claimed_dropouts_leave_the_noise_of_t_survivors(variant: Variant) -> None:
    """k of them dishonest: (t - k)/s, at the delta that the k and r found leave over."""
    for training in (PAPER, replace(SMALL, dishonest=5)):
        found = cost_with_lotto(training, variant, claimed_dropouts=True)
        assert found.dishonest is not None
        assert found.rounds is not None
        assert isinstance(training.threshold, int)
        left = (training.delta - found.p_k - found.q_r) / (1 - found.p_k - found.q_r)
        share = (training.threshold - found.dishonest) / training.participants
        assert found.epsilon == pytest.approx(training.mechanism.epsilon(found.rounds, left, share), rel=1e-9)
        assert found.epsilon > cost_with_lotto(training, variant).epsilon
    everybody = replace(SMALL, dishonest=5, threshold=SMALL.participants)
    assert cost_with_lotto(everybody, variant, claimed_dropouts=True) == cost_with_lotto(everybody, variant)


@pytest.mark.parametrize("over_selection", [1, 1.3, 5])
def test_p_and_q_in_fractions(over_selection: float) -> None:
    training = replace(SMALL, over_selection=over_selection, min_population=100, rounds=8)
    p = Fraction(str(over_selection)) * 10 / 100
    tiny = Fraction(1, 10**100)  # p is cut to 512 bits
    for k, found in enumerate(too_many_dishonest(training)):
        assert found == pytest.approx(float(1 - at_most(k, 30, p) ** 8), rel=1e-12, abs=float(tiny))
    for r in range(9):
        assert repeated(training, "client-centric", r) == pytest.approx(float(by_recursion(training, p, r)), rel=1e-12)
        exact = 1 - at_most(r, 8, p) ** training.maximum_population
        assert repeated(training, "server-centric", r) == pytest.approx(float(exact), rel=1e-12, abs=1e-300)


def test_tiny_chances_keep_their_digits() -> None:
    training = replace(PAPER, maximum_population=10**6)
    with gmpy2.context(precision=1000):
        exact = float(by_recursion(training, gmpy2.mpfr(13) / 10_000, 12))
    assert 0 < exact < 1e-15
    assert repeated(training, "client-centric", 12) == pytest.approx(exact, rel=1e-12, abs=0)


@settings(deadline=None, max_examples=examples(25))
@given(
    st.integers(0, 30), st.sampled_from([1.0, 1.3, 2.0]), st.integers(20, 3000), st.integers(6, 10), st.integers(1, 14),
    st.floats(1e-7, 0.2), st.floats(1.5, 8), st.sampled_from(VARIANTS),
)  # fmt: skip
def test_the_search_finds_what_trying_everything_finds(
    dishonest: int, factor: float, least: int, t: int, rounds: int, delta: float, multiplier: float, variant: Variant
) -> None:
    training = Training(dishonest, 10, factor, least, t, rounds, delta, Skellam(multiplier, 2**10), 10**4)
    tried = []
    for k, p_k in enumerate(too_many_dishonest(training)):
        for r in range(rounds + 1):
            q_r = repeated(training, variant, r)
            if p_k + q_r < delta:
                left = (delta - p_k - q_r) / (1 - p_k - q_r)
                tried.append((training.mechanism.epsilon(r, left, (10 - k) / 10), k, r))
    found = cost_with_lotto(training, variant)
    if not tried:
        assert found.epsilon == inf
        assert found.reason.startswith("no k has p_k < delta: ")
    else:
        assert found.epsilon == pytest.approx(min(tried)[0], rel=1e-12)
        assert (found.epsilon, found.dishonest, found.rounds) in [
            (pytest.approx(e, rel=1e-9), k, r) for e, k, r in tried
        ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_safer_parameters_make_training_more_private(variant: Variant) -> None:
    """More noise, fewer rounds, fewer dishonest clients, a larger delta, less over-selection."""
    here = cost_with_lotto(SMALL, variant).epsilon
    for change in (
        {"mechanism": Skellam(4.5, 2**10)}, {"rounds": 11}, {"dishonest": 29}, {"delta": 2e-3}, {"over_selection": 1.2},
        {"min_population": 310},
    ):  # fmt: skip
        assert cost_with_lotto(replace(SMALL, **change), variant).epsilon <= here


def test_server_centric_costs_more() -> None:
    assert cost_with_lotto(SMALL, "server-centric").epsilon >= cost_with_lotto(SMALL, "client-centric").epsilon


def test_nobody_dishonest_leaves_only_the_repetitions() -> None:
    found = cost_with_lotto(replace(SMALL, dishonest=0), "client-centric")
    assert (found.dishonest, found.p_k) == (0, 0.0)


def test_a_missing_guarantee_has_a_reason() -> None:
    found = cost_with_lotto(replace(SMALL, dishonest=300), "client-centric")
    assert found == PrivacyCost(inf, None, None)
    assert "more than the 5 dishonest participants that SecAgg withstands" in found.reason


def test_without_lotto_a_broken_secagg_leaves_the_victims_own_noise() -> None:
    """Below 2t - s dishonest clients the server sees the sum; from there on the victim's update."""
    four = cost_without_lotto(replace(SMALL, dishonest=5))
    assert four.epsilon == SMALL.mechanism.epsilon(12, 1e-3, 0.5)
    assert cost_without_lotto(replace(SMALL, dishonest=6)).epsilon == SMALL.mechanism.epsilon(12, 1e-3, 0.1)


def test_everybody_selected_every_round() -> None:
    training = replace(SMALL, min_population=10, dishonest=0)
    for variant in VARIANTS:
        found = cost_with_lotto(training, variant)
        assert (found.rounds, found.q_r) == (12, 0.0)
        assert np.isfinite(found.epsilon)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta: 0.0; must be above 0 and below 1"),
        ({"delta": 1.0}, "delta: 1.0; must be"),
        ({"delta": float("nan")}, "delta: nan; must be"),
        ({"rounds": 0}, "rounds: 0; must be at least 1"),
        ({"dishonest": -1}, "dishonest: -1; must be at least 0"),
        ({"threshold": 5}, "threshold: t = 5 of 10 participants; allowed 6 to 10"),
        ({"over_selection": 0.5}, "over_selection: 0.5; must be at least 1"),
        ({"maximum_population": 0}, "maximum_population: 0; must be at least 1"),
    ],
)
def test_mistakes(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        replace(SMALL, **change)
