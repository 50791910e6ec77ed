"""Headers and acknowledgements: the formulas against packets counted one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.emulation.links import Transport
from testbed.emulation.transport.section import HANDSHAKES, NO_TRANSPORT, PRESETS, QUIC, TCP, TLS


def test_tcp_in_numbers() -> None:
    same_way, other_way = TCP.overhead([0, 1, 1448, 1449, 2 * 1448, 2 * 1448 + 1])
    assert same_way.tolist() == [0, 66, 66, 132, 132, 198]
    assert other_way.tolist() == [0, 66, 66, 66, 66, 132]


def test_tls_in_numbers() -> None:
    # 1426 + 22 fills one packet; 16385 bytes are two records: 16429 bytes, 12 packets.
    same_way, other_way = TLS.overhead([0, 1, 1426, 1427, 16_384, 16_385])
    assert same_way.tolist() == [0, 88, 88, 154, 22 + 12 * 66, 44 + 12 * 66]
    assert other_way.tolist() == [0, 66, 66, 66, 6 * 66, 6 * 66]


def test_quic_in_numbers() -> None:
    # 14 of Ethernet, 20 of IPv4, 8 of UDP, then 11 + 4 + 16: RFC 9000, 17.3, 19.8; RFC 9001, 5.3.
    assert QUIC.packet_bytes == 14 + 20 + 8 + 11 + 4 + 16
    same_way, other_way = QUIC.overhead([0, 1, 1200, 1201, 2400, 2401])
    assert same_way.tolist() == [0, 73, 73, 146, 146, 219]
    assert other_way.tolist() == [0, 75, 75, 75, 75, 150]


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


@given(settings | st.sampled_from([TCP, TLS, QUIC]), st.lists(st.integers(0, 5000), min_size=1, max_size=5))
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
     {"packets": 3}, {"record_bytes": 1.5}, {"initial_window_segments": 0}, {"initial_window_segments": 1001},
     {"window_limit_bytes": 0}, {"minimum_timeout_s": 0}, {"minimum_timeout_s": 61}, {"acknowledgement_delay_s": -1},
     {"congestion_control": "vegas"}, {"congestion_control": "reno"}, {"preset": "tcp", "segment_bytes": None},
     {"connection": "for ever"}, {"handshake": "sctp"}, {"preset": "udp"}, {"preset": ["tcp"]}],
)  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError) as caught:
        Transport.model_validate(wrong)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("connection", "persistent"), ("handshake", "tls"), ("initial_window_segments", 1),
     ("slow_start_after_idle", False), ("window_limit_bytes", 1), ("minimum_timeout_s", 1)],
)  # fmt: skip
def test_keys_that_need_windows_are_refused_without_them(key: str, value: Any) -> None:
    for rest in ({}, {"preset": "none", "segment_bytes": 1448}, {"preset": "tcp", "congestion_control": "none"}):
        with pytest.raises(ValidationError, match=f"`{key}` needs `congestion_control`"):
            Transport.model_validate({key: value, **rest})
    for rest in ({"preset": "tcp"}, {"congestion_control": "reno", "segment_bytes": 1448}):
        assert getattr(Transport.model_validate({key: value, **rest}), key) == value


@pytest.mark.parametrize("preset", ["none", "tcp", "tls", "quic"])
def test_headers_alone_are_a_transport_and_stay_one(preset: str) -> None:
    for rest in ({}, {"handshake": "none"}):
        own = Transport.model_validate({"preset": preset, "congestion_control": "none", **rest})
        assert Transport.model_validate(own.model_dump()) == own
        assert own.overhead(5000)[0] == PRESETS[preset].overhead(5000)[0]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="negative size"):
        TCP.overhead([5, -1])


def test_the_last_acknowledgement_rides_on_an_answer_if_it_stands_for_a_single_segment() -> None:
    sizes = np.array([0, 1, 1448, 1449, 2896, 2897])
    assert TCP.delayed_acknowledgement(sizes).tolist() == [0, 66, 66, 0, 0, 66]
    assert NO_TRANSPORT.delayed_acknowledgement(sizes).tolist() == [0] * 6
    assert (TCP.delayed_acknowledgement(sizes) <= TCP.overhead(sizes)[1]).all()


@pytest.mark.parametrize("preset", ["tcp", "tls", "quic"])
def test_a_preset_sets_the_keys_that_are_left_out(preset: str) -> None:
    own = Transport.model_validate({"preset": preset, "congestion_control": "bbr", "connection": "per-stage"})
    assert own == PRESETS[preset].model_copy(update={"congestion_control": "bbr", "connection": "per-stage"})
    assert Transport.model_validate(own.model_dump()) == own
    assert Transport.model_validate({"preset": "none", "packet_bytes": 5}) == Transport(packet_bytes=5)
    assert not Transport.model_validate({"preset": preset, "congestion_control": "none"}).has_windows


def test_packets_of_a_message() -> None:
    assert TCP.packets([0, 1, 1448, 1449]).tolist() == [0, 1, 1, 2]
    assert TLS.packets([0, 1426, 1427]).tolist() == [0, 1, 2]
    assert NO_TRANSPORT.packets([0, 10_000]).tolist() == [0, 0]


def test_the_cost_of_connecting() -> None:
    """Half a round trip is the client's first flight; then one for each time that it has to wait for the server."""
    waits = {"tcp": 1, "tls": 2, "tls-resumed": 2, "tls-0rtt": 1, "quic": 1, "quic-0rtt": 0}
    assert {name: HANDSHAKES[name].round_trips for name in waits} == {name: 0.5 + wait for name, wait in waits.items()}
    assert set(waits) | {"none"} == set(HANDSHAKES)
    none = HANDSHAKES["none"]
    assert (none.round_trips, none.bytes_down, none.bytes_up) == (0, 0, 0)
    assert (HANDSHAKES["tcp"].bytes_down, HANDSHAKES["tcp"].bytes_up) == (74, 74 + 66)  # SYN and SYN-ACK have options
    for name in ("tls", "tls-resumed", "tls-0rtt", "quic", "quic-0rtt"):
        assert HANDSHAKES[name].bytes_down > HANDSHAKES["tcp"].bytes_down
        assert HANDSHAKES[name].bytes_up > HANDSHAKES["tcp"].bytes_up
    assert {name: transport.handshake for name, transport in PRESETS.items()} == {name: name for name in PRESETS}
