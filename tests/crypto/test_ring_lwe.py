"""Transforms, errors and masks of Ring-LWE against slow, simple oracles; and stored vectors."""

import json
from fractions import Fraction
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey
from testbed.crypto.masks import mask
from testbed.crypto.negacyclic_ntt import DEGREE, Limbs, Transform, transform
from testbed.crypto.ring_lwe import (
    DEVIATION,
    LARGEST,
    MODULUS,
    PRIMES,
    STANDARD_LOG_MODULUS,
    gaussian,
    products,
    public_polynomials,
    uniform,
)
from tests.thoroughness import examples

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "ring_lwe" / "masks.json").read_text())


def negacyclic(left: list[int], right: list[int], prime: int) -> list[int]:
    """Return the product modulo X**4096 + 1 from a product of integers: each coefficient in 128 bits."""
    width = 16
    one, other = (int.from_bytes(b"".join(c.to_bytes(width, "little") for c in row), "little") for row in (left, right))
    whole = (one * other).to_bytes(2 * DEGREE * width, "little")
    found = [int.from_bytes(whole[width * k : width * (k + 1)], "little") for k in range(2 * DEGREE)]
    return [(found[k] - found[k + DEGREE]) % prime for k in range(DEGREE)]


@pytest.mark.parametrize("prime", PRIMES)
def test_the_parameters_are_as_documented(prime: int) -> None:
    assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))  # and no factor, below
    assert all(prime % factor for factor in range(3, 46341, 2))
    assert prime < 2**31
    assert prime % (2 * DEGREE) == 1
    assert MODULUS.bit_length() == 93 <= STANDARD_LOG_MODULUS
    root = transform(prime).root
    assert pow(root, DEGREE, prime) == prime - 1  # of order 8,192


@pytest.mark.parametrize("prime", PRIMES)
def test_the_transform_is_evaluation_at_the_odd_powers(prime: int) -> None:
    of_prime, rng = transform(prime), np.random.default_rng(prime)
    polynomial = rng.integers(0, prime, DEGREE)
    values = of_prime.canonical(of_prime.forward(of_prime.centred(polynomial)[None])[0])
    expected = []
    for k in (0, 1, 2, 2047, 4095):
        point, value = pow(of_prime.root, 2 * k + 1, prime), 0
        for coefficient in reversed(polynomial.tolist()):
            value = (value * point + coefficient) % prime
        expected.append(value)
    assert set(expected) <= set(values.tolist())
    assert len(set(values.tolist())) > DEGREE - 20


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(PRIMES), st.integers(0, 2**32), st.sampled_from(["uniform", "largest", "small", "single"]))
def test_products_are_negacyclic(prime: int, seed: int, kind: str) -> None:
    of_prime, rng = transform(prime), np.random.default_rng(seed)
    rows = {
        "uniform": rng.integers(0, prime, (2, DEGREE)),
        "largest": np.where(rng.random((2, DEGREE)) < 0.5, prime // 2, prime // 2 + 1),  # the farthest from zero
        "small": rng.integers(-40, 41, (2, DEGREE)) % prime,
        "single": np.eye(2, DEGREE, int(rng.integers(0, DEGREE - 1)), np.int64) * int(rng.integers(1, prime)),
    }[kind]
    left, right = (of_prime.forward(of_prime.centred(row)[None]) for row in rows)
    made = of_prime.canonical(of_prime.inverse(of_prime.product(left, Limbs.of(right))))[0]
    assert made.tolist() == negacyclic(rows[0].tolist(), rows[1].tolist(), prime)
    assert np.array_equal(of_prime.inverse(left), of_prime.centred(rows[0])[None])


def test_numbers_that_have_no_such_root_are_refused() -> None:
    for number in (2147377153 - 1, 2**31 + 8192 - 2**31 % 8192 + 1, 8192 * 3 * 25 + 1):
        with pytest.raises(ValueError, match="prime"):
            Transform(number)


# -- errors ------------------------------------------------------------------------------------------------------------


def exact_probabilities() -> dict[int, Fraction]:
    """Return the probabilities of the discrete Gaussian, to 15 digits."""
    weights = {x: Fraction(exp(-x * x / (2 * DEVIATION**2))) for x in range(-LARGEST, LARGEST + 1)}
    whole = sum(weights.values())
    return {x: weight / whole for x, weight in weights.items()}


def test_errors_have_the_exact_distribution() -> None:
    """Chi-squared of a million errors, in cells of at least 100: 4 deviations."""
    count = 1_000_000
    drawn = gaussian(bytes(range(32)), count)
    expected = {x: float(p) * count for x, p in exact_probabilities().items()}
    cells = [x for x in expected if expected[x] > 100]
    outside = count - sum(expected[x] for x in cells)
    observed = np.bincount(drawn.astype(int) + LARGEST, minlength=2 * LARGEST + 1)
    statistic = sum((observed[x + LARGEST] - expected[x]) ** 2 / expected[x] for x in cells)
    left = count - sum(int(observed[x + LARGEST]) for x in cells)
    statistic += (left - outside) ** 2 / outside
    assert abs(statistic - len(cells)) < 4 * (2 * len(cells)) ** 0.5
    assert abs(float(drawn.std()) / DEVIATION - 1) < 0.003


def test_the_bounds_follow_the_distribution() -> None:
    """Every 64-bit number gives the value of the exact distribution function, except at 2**-50 of one."""
    from testbed.crypto.ring_lwe import _BOUNDS, _cells

    upto = Fraction(0)
    for x, probability in list(exact_probabilities().items())[:-1]:
        upto += probability
        assert abs(int(_BOUNDS[x + LARGEST]) / 2**64 - float(upto)) < 2**-50
    values, undecided = _cells()
    for cell in range(len(values)):
        ends = np.array([cell << 50, (cell + 1 << 50) - 1], np.uint64)
        first, last = (np.searchsorted(_BOUNDS, ends, side="right") - LARGEST).tolist()
        assert undecided[cell] == (first != last)
        assert values[cell] == first
    assert log(2**64) / 2 > (LARGEST / DEVIATION) ** 2 / 4  # the tail that 64 bits can tell is all there


@settings(max_examples=examples(30), deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 40_000))
def test_errors_follow_from_64_bits_of_the_stream_each(seed: bytes, count: int) -> None:
    from testbed.crypto.ring_lwe import _BOUNDS

    numbers = mask(seed, count, 64)
    assert gaussian(seed, count).tolist() == (np.searchsorted(_BOUNDS, numbers, side="right") - LARGEST).tolist()


def test_uniform_numbers_are_the_words_below_the_prime() -> None:
    words = (mask(bytes(32), 200_000, 32) >> 1).tolist()
    for prime in (*PRIMES, 1 << 30):  # half of the words are above the last
        expected = [word for word in words if word < prime]
        found = uniform(bytes(32), 90_000, prime)
        assert found.tolist() == expected[:90_000]
    with pytest.raises(InvalidKey):
        uniform(bytes(31), 1, PRIMES[0])


# -- masks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 5 * 4096 + 7])
def test_products_with_the_public_polynomials(length: int) -> None:
    key, seed = gaussian(b"k" * 32, DEGREE).astype(np.int64), b"p" * 32
    found = products(key, seed, length)
    assert found.shape == (3, length)
    last = (length - 1) // DEGREE
    for row, prime in enumerate(PRIMES):
        of_prime = transform(prime)
        values = public_polynomials(seed, last + 1)[row][last]
        public = of_prime.canonical(of_prime.inverse(values[None]))[0].tolist()
        expected = negacyclic(public, (key % prime).tolist(), prime)
        begin = last * DEGREE
        assert found[row, begin:].tolist() == expected[: length - begin]


def test_products_are_homomorphic_in_the_key() -> None:
    keys = [gaussian(bytes([number]) * 32, DEGREE).astype(np.int64) for number in range(5)]
    total = sum(products(key, bytes(32), 5000).astype(np.uint64) for key in keys)
    of_sum = products(np.sum(keys, axis=0), bytes(32), 5000)
    for row, prime in enumerate(PRIMES):
        assert (total[row] % prime).tolist() == of_sum[row].tolist()


def test_vectors() -> None:
    """Check vectors written once by the slow oracles above, independent of the fast code."""
    for row in VECTORS["masks"]:
        key = gaussian(bytes.fromhex(row["key_seed"]), DEGREE)
        assert key[:16].tolist() == row["key_begins"]
        found = products(key.astype(np.int64), bytes.fromhex(row["public_seed"]), row["length"])
        assert found[:, -8:].tolist() == row["products_end"]
