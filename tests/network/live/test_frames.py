"""Frames come back as they were packed, and nothing else is taken for one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.live import wire
from testbed.network.live.wire import Address, AnswerHeader, FramingError, QuestionHeader
from tests.messages_named import naming

SECONDS = st.floats(0, 1e9)
SIZES = st.integers(0, wire.LARGEST_PART)
ROUNDS = st.integers(0, 2**40)
NUMBERS = st.integers(0, 2**31)


@given(
    st.builds(
        QuestionHeader, st.integers(0, 3), ROUNDS, NUMBERS, st.integers(0, 2**16 - 1), SECONDS, SECONDS, SIZES,
        st.none() | SIZES, ROUNDS,
    )
)  # fmt: skip
def test_a_question_header_comes_back(header: QuestionHeader) -> None:
    data = header.pack()
    assert len(data) == wire.QUESTION_HEADER
    assert QuestionHeader.unpack(data) == header


@given(
    st.builds(AnswerHeader, st.integers(0, 4), ROUNDS, NUMBERS, ROUNDS, SECONDS, SECONDS, SIZES, SIZES, SIZES)
)  # fmt: skip
def test_an_answer_header_comes_back(header: AnswerHeader) -> None:
    data = header.pack()
    assert len(data) == wire.ANSWER_OVERHEAD
    assert AnswerHeader.unpack(data) == header


@given(st.binary(max_size=100))
def test_noise_is_an_error_or_a_header_within_the_limits(data: bytes) -> None:
    for kind in (QuestionHeader, AnswerHeader):
        try:
            header = kind.unpack(data)
        except FramingError:
            continue
        assert header.pack() == data


@given(st.binary(min_size=wire.ANSWER_OVERHEAD, max_size=wire.ANSWER_OVERHEAD), st.integers(0, 1000))
def test_no_header_announces_more_than_is_allowed(data: bytes, largest: int) -> None:
    try:
        header = AnswerHeader.unpack(b"\0" + data[1:], largest)
    except FramingError:
        return
    assert header.length <= largest
    assert math.isfinite(header.compute_s)


@given(st.integers(0, 2**64 - 1), st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16))
def test_a_client_with_the_token_is_admitted_under_its_own_number(client: int, token: bytes, nonce: bytes) -> None:
    greeting = wire.greeting(token, wire.challenge(nonce), client)
    assert wire.greeted(token, nonce, greeting) == client
    assert token not in greeting
    renumbered = greeting[:4] + (client ^ 1).to_bytes(8, "big") + greeting[12:]
    for wrong in (greeting[:-1], renumbered, greeting[:-1] + bytes([greeting[-1] ^ 1]), b"XXXX" + greeting[4:]):
        with pytest.raises(FramingError):
            wire.greeted(token, nonce, wrong)
    with pytest.raises(FramingError):
        wire.greeted(bytes([token[0] ^ 1]) + token[1:], nonce, greeting)
    with pytest.raises(FramingError):
        wire.greeted(token, bytes([nonce[0] ^ 1]) + nonce[1:], greeting)


def test_a_client_greets_nothing_but_a_live_network() -> None:
    with pytest.raises(FramingError, match=naming("live network")):
        wire.greeting(bytes(32), b"HTTP" + bytes(16), 0)
    with pytest.raises(FramingError):
        wire.greeting(bytes(32), b"short", 0)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Address("127.0.0.1", 1234, b"secret" * 6))


def test_the_overhead_is_the_header_of_a_question() -> None:
    assert wire.question_overhead("train") == wire.QUESTION_HEADER + 5
