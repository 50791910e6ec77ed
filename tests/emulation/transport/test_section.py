"""Headers and acknowledgements: the formulas against packets counted one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.emulation.links import Transport
from testbed.emulation.transport.section import NO_TRANSPORT, PRESETS, TCP, TLS


def test_tcp_in_numbers() -> None:
    same_way, other_way = TCP.overhead([0, 1, 1448, 1449, 2 * 1448, 2 * 1448 + 1])
    assert same_way.tolist() == [0, 66, 66, 132, 132, 198]
    assert other_way.tolist() == [0, 66, 66, 66, 66, 132]


def test_tls_in_numbers() -> None:
    # 1426 + 22 fills one packet; 16385 bytes are two records: 16429 bytes, 12 packets.
    same_way, other_way = TLS.overhead([0, 1, 1426, 1427, 16_384, 16_385])
    assert same_way.tolist() == [0, 88, 88, 154, 22 + 12 * 66, 44 + 12 * 66]
    assert other_way.tolist() == [0, 66, 66, 66, 6 * 66, 6 * 66]


def test_nothing_is_added_by_default() -> None:
    assert PRESETS["none"] is NO_TRANSPORT
    for part in Transport().overhead([0, 1, 10**12]):
        assert part.dtype == np.int64
        assert not part.any()


def counted(transport: Transport, size: int) -> tuple[int, int]:
    """By sending the bytes of one message packet by packet."""
    if size == 0:
        return 0, 0
    stream = size + transport.per_message_bytes + round(transport.per_byte * size)
    left = size
    while transport.record_bytes and left > 0:
        left -= transport.record_bytes
        stream += transport.record_overhead_bytes
    headers, acknowledgements, unacknowledged, left = 0, 0, 0, stream
    while transport.segment_bytes and left > 0:
        left -= transport.segment_bytes
        headers += transport.packet_bytes
        unacknowledged += 1
        if unacknowledged == transport.segments_per_acknowledgement or left <= 0:
            acknowledgements += transport.acknowledgement_bytes
            unacknowledged = 0
    return stream - size + headers, acknowledgements


settings = st.builds(
    Transport,
    per_message_bytes=st.integers(0, 50),
    per_byte=st.sampled_from([0.0, 0.25, 1.5]),
    record_bytes=st.none() | st.integers(50, 500),
    record_overhead_bytes=st.integers(0, 30),
    segment_bytes=st.none() | st.integers(20, 300),
    packet_bytes=st.integers(0, 80),
    acknowledgement_bytes=st.integers(0, 80),
    segments_per_acknowledgement=st.integers(1, 4),
)


@given(settings | st.sampled_from([TCP, TLS]), st.lists(st.integers(0, 5000), min_size=1, max_size=5))
def test_as_if_packets_were_counted_one_by_one(transport: Transport, sizes: list[int]) -> None:
    same_way, other_way = transport.overhead(sizes)
    assert list(zip(same_way.tolist(), other_way.tolist(), strict=True)) == [counted(transport, size) for size in sizes]


@given(settings, st.integers(1, 5000), st.integers(1, 5000))
def test_a_larger_message_never_costs_less(transport: Transport, size: int, more: int) -> None:
    for part in transport.overhead([size, size + more]):
        assert part[0] <= part[1]


def test_sizes_of_many_gigabytes() -> None:
    same_way, _ = TCP.overhead([10**13])
    assert same_way[0] == -(-(10**13) // 1448) * 66


@pytest.mark.parametrize(
    "wrong",
    [{"per_message_bytes": -1}, {"per_byte": float("nan")}, {"segment_bytes": 0}, {"segments_per_acknowledgement": 0},
     {"packets": 3}, {"record_bytes": 1.5}],
)  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError) as caught:
        Transport.model_validate(wrong)
    assert caught.value.error_count() == 1


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="negative size"):
        TCP.overhead([5, -1])


def test_the_last_acknowledgement_rides_on_an_answer_if_it_stands_for_a_single_segment() -> None:
    sizes = np.array([0, 1, 1448, 1449, 2896, 2897])
    assert TCP.delayed_acknowledgement(sizes).tolist() == [0, 66, 66, 0, 0, 66]
    assert NO_TRANSPORT.delayed_acknowledgement(sizes).tolist() == [0] * 6
    assert (TCP.delayed_acknowledgement(sizes) <= TCP.overhead(sizes)[1]).all()
