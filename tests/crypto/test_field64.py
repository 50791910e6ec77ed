"""Vectors modulo 2**64 - 2**32 + 1 against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import field64
from testbed.crypto.field64 import PRIME
from tests.thoroughness import examples

EDGES = [0, 1, 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, PRIME - 2**32, PRIME - 2, PRIME - 1]
PAIRS = st.lists(st.tuples(*[st.one_of(st.sampled_from(EDGES), st.integers(0, PRIME - 1))] * 2), min_size=1)


def array(integers: list[int]) -> field64.Elements:
    return np.array(integers, np.uint64)


@settings(max_examples=examples(100))
@given(PAIRS)
def test_sums_differences_and_products_equal_those_of_integers(pairs: list[tuple[int, int]]) -> None:
    left, right = array([pair[0] for pair in pairs]), array([pair[1] for pair in pairs])
    assert field64.add(left, right).tolist() == [(a + b) % PRIME for a, b in pairs]
    assert field64.subtract(left, right).tolist() == [(a - b) % PRIME for a, b in pairs]
    assert field64.multiply(left, right).tolist() == [a * b % PRIME for a, b in pairs]
    assert int(field64.total(left)) == sum(pair[0] for pair in pairs) % PRIME


def test_all_pairs_of_edges() -> None:
    left, right = array(EDGES)[:, None], array(EDGES)[None]
    assert field64.multiply(left, right).tolist() == [[a * b % PRIME for b in EDGES] for a in EDGES]
    assert field64.add(left, right).tolist() == [[(a + b) % PRIME for b in EDGES] for a in EDGES]
    assert field64.subtract(left, right).tolist() == [[(a - b) % PRIME for b in EDGES] for a in EDGES]


@pytest.mark.parametrize("shapes", [((3, 20_000), (3, 1)), ((20_000, 3), (1, 3)), ((40_000,), (1,)), ((5, 7), (5, 7))])
def test_operations_in_parts_equal_operations_on_the_whole(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    left, right = (rng.integers(0, PRIME, shape, np.uint64) for shape in shapes)
    expected = (left.astype(object) * right.astype(object)) % PRIME
    assert (field64.multiply(left, right) == expected).all()


def test_the_transform_evaluates_at_the_roots_of_unity() -> None:
    rng = np.random.default_rng(2)
    for n in (1, 2, 4, 32):
        coefficients = rng.integers(0, PRIME, (n, 3), np.uint64)
        root = field64.root_of_unity(n)
        assert pow(root, n, PRIME) == 1
        assert n == 1 or pow(root, n // 2, PRIME) == PRIME - 1
        values = field64.transform(coefficients)
        expected = [
            [sum(int(c) * pow(root, k * i, PRIME) for i, c in enumerate(coefficients[:, j])) % PRIME for j in range(3)]
            for k in range(n)
        ]
        assert values.tolist() == expected
        assert (field64.inverse_transform(values) == coefficients).all()
        longer = np.concatenate([coefficients, np.zeros_like(coefficients)])
        assert (field64.at_points_between(values) == field64.transform(longer)[1::2]).all()


def test_signed_integers_round_trip() -> None:
    integers = np.array([0, 1, -1, 2**62, -(2**62), 12345], np.int64)
    elements = field64.from_signed(integers)
    assert elements.tolist() == [value % PRIME for value in integers.tolist()]
    assert (field64.to_signed(elements) == integers).all()


def test_bytes_round_trip_and_invalid_bytes_are_refused() -> None:
    elements = array(EDGES)
    found = field64.from_bytes(field64.to_bytes(elements))
    assert found is not None
    assert (found == elements).all()
    assert field64.from_bytes(b"1234567") is None
    assert field64.from_bytes(PRIME.to_bytes(8, "little")) is None
