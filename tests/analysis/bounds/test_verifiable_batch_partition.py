"""The bounds of verifiable batch partition against brute force over placements, and against simulation."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb, log

import numpy as np
import pytest
from scipy.stats import binomtest, hypergeom

from analysis.bounds.honest_members import too_few_honest, too_few_honest_exactly
from analysis.bounds.tails import hypergeometric_survival, survival_of_sum
from analysis.bounds.verifiable_batch_partition import (
    BatchSetting,
    bound,
    candidates_suffice,
    exceeding_shares,
    exceeds,
    exceeds_at_random,
    log_chernoff,
    share_allowed,
    tolerated,
)

SUSPICIOUS = 1e-4


def partitions(number: int, largest: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to put `number` dishonest clients into at most `parts` batches of at most `largest`, falling."""
    if number == 0:
        yield ()
    elif parts:
        for first in range(min(number, largest), 0, -1):
            for rest in partitions(number - first, first, parts - 1):
                yield first, *rest


def chance(placement: tuple[int, ...], above: int, wanted: int, p: Fraction) -> Fraction:
    """Pr[x > above] exactly: every outcome of which batches stand, of which the server takes the best."""
    total = Fraction(0)
    for stands in product((False, True), repeat=len(placement)):
        best = sorted((j for j, yes in zip(placement, stands, strict=True) if yes), reverse=True)[:wanted]
        if sum(best) > above:
            total += p ** sum(stands) * (1 - p) ** (len(stands) - sum(stands))
    return total


@pytest.mark.parametrize(("privacy", "wanted"), [(1, 3), (2, 2), (3, 2), (4, 1), (4, 3)])
@pytest.mark.parametrize("dishonest", [1, 4, 7, 9])
def test_no_placement_exceeds_the_bound_and_one_attains_equal_shares(privacy: int, wanted: int, dishonest: int) -> None:
    setting = BatchSetting(12 * privacy, wanted * privacy, privacy, 1.5, dishonest)
    placements = list(partitions(dishonest, privacy, 12))
    for above in range(-1, wanted * privacy + 1):
        worst = max(chance(placement, above, wanted, setting.p) for placement in placements)
        attained, _ = exceeding_shares(setting, above)
        upper = exceeds(setting, above)
        assert attained <= float(worst) * (1 + 1e-12)
        assert float(worst) <= upper * (1 + 1e-12)
        assert upper <= 1
        assert log(upper) <= log_chernoff(setting, above) + 1e-9 if upper else True
        assert (upper == 0) == (worst == 0)
        assert bound(setting, above)[0] >= float(worst) * (1 - 1e-12)


def test_with_batches_of_one_it_is_lottos() -> None:
    """T = 1: the placement does not matter, and the bound is the binomial tail of Theorem 2."""
    from analysis.bounds.lotto import dishonest_fraction_exceeds, secagg_fails

    setting = BatchSetting(2000, 50, 1, 1.3, 100)
    lotto = dishonest_fraction_exceeds(2000, 100, 50, 1.3, 4)
    allowed = share_allowed(setting, 4)
    assert exceeds(setting, allowed) == pytest.approx(lotto, rel=1e-10)
    assert exceeding_shares(setting, allowed) == (lotto, 1)
    assert exceeds(setting, tolerated(setting, 0.6)) == pytest.approx(secagg_fails(100, 50, 1.3, 2000, 0.6), rel=1e-9)


def test_in_large_batches_the_worst_placement_may_be_neither_extreme() -> None:
    """x > 3 needs two batches of three or of two: of the latter there are more."""
    setting = BatchSetting(300, 9, 3, 1.0, 24)
    attained, share = exceeding_shares(setting, 3)
    assert share == 2
    assert attained < exceeds(setting, 3) < 1.5 * attained


def test_chernoffs_bound_replaces_sums_that_are_too_small_or_too_long() -> None:
    value, digits, how = bound(BatchSetting(10**9, 400, 2, 1.3, 300), 250)
    assert (how, value) == ("chernoff", 0.0)
    assert -1000 < digits < -600
    large = BatchSetting(10**8, 10_000, 5, 1.3, 10**7)
    assert exceeds(large, 4000) is None
    assert bound(large, 4000)[2] == "chernoff"
    assert bound(BatchSetting(100, 10, 5, 1.3, 0), 0) == (0.0, -float("inf"), "placements")


# -- simulation -----------------------------------------------------------------------------------------------------

SETTINGS = [
    BatchSetting(120, 12, 3, 2.0, 12),
    BatchSetting(120, 12, 3, 2.0, 30, 100),
    BatchSetting(700, 70, 5, 1.3, 70),
    BatchSetting(700, 70, 5, 1.3, 35),
    BatchSetting(245, 40, 4, 1.5, 40),  # uneven: batches of four, one of five
]


def placed(setting: BatchSetting, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Dishonest members by batch, under several placements."""
    sizes = np.repeat(list(setting.sizes), list(setting.sizes.values()))
    c, placements = setting.dishonest, {}
    for name, most in (("concentrated", sizes), ("pairs", np.full_like(sizes, 2)), ("spread", np.ones_like(sizes))):
        before = np.concatenate([[0], np.cumsum(most)[:-1]])
        placements[name] = np.clip(c - before, 0, most)
    of = np.repeat(np.arange(len(sizes)), sizes)
    drawn = generator.choice(setting.population, c, replace=False)
    placements["random"] = np.bincount(of[drawn], minlength=len(sizes))
    return placements


@pytest.mark.parametrize("setting", SETTINGS)
def test_simulated_rates_stay_below_the_bound(setting: BatchSetting) -> None:
    """20,000 rounds of each placement under the worst residual removal; at n_min the chance p is attained."""
    generator, rounds = np.random.default_rng(4), 20_000
    due = setting.dishonest * setting.participants // setting.population
    for name, members in placed(setting, generator).items():
        taken = np.sort(members)[::-1][: np.count_nonzero(members)]
        stands = generator.random((rounds, len(taken))) < float(setting.p)
        first = stands & (np.cumsum(stands, axis=1) <= setting.batches_of_round)
        x = first @ taken
        for above in (due, due + 2, 2 * due, 2 * due + 3):
            often = int((x > above).sum())
            assert binomtest(often, rounds, bound(setting, above)[0], alternative="greater").pvalue > SUSPICIOUS, name
        if name in ("concentrated", "spread"):
            # Not vacuous: equal shares are computed exactly, and the simulation finds them.
            j = int(members.max())
            needed = [above for above in (due, due + 2) if above // j + 1 <= setting.batches_of_round]
            for above in needed:
                found = (stands[:, taken == j].sum(axis=1) > above // j).sum()
                exact = survival_of_sum(above // j, (int((members == j).sum()), setting.p), (0, 0.0))
                assert binomtest(int(found), rounds, exact).pvalue > SUSPICIOUS


@pytest.mark.parametrize("setting", SETTINGS)
def test_under_random_assignment_the_rates_are_lower(setting: BatchSetting) -> None:
    """Batches drawn afresh for each of 20,000 rounds; the server stays below the bound, and near it."""
    generator, rounds = np.random.default_rng(6), 20_000
    sizes = np.repeat(list(setting.sizes), list(setting.sizes.values()))
    members = generator.multivariate_hypergeometric(sizes, setting.dishonest, rounds)
    stands = generator.random(members.shape) < float(setting.p)
    found = np.sort(np.where(stands, members, 0), axis=1)[:, -setting.batches_of_round :].sum(axis=1)
    everybody = np.where(stands, members, 0).sum(axis=1)
    due = setting.dishonest * setting.participants // setting.population
    for above in (due, due + 2, 2 * due):
        upper = exceeds_at_random(setting, above)
        assert binomtest(int((found > above).sum()), rounds, upper, alternative="greater").pvalue > SUSPICIOUS
        if len(setting.sizes) == 1:  # all candidate batches' dishonest members: exactly
            assert binomtest(int((everybody > above).sum()), rounds, upper).pvalue > SUSPICIOUS


def test_hypergeometric_tails_against_scipy() -> None:
    for n, c, drawn in [(50, 10, 20), (50, 40, 30), (1000, 30, 200), (7, 7, 3), (7, 0, 3), (7, 3, 0)]:
        for k in range(-1, min(c, drawn) + 1):
            expected = hypergeom(n, c, drawn).sf(k)
            assert hypergeometric_survival(k, n, c, drawn) == pytest.approx(expected, rel=1e-9, abs=1e-280)
    assert 0 < hypergeometric_survival(110, 10**6, 200, 2000) < 1e-200


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("setting", [SETTINGS[0], SETTINGS[4], BatchSetting(100, 24, 6, 1.4, 0)])
def test_candidates_suffice_as_often_as_computed(setting: BatchSetting, dropout: float) -> None:
    generator, rounds = np.random.default_rng(5), 20_000
    sizes = np.repeat(list(setting.sizes), list(setting.sizes.values()))
    p = float(setting.over_selection) * setting.participants / setting.population
    stands = generator.random((rounds, len(sizes))) < p * (1 - dropout) ** sizes
    often = int((stands.sum(axis=1) >= setting.batches_of_round).sum())
    assert binomtest(often, rounds, candidates_suffice(setting, dropout)).pvalue > SUSPICIOUS
    denied = int((stands[:, 5:].sum(axis=1) >= setting.batches_of_round).sum())
    assert binomtest(denied, rounds, candidates_suffice(setting, dropout, 5)).pvalue > SUSPICIOUS


# -- honest members of a batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("population", "privacy", "dishonest"), [(8, 4, 3), (9, 4, 4), (11, 3, 5), (12, 4, 5)])
def test_few_honest_members_against_all_assignments(population: int, privacy: int, dishonest: int) -> None:
    setting = BatchSetting(population, privacy, privacy, 1.0, dishonest)
    sizes = np.repeat(list(setting.sizes), list(setting.sizes.values()))
    of = np.repeat(np.arange(len(sizes)), sizes)
    for honest in range(1, privacy + 1):
        often = 0
        for drawn in combinations(range(population), dishonest):
            left = sizes - np.bincount(of[list(drawn)], minlength=len(sizes))
            often += bool(((left > 0) & (left < honest)).any())
        exact = often / comb(population, dishonest)
        assert too_few_honest_exactly(setting, honest) == pytest.approx(exact, rel=1e-12, abs=1e-15)
        assert too_few_honest(setting, honest) >= exact - 1e-12


def test_the_union_bound_is_close_where_it_matters() -> None:
    setting = BatchSetting(200_000, 200, 5, 1.3, 1000)
    exact, union = too_few_honest_exactly(setting, 2), too_few_honest(setting, 2)
    assert exact <= union < exact * 1.001
    assert too_few_honest_exactly(BatchSetting(10**9, 1000, 5, 1.3, 10**6), 2) is None


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ((100, 12, 5, 1.3), "privacy: T = 5 does not divide K = 12"),
        ((100, 10, 0, 1.3), "privacy: T = 0 does not divide K = 10"),
        ((100, 10, 5, 11), "over_selection: 11; a K/n exceeds 1, at most 10"),
        ((100, 10, 5, 1.3, 101), "dishonest: 101 of a population of 100"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(keys: tuple, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BatchSetting(*keys)
