"""Multi-RoundSecAgg's appendices as numbers: the optimality of batches against a search over all families."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round.participation import strong_privacy
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.multi_round_secagg import theory
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
    monkeypatch.setattr(theory, "TRIALS", 3)
    result = theory.run_theory(context)
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert verdicts.pop(next(claim for claim in verdicts if "more than C(N/T, K/T) sets" in claim)) == "agrees"
    assert verdicts["beta of Theorem 2 bounds the variance of the selection (20)"] == "partly"
    assert sum(verdict == "undetermined" for verdict in verdicts.values()) == 3
