"""Dense vectors in messages: ring elements or floats, packed without gaps."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import ProtocolError

FLOAT32 = 0
"""Value in place of a ring's width: the elements are float32."""
WIDEST_RING = 64
"""Largest width of a ring, in bits."""
HEADER_BYTES = 5
"""Bytes of a vector's header on the wire: bits (1 byte), length (4 bytes)."""
# Elements packed at a time: bounds the memory for intermediate arrays. A multiple of 8, so that chunks end at bytes.
_CHUNK = 1 << 15


class Vector:
    """A vector in a message: ring elements modulo ``2**bits``, or float32. Its elements must not change.

    Compressed vectors (`testbed.vectors.compressed`) have the number of their form as ``bits``.

    Args:
        values: ``(d,)``; unsigned integers below ``2**bits``, or float32 if ``bits`` is 0.
        bits: ring width, 1 to 64; 0 for float32.

    Raises:
        ValueError: the array's type does not fit ``bits``, so that the vector would change on the wire.

    Example:
        >>> vector = Vector(np.array([1, 5, 7, 0], np.uint32), bits=3)
        >>> len(vector), vector.packed_bytes, vector.pack().hex()
        (4, 2, 'e901')
    """

    __slots__ = ("_digest", "_values", "bits")

    def __init__(self, values: npt.NDArray[Any], bits: int) -> None:
        # The header has one byte for the width; numbers above 64 are the forms of compressed vectors.
        if not 0 <= bits <= WIDEST_RING:
            raise ValueError(f"a vector's ring must have 1 to 64 bits (0 for float32), not {bits}")
        kind, width = values.dtype.kind, 8 * values.dtype.itemsize
        fits = (kind, width) == ("f", 32) if bits == FLOAT32 else kind == "u" and width >= bits
        if not fits or values.ndim != 1:
            expected = "float32" if bits == FLOAT32 else f"unsigned integers of {bits} bits or more"
            raise ValueError(f"a vector must be {expected}, (d,), not {values.dtype} {values.shape}")
        self._values = values
        self._digest: bytes | None = None
        self.bits = bits

    @property
    def values(self) -> npt.NDArray[Any]:
        """(d,) the elements."""
        return self._values

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return the elements `begin` to `end`, possibly computed for this call; for a single pass."""
        return self.values[begin:end]

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats, compressed or not, instead of ring elements."""
        return not 1 <= self.bits <= WIDEST_RING

    @property
    def sum_bits(self) -> int:
        """Width in bits of the ring in which such vectors are summed."""
        return self.bits

    def header(self) -> bytes:
        """Return the header that precedes the elements on the wire."""
        return self.bits.to_bytes(1, "big") + len(self).to_bytes(4, "big")

    def __len__(self) -> int:
        return len(self._values)

    @property
    def packed_bytes(self) -> int:
        """Length of the packed elements in bytes."""
        return _packed_bytes(len(self), self.bits)

    def pack(self) -> bytes:
        """Return the elements as bytes, least significant bit first, without gaps between them."""
        if self.bits == FLOAT32:
            return self.values.astype("<f4", copy=False).tobytes()
        width = _word_bytes(self.bits)
        if self.bits == 8 * width:
            return self.values.astype(f"<u{width}", copy=False).tobytes()
        return b"".join(self._packed_chunk(begin, width) for begin in range(0, len(self), _CHUNK))

    def _packed_chunk(self, begin: int, width: int) -> bytes:
        words = np.ascontiguousarray(self.values[begin : begin + _CHUNK], dtype=f"<u{width}")
        bits = np.unpackbits(words.view(np.uint8).reshape(-1, width), axis=1, bitorder="little")
        return np.packbits(bits[:, : self.bits], bitorder="little").tobytes()

    def digest(self, *, anew: bool = False) -> bytes:
        """Return the SHA-256 of the shape and the packed elements, 32 bytes.

        The digest is cached, as clients of one host share a vector.

        Args:
            anew: compute the digest again, as each client would that shares this vector only within the emulator.
        """
        if self._digest is None or anew:
            hashed = hashlib.sha256(self.header())
            hashed.update(self._packed())
            self._digest = hashed.digest()
        return self._digest

    def _packed(self) -> Any:
        """Return the result of `pack`, without a copy for float32 in wire order."""
        if self.bits == FLOAT32:
            return np.ascontiguousarray(self.values, "<f4").data
        return self.pack()

    @classmethod
    def unpack(cls, data: bytes, bits: int, length: int) -> "Vector":
        """Decode the result of `pack`.

        The memory is proportional to `data`, for any `length`.

        Args:
            data: the packed elements.
            bits: ring width, or 0 for float32.
            length: number of elements.

        Raises:
            ProtocolError: the sizes do not fit, or bits beyond the last element are set.

        Example:
            >>> Vector.unpack(Vector(np.array([1, 2, 3], np.uint8), 2).pack(), 2, 3).values.tolist()
            [1, 2, 3]
        """
        # Before any allocation: a header alone must not make the receiver allocate memory.
        if bits > WIDEST_RING or len(data) != _packed_bytes(length, bits):
            raise ProtocolError(
                f"a vector of {length} elements of {bits} bits does not have {len(data)} bytes (rings: 1 to 64 bits)"
            )
        if bits == FLOAT32:
            return cls(np.frombuffer(data, dtype="<f4"), bits)
        width = _word_bytes(bits)
        if bits == 8 * width:
            return cls(np.frombuffer(data, dtype=f"<u{width}"), bits)
        unused = -length * bits % 8
        # Otherwise one vector would have several encodings, with different digests.
        if unused and data[-1] >> (8 - unused):
            raise ProtocolError("a vector has bits set beyond its last element")
        values = np.empty(length, f"<u{width}")
        packed = np.frombuffer(data, np.uint8)
        for begin in range(0, length, _CHUNK):
            part = values[begin : begin + _CHUNK]
            flat = np.unpackbits(packed[begin * bits // 8 : -(-(begin + len(part)) * bits // 8)], bitorder="little")
            unpacked = np.zeros((len(part), 8 * width), np.uint8)
            unpacked[:, :bits] = flat[: len(part) * bits].reshape(len(part), bits)
            part[:] = np.packbits(unpacked, axis=1, bitorder="little").view(f"<u{width}").reshape(-1)
        return cls(values, bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.bits == other.bits and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]  # cannot be hashed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{len(self)} elements>, bits={self.bits})"


class RemoteVector(Vector):
    """Vector that stays on its client's host: here only its shape is available, not its values.

    Args:
        length: d.
        bits: as in `Vector`.
    """

    __slots__ = ("_length",)

    def __init__(self, length: int, bits: int) -> None:
        self._length = length
        self.bits = bits

    @property
    def values(self) -> npt.NDArray[Any]:
        """Unavailable: raises `ProtocolError`, as the values are on the host."""
        raise ProtocolError("this vector stays on its host; ask for the sum with `Replies.total`")

    def __len__(self) -> int:
        return self._length


def _word_bytes(bits: int) -> int:
    return 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8


def _packed_bytes(length: int, bits: int) -> int:
    return 4 * length if bits == FLOAT32 else -(-length * bits // 8)
