"""Every decoder against malformed input: only `ProtocolError` ever comes out. More than 10^4 cases."""

import contextlib
import struct
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.secagg.messages import Masked, ShareKeys
from testbed.errors import ProtocolError
from testbed.messages import Message, RefusalNotice, RemoteVector, Vector, attach, decode, detach, encode
from testbed.parties.pki import Entries, Lookup
from testbed.training import Train
from tests.messages.strategies import messages_of
from tests.messages_named import naming
from tests.thoroughness import examples


def survives(kind: type[Message], data: bytes) -> None:
    """Decoding gives a message that encodes, or a `ProtocolError`; nothing else."""
    with contextlib.suppress(ProtocolError):
        message = decode(kind, data)
        assert type(message) is kind
        again = decode(kind, encode(message))
        assert encode(again) == encode(message)


def test_the_walk_finds_the_messages(kinds: Any) -> None:
    names = {kind.__name__ for kind in kinds}
    assert {"Train", "KeyAdvert", "Unmask", "Masked", "Announce", "Registration", "RefusalNotice", "Update"} <= names
    assert len(kinds) >= 30


objects = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=70) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)
random_data = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda head, rest: bytes([0x90 + head]) + rest, st.integers(0, 6), st.binary(max_size=200)),
    st.builds(msgspec.msgpack.encode, objects),
    st.builds(
        lambda code, data: msgspec.msgpack.encode([msgspec.msgpack.Ext(code, data)]),
        st.integers(-128, 127),
        st.binary(max_size=40),
    ),
)


@settings(max_examples=examples(250))
@given(random_data)
def test_random_bytes(kinds: Any, data: bytes) -> None:
    for kind in kinds:  # 250 * 30 cases or more
        survives(kind, data)


@st.composite
def damage(draw: st.DrawFn) -> Any:
    """A way to spoil an encoding, whatever its length."""
    where, what = draw(st.floats(0, 1, exclude_max=True)), draw(st.binary(min_size=1, max_size=9))
    how = draw(st.sampled_from(["overwrite", "insert", "cut", "remove", "repeat"]))

    def spoil(data: bytes) -> bytes:
        at = int(where * len(data))
        return {
            "overwrite": data[:at] + what + data[at + len(what) :],
            "insert": data[:at] + what + data[at:],
            "cut": data[:at],
            "remove": data[:at] + data[at + 1 :],
            "repeat": data[:at] + data[at:] * 2,
        }[how]

    return spoil


@settings(max_examples=examples(400))
@given(st.data(), st.lists(damage(), min_size=10, max_size=10))
def test_spoilt_messages(kinds: Any, data: st.DataObject, damages: Any) -> None:
    kind = data.draw(st.sampled_from(kinds))
    valid = encode(data.draw(messages_of(kind)))
    for spoil in damages:  # 4,000 cases
        survives(kind, spoil(valid))
    for other in kinds[:: max(1, len(kinds) // 8)]:  # 3,200 cases or more
        survives(other, valid)


@settings(max_examples=examples(200))
@given(st.data(), st.lists(damage(), min_size=10, max_size=10))
def test_spoilt_headers_of_detached_messages(kinds: Any, data: st.DataObject, damages: Any) -> None:
    kind = data.draw(st.sampled_from([kind for kind in kinds if "Vector" in str(kind.__annotations__)]))
    detached = detach(data.draw(messages_of(kind)))
    for spoil in damages:
        with contextlib.suppress(ProtocolError):
            assert type(attach(kind, spoil(detached.header), detached.vectors)) is kind


@given(st.data())
def test_every_prefix_of_a_message_is_refused(kinds: Any, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(kinds))
    valid = encode(data.draw(messages_of(kind)))
    for length in range(min(len(valid), 200)):
        with pytest.raises(ProtocolError):
            decode(kind, valid[:length])
    with pytest.raises(ProtocolError):
        decode(kind, valid + b"\x00")


# -- declared sizes --------------------------------------------------------------------------------------------------

HUGE = [
    (Lookup, b"\x91\xdd\xff\xff\xff\xff"),
    (Entries, b"\x91\xdd\xff\xff\xff\xff"),
    (Lookup, b"\xdd\xff\xff\xff\xff"),
    (ShareKeys, b"\x92\x01\xdd\xff\xff\xff\xff"),
    (ShareKeys, b"\x92\x01\xdd\x00\x01\x00\x00"),
    (RefusalNotice, b"\x91\xdb\xff\xff\xff\xff"),
    (Masked, b"\x91\xc9\xff\xff\xff\xff\x01"),
    *[
        (kind, b"\x91\xc9" + struct.pack(">IBBI", 5 + len(data), 1, bits, 2**32 - 1) + data)
        for kind in (Masked, Train)
        for bits in (0, 1, 8, 20, 64, 65, 255)
        for data in (b"", b"\x00", b"\x00" * 64)
    ],
]


@pytest.mark.parametrize(("kind", "data"), HUGE)
def test_declared_lengths_allocate_nothing(kind: type[Message], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(kind, encode(RefusalNotice("warm the decoders up")))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(kind, data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_deep_nesting_is_refused() -> None:
    for data in (b"\x91" * 100_000, b"\x81" * 100_000, b"\x91\xc1"):
        with pytest.raises(ProtocolError):
            decode(Lookup, data)


def test_unpacking_needs_memory_in_proportion_to_the_data() -> None:
    """One-bit elements take a byte each once unpacked, eight times their packed size, and little besides."""
    data = bytes(400_000)
    tracemalloc.start()
    try:
        assert len(Vector.unpack(data, 1, 8 * len(data))) == 8 * len(data)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(data)
    finally:
        tracemalloc.stop()


# -- vectors ---------------------------------------------------------------------------------------------------------


def masked(bits: int, length: int, data: bytes, code: int = 1) -> bytes:
    header = bytes([bits]) + length.to_bytes(4, "big")
    return msgspec.msgpack.encode([msgspec.msgpack.Ext(code, header + data)])


@pytest.mark.parametrize(
    "data",
    [
        masked(65, 0, b""),
        masked(255, 1, bytes(32)),
        masked(0, 1, bytes(3)),
        masked(0, 0, bytes(1)),
        masked(0, 2, bytes(4)),
        masked(8, 0, b"\x00"),
        masked(8, 2, b"\x00"),
        masked(20, 2, bytes(4)),
        masked(20, 2, bytes(6)),
        masked(20, 1, b"\x00\x00\x10"),  # the bit after the last element
        masked(20, 1, b"\x00\x00\x80"),
        masked(1, 7, b"\x80"),
        masked(8, 1, b"\x00", code=2),  # a placeholder, which never travels
        masked(8, 1, b"\x00", code=3),
        masked(8, 1, b"\x00", code=-1),  # MessagePack's timestamp
        msgspec.msgpack.encode([msgspec.msgpack.Ext(1, b"")]),
        msgspec.msgpack.encode([msgspec.msgpack.Ext(1, b"\x08\x00\x00\x00")]),
        msgspec.msgpack.encode([[1, 2, 3]]),
        msgspec.msgpack.encode([b"\x08\x00\x00\x00\x00"]),
        msgspec.msgpack.encode([None]),
        msgspec.msgpack.encode([]),
    ],
)
def test_vectors_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(Masked, data)


@pytest.mark.parametrize(("bits", "length", "size"), [(65, 0, 0), (200, 8, 200), (20, 2, 4), (0, 1, 8), (8, -1, 0)])
def test_unpacking_refuses_sizes_that_do_not_fit(bits: int, length: int, size: int) -> None:
    with pytest.raises(ProtocolError, match=naming("1 to 64 bits")):
        Vector.unpack(bytes(size), bits, length)


def test_not_a_number_is_a_float_like_others() -> None:
    """Whether it may be summed is for the protocol to say."""
    values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    decoded = decode(Masked, encode(Masked(Vector(values, 0)))).input
    assert decoded.values.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        (np.zeros(3, np.float64), 0),
        (np.zeros(3, np.float16), 0),
        (np.zeros(3, np.uint32), 0),
        (np.zeros(3, np.int64), 32),
        (np.zeros(3, np.float32), 32),
        (np.zeros(3, np.uint16), 17),
        (np.zeros(3, np.uint32), 33),
        (np.zeros((3, 1), np.uint32), 32),
        (np.zeros((), np.float32), 0),
        (np.zeros(3, np.uint64), 65),
        (np.zeros(3, np.uint64), -1),
    ],
)
def test_an_array_that_would_not_arrive_as_it_was_sent_is_no_vector(values: Any, bits: int) -> None:
    with pytest.raises(ValueError, match="vector"):
        Vector(values, bits)


# -- detached messages -----------------------------------------------------------------------------------------------


class NoVectors(list[Vector]):
    """As the server's stand-in for vectors that stay on the hosts."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return Vector(np.empty(0, np.uint8), 8)


@pytest.mark.parametrize("bits", [0, 1, 8, 20, 64])
@pytest.mark.parametrize("length", [0, 1, 5, 70_000])
def test_the_server_knows_the_shape_of_a_vector_that_it_does_not_have(bits: int, length: int) -> None:
    values = np.zeros(length, np.float32 if bits == 0 else np.uint64)
    there = attach(Masked, detach(Masked(Vector(values, bits))).header, NoVectors()).input
    assert (len(there), there.bits, there.packed_bytes) == (length, bits, Vector(values, bits).packed_bytes)
    if (length, bits) != (0, 8):
        assert isinstance(there, RemoteVector)
        with pytest.raises(ProtocolError, match=naming("host")):
            _ = there.values


def test_a_ring_that_does_not_exist_is_refused_without_its_vector_too() -> None:
    header = detach(Masked(Vector(np.zeros(3, np.uint32), 32))).header
    assert header.count(b"\x20\x00\x00\x00\x03") == 1
    with pytest.raises(ProtocolError):
        attach(Masked, header.replace(b"\x20\x00\x00\x00\x03", b"\x41\x00\x00\x00\x03"), NoVectors())


def test_a_vector_that_does_not_fit_its_place_is_refused() -> None:
    detached = detach(Masked(Vector(np.zeros(3, np.uint32), 32)))
    for other in (np.zeros(2, np.uint32), np.zeros(3, np.uint64)):
        with pytest.raises(ProtocolError):
            attach(Masked, detached.header, [Vector(other, 8 * other.itemsize)])
    with pytest.raises(ProtocolError, match="missing vector"):
        attach(Masked, detached.header[:-1] + b"\x07", detached.vectors)
