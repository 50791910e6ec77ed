"""Theorem 3: ranks against rational elimination, and the probability of small matrices against all of them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from analysis.bounds.batch_partition import independent_bound, independent_round, rounds_until_full_rank, uniform_round


def rational_rank(matrix: np.ndarray) -> int:
    rows = [[Fraction(int(value)) for value in row] for row in matrix]
    rank = 0
    for column in range(matrix.shape[1]):
        pivot = next((row for row in range(rank, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for row in range(rank + 1, len(rows)):
            factor = rows[row][column] / rows[rank][column]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[rank], strict=True)]
        rank += 1
    return rank


@pytest.mark.parametrize(("users", "selected"), [(1, 1), (5, 2), (8, 3), (12, 2)])
def test_the_round_in_which_the_rank_becomes_full(users: int, selected: int) -> None:
    for make in (uniform_round, independent_round):
        draw, most, seed = make(users, selected), 2 * users, 4
        found = rounds_until_full_rank(draw, users, 6, most, seed)
        rng = np.random.default_rng(seed)
        for reached in found.tolist():
            matrix = np.array([draw(rng) for _ in range(most)])
            ranks = [rational_rank(matrix[:rounds]) for rounds in range(1, most + 1)]
            assert reached == next((r for r, rank in enumerate(ranks, 1) if rank == users), most + 1)


def test_how_often_is_as_by_enumeration() -> None:
    users, selected, trials = 4, 2, 3000
    rounds = [np.isin(np.arange(users), chosen) for chosen in itertools.combinations(range(users), selected)]
    full = [rational_rank(np.array(matrix)) == users for matrix in itertools.product(rounds, repeat=users)]
    expected = float(np.mean(full))
    found = float((rounds_until_full_rank(uniform_round(users, selected), users, trials, users, 1) <= users).mean())
    assert 0.05 < expected < 0.95
    assert abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / trials)


def test_formula_30_at_the_papers_sizes_and_where_it_says_nothing() -> None:
    assert independent_bound(120, 12) == pytest.approx(1 - 7.7567e-4, abs=1e-8)
    assert independent_bound(40, 8) == pytest.approx(0.98905, abs=1e-5)
    assert independent_bound(120, 4) < 0
    for selected in (0, 60, 120):
        with pytest.raises(ValueError, match="selected"):
            independent_bound(120, selected)


def test_it_holds_where_it_says_something_and_somebody_is_left_out_where_it_does_not() -> None:
    trials = 40
    found = rounds_until_full_rank(independent_round(40, 8), 40, trials, 40, 3)
    assert (found <= 40).mean() > 0.8  # at least 0.989 by (30)
    assert (rounds_until_full_rank(independent_round(40, 1), 40, trials, 40, 3) > 40).all()
