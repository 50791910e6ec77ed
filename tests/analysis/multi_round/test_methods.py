"""The searches behind the weak privacy, each against brute force modulo its prime or over the rationals."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round import dependent_columns, mixed_integer, small_codes
from analysis.multi_round.row_spaces import PRIMES, Chain, Space, inverses, solution
from tests.analysis.multi_round import brute_force
from tests.thoroughness import examples

NEVER = float("inf")


def spaces(generator: np.random.Generator, rounds: int, clients: int) -> Space:
    while True:
        chain = Chain.of(generator.random((rounds, clients)) < 0.4)
        if len(chain.basis):
            return chain.space(len(chain.basis))


def clients_of(space: Space) -> np.ndarray:
    return np.repeat(space.rows, space.sizes, axis=1)


def distance(rows: np.ndarray, prime: int) -> int:
    """The least weight of a combination of the rows modulo the prime, by trying all."""
    words = (np.array(z) @ rows % prime for z in itertools.product(range(prime), repeat=len(rows)))
    return min(int(np.count_nonzero(word)) for word in words if word.any())


@pytest.mark.parametrize("seed", range(30))
def test_exhaustion_with_enough_classes_is_exact(seed: int) -> None:
    space = spaces(np.random.default_rng(seed), 5, 10)
    expected = brute_force.fewest_clients(clients_of(space))
    found = dependent_columns.exhaust(space, 10**6, NEVER)
    assert found.lower_bound == expected
    assert found.support is not None
    assert space.sizes[list(found.support)].sum() == space.within(found.support).weight == expected


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_exhaustion_of_small_sets_proves_only_their_bound(most: int) -> None:
    generator = np.random.default_rng(most)
    for _ in range(15):
        space = spaces(generator, 5, 10)
        expected = brute_force.fewest_clients(clients_of(space))
        found = dependent_columns.exhaust(space, 10**6, NEVER, most)
        assert found.lower_bound <= expected
        few = min(expected, space.at_least(most + 1))
        assert found.lower_bound == few


def test_exhaustion_recognises_an_unlucky_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(11)
    cases = [spaces(generator, 5, 9) for _ in range(40)]
    monkeypatch.setattr(dependent_columns, "_PRIME", 5)  # nearly every projection is unlucky
    for space in cases:
        found = dependent_columns.exhaust(space, 10**6, NEVER)
        assert found.lower_bound <= brute_force.fewest_clients(clients_of(space))


def test_exhaustion_stops_when_time_is_up() -> None:
    space = Chain.of(np.random.default_rng(1).random((60, 90)) < 0.5).space(60)
    found = dependent_columns.exhaust(space, 31, time.thread_time())
    assert found.lower_bound < dependent_columns.reach(space)


@pytest.mark.parametrize("prime", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_search_gives_the_distance_of_the_code(seed: int, prime: int) -> None:
    space = spaces(np.random.default_rng(seed), 6, 11)
    code = small_codes.Code.of(space, prime)
    assert code is not None
    exact = code.unit * distance(code.generators, prime)
    assert exact <= brute_force.fewest_clients(clients_of(space))
    assert small_codes.lower_bound(code, exact) == exact
    assert small_codes.lower_bound(code, exact + 1) <= exact
    for target in range(1, exact):
        assert target <= small_codes.lower_bound(code, target) <= exact


@pytest.mark.parametrize("prime", [2, 3])
def test_the_search_over_several_bases(monkeypatch: pytest.MonkeyPatch, prime: int) -> None:
    monkeypatch.setattr(small_codes, "_TOO_MANY", 1e9)
    generator = np.random.default_rng(8)
    for columns in (24, 70, 140):  # one machine word and more
        space = Chain.of(generator.random((7, columns)) < 0.5).space(7)
        code = small_codes.Code.of(space, prime)
        assert code is not None
        exact = code.unit * distance(code.generators, prime)
        assert small_codes.lower_bound(code, exact) == exact
        assert small_codes.lower_bound(code, 3 * columns) == exact


@pytest.mark.parametrize("prime", [2, 3])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_saturated_rows_are_all_integer_vectors(prime: int, data: st.DataObject) -> None:
    matrix = data.draw(brute_force.matrices(rounds=5, clients=7))
    chain = Chain.of(matrix.astype(np.bool_))
    if not len(chain.basis):
        return
    rows = chain.space(len(chain.basis)).rows
    kept = small_codes.saturated(rows, prime)
    assert kept is not None
    spanned = {tuple(np.array(z) @ kept % prime) for z in itertools.product(range(prime), repeat=len(kept))}
    assert len(spanned) == prime ** len(kept)
    # Every small integer vector of the row space is among them.
    for vector in itertools.product((-1, 0, 1), repeat=min(rows.shape[1], 6)):
        padded = np.array([*vector, *[0] * (rows.shape[1] - len(vector))])
        if brute_force.rank(np.vstack((rows, padded))) == len(rows):
            assert tuple(padded % prime) in spanned


@pytest.mark.parametrize(
    ("prime", "rows"),
    [(2, [[1, 1, 0], [0, 1, 1], [1, 0, 1]]), (3, [[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]])],
)
def test_rows_that_are_dependent_modulo_the_prime_are_divided(prime: int, rows: list[list[int]]) -> None:
    assert distance(np.array(rows), prime) == 2
    kept = small_codes.saturated(np.array(rows), prime)
    assert kept is not None
    assert distance(kept, prime) == 1


def test_the_solver_finds_the_minimum() -> None:
    generator = np.random.default_rng(9)
    for _ in range(10):
        space = spaces(generator, 5, 9)
        expected = brute_force.fewest_clients(clients_of(space))
        solved = mixed_integer.solve(space, 60.0)
        assert solved.lower_bound == expected
        assert solved.support is not None
        assert space.within(solved.support).weight == expected


@given(st.lists(st.integers(1, PRIMES[0] - 1), max_size=20))
def test_inverses(residues: list[int]) -> None:
    found = inverses(np.array(residues, np.int64), PRIMES[0])
    assert [residue * int(inverse) % PRIMES[0] for residue, inverse in zip(residues, found, strict=True)] == [1] * len(
        residues
    )


def test_solutions_are_exact() -> None:
    generator = np.random.default_rng(2)
    square = (generator.random((30, 30)) < 0.5).astype(np.int64)
    right = (generator.random(30) < 0.5).astype(np.int64)
    coefficients, denominator = solution(square, right, PRIMES[0])
    assert (np.array(coefficients, dtype=object) @ square.astype(object) == denominator * right.astype(object)).all()
    assert denominator > 1
