"""Theorem 1 against the definition, and against the selection itself."""

import itertools
import math
from math import comb

import numpy as np
import pytest

from analysis.bounds.batch_partition import average_cardinality, family_size, simulated, unavailable_round
from testbed.batches import Batches


def by_definition(users: int, selected: int, privacy: int, dropout: list[float]) -> tuple[float, float]:
    """(C, Pr[no row of B is available]) by enumerating the available users, and the rows of the family."""
    batches, wanted = Batches.consecutive(users, privacy), selected // privacy
    rows = [batches.members(chosen) for chosen in itertools.combinations(range(len(batches)), wanted)]
    cardinality = skipped = 0.0
    for there in itertools.product((False, True), repeat=users):
        chance = math.prod([1 - p if up else p for up, p in zip(there, dropout, strict=True)])
        sizes = [len(row) for row in rows if all(there[user] for user in row)]
        cardinality += chance * float(np.mean(sizes or [0]))
        skipped += chance * (not sizes)
    return cardinality, skipped


@pytest.mark.parametrize("selected", [12, 6, 3])
def test_the_papers_family_sizes(selected: int) -> None:
    """Table 1; it prints 91389 where C(40, 4) = 91390."""
    if selected == 12:
        found = [family_size(120, 12, privacy) for privacy in (12, 6, 4, 3, 1)]
        assert found == [10, 190, 4060, 91390, comb(120, 12)]
    assert family_size(8, 4, 2) == 6  # Fig. 2
    assert family_size(3 * 10**6, selected, 3) == comb(10**6, selected // 3)


@pytest.mark.parametrize(
    ("users", "selected", "privacy"), [(8, 4, 2), (8, 4, 1), (8, 4, 4), (9, 4, 2), (11, 6, 3), (7, 6, 2), (5, 4, 4)]
)
def test_cardinality_and_skipped_rounds_match_the_definition(users: int, selected: int, privacy: int) -> None:
    unequal = np.random.default_rng(users).uniform(0, 0.6, users).round(3).tolist()
    for dropout, chances in ((0.25, [0.25] * users), (unequal, unequal)):
        cardinality, skipped = by_definition(users, selected, privacy, chances)
        assert average_cardinality(users, selected, privacy, dropout) == pytest.approx(cardinality, rel=1e-12)
        assert unavailable_round(users, selected, privacy, dropout) == pytest.approx(skipped, rel=1e-11)


def test_equal_numbers_in_a_list_are_one_number_and_tails_keep_their_digits() -> None:
    for p in (0.0, 0.01, 0.3, 1.0):
        one, many = (unavailable_round(120, 12, 3, dropout) for dropout in (p, [p] * 120))
        assert one == pytest.approx(many, rel=1e-10)
    tiny = unavailable_round(120, 12, 3, 0.001)
    assert 0 < tiny < 1e-80
    assert unavailable_round(120, 12, 3, [0.001] * 120) == pytest.approx(tiny, rel=1e-10)
    assert average_cardinality(120, 12, 3, 0.0) == 12
    assert (average_cardinality(120, 12, 3, 1.0), unavailable_round(120, 12, 3, 1.0)) == (0, 1)


def test_many_users() -> None:
    p = 0.9  # a hundredth of the batches is whole: about 500, give or take 22
    cardinality = average_cardinality(10**5, 1000, 2, p)
    assert cardinality == pytest.approx(average_cardinality(10**5, 1000, 2, [p] * 10**5), rel=1e-9)
    assert 100 < cardinality < 900
    assert 1000 < average_cardinality(10**5 + 1, 1000, 2, p / 2) < 1000.1


@pytest.mark.parametrize("fair", [True, False])
def test_the_selection_itself_has_this_cardinality(fair: bool) -> None:
    dropout = [0.1, 0.2, 0.3, 0.4, 0.5] * 24
    found = simulated(120, 12, 6, dropout, 2000, 7, fair)
    assert abs(found.cardinality - average_cardinality(120, 12, 6, dropout)) < 5 * found.error
    assert found.unavailable.low < unavailable_round(120, 12, 6, dropout) < found.unavailable.high
    assert 0 < found.error < 0.3


def test_uniform_choice_of_unequal_batches_has_this_cardinality_and_fair_choice_less() -> None:
    dropout = [0.3] * 14  # two batches of five, one of four
    exact = average_cardinality(14, 4, 4, dropout)
    uniform, fair = (simulated(14, 4, 4, dropout, 10_000, 3, fair) for fair in (False, True))
    assert abs(uniform.cardinality - exact) < 5 * uniform.error
    assert fair.unavailable.low < unavailable_round(14, 4, 4, dropout) < fair.unavailable.high


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((10, 4, 3, 0.1), "privacy: T = 3 does not divide K = 4"),
        ((3, 4, 2, 0.1), "selected: K = 4 of 3 users"),
        ((0, 4, 2, 0.1), "users: 0"),
        ((8, 4, 2, 1.5), "dropout: 1.5 is not a probability"),
        ((8, 4, 2, float("nan")), "dropout: nan"),
        ((8, 4, 2, [0.1] * 7), "dropout: 7 probabilities for 8 users"),
        ((8, 4, 2, [0.1] * 7 + [-1.0]), "dropout: -1 is not a probability"),
    ],
)
def test_errors_name_the_argument(arguments: tuple, said: str) -> None:
    for call in (average_cardinality, unavailable_round):
        with pytest.raises(ValueError, match=said):
            call(*arguments)
    with pytest.raises(ValueError, match="rounds"):
        simulated(8, 4, 2, 0.1, 10, 0)
