"""Frames between the two processes: the length of a header, the header (JSON), and the bytes that it announces."""

import json
import struct
from collections.abc import Mapping
from typing import IO, Any


def write_frame(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Write one frame.

    Args:
        stream: open for writing.
        header: plain data.
        payload: further bytes.
    """
    text = json.dumps({**header, "bytes": len(payload)}).encode()
    stream.write(struct.pack(">I", len(text)) + text + payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Read the next frame; None at the end of the stream."""
    length = stream.read(4)
    # The other side has closed the pipe, perhaps in the middle of a frame.
    if len(length) < 4:
        return None
    header = json.loads(stream.read(struct.unpack(">I", length)[0]))
    return header, stream.read(header["bytes"])
