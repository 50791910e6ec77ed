"""The bounds on committees against every way to draw one, sums of fractions, and committees that are really drawn."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import comb, inf, log10

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, poisson

from analysis.bounds import lotto
from analysis.bounds.committee import (
    Draw,
    Members,
    Selection,
    Targets,
    best_over_selection,
    broken_ever,
    enough_to_break,
    round_fails,
    services,
    smallest_size,
    smallest_threshold,
    sum_of_coins,
    threshold_of,
)
from analysis.bounds.tails import cdf, cdfs_over_trials, hypergeometric_masses, log10_hypergeometric_survival
from testbed.committee.choice import publicly_drawn
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import is_drawn, sortition_input
from testbed.crypto import prf
from testbed.parties.pki import Directory
from tests.thoroughness import examples

SUSPICIOUS = 1e-4


def binomial(k: int, trials: int, p: Fraction) -> Fraction:
    """Pr[X = k]."""
    return comb(trials, k) * p**k * (1 - p) ** (trials - k) if 0 <= k <= trials else Fraction(0)


# -- slow oracles ------------------------------------------------------------------------------------------------------


def by_enumeration(draw: Draw, size: int, threshold: int) -> tuple[list[Fraction], Fraction]:
    """Of a public draw: Pr[x dishonest members], and Pr[too few honest members answer], from all committees there are.

    Clients 0 to c - 1 are dishonest.
    """
    masses, few = [Fraction(0)] * (size + 1), Fraction(0)
    committees = list(combinations(range(draw.population), size))
    there = 1 - Fraction(str(draw.dropout))
    for committee in committees:
        honest = sum(client >= draw.dishonest for client in committee)
        masses[size - honest] += Fraction(1, len(committees))
        for answers in product((False, True), repeat=honest):
            if sum(answers) < threshold:
                few += there ** sum(answers) * (1 - there) ** (honest - sum(answers)) / len(committees)
    return masses, few


def by_fractions(draw: Draw, size: int, threshold: int) -> tuple[list[Fraction], Fraction, Fraction]:
    """By sortition: Pr[x dishonest candidates], too few honest members answer, too few honest clients are drawn."""
    p = Members(draw, size).p
    there = 1 - Fraction(str(draw.dropout))
    masses = [binomial(x, draw.dishonest, p) for x in range(draw.dishonest + 1)]
    few = sum(
        (
            mass * sum(binomial(h, size - min(x, size), there) for h in range(threshold))
            for x, mass in enumerate(masses)
        ),
        Fraction(0),
    )
    honest = draw.population - draw.dishonest
    drawn = sum((binomial(y, honest, p * there) for y in range(size)), Fraction(0))
    return masses, few, drawn


@pytest.mark.parametrize("dishonest", [0, 2, 5, 9])
@pytest.mark.parametrize(("size", "threshold"), [(2, 2), (4, 3), (5, 5)])
def test_public_seed_matches_enumeration_of_all_committees(dishonest: int, size: int, threshold: int) -> None:
    draw = Draw(9, dishonest, dropout=0.3)
    masses, few = by_enumeration(draw, size, threshold)
    members = draw.of(size)
    for least in range(size + 2):
        assert members.at_least(least) == pytest.approx(float(sum(masses[least:])), rel=1e-13, abs=0)
    assert members.masses(size - 1) == pytest.approx([float(mass) for mass in masses[:-1]], rel=1e-13, abs=0)
    assert members.too_few_answer(threshold) == pytest.approx(float(few), rel=1e-13, abs=0)
    assert members.expected == pytest.approx(float(sum(x * mass for x, mass in enumerate(masses))))
    assert members.not_drawn() == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_sortition_is_the_sum_of_fractions(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 9))
    population = data.draw(st.integers(3 * size, 60))
    dishonest = data.draw(st.integers(0, population))
    threshold = data.draw(st.integers(size // 2 + 1, size))
    kind = data.draw(st.sampled_from(["lotto-client-centric", "lotto-server-centric"]))
    draw = Draw(
        population,
        dishonest,
        kind,
        data.draw(st.sampled_from([1, 1.5, 2.25])),
        data.draw(st.sampled_from([0, 0.25, 0.9])),
    )
    members = draw.of(size)
    masses, few, drawn = by_fractions(draw, size, threshold)
    for least in range(size + 1):
        above = float(sum(masses[least:], Fraction(0)))
        assert members.at_least(least) == pytest.approx(above, rel=1e-12, abs=0)
        assert members.log10_at_least(least) == pytest.approx(log10(above) if above else -inf, abs=1e-9)
    assert members.too_few_answer(threshold) == pytest.approx(float(few), rel=1e-12, abs=0)
    assert members.not_drawn() == pytest.approx(float(drawn), rel=1e-12, abs=0)
    assert round_fails(members, threshold) == pytest.approx(min(1, float(few + drawn)), rel=1e-12)


def test_lottos_corollary_1_is_the_same_bound() -> None:
    """A participant list of s of which SecAgg withstands 2t - s - 1: the same coins."""
    members = Draw(200_000, 1000, "lotto-client-centric", 1.3).of(200)
    assert members.at_least(enough_to_break(200, 106, "malicious")) == lotto.secagg_fails(1000, 200, 1.3, 200_000, 106)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.fractions(0, 1, max_denominator=20), max_size=9), st.integers(1, 6))
def test_sum_of_coins_matches_enumeration_of_all_outcomes(chances: list[Fraction], most: int) -> None:
    exact = [Fraction(0)] * (most + 1)
    for outcome in product((0, 1), repeat=len(chances)):
        chance = Fraction(1)
        for coin, p in zip(outcome, chances, strict=True):
            chance *= p if coin else 1 - p
        exact[min(most, sum(outcome))] += chance
    found = sum_of_coins(np.array([float(p) for p in chances]), most)
    assert found == pytest.approx([float(mass) for mass in exact], rel=1e-12, abs=1e-300)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 20), st.integers(0, 40), st.integers(0, 30), st.fractions(0, 1, max_denominator=50))
def test_the_other_tails(k: int, first: int, more: int, p: Fraction) -> None:
    last = first + more
    found = cdfs_over_trials(k, first, last, p)
    assert found == pytest.approx([cdf(k, m, p) for m in range(first, last + 1)], rel=1e-14, abs=0)


def test_hypergeometric_tails_have_logarithms_where_there_is_no_double() -> None:
    """All of 2,000 members are among 1,000,000 dishonest ones of 10^9: about (10^-3)^2000."""
    exact = Fraction(comb(10**6, 2000), comb(10**9, 2000))
    expected = (exact.numerator.bit_length() - exact.denominator.bit_length()) * log10(2)
    assert log10_hypergeometric_survival(1999, 10**9, 10**6, 2000) == pytest.approx(expected, abs=0.4)
    assert log10_hypergeometric_survival(2000, 10**9, 10**6, 2000) == -inf
    assert sum(hypergeometric_masses(0, 5, 12, 4, 5)) == pytest.approx(1, rel=1e-15)


# -- weights -----------------------------------------------------------------------------------------------------------


def test_equal_weights_are_no_weights_and_the_heaviest_are_the_worst() -> None:
    plain, same = (Draw(300, 40, "lotto-client-centric", 1.5, 0.1, weights) for weights in (None, (7,) * 300))
    for least in (0, 3, 9, 20):
        assert same.of(20).at_least(least) == pytest.approx(plain.of(20).at_least(least), rel=1e-10)
    assert same.of(20).too_few_answer(14) == pytest.approx(plain.of(20).too_few_answer(14), rel=1e-10)
    assert same.of(20).not_drawn() == pytest.approx(plain.of(20).not_drawn(), rel=1e-10)
    skewed = Draw(300, 40, "lotto-client-centric", 1.5, 0.1, (*range(1, 301),))
    assert skewed.of(20).at_least(9) > plain.of(20).at_least(9)
    chances = np.minimum(1, 1.5 * 20 * np.arange(1, 301) / np.arange(1, 301).sum())
    other = np.random.default_rng(1).permutation(chances)[:40]
    assert skewed.of(20).at_least(9) > sum_of_coins(other, 20)[9:].sum()


# -- really drawn ------------------------------------------------------------------------------------------------------


def test_simulated_public_draws_are_dishonest_as_often_as_computed() -> None:
    registered = np.ones(50, np.bool_)
    members, trials = Draw(50, 10).of(10), 3000
    found = [int((publicly_drawn(bytes(16), number, registered, 10) < 10).sum()) for number in range(1, trials + 1)]
    for least in (1, 3, 5):
        happened = sum(x >= least for x in found)
        assert binomtest(happened, trials, members.at_least(least)).pvalue > SUSPICIOUS


def test_simulated_hiding_server_has_as_many_dishonest_members_as_computed() -> None:
    """Dishonest clients that are drawn by real numbers, which a server that hides honest ones keeps all."""
    section = CommitteeSection(selection="lotto-server-centric", size=10)
    keys = np.random.default_rng(1).integers(0, 256, (60, 32)).astype(np.uint8)
    board = Directory(keys, keys, keys, np.ones(60, np.bool_))
    members, trials = Draw(60, 12, "lotto-server-centric").of(10), 3000
    found = []
    for number in range(1, trials + 1):
        outputs = prf.evaluate_many(keys[:12], sortition_input(bytes(16), number))
        found.append(sum(is_drawn(section, board, client, outputs[client].tobytes()) for client in range(12)))
    for least in (2, 4, 6):
        happened = sum(x >= least for x in found)
        assert binomtest(happened, trials, members.at_least(least)).pvalue > SUSPICIOUS


# -- over a training, and the smallest committee -----------------------------------------------------------------------


def test_services_are_independent_and_tries_multiply_them() -> None:
    assert [services(9, r) for r in (None, 1, 2, 3, 9, 20)] == [1, 9, 5, 3, 1, 1]
    assert broken_ever(0.25, 3, 1) == pytest.approx(1 - 0.75**3)
    assert broken_ever(0.25, 3, 2) == pytest.approx(1 - 0.75**6)
    assert broken_ever(1e-30, 1000, 1000) == pytest.approx(1e-24)
    assert threshold_of(60) == 40 == CommitteeSection(size=60).threshold_for(60)
    assert threshold_of(60, 0.6667) == 41 == CommitteeSection(threshold=0.6667).threshold_for(60)
    assert (enough_to_break(60, 40, "malicious"), enough_to_break(60, 40, "semi-honest")) == (20, 40)


@pytest.mark.parametrize("kind", ["public-seed", "lotto-client-centric"])
@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
@pytest.mark.parametrize(("dishonest", "dropout"), [(0, 0.0), (40, 0.0), (40, 0.1), (80, 0.2)])
def test_the_plan_is_the_first_of_all_sizes_and_thresholds(
    kind: str, server: str, dishonest: int, dropout: float
) -> None:
    draw = Draw(2000, dishonest, kind, 2, dropout)
    targets = Targets(1e-6, 0.01, draws=5, tries=3, server=server)
    found = smallest_size(draw, targets, 80)
    for size in range(2, 81 if found is None else found[0] + 1):
        members = draw.of(size)
        keeping = [
            t
            for t in range(size // 2 + 1, size + 1)
            if broken_ever(members.at_least(enough_to_break(size, t, targets.server)), 5, 3) <= 1e-6
            and round_fails(members, t) <= 0.01
        ]
        assert bool(keeping) == (found is not None and size == found[0])
        if keeping:
            assert found == (size, keeping[0])
            assert smallest_threshold(members, targets) == keeping[0]


def test_beyond_a_hundred_members_no_smaller_committee_is_missed() -> None:
    draw, targets = Draw(100_000, 10_000, "lotto-client-centric", 1.5, 0.05), Targets(1e-9, 1e-3)
    found = smallest_size(draw, targets)
    assert found is not None
    assert found[0] > 140
    for size in range(130, found[0]):
        threshold = smallest_threshold(draw.of(size), targets)
        assert threshold is None or round_fails(draw.of(size), threshold) > 1e-3


@pytest.mark.parametrize(
    ("dishonest", "kind", "factor", "expected"),
    [
        (1000, "public-seed", 1.5, (17, 12)),
        (5000, "public-seed", 1.5, (32, 23)),
        (10_000, "public-seed", 1.5, (60, 42)),
        (20_000, "public-seed", 1.5, (274, 186)),
        (1000, "lotto-client-centric", 2.0, (21, 15)),
        (5000, "lotto-client-centric", 1.7, (58, 41)),
        (10_000, "lotto-client-centric", 1.5, (154, 106)),
    ],
)
def test_the_table_of_the_page(dishonest: int, kind: Selection, factor: float, expected: tuple[int, int]) -> None:
    """docs/how-to/choose-a-committee.md."""
    assert smallest_size(Draw(100_000, dishonest, kind, factor, 0.05), Targets(1e-9, 1e-3)) == expected


def test_sixty_decryptors() -> None:
    """The statements of the same page on Flamingo's committee."""
    for share, target in ((0.045, 2.0**-40), (0.066, 2.0**-30), (0.1, 1e-6)):
        assert Draw(10**6, round(share * 10**6)).of(60).at_least(20) <= target
        assert Draw(10**6, round((share + 0.005) * 10**6)).of(60).at_least(20) > target
    assert Draw(10**6, 10**6 // 3).of(60).at_least(20) > 0.5


def test_the_best_over_selection_is_the_smallest_committees() -> None:
    draw, targets = Draw(2000, 60, "lotto-client-centric", 1.5, 0.1), Targets(1e-3, 0.05)
    sizes = {}
    for tenths in range(11, 41):
        found = smallest_size(replace(draw, over_selection=Fraction(tenths, 10)), targets, 60)
        if found is not None:
            sizes[Fraction(tenths, 10)] = found[0]
    best = best_over_selection(draw, targets, 60)
    assert best is not None
    assert best.over_selection == min(sizes, key=lambda factor: (sizes[factor], factor))
    assert best_over_selection(draw, targets, min(sizes.values()) - 1) is None


def test_no_committee_keeps_impossible_targets() -> None:
    assert smallest_size(Draw(100, 60), Targets(1e-9, 1e-3), 100) is None
    assert smallest_size(Draw(100, 5, "lotto-client-centric", 3), Targets(1e-3, 0.3), 100) is not None
    assert smallest_size(Draw(20, 0, dropout=0.9), Targets(1e-9, 1e-3), 20) is None


def test_algorands_committee_of_2000_follows() -> None:
    """Gilad et al., SOSP 2017, section 7.5 and Figure 3: with 80% honest weight, 2,000 expected members and T = 0.685
    keep "more than T tau honest" and "half of the honest and all others at most T tau" but for 5e-9.
    """
    tau, needed = 2000, 0.685 * 2000
    honest, others = poisson(0.8 * tau), poisson(0.2 * tau)
    few = honest.cdf(int(needed))
    g = np.arange(1000, 2400)
    many = float((honest.pmf(g) * others.sf(np.floor(needed - g / 2))).sum())
    assert few + many < 5e-9


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Draw(100, 101), "dishonest: 101 of a population of 100"),
        (lambda: Draw(100, 1, dropout=1.0), "dropout: 1.0; must be at least 0 and below 1"),
        (lambda: Draw(100, 1, "lotto-client-centric", 0.5), "over_selection: 0.5; must be at least 1"),
        (lambda: Draw(3, 1, weights=(1, 1, 1)), "weights: allowed only with --selection lotto-client-centric"),
        (lambda: Draw(3, 1, "lotto-client-centric", weights=(1, 1)), "weights: 2 for a population of 3"),
        (lambda: Draw(100, 1).of(101), "size: 101 members of a population of 100; at most 100"),
        (lambda: Draw(100, 1, "lotto-client-centric", 2).of(50), "size: 50 members of a population of 100; at most 49"),
        (lambda: threshold_of(10, 5), "threshold: 5 of 10 members; allowed 6 to 10"),
        (lambda: Targets(0, 0.1), "target: 0; must be above 0 and below 1"),
        (lambda: Targets(0.1, 1), "failure_target: 1; must be above 0 and below 1"),
    ],
)
def test_errors_say_the_allowed_range(wrong: object, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says.replace("(", r"\(")):
        wrong()
