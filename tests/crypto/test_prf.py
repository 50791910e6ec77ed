"""HMAC-SHA-256 against RFC 4231, and many keys at once against one at a time."""

import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from testbed.crypto import prf
from tests.crypto.published import vectors


def test_evaluate_gives_rfc_4231():
    for vector in vectors("hmac/rfc4231")["vectors"]:
        key, data = bytes.fromhex(vector["key"]), bytes.fromhex(vector["data"])
        assert prf.evaluate(key, data).hex() == vector["hmac_sha256"]


@given(st.one_of(st.binary(max_size=140), st.binary(min_size=32, max_size=32)), st.binary(max_size=200))
def test_evaluate_equals_the_library(key, message):
    assert prf.evaluate(key, message) == hmac.digest(key, message, "sha256")


def test_evaluate_many_gives_rfc_4231():
    """HMAC pads keys with zeros, so the vectors' shorter keys are 32-byte keys, too."""
    short = [vector for vector in vectors("hmac/rfc4231")["vectors"] if len(vector["key"]) <= 64]
    assert len(short) == 4
    for vector in short:
        key = np.zeros((1, 32), np.uint8)
        raw = np.frombuffer(bytes.fromhex(vector["key"]), np.uint8)
        key[0, : len(raw)] = raw
        output = prf.evaluate_many(key, bytes.fromhex(vector["data"]))
        assert output.tobytes().hex() == vector["hmac_sha256"]


@given(arrays(np.uint8, st.tuples(st.integers(0, 20), st.just(32))), st.binary(max_size=200))
def test_many_keys_equal_single_keys(keys, message):
    outputs = prf.evaluate_many(keys, message)
    assert outputs.shape == keys.shape
    assert outputs.dtype == np.uint8
    assert [row.tobytes() for row in outputs] == [hmac.new(key.tobytes(), message, "sha256").digest() for key in keys]


def test_keys_are_batched_without_a_seam():
    keys = np.random.default_rng(1).integers(0, 256, (2 * prf._BATCH + 3, 32), dtype=np.uint8)
    outputs = prf.evaluate_many(keys, b"round 7")
    for index in (0, prf._BATCH - 1, prf._BATCH, 2 * prf._BATCH, len(keys) - 1):
        assert outputs[index].tobytes() == prf.evaluate(keys[index].tobytes(), b"round 7")


def test_keys_need_not_be_contiguous():
    keys = np.random.default_rng(2).integers(0, 256, (10, 64), dtype=np.uint8)[::2, ::2]
    assert prf.evaluate_many(keys, b"m")[3].tobytes() == prf.evaluate(keys[3].tobytes(), b"m")


@pytest.mark.parametrize("keys", [np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((2, 32), np.int64)])
def test_keys_of_another_shape_or_type_are_refused(keys):
    with pytest.raises(ValueError, match="keys must be"):
        prf.evaluate_many(keys, b"")
