"""Dot products with random vectors of -1, 0 and 1 against a loop."""

import numpy as np
import pytest

from testbed.crypto.ternary_products import ternary_products

ENTRY = {0b00: -1, 0b01: 0, 0b10: 0, 0b11: 1}


def slow(vector: list[int], entries: bytes, count: int) -> list[int]:
    length = -(-len(vector) // 4)
    rows = [entries[first : first + length] for first in range(0, count * length, length)]
    return [
        sum(value * ENTRY[row[place // 4] >> 2 * (place % 4) & 3] for place, value in enumerate(vector)) for row in rows
    ]


@pytest.mark.parametrize("dimension", [1, 3, 4, 5, 2047, 2048, 2049, 4097])
def test_products_are_exact(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    entries = rng.bytes(7 * -(-dimension // 4))
    words = rng.integers(0, 2**64, dimension, np.uint64)
    assert ternary_products(words, 64, entries, 7) == slow(words.tolist(), entries, 7)
    signed = rng.integers(-(2**24), 2**24, dimension, np.int64)
    assert ternary_products(signed, 25, entries, 7) == slow(signed.tolist(), entries, 7)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_the_largest_sums_are_exact(byte: int) -> None:
    words = np.full(8192, 2**64 - 1, np.uint64)
    sign = 1 if byte else -1
    assert ternary_products(words, 64, bytes([byte] * 2048), 1) == [sign * 8192 * (2**64 - 1)]
