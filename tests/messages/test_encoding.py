"""Messages arrive as they were sent, and their sizes are exact."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.aggregation.plain import Update
from testbed.aggregation.secagg.messages import Masked
from testbed.messages import Vector, attach, decode, detach, encode, signed_content
from testbed.training import Train, TrainingReport
from tests.messages.strategies import messages_of, vectors
from tests.messages_named import naming
from tests.thoroughness import examples


@settings(max_examples=examples(300))
@given(st.data())
def test_detaching_keeps_the_message_and_counts_its_bytes(kinds: Any, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(kinds))
    message = data.draw(messages_of(kind))
    encoded = encode(message)
    detached = detach(message)
    assert detached.size == len(encoded)
    assert encode(attach(kind, detached.header, detached.vectors)) == encoded
    assert encode(decode(kind, encoded)) == encoded


@pytest.mark.parametrize("bits", [0, 1, 8, 13, 32, 64])
@pytest.mark.parametrize(
    "length", [0, 1, 2, 3, 7, 11, 27, 60, 61, 62, 63, 64, 250, 251, 252, 16382, 16383, 16384, 65530, 65531, 70000]
)
def test_sizes_are_exact_at_every_length_of_an_extensions_header(bits: int, length: int) -> None:
    """MessagePack's fixext 1 to 16, ext 8, 16 and 32 have headers of different lengths."""
    vector = Vector(np.zeros(length, np.float32 if bits == 0 else np.uint64), bits)
    for message in (Masked(vector), Update(7, vector), Train(1, vector)):
        assert detach(message).size == len(encode(message))
    assert len(vector.pack()) == vector.packed_bytes


def packed_slowly(values: list[int], bits: int) -> bytes:
    """All elements as one big number, the first in its lowest bits."""
    digits = "".join(f"{value:0{bits}b}" for value in reversed(values))
    return int(digits or "0", 2).to_bytes(-(-len(values) * bits // 8), "little")


@given(st.integers(1, 64), st.data())
def test_elements_are_packed_without_gaps(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    vector = Vector(np.array(values, np.uint64), bits)
    assert vector.pack() == packed_slowly(values, bits)
    unpacked = Vector.unpack(vector.pack(), bits, len(values))
    assert unpacked.values.tolist() == values
    assert 8 * unpacked.values.dtype.itemsize >= bits


@pytest.mark.parametrize("bits", [1, 5, 12, 20, 33, 63])
@pytest.mark.parametrize("length", [2**15 - 1, 2**15, 2**15 + 1, 3 * 2**15 + 5])
def test_long_vectors_are_packed_like_short_ones(bits: int, length: int) -> None:
    """They are packed in chunks, which must not show."""
    values = np.random.default_rng(0).integers(0, 2**bits, length, np.uint64)
    vector = Vector(values, bits)
    assert vector.pack() == packed_slowly(values.tolist(), bits)
    assert np.array_equal(Vector.unpack(vector.pack(), bits, length).values, values)


def test_twenty_bits_take_two_and_a_half_bytes() -> None:
    vector = Vector(np.array([0x12345, 0xABCDE, 0x00001], np.uint32), 20)
    assert vector.pack().hex() == "4523e1cdab010000"
    assert len(encode(Masked(Vector(np.zeros(1000, np.uint32), 20)))) == 1 + 4 + 5 + 2500


@given(st.data())
def test_vectors_are_equal_when_width_and_elements_are(data: st.DataObject) -> None:
    one, other = data.draw(vectors()), data.draw(vectors())
    same = one.bits == other.bits and one.values.tolist() == other.values.tolist()
    assert (one == other) == same
    assert one != one.values.tolist()


def test_numpy_integers_travel_as_integers() -> None:
    assert encode(TrainingReport(np.int64(7), 0.5)) == encode(TrainingReport(7, 0.5))
    with pytest.raises(TypeError, match=naming("message", "complex")):
        encode(TrainingReport(1j, 0.5))


parts = st.recursive(
    st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=4) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
@example([1, b"1"], [1, "1"])
@example([[1], 2], [[1, 2]])
@example([b"ab", b"c"], [b"a", b"bc"])
@example([b"", []], [[], b""])
def test_signed_content_of_different_parts_differs(first: list[Any], second: list[Any]) -> None:
    assert (signed_content(*first) == signed_content(*second)) == (repr(first) == repr(second))


def test_signed_content_does_not_depend_on_the_integers_type() -> None:
    assert signed_content(np.int64(5), [np.uint8(1)]) == signed_content(5, [1])
