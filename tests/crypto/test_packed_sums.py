"""Sums under masks decode exactly up to the noise budget, and fail beyond it."""

from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import OpeningFailed, packed_sums
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.packed_sums import LEAST_SHIFT, MOST_CLIENTS, MOST_WIDTH, USABLE_BITS, Packing, key_of, noise_bound
from testbed.crypto.ring_lwe import DEVIATION, LARGEST, MODULUS, PRIMES, gaussian, products
from tests.messages_named import naming
from tests.thoroughness import examples

PUBLIC = b"p" * 32


@st.composite
def sums(draw: st.DrawFn) -> dict[str, Any]:
    width, clients = draw(st.integers(1, MOST_WIDTH)), draw(st.integers(1, 6))
    return {
        "width": width,
        "most": ((1 << width) - 1) // clients,
        "shape": (clients, draw(st.integers(1, 9000))),
        "seed": draw(st.integers(0, 2**32)),
        "kind": draw(st.sampled_from(["uniform", "most", "none"])),
    }


@settings(max_examples=examples(30), deadline=None)
@given(sums())
def test_the_sum_of_elements_round_trips(case: dict[str, Any]) -> None:
    packing, most, shape = Packing(case["width"]), case["most"], case["shape"]
    elements = {
        "uniform": np.random.default_rng(case["seed"]).integers(0, most + 1, shape).astype(np.uint32),
        "most": np.full(shape, most, np.uint32),
        "none": np.zeros(shape, np.uint32),
    }[case["kind"]]
    keys = [key_of(bytes([client]) * 32) for client in range(len(elements))]
    total = np.zeros((3, packing.coefficients(shape[1])), np.uint64)
    for client, (row, key) in enumerate(zip(elements, keys, strict=True)):
        total += packing.masked(row, key, bytes([client + 100]) * 32, PUBLIC)
    found = packing.unmasked(total, np.sum(keys, axis=0), PUBLIC, shape[1], len(elements))
    assert found.tolist() == elements.sum(axis=0, dtype=np.uint64).tolist()


@pytest.mark.parametrize("width", range(1, MOST_WIDTH + 1))
def test_widths_fill_the_coefficient(width: int) -> None:
    packing = Packing(width)
    assert packing.together >= 2
    assert LEAST_SHIFT <= packing.shift < LEAST_SHIFT + width
    largest = (2 ** (packing.together * width) - 1) * 2**packing.shift
    assert largest + 2**packing.shift < 2**USABLE_BITS + 1 <= MODULUS
    assert noise_bound(packing.most_clients) < 2 ** (packing.shift - 1)
    assert packing.most_clients == MOST_CLIENTS or noise_bound(packing.most_clients + 1) >= 2 ** (packing.shift - 1)


def test_widths_out_of_range_are_refused() -> None:
    for width in (0, MOST_WIDTH + 1):
        with pytest.raises(ValueError, match=naming("1 to 31")):
            Packing(width)


def test_the_budget_is_sixty_four_times_the_root() -> None:
    for clients in (1, 100, 10_000):
        bound = noise_bound(clients)
        assert bound == pytest.approx(DEVIATION * 9.99 * clients**0.5, rel=0.01)
        tail = 2 * np.exp(-(bound**2) / (2 * clients * DEVIATION**2))
        assert log2(tail) + 31 <= -40


@pytest.mark.parametrize("edge", [1, -1])
def test_errors_up_to_the_bound_are_removed_and_larger_errors_detected(edge: int) -> None:
    """Also errors that carry into the next element, from half the shift on."""
    packing = Packing(27)
    half = 1 << (packing.shift - 1)
    key, packed = np.zeros(DEGREE, np.int64), (5 + (6 << 27) + (7 << 54)) << packing.shift
    for size in (noise_bound(packing.most_clients), half - 1, half + 1):
        total = products(key, PUBLIC, 1).astype(np.uint64)
        for row, prime in enumerate(PRIMES):
            total[row] += np.uint64((packed + edge * size) % prime)
        if size <= noise_bound(packing.most_clients):
            assert packing.unmasked(total, key, PUBLIC, 3, packing.most_clients).tolist() == [5, 6, 7]
        else:
            with pytest.raises(OpeningFailed):
                packing.unmasked(total, key, PUBLIC, 3, packing.most_clients - 1)


@pytest.mark.parametrize("width", [8, 20, 27, 31])
@pytest.mark.parametrize("clients", [1, 200])
def test_another_key_does_not_open_a_sum(width: int, clients: int) -> None:
    """Even for a difference of one in one coefficient."""
    packing = Packing(width)
    key, near = key_of(bytes(32)), key_of(bytes(32))
    near[17] += 1
    masked = packing.masked(np.zeros(4_000, np.uint32), key, b"e" * 32, PUBLIC).astype(np.uint64)
    assert packing.unmasked(masked, key, PUBLIC, 4_000, clients).max() == 0
    with pytest.raises(OpeningFailed, match=naming("key", "open")):
        packing.unmasked(masked, near, PUBLIC, 4_000, clients)


@pytest.mark.parametrize("edge", [1, -1])
def test_errors_of_more_clients_are_detected(edge: int) -> None:
    packing, key = Packing(31), np.zeros(DEGREE, np.int64)
    for size, opens in ((noise_bound(7), True), (noise_bound(7) + 1, False)):
        total = products(key, PUBLIC, 1).astype(np.uint64)
        for row, prime in enumerate(PRIMES):
            total[row] += np.uint64(((5 << packing.shift) + edge * size) % prime)
        if opens:
            assert packing.unmasked(total, key, PUBLIC, 2, 7).tolist() == [5, 0]
        else:
            with pytest.raises(OpeningFailed):
                packing.unmasked(total, key, PUBLIC, 2, 7)


@pytest.mark.parametrize(("number", "elements"), [(1 << USABLE_BITS, 2), (9 << 61, 1)])
def test_values_in_unused_positions_are_detected(number: int, elements: int) -> None:
    """In the bit above the elements, and in the unused second place of the last coefficient."""
    packing, key = Packing(31), np.zeros(DEGREE, np.int64)
    total = products(key, PUBLIC, 1).astype(np.uint64)
    for row, prime in enumerate(PRIMES):
        total[row] += np.uint64((number + (5 << packing.shift)) % prime)
    with pytest.raises(OpeningFailed):
        packing.unmasked(total, key, PUBLIC, elements, 1)


def test_a_masked_update_is_uniform_and_contains_the_errors() -> None:
    packing, key = Packing(20), key_of(bytes(32))
    masked = packing.masked(np.zeros(40_000, np.uint32), key, b"e" * 32, PUBLIC)
    count = masked.shape[1]
    for prime, row, mask in zip(PRIMES, masked, products(key, PUBLIC, count), strict=True):
        assert abs(row.mean() / (prime / 2) - 1) < 0.03
        errors = (row.astype(np.int64) - mask + prime // 2) % prime - prime // 2
        assert errors.tolist() == gaussian(b"e" * 32, count).tolist()
        assert np.abs(errors).max() <= LARGEST


def test_numbers_are_joined_from_their_residues() -> None:
    rng = np.random.default_rng(1)
    numbers = [0, 1, MODULUS - 1, MODULUS // 2, *(int.from_bytes(rng.bytes(12), "big") % MODULUS for _ in range(200))]
    residues = (np.array([number % prime for number in numbers], np.uint64) for prime in PRIMES)
    low, high = packed_sums._joined(*residues)
    assert [int(lower) + (int(upper) << 31) for lower, upper in zip(low, high, strict=True)] == numbers
    for begin in (11, 12, 30, 31, 38, 61, 65, 80):
        found = packed_sums._field(low, high, begin, 12)
        assert found.tolist() == [number >> begin & 0xFFF for number in numbers]
