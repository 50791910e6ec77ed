"""Vectors modulo 2**32 - 5 against Python's integers."""

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey
from testbed.crypto.masks import mask
from testbed.crypto.prime_field import (
    PRIME,
    difference,
    interpolation,
    inverse,
    product,
    reduce_words,
    total,
    uniform,
    vandermonde,
)
from tests.messages_named import naming
from tests.thoroughness import examples

ELEMENTS = st.integers(0, PRIME - 1)
EXTREMES = (0, 1, PRIME // 2, PRIME // 2 + 1, PRIME - 1)


def matrix(rows, columns, seed):
    """Return random elements, every other one extreme."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, PRIME, (rows, columns), dtype=np.uint32)
    return np.where(rng.random(drawn.shape) < 0.5, rng.choice(np.array(EXTREMES, np.uint32), drawn.shape), drawn)


def slow_product(left, right):
    columns = right.T.tolist()
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) % PRIME for column in columns] for row in left.tolist()
    ]


def test_the_modulus_is_the_largest_prime_of_32_bits():
    assert gmpy2.is_prime(PRIME)
    assert gmpy2.next_prime(PRIME) > 2**32


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_any_word_is_reduced(words):
    assert reduce_words(np.array(words, np.uint64)).tolist() == [word % PRIME for word in words]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(ELEMENTS, ELEMENTS), min_size=1, max_size=20))
def test_sums_and_differences(pairs):
    left, right = (np.array(values, np.uint32) for values in zip(*pairs, strict=True))
    assert total([left, right]).tolist() == [(a + b) % PRIME for a, b in pairs]
    assert difference(left, right).tolist() == [(a - b) % PRIME for a, b in pairs]


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 1, 1), (3, 119, 2), (2, 120, 3), (4, 121, 3), (2, 500, 2), (70000, 2, 2)]
)
def test_a_product_equals_that_of_integers(rows, inner, columns):
    left, right = matrix(rows, inner, 1), matrix(inner, columns, 2)
    assert product(left, right).tolist() == slow_product(left, right)


@pytest.mark.parametrize("element", EXTREMES)
def test_the_largest_sums_of_a_product_are_exact(element):
    """All products have one sign and the largest size, and there are more than a double sums at once."""
    left, right = np.full((3, 1000), element, np.uint32), np.full((1000, 3), element, np.uint32)
    assert set(product(left, right).ravel().tolist()) == {1000 * element**2 % PRIME}


def test_a_wide_product_is_made_in_stretches():
    left, right = matrix(3, 5, 3), matrix(5, 100_000, 4)
    some = [0, 21844, 21845, 21846, 99_999]  # around the ends of stretches
    assert product(left, right)[:, some].tolist() == slow_product(left, right[:, some])


def test_uniform_elements_are_the_words_of_the_stream_below_the_prime():
    words = mask(b"s" * 32, 200_000, 32)
    assert uniform(b"s" * 32, 199_000).tolist() == words[words < PRIME][:199_000].tolist()
    with pytest.raises(InvalidKey, match="32 bytes"):
        uniform(b"short", 1)


def test_words_that_are_no_elements_are_skipped(monkeypatch):
    """One word in 10**9 is none; here every other one."""
    monkeypatch.setattr("testbed.crypto.prime_field.PRIME", 2**31)
    words = mask(b"s" * 32, 400_000, 32)
    assert uniform(b"s" * 32, 100_000).tolist() == words[words < 2**31][:100_000].tolist()


@settings(max_examples=examples(50))
@given(st.lists(ELEMENTS, min_size=1, max_size=8, unique=True), st.data())
def test_interpolation_gives_the_coefficients_back(points, data):
    count = len(points)
    coefficients = data.draw(st.lists(ELEMENTS, min_size=count, max_size=count))
    values = [sum(c * pow(x, k, PRIME) for k, c in enumerate(coefficients)) % PRIME for x in points]
    rows = data.draw(st.integers(1, count))
    found = product(np.array([values], np.uint32), interpolation(points, rows))
    assert found[0].tolist() == coefficients[:rows]
    assert vandermonde(tuple(points), count).tolist() == [[pow(x, k, PRIME) for x in points] for k in range(count)]


def test_a_point_twice_is_refused():
    with pytest.raises(ValueError, match=naming("point 7")):
        interpolation([7, 1, 7], 2)


@given(st.integers(1, PRIME - 1))
def test_inverses(element):
    assert element * inverse(element) % PRIME == 1
