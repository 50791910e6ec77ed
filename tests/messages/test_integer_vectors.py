"""Integers of a field on the wire and in sums, which do not wrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ProtocolError
from testbed.messages import Message, Vector, attach, decode, detach, encode
from testbed.network.sums import merged, ring_total
from testbed.vectors.dense import RemoteVector
from testbed.vectors.integers import INTEGERS, IntegerVector
from tests.messages_named import naming

ELEMENTS = st.integers(0, 2**32 - 1)


class Sent(Message, frozen=True):
    input: Vector


def vector(values: list[int]) -> IntegerVector:
    return IntegerVector(np.array(values, np.uint32))


@given(st.lists(ELEMENTS, max_size=20))
def test_they_arrive_as_they_were_sent_four_bytes_each(values: list[int]) -> None:
    sent = Sent(vector(values))
    received = decode(Sent, encode(sent)).input
    assert isinstance(received, IntegerVector)
    assert received.values.tolist() == values
    assert received.packed_bytes == len(received.pack()) == 4 * len(values)
    assert detach(sent).size == len(encode(sent))
    assert not received.is_float


@given(st.lists(st.lists(ELEMENTS, min_size=3, max_size=3), min_size=1, max_size=9), st.integers(0, 9))
def test_sums_do_not_wrap_however_they_are_grouped(rows: list[list[int]], cut: int) -> None:
    vectors = [vector(row) for row in rows]
    expected = [sum(column) for column in zip(*rows, strict=True)]
    assert ring_total(vectors).materialised().tolist() == expected
    parts = [ring_total(some) for some in (vectors[:cut], vectors[cut:]) if some]
    assert merged(parts).materialised().tolist() == expected


def test_the_server_sees_the_shape_and_the_form_alone() -> None:
    seen = attach(Sent, detach(Sent(vector([1, 2]))).header, [Vector(np.zeros(0, np.float32), 0)]).input
    assert isinstance(seen, RemoteVector)
    assert (seen.bits, len(seen)) == (INTEGERS, 2)


def test_what_is_not_so_is_refused() -> None:
    with pytest.raises(ValueError, match=naming("32 bits", "uint64")):
        IntegerVector(np.zeros(3, np.uint64))
    with pytest.raises(ProtocolError):
        decode(Sent, encode(Sent(vector([1, 2])))[:-1])
    with pytest.raises(ProtocolError, match=naming("vectors", "differ")):
        ring_total([vector([1]), Vector(np.zeros(1, np.uint32), 32)])
