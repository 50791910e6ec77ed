"""The `transport` of a link: overhead of headers; opening, sending and loss recovery of connections.

Headers. For a message of s bytes, with the numbers of a `Transport`:

    stream  = s + per_message_bytes + round(per_byte s) + record_overhead_bytes ceil(s / record_bytes)
    packets = ceil(stream / segment_bytes)
    same way:  stream - s + packet_bytes packets
    other way: acknowledgement_bytes ceil(packets / segments_per_acknowledgement)

The presets:

- `tcp`: 1448 bytes a segment (an Ethernet frame's 1500, less 20 of IPv4, RFC 791, and 32 of TCP, RFC 9293, with the
  timestamps option of RFC 7323) and 66 bytes of headers to each: these 52 and 14 of Ethernet. Interfaces count these
  bytes; they do not count frame check sequence, preamble and gap, which are left out here, too. A bare acknowledgement
  is 66 bytes, one for every two segments (delayed acknowledgement, RFC 1122 section 4.2.3.2). CUBIC, as in Linux.
- `tls`: `tcp`, and 22 bytes for each record of at most 16384 (TLS 1.3, RFC 8446 section 5: header 5, content type 1,
  authentication tag 16), and its handshake.
- `quic`: 1200 bytes of stream to a datagram (RFC 9000 section 14: the minimum that every path carries), 73 of headers
  (14 of Ethernet, 20 of IPv4, 8 of UDP, 11 of a short header with a connection identifier of 8, 4 of a STREAM frame's
  and 16 of the authentication tag), CUBIC (RFC 9002 leaves the choice), and its handshake of one round trip.

Not counted in bytes: window probes, keep-alives, and an application's framing of messages (use `per_message_bytes`).
The last acknowledgement of a message waits `acknowledgement_delay_s` for data that carries it
(`delayed_acknowledgement`), if it stands for fewer segments than the others; all other acknowledgements go alone.

Without a `congestion_control` the transport takes no time: a message is sent at once, and lasts one latency plus its
bytes divided by the rate.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Ids

_Bytes = Annotated[int, Field(ge=0, le=10**9)]
_Size = Annotated[int, Field(gt=0, le=10**9)]


Handshake = Literal["none", "tcp", "tls", "tls-resumed", "tls-0rtt", "quic", "quic-0rtt"]
CongestionControl = Literal["none", "reno", "cubic", "bbr"]


@dataclass(frozen=True)
class HandshakeCost:
    """Cost of opening a connection. The client begins; then the server may send.

    Attributes:
        round_trips: round trips until the server can send its first message.
        bytes_down, bytes_up: bytes on the link, headers included.
    """

    round_trips: float
    bytes_down: int
    bytes_up: int


# TCP: RFC 9293. TLS 1.3 (RFC 8446) with a chain of two certificates, 2.5 kB; the server waits for the client's
# Finished, but answers early data at once. QUIC: RFC 9000, 9001, with first datagrams of 1200 bytes and headers of 42.
HANDSHAKES: dict[Handshake, HandshakeCost] = {
    "none": HandshakeCost(0, 0, 0),
    "tcp": HandshakeCost(1.5, 74, 140),
    "tls": HandshakeCost(2.5, 3200, 870),
    "tls-resumed": HandshakeCost(2.5, 420, 1000),
    "tls-0rtt": HandshakeCost(1.5, 420, 1000),
    "quic": HandshakeCost(1.5, 3730, 2500),
    "quic-0rtt": HandshakeCost(0.5, 1800, 2500),
}


class Transport(BaseModel):
    """A stack of protocols; by default there is none, and it costs nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: Literal["none", "tcp", "tls", "quic"] = Field(
        "none", description="Source of the values of keys that are not set"
    )
    congestion_control: CongestionControl = Field(
        "none", description="Algorithm of the congestion window; none: messages are sent at once"
    )
    connection: Literal["persistent", "per-round", "per-stage"] = Field(
        "per-round",
        description="Lifetime of a client's connection; persistent: until the client goes offline or drops out",
    )
    handshake: Handshake = Field("none", description="Handshake that opens a connection before the first message")
    initial_window_segments: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="Segments that a new connection may send at once (RFC 6928: 10)"
    )
    slow_start_after_idle: bool = Field(
        True, description="A connection idle for longer than its retransmission time-out starts again (RFC 5681, 4.1)"
    )
    window_limit_bytes: _Size = Field(
        3_000_000, description="Largest number of bytes under way: the smaller of send buffer and receiver's window"
    )
    minimum_timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(
        0.2, description="Minimum retransmission time-out beyond the round trip (Linux: 0.2 s; RFC 6298: 1 s)"
    )
    per_message_bytes: _Bytes = Field(0, description="Bytes added to every message, e.g. by a length prefix")
    per_byte: Annotated[float, Field(ge=0, le=100)] = Field(0.0, description="Bytes added for every byte of a message")
    record_bytes: _Size | None = Field(None, description="Most bytes of a message in one record (TLS: 16384)")
    record_overhead_bytes: _Bytes = Field(0, description="Bytes added to every record (TLS 1.3: 22)")
    segment_bytes: _Size | None = Field(None, description="Most bytes of the stream in one packet (TCP: 1448)")
    packet_bytes: _Bytes = Field(0, description="Headers of every packet (TCP over IPv4 and Ethernet: 66)")
    acknowledgement_bytes: _Bytes = Field(0, description="Size of an acknowledgement, sent the other way (TCP: 66)")
    segments_per_acknowledgement: _Size = Field(2, description="Packets that one acknowledgement stands for")
    acknowledgement_delay_s: Annotated[float, Field(ge=0, le=10)] = Field(
        0.04, description="Seconds that the last acknowledgement waits for an answer that carries it (Linux: 40 ms)"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, keys: Any) -> Any:
        """Set keys that are not given to the preset's values."""
        preset = keys.get("preset") if isinstance(keys, dict) else None
        preset_keys = _PRESET_KEYS.get(preset) if isinstance(preset, str) else None
        return keys if preset_keys is None else {**preset_keys, **keys}

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        if self.has_windows and self.segment_bytes is None:
            raise ValueError("`congestion_control` needs `segment_bytes`; set it, or `preset: tcp`")
        if not self.has_windows:
            preset = _PRESET_KEYS.get(self.preset, {})
            for key in _NEED_WINDOWS:
                default = type(self).model_fields[key].default
                if getattr(self, key) not in (default, preset.get(key, default)):
                    raise ValueError(f"`{key}` needs `congestion_control`, else it has no effect; or set `preset: tcp`")
        return self

    @property
    def has_windows(self) -> bool:
        """Whether congestion windows hold messages back."""
        return self.congestion_control != "none"

    def overhead(self, size_bytes: npt.ArrayLike) -> tuple[Ids, Ids]:
        """Return the bytes that messages of these sizes cost beyond their own.

        Args:
            size_bytes: `(n,)` int64 bytes, at least 0; an empty message is not sent and costs nothing.

        Returns:
            (same_way, other_way): `(n,)` int64 each.

        Raises:
            ValueError: a negative size.

        Example:
            >>> [bytes_.tolist() for bytes_ in TCP.overhead([1000, 2896])]
            [[66, 132], [66, 66]]
        """
        size = np.asarray(size_bytes, np.int64)
        if (size < 0).any():
            raise ValueError("a message cannot have a negative size")
        stream, packets = self._stream_and_packets(size)
        same_way = stream - size + self.packet_bytes * packets
        other_way = self.acknowledgement_bytes * _parts(packets, self.segments_per_acknowledgement)
        return np.where(size > 0, same_way, 0), np.where(size > 0, other_way, 0)

    def delayed_acknowledgement(self, size_bytes: npt.ArrayLike) -> Ids:
        """Return the bytes of the acknowledgement that an answer within `acknowledgement_delay_s` saves.

        Args:
            size_bytes: `(n,)` int64 bytes, at least 0, of the messages that are answered.

        Returns:
            `(n,)` int64, a part of the bytes that `overhead` counts the other way; 0 if the last acknowledgement is not
            delayed.
        """
        size = np.asarray(size_bytes, np.int64)
        _, packets = self._stream_and_packets(size)
        waits = (size > 0) & (packets % self.segments_per_acknowledgement > 0)
        return np.where(waits, self.acknowledgement_bytes, 0)

    def packets(self, size_bytes: npt.ArrayLike) -> Ids:
        """Return the `(n,)` int64 packets of messages of these sizes; 0 for an empty message."""
        size = np.asarray(size_bytes, np.int64)
        return np.where(size > 0, self._stream_and_packets(size)[1], 0)

    def _stream_and_packets(self, size: Ids) -> tuple[Ids, Ids]:
        stream = size + self.per_message_bytes + np.rint(self.per_byte * size).astype(np.int64)
        if self.record_bytes is not None:
            stream += self.record_overhead_bytes * _parts(size, self.record_bytes)
        packets = np.zeros_like(size) if self.segment_bytes is None else _parts(stream, self.segment_bytes)
        return stream, packets


_NEED_WINDOWS = (
    "connection",
    "handshake",
    "initial_window_segments",
    "slow_start_after_idle",
    "window_limit_bytes",
    "minimum_timeout_s",
)
_TCP_KEYS = {
    "congestion_control": "cubic",
    "handshake": "tcp",
    "segment_bytes": 1448,
    "packet_bytes": 66,
    "acknowledgement_bytes": 66,
    "segments_per_acknowledgement": 2,
}
_PRESET_KEYS: dict[str, dict[str, Any]] = {
    "tcp": _TCP_KEYS,
    "tls": {**_TCP_KEYS, "handshake": "tls", "record_bytes": 16_384, "record_overhead_bytes": 22},
    "quic": {**_TCP_KEYS, "handshake": "quic", "segment_bytes": 1200, "packet_bytes": 73, "acknowledgement_bytes": 75},
}
NO_TRANSPORT = Transport()
TCP, TLS, QUIC = (Transport.model_validate({"preset": name}) for name in ("tcp", "tls", "quic"))
PRESETS = {"none": NO_TRANSPORT, "tcp": TCP, "tls": TLS, "quic": QUIC}


def _parts(amount: Ids, divisor: int) -> Ids:
    """Return `ceil(amount / divisor)`."""
    return -(-amount // divisor)
