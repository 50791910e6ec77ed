"""The searches behind the weak privacy, each against brute force modulo its prime or over the rationals."""

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.multi_round import binary_codes, dependent_columns, mixed_integer
from analysis.multi_round.modular import PRIMES, inverses, solution
from analysis.multi_round.row_spaces import Chain, Space

NEVER = float("inf")


def spaces(generator: np.random.Generator, rounds: int, clients: int) -> Space:
    while True:
        chain = Chain.of(generator.random((rounds, clients)) < 0.4)
        if len(chain.basis):
            return chain.space(len(chain.basis))


def clients_of(space: Space) -> np.ndarray:
    return np.repeat(space.rows, space.sizes, axis=1)


def distance(rows: np.ndarray, sizes: np.ndarray) -> int:
    """The least weight of a sum of some rows modulo 2, by trying all."""
    return min(
        int(sizes[np.array(z) @ rows % 2 != 0].sum())
        for z in itertools.product((0, 1), repeat=len(rows))
        if (np.array(z) @ rows % 2).any()
    )


@pytest.mark.parametrize("seed", range(30))
def test_exhaustion_with_enough_classes_is_exact(exactly: SimpleNamespace, seed: int) -> None:
    space = spaces(np.random.default_rng(seed), 5, 10)
    expected = exactly.fewest_clients(clients_of(space))
    found = dependent_columns.exhaust(space, 10**6, NEVER)
    assert found.lower_bound == expected
    assert found.support is not None
    assert space.sizes[list(found.support)].sum() == space.within(found.support).weight == expected


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_exhaustion_of_small_sets_proves_no_more_than_it_has_seen(exactly: SimpleNamespace, most: int) -> None:
    generator = np.random.default_rng(most)
    for _ in range(15):
        space = spaces(generator, 5, 10)
        expected = exactly.fewest_clients(clients_of(space))
        found = dependent_columns.exhaust(space, 10**6, NEVER, most)
        assert found.lower_bound <= expected
        few = min(expected, space.at_least(most + 1))
        assert found.lower_bound == few


def test_exhaustion_looks_through_an_unlucky_projection(
    exactly: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(11)
    cases = [spaces(generator, 5, 9) for _ in range(40)]
    monkeypatch.setattr(dependent_columns, "_PRIME", 5)  # nearly every projection is unlucky
    for space in cases:
        found = dependent_columns.exhaust(space, 10**6, NEVER)
        assert found.lower_bound <= exactly.fewest_clients(clients_of(space))


def test_exhaustion_stops_when_time_is_up() -> None:
    space = Chain.of(np.random.default_rng(1).random((60, 90)) < 0.5).space(60)
    found = dependent_columns.exhaust(space, 31, time.monotonic())
    assert found.lower_bound < dependent_columns.reach(space)


@pytest.mark.parametrize("seed", range(20))
def test_generators_and_checks_give_the_distance_modulo_two(exactly: SimpleNamespace, seed: int) -> None:
    space = spaces(np.random.default_rng(seed), 6, 11)
    code = binary_codes.BinaryCode.of(space)
    assert code is not None
    exact, target = distance(code.generators, np.full(code.generators.shape[1], code.unit)), 100 * code.unit
    assert exact <= exactly.fewest_clients(clients_of(space))
    assert binary_codes.by_generators(code, exact) == exact
    assert binary_codes.by_generators(code, exact + 1) <= exact
    assert binary_codes.by_checks(code, target) <= exact
    assert binary_codes.by_checks(code, exact) >= exact - code.unit * (1 + code.even)


@settings(max_examples=50)
@given(data=st.data())
def test_saturated_rows_are_all_integer_vectors_modulo_two(exactly: SimpleNamespace, data: st.DataObject) -> None:
    matrix = data.draw(exactly.matrices(rounds=5, clients=7))
    chain = Chain.of(matrix.astype(np.bool_))
    if not len(chain.basis):
        return
    rows = chain.space(len(chain.basis)).rows
    kept = binary_codes.saturated(rows)
    assert kept is not None
    assert all((np.array(z) @ kept % 2).any() for z in itertools.product((0, 1), repeat=len(kept)) if any(z))
    # Every small integer vector of the row space is, modulo 2, a sum of them.
    spanned = {tuple(np.array(z) @ kept % 2) for z in itertools.product((0, 1), repeat=len(kept))}
    for vector in itertools.product((-1, 0, 1), repeat=rows.shape[1]):
        if exactly.rank(np.vstack((rows, vector))) == len(rows):
            assert tuple(np.array(vector) % 2) in spanned


def test_rows_that_are_dependent_modulo_two_are_halved() -> None:
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    kept = binary_codes.saturated(triangle)
    assert kept is not None
    assert distance(kept, np.ones(3, np.int64)) == 1


def test_the_solver_finds_the_minimum(exactly: SimpleNamespace) -> None:
    generator = np.random.default_rng(9)
    for _ in range(10):
        space = spaces(generator, 5, 9)
        expected = exactly.fewest_clients(clients_of(space))
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
