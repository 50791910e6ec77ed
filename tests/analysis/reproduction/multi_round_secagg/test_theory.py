"""Multi-RoundSecAgg's appendices as numbers: the optimality of batches against a search over all families."""

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round.participation import strong_privacy
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import theorem2, theorem3, theory
from analysis.reproduction.multi_round_secagg.families import best_groups, groupings, unions
from testbed.batches import Batches
from tests.thoroughness import examples


def _largest_family(users: int, selected: int, privacy: int) -> int:
    """By trying all families of sets, the largest first."""
    sets = np.array([np.isin(np.arange(users), chosen) for chosen in combinations(range(users), selected)], np.int64)
    for size in range(len(sets), 0, -1):
        if any(strong_privacy(sets[list(family)]) >= privacy for family in combinations(range(len(sets)), size)):
            return size
    return 0


@pytest.mark.parametrize(("users", "selected", "privacy"), [(4, 2, 2), (4, 2, 1), (5, 2, 2), (5, 3, 2), (6, 2, 2)])
def test_groups_are_as_good_as_any_family(users: int, selected: int, privacy: int) -> None:
    assert best_groups(users, selected, privacy) == _largest_family(users, selected, privacy)


def test_batches_are_one_of_the_groupings() -> None:
    assert unions((2, 2, 2, 2), 4) == 6 == best_groups(8, 4, 2)
    assert (2, 2, 2, 2) in set(groupings(8, 2))
    assert (2, 3, 3) in set(groupings(8, 2))
    assert unions((2, 3, 3), 5) == 2
    assert unions((2, 3, 3), 4) == 0


@given(st.integers(1, 6), st.data())
@settings(max_examples=examples(50))
def test_no_grouping_has_more_sets_than_batches(privacy: int, data: st.DataObject) -> None:
    batches = data.draw(st.integers(2, max(2, 30 // privacy)))
    wanted = data.draw(st.integers(1, batches // 2))
    sizes = sorted(data.draw(st.lists(st.integers(privacy, privacy * 3), max_size=batches)))
    while sum(sizes) > batches * privacy:
        sizes.pop()
    assert unions(tuple(sizes), wanted * privacy) <= comb(batches, wanted)


def test_the_variance_of_a_mean_of_batches_is_that_of_random_choices() -> None:
    generator = np.random.default_rng(1)
    batches = Batches.consecutive(120, 6)
    values = np.where(batches.of % 2 == 0, 1.0, -1.0)
    means = [
        values[np.isin(batches.of, generator.choice(len(batches), 2, replace=False))].mean() for _ in range(20_000)
    ]
    assert theory.batch_variance(6) == pytest.approx(np.var(means), rel=0.05)
    assert theory.batch_variance(1) == pytest.approx((120 - 12) / (12 * 119))
    assert theory.batch_variance(6) / theory.batch_variance(1) == pytest.approx(6 * 119 / (120 - 6))


def test_the_reproduction(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory, "LARGEST", 8)
    (reproduction,) = theory.REPRODUCTIONS
    _, result = carry_out(reproduction, context)
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert verdicts.pop(next(claim for claim in verdicts if "more than C(N/T, K/T) sets" in claim)) == "agrees"
    assert verdicts["beta of Theorem 2 bounds the variance of the selection (20)"] == "partly"
    assert list(verdicts.values()).count("undetermined") == 1
    assert not any(claim.uses_data for claim in result.claims)


# -- Theorem 2 on known losses --------------------------------------------------------------------------------------


def test_theorem_2_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(theorem2.SEEDS, "small", 3)
    monkeypatch.setattr(theorem2, "ROUNDS", 200)
    monkeypatch.setattr(theorem2, "MARKS", (10, 200))
    monkeypatch.setattr(theorem2, "TARGET", 2e-3)
    (reproduction,) = theorem2.REPRODUCTIONS
    measurements, result = carry_out(reproduction, context)
    assert measurements is not None
    assert len(measurements.tables["losses"]) == 2 * 5 * 3 * 2
    assert result.claims[0].verdict == "agrees"
    assert set(result.table["data"]) == {theorem2.OWN, theorem2.SHARED}


def _losses(share: float) -> pd.DataFrame:
    rows = [
        {"data": data, "T": t, "seed": seed, "round": 10, "loss": share * (1 + 0.01 * seed), "bound": 1.0}
        for data in (theorem2.OWN, theorem2.SHARED) for t in theorem2.PRIVACIES for seed in (1, 2, 3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_losses_above_the_bound_disagree() -> None:
    assert theorem2._bound_claim(_losses(0.5), 3).verdict == "agrees"
    assert theorem2._bound_claim(_losses(1.5), 3).verdict == "disagrees"


def test_rounds_in_proportion_to_c_agree_and_others_disagree() -> None:
    cardinality = {1: 12.0, 3: 12.0, 4: 11.8, 6: 8.4, 12: 1.6}
    noise = np.array([0.99, 1.0, 1.01])
    rounds = {
        (data, t): 100 * 12 / c * np.roll(noise, t)
        for data in (theorem2.OWN, theorem2.SHARED) for t, c in cardinality.items()
    }  # fmt: skip
    claims = [
        theorem2._more_rounds(rounds, cardinality, 3), theorem2._controlled(rounds, cardinality, 3),
        theorem2._as_random(rounds, 3),
    ]  # fmt: skip
    assert [claim.verdict for claim in claims] == ["agrees"] * 3
    slow = {key: values * key[1] ** 2 for key, values in rounds.items()}
    assert theorem2._controlled(slow, cardinality, 3).verdict == "disagrees"
    assert theorem2._as_random(slow, 3).verdict == "disagrees"
    same = {key: 100 * np.roll(noise, key[1]) for key in rounds}
    assert theorem2._more_rounds(same, cardinality, 3).verdict == "partly"
    censored = rounds | {(theorem2.OWN, 12): np.array([800.0, np.nan, 900.0])}
    claim = theorem2._more_rounds(censored, cardinality, 3)
    assert (claim.not_run, claim.checks[1].verdict) == ("censored", "not run")


# -- Theorem 3 and Remark 2 -----------------------------------------------------------------------------------------


def test_theorem_3_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem3, "SIZES", (30, 60))
    monkeypatch.setattr(theorem3, "FAILURE_SIZES", (20, 30))
    monkeypatch.setattr(theorem3, "EXAMPLE", (40, 4, 20))
    monkeypatch.setitem(theorem3.TRIALS, "small", 5)
    monkeypatch.setitem(theorem3.FAILURE_TRIALS, "small", 100)
    (reproduction,) = theorem3.REPRODUCTIONS
    _, result = carry_out(reproduction, context)
    assert len(result.table) == 7
    assert result.claims[1].verdict == "agrees"
    assert len(result.claims) == 3


def _failures(*counts: tuple[str, int, int, int]) -> pd.DataFrame:
    rows = [
        {"kind": kind, "N": users, "K": selected, "trials": 10_000, "failures": count}
        for kind, users, selected, count in [*counts, ("uniform", 120, 12, 0)]
    ]
    return pd.DataFrame(rows)


def test_failures_that_do_not_fall_exponentially_disagree() -> None:
    fall, stay = ([("uniform", n, n // 5, count) for n, count in zip((20, 30, 40), counts, strict=True)]
                  for counts in ((4000, 440, 60), (4000, 3500, 3000)))  # fmt: skip
    assert theorem3._exponential(_failures(*fall)).verdict == "agrees"
    assert theorem3._exponential(_failures(*stay)).verdict == "disagrees"
    assert theorem3._independent(_failures(("independent", 30, 6, 800))).verdict == "agrees"
    assert theorem3._independent(_failures(("independent", 30, 6, 1800))).verdict == "disagrees"


def test_rounds_linear_in_n_agree_and_quadratic_ones_disagree() -> None:
    def judged(exponent: float) -> str:
        rows = [{"N": n, "trial": t, "rounds": round(n**exponent) + t % 2} for n in (40, 80, 160) for t in range(5)]
        return theorem3._linear(pd.DataFrame(rows)).verdict

    assert (judged(1.0), judged(1.3)) == ("agrees", "disagrees")


def test_the_slope_has_the_interval_of_the_t_distribution() -> None:
    generator, covered = np.random.default_rng(1), 0
    for _ in range(200):
        x = np.repeat([1.0, 2.0, 3.0], 10)
        interval = theorem3.slope(x, 2 * x + generator.normal(size=30))
        assert interval.mean is not None
        assert interval.half_width is not None
        covered += abs(interval.mean - 2) <= interval.half_width
    assert 0.9 <= covered / 200 <= 0.99
