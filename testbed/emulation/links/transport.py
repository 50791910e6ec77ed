"""What the layers below a message add to it: headers of packets and records, and acknowledgements the other way.

For a message of s bytes, with the numbers of a `Transport`:

    stream  = s + per_message_bytes + round(per_byte s) + record_overhead_bytes ceil(s / record_bytes)
    packets = ceil(stream / segment_bytes)
    same way:  stream - s + packet_bytes packets
    other way: acknowledgement_bytes ceil(packets / segments_per_acknowledgement)

The presets:

- `tcp`: 1448 bytes a segment (an Ethernet frame's 1500, less 20 of IPv4, RFC 791, and 32 of TCP, RFC 9293, with the
  timestamps option of RFC 7323) and 66 bytes of headers to each (the 52 just named and 14 of Ethernet, which is what an
  interface counts; the frame check sequence, preamble and gap are not counted by interfaces and left out). A bare
  acknowledgement is those 66 bytes, one for every two segments (delayed acknowledgement, RFC 1122 section 4.2.3.2).
- `tls`: the same, and 22 bytes for each record of at most 16384 (TLS 1.3, RFC 8446 section 5: header 5, content type 1,
  authentication tag 16).

A connection is kept open for the whole run, so there is no handshake to a message. Not counted: retransmissions, window
probes, keep-alives, and what an application adds to find the end of a message (`per_message_bytes` is for that). The
last acknowledgement of a message, if it stands for fewer segments than the others, waits `acknowledgement_delay_s` for
data to ride on (`delayed_acknowledgement`); all others go alone.
"""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Ids

_Bytes = Annotated[int, Field(ge=0, le=10**9)]
_Size = Annotated[int, Field(gt=0, le=10**9)]


class Transport(BaseModel):
    """The overhead of a stack of protocols; by default there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    per_message_bytes: _Bytes = Field(0, description="Bytes added to every message, e.g. by a length prefix")
    per_byte: Annotated[float, Field(ge=0, le=100)] = Field(0.0, description="Bytes added for every byte of a message")
    record_bytes: _Size | None = Field(None, description="Most bytes of a message in one record (TLS: 16384)")
    record_overhead_bytes: _Bytes = Field(0, description="Bytes added to every record (TLS 1.3: 22)")
    segment_bytes: _Size | None = Field(None, description="Most bytes of the stream in one packet (TCP: 1448)")
    packet_bytes: _Bytes = Field(0, description="Headers of every packet (TCP over IPv4 and Ethernet: 66)")
    acknowledgement_bytes: _Bytes = Field(0, description="Size of an acknowledgement, sent the other way (TCP: 66)")
    segments_per_acknowledgement: _Size = Field(2, description="Packets that one acknowledgement stands for")
    acknowledgement_delay_s: Annotated[float, Field(ge=0, le=10)] = Field(
        0.04, description="How long the last one waits for an answer to ride on (Linux: 40 ms)"
    )

    def overhead(self, size_bytes: npt.ArrayLike) -> tuple[Ids, Ids]:
        """Bytes that messages of these sizes cost beyond their own.

        Args:
            size_bytes: `(n,)` int64 bytes, at least 0; a message of nothing is not sent and costs nothing.

        Returns:
            (same_way, other_way): `(n,)` int64 each.

        Raises:
            ValueError: a negative size.
        """
        size = np.asarray(size_bytes, np.int64)
        if (size < 0).any():
            raise ValueError("a message cannot have a negative size")
        stream, packets = self._stream_and_packets(size)
        same_way = stream - size + self.packet_bytes * packets
        other_way = self.acknowledgement_bytes * _parts(packets, self.segments_per_acknowledgement)
        return np.where(size > 0, same_way, 0), np.where(size > 0, other_way, 0)

    def delayed_acknowledgement(self, size_bytes: npt.ArrayLike) -> Ids:
        """Bytes of the acknowledgement that is saved when an answer follows within `acknowledgement_delay_s`.

        Args:
            size_bytes: `(n,)` int64 bytes, at least 0, of the messages that are answered.

        Returns:
            `(n,)` int64; part of what `overhead` counts the other way, 0 if the last acknowledgement is not delayed.
        """
        size = np.asarray(size_bytes, np.int64)
        _, packets = self._stream_and_packets(size)
        waits = (size > 0) & (packets % self.segments_per_acknowledgement > 0)
        return np.where(waits, self.acknowledgement_bytes, 0)

    def _stream_and_packets(self, size: Ids) -> tuple[Ids, Ids]:
        stream = size + self.per_message_bytes + np.rint(self.per_byte * size).astype(np.int64)
        if self.record_bytes is not None:
            stream += self.record_overhead_bytes * _parts(size, self.record_bytes)
        packets = np.zeros_like(size) if self.segment_bytes is None else _parts(stream, self.segment_bytes)
        return stream, packets


NO_TRANSPORT = Transport()
TCP = Transport(segment_bytes=1448, packet_bytes=66, acknowledgement_bytes=66, segments_per_acknowledgement=2)
TLS = TCP.model_copy(update={"record_bytes": 16_384, "record_overhead_bytes": 22})
PRESETS = {"none": NO_TRANSPORT, "tcp": TCP, "tls": TLS}


def _parts(amount: Ids, of: int) -> Ids:
    """`ceil(amount / of)`."""
    return -(-amount // of)
