"""Vectors that take fewer bytes arrive as they were sent."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.plain import Update
from testbed.errors import ProtocolError
from testbed.messages import RemoteVector, Vector, attach, content_digest, decode, detach, encode
from testbed.network.sums import float_total
from testbed.vectors.compressed import LEVELS, SPARSE, LevelVector, SparseVector
from tests.messages_named import naming
from tests.thoroughness import examples

floats = st.floats(-1e3, 1e3, width=32)


@st.composite
def sparse(draw: Any, length: int | None = None) -> SparseVector:
    length = draw(st.integers(1, 300)) if length is None else length
    places = sorted(draw(st.sets(st.integers(0, length - 1), max_size=12)))
    elements = [draw(floats) for _ in places]
    return SparseVector(np.array(places, np.int64), np.array(elements, np.float32), length)


@st.composite
def levels(draw: Any, length: int | None = None) -> LevelVector:
    length = draw(st.integers(0, 40)) if length is None else length
    bits, bucket = draw(st.integers(2, 16)), draw(st.integers(1, 9))
    norms = [draw(st.floats(0, 1e3, width=32)) for _ in range(-(-length // bucket))]
    numbers = draw(st.lists(st.integers(0, 2**bits - 2), min_size=length, max_size=length))
    return LevelVector(np.array(numbers, np.uint32), np.array(norms, np.float32), bits, bucket)


@settings(max_examples=examples(200))
@given(sparse() | levels())
def test_a_message_with_one_arrives_and_its_size_is_exact(vector: Vector) -> None:
    message = Update(7, vector)
    encoded, detached = encode(message), detach(message)
    assert detached.size == len(encoded)
    assert len(vector.pack()) == vector.packed_bytes
    there = decode(Update, encoded)
    assert type(there.delta) is type(vector)
    assert (there.delta.bits, len(there.delta)) == (vector.bits, len(vector))
    assert there.delta.values.tobytes() == vector.values.tobytes()
    assert encode(there) == encoded
    assert encode(attach(Update, detached.header, detached.vectors)) == encoded
    assert content_digest(there, anew=True) == content_digest(message)


def unpacked_slowly(packed: bytes, bits: int, count: int) -> list[int]:
    number = int.from_bytes(packed, "little")
    return [number >> bits * i & (1 << bits) - 1 for i in range(count)]


@given(sparse())
def test_places_and_elements_are_read_from_the_bytes(vector: SparseVector) -> None:
    packed, d = vector.pack(), len(vector)
    count, width = int.from_bytes(packed[:4], "big"), max(1, (d - 1).bit_length())
    middle = 4 + -(-count * width // 8)
    expected = [0.0] * d
    numbers = struct.unpack(f"<{count}f", packed[middle:])
    for place, element in zip(unpacked_slowly(packed[4:middle], width, count), numbers, strict=True):
        expected[place] = element
    assert vector.values.tolist() == expected


@given(levels())
def test_levels_are_read_from_the_bytes(vector: LevelVector) -> None:
    packed, d = vector.pack(), len(vector)
    bits, bucket = packed[0], int.from_bytes(packed[1:5], "big")
    count, most = -(-d // bucket), 2 ** (bits - 1) - 1
    norms = struct.unpack(f"<{count}f", packed[5 : 5 + 4 * count])
    numbers = unpacked_slowly(packed[5 + 4 * count :], bits, d)
    expected = [(number - most) / most * norms[i // bucket] for i, number in enumerate(numbers)]
    assert vector.values.tolist() == pytest.approx(expected, rel=1e-6)


@given(st.data())
def test_any_part_is_a_part_of_the_whole(data: st.DataObject) -> None:
    vector = data.draw(sparse() | levels())
    begin = data.draw(st.integers(0, len(vector)))
    end = data.draw(st.integers(begin, len(vector) + 3))
    assert vector.part(begin, end).tobytes() == vector.values[begin:end].tobytes()


@given(st.data())
def test_sums_take_them_like_floats(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([sparse, levels]))
    vectors = data.draw(st.lists(kind(length=data.draw(st.integers(1, 30))), min_size=1, max_size=4))
    weights = [data.draw(st.integers(0, 50)) for _ in vectors]
    dense = [Vector(vector.values, 0) for vector in vectors]
    assert float_total(vectors, weights).values.tobytes() == float_total(dense, weights).values.tobytes()


def test_sums_of_long_ones_are_made_chunk_by_chunk() -> None:
    generator = np.random.default_rng(0)
    length = 3 * (1 << 16) + 5
    places = np.sort(generator.choice(length, 5000, replace=False))
    vector = SparseVector(places, generator.normal(size=5000).astype(np.float32), length)
    total = float_total([vector, vector], [2, 3]).materialised()
    assert total == pytest.approx(5 * vector.values.astype(np.float64), abs=1e-8)


def broken() -> dict[str, tuple[int, int, bytes]]:
    """By what is wrong: form, length, and the bytes after the header."""
    good = SparseVector(np.array([1, 5]), np.ones(2, np.float32), 8).pack()
    whole = LevelVector(np.array([0, 6, 3], np.uint8), np.ones(2, np.float32), 3, 2).pack()
    return {
        "more elements than said": (SPARSE, 8, b"\0\0\0\1" + good[4:]),
        "fewer than said": (SPARSE, 8, b"\0\0\0\3" + good[4:]),
        "many more than said": (SPARSE, 8, b"\xff\xff\xff\xff" + good[4:]),
        "no count": (SPARSE, 8, b"\0\0\0"),
        "a place twice": (SPARSE, 8, good[:4] + bytes([0b001001]) + good[5:]),
        "places that fall": (SPARSE, 8, good[:4] + bytes([0b001101]) + good[5:]),
        "a place outside": (SPARSE, 5, good),
        "bits after the last place": (SPARSE, 8, good[:4] + bytes([good[4] | 0x80]) + good[5:]),
        "a level that there is not": (LEVELS, 3, whole[:-2] + bytes([0b111000, 0])),
        "no bits": (LEVELS, 3, b"\0" + whole[1:]),
        "one bit": (LEVELS, 3, b"\1" + whole[1:]),
        "many bits": (LEVELS, 3, b"\x11" + whole[1:]),
        "no bucket": (LEVELS, 3, whole[:1] + bytes(4) + whole[5:]),
        "another bucket": (LEVELS, 3, whole[:1] + b"\0\0\0\1" + whole[5:]),
        "too short to say": (LEVELS, 0, b"\3\0\0"),
        "another length": (LEVELS, 2**32 - 1, whole),
        "a form that there is not": (131, 8, good),
    }


@pytest.mark.parametrize("what", broken())
def test_what_is_none_is_refused(what: str) -> None:
    form, length, content = broken()[what]
    payload = bytes([form]) + length.to_bytes(4, "big") + content
    message = b"\x92\x07\xc7" + bytes([len(payload), 1]) + payload
    with pytest.raises(ProtocolError):
        decode(Update, message)


@pytest.mark.parametrize(
    "vector",
    [
        SparseVector(np.array([3]), np.ones(1, np.float32), 9),
        LevelVector(np.zeros(9, np.uint8), np.ones(1, np.float32), 4, 512),
    ],
)
def test_the_server_sees_its_shape_and_form_alone(vector: Vector) -> None:
    header, elsewhere = detach(Update(1, vector)).header, [Vector(np.zeros(0, np.float32), 0)]
    seen = attach(Update, header, elsewhere).delta
    assert isinstance(seen, RemoteVector)
    assert (seen.bits, len(seen)) == (vector.bits, 9)
    shape = vector.bits.to_bytes(1, "big") + b"\0\0\0\x09"
    assert header.count(shape) == 1
    with pytest.raises(ProtocolError, match=naming("header", 9)):
        attach(Update, header.replace(shape, b"\x83" + shape[1:]), elsewhere)


@pytest.mark.parametrize(
    "made",
    [
        lambda: SparseVector(np.array([1, 1]), np.ones(2, np.float32), 4),
        lambda: SparseVector(np.array([-1, 1]), np.ones(2, np.float32), 4),
        lambda: SparseVector(np.array([1, 4]), np.ones(2, np.float32), 4),
        lambda: SparseVector(np.array([1, 2]), np.ones(2), 4),
        lambda: SparseVector(np.array([1]), np.ones(2, np.float32), 4),
        lambda: LevelVector(np.array([7], np.uint8), np.ones(1, np.float32), 3, 4),
        lambda: LevelVector(np.array([6], np.uint8), np.ones(2, np.float32), 3, 4),
        lambda: LevelVector(np.array([6], np.int64), np.ones(1, np.float32), 3, 4),
        lambda: LevelVector(np.array([0], np.uint8), np.ones(1, np.float32), 1, 4),
        lambda: LevelVector(np.array([0], np.uint8), np.ones(1, np.float32), 3, 0),
    ],
)
def test_what_could_not_be_sent_is_not_made(made: Any) -> None:
    with pytest.raises(ValueError):
        made()
