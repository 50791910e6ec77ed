"""Masks against AES used block by block and Python's integers, one seed at a time."""

import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, masks

all_bits = st.integers(1, 64)
seed_lists = st.lists(st.binary(min_size=32, max_size=32), max_size=5)


def stream(seed, length):
    """Return the key stream of AES-256-CTR from counter 0, made from AES on each counter."""
    counters = b"".join(block.to_bytes(16, "big") for block in range(-(-length // 16)))
    return Cipher(AES(seed), ECB()).encryptor().update(counters)[:length]


def plain_mask(seed, length, bits):
    """Return one mask as a list of Python integers."""
    lane = 2 if bits <= 16 else 4 if bits <= 32 else 8
    raw = stream(seed, length * lane)
    return [int.from_bytes(raw[at : at + lane], "little") % 2**bits for at in range(0, len(raw), lane)]


def plain_sum(values, seeds, signs, bits):
    for seed, sign in zip(seeds, signs, strict=True):
        mask = plain_mask(seed, len(values), bits)
        values = [(value + sign * one) % 2**bits for value, one in zip(values, mask, strict=True)]
    return values


@pytest.mark.parametrize(
    ("bits", "lane"),
    [(1, np.uint16), (16, np.uint16), (17, np.uint32), (32, np.uint32), (33, np.uint64), (64, np.uint64)],
)
def test_the_word_is_the_smallest_that_holds_the_ring(bits, lane):
    assert masks.word_dtype(bits) is lane


@given(st.binary(min_size=32, max_size=32), st.integers(0, 100), all_bits)
def test_a_mask_is_the_key_stream(seed, length, bits):
    mask = masks.mask(seed, length, bits)
    assert mask.dtype == masks.word_dtype(bits)
    assert mask.tolist() == plain_mask(seed, length, bits)


@given(st.data(), all_bits, seed_lists, st.integers(0, 60))
def test_masks_are_added_modulo_the_ring(data, bits, seeds, length):
    signs = data.draw(st.lists(st.sampled_from([1, -1]), min_size=len(seeds), max_size=len(seeds)))
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=length, max_size=length))
    accumulator = np.array(values, masks.word_dtype(bits))
    masks.add_masks(accumulator, seeds, signs, bits)
    assert accumulator.tolist() == plain_sum(values, seeds, signs, bits)


@settings(max_examples=4)
@given(st.sampled_from([16, 20, 32, 40, 64]))
def test_long_vectors_have_no_seam_between_chunks(bits):
    lane = np.dtype(masks.word_dtype(bits))
    length = 2 * masks._CHUNK_BYTES // lane.itemsize + 7
    seeds = [bytes([number]) * 32 for number in (1, 2, 3)]
    accumulator = np.arange(length).astype(lane) & lane.type(2**bits - 1)
    expected = accumulator.copy()
    masks.add_masks(accumulator, seeds, [1, -1, 1], bits)
    for seed, sign in zip(seeds, (1, -1, 1), strict=True):
        one = np.frombuffer(stream(seed, length * lane.itemsize), lane)
        expected = expected + one if sign == 1 else expected - one
    np.testing.assert_array_equal(accumulator, expected & lane.type(2**bits - 1))


@given(all_bits, seed_lists)
def test_opposite_signs_cancel(bits, seeds):
    """Secure aggregation relies on this: one party adds the mask that the other subtracts."""
    values = np.arange(50).astype(masks.word_dtype(bits)) & masks.word_dtype(bits)(2**bits - 1)
    accumulator = values.copy()
    masks.add_masks(accumulator, seeds, [1] * len(seeds), bits)
    masks.add_masks(accumulator, seeds[::-1], [-1] * len(seeds), bits)
    np.testing.assert_array_equal(accumulator, values)


def test_values_beyond_the_ring_are_reduced():
    accumulator = np.full(5, 0xFFFFFFFF, np.uint32)
    masks.add_masks(accumulator, [], [], 20)
    assert accumulator.tolist() == [2**20 - 1] * 5


def test_threads_do_not_share_their_streams():
    length = 3 * masks._CHUNK_BYTES // 4 + 5
    seeds = [[bytes([worker, number] * 16) for number in range(6)] for worker in range(4)]
    signs = [1, -1] * 3
    alone = [np.zeros(length, np.uint32) for _ in seeds]
    for accumulator, own in zip(alone, seeds, strict=True):
        masks.add_masks(accumulator, own, signs, 32)
    together = [np.zeros(length, np.uint32) for _ in seeds]
    workers = [
        threading.Thread(target=masks.add_masks, args=(accumulator, own, signs, 32))
        for accumulator, own in zip(together, seeds, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def read_only(length):
    vector = np.zeros(length, np.uint32)
    vector.flags.writeable = False
    return vector


@pytest.mark.parametrize(
    ("accumulator", "signs", "bits"),
    [
        (np.zeros(4, np.uint32), [1], 16),
        (np.zeros(4, np.uint32), [1], 33),
        (np.zeros(4, np.int32), [1], 32),
        (np.zeros((2, 2), np.uint32), [1], 32),
        (np.zeros(8, np.uint32)[::2], [1], 32),
        (read_only(4), [1], 32),
        (np.zeros(4, np.uint32), [0], 32),
        (np.zeros(4, np.uint32), [2], 32),
        (np.zeros(4, np.uint32), [], 32),
        (np.zeros(4, np.uint32), [1, 1], 32),
        (np.zeros(4, np.uint16), [1], 0),
        (np.zeros(4, np.uint64), [1], 65),
    ],
)
def test_invalid_arguments_are_refused_without_changes(accumulator, signs, bits):
    with pytest.raises(ValueError, match=r"must be|is needed"):
        masks.add_masks(accumulator, [bytes(32)], signs, bits)
    assert not accumulator.any()


def test_a_seed_of_another_length_is_refused_before_anything_is_added():
    accumulator = np.zeros(4, np.uint32)
    for seed in (b"", bytes(16), bytes(24), bytes(33)):
        with pytest.raises(InvalidKey, match="32 bytes"):
            masks.add_masks(accumulator, [bytes(32), seed], [1, 1], 32)
        with pytest.raises(InvalidKey, match="32 bytes"):
            masks.mask(seed, 4, 32)
    assert not accumulator.any()
