"""Messages: typed structs with one binary encoding (MessagePack, array-like), and the vectors they carry.

Decoding checks types, lengths and sizes, so malformed input is refused at the door with `ProtocolError`.
*Bytes on the wire* is the length of the actual encoding. A `Vector` is packed to its ring's bit width.

Vectors are large, so hosts do not copy them through the encoder: `detach` encodes a message with each vector
replaced by a placeholder and says how long the full encoding is; the arrays travel beside it. The property
``detach(m).size == len(encode(m))`` is tested.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from testbed.errors import ProtocolError

_VECTOR = 1  # MessagePack extension: bits (1 byte, 0 = float32), length (4 bytes), packed elements
_PLACEHOLDER = 2  # the same header, and the vector's position in `Detached.vectors`
_FLOAT32 = 0
_HEADER_BYTES = 5
_CONTENT_DOMAIN = b"testbed/message-content/v1"
_CHUNK = 1 << 15  # elements packed at a time, a multiple of 8: what a chunk needs besides its result stays small

Digest32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Key32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature64 = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
MOST_CLIENTS = 2**40
"""Of a population: client numbers and counts on the wire go no further."""
ClientId = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]
RoundNumber = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]


class Vector:
    """A vector in a message: ring elements modulo ``2**bits``, or float32. Its elements do not change once it is made.

    Args:
        values: ``(d,)``; unsigned integers below ``2**bits``, or float32 when ``bits`` is 0.
        bits: ring width, 1..64; 0 for float32.

    Raises:
        ValueError: if the array's type cannot be what `bits` says: it would not arrive as it was sent.
    """

    __slots__ = ("_digest", "_values", "bits")

    def __init__(self, values: npt.NDArray[Any], bits: int) -> None:
        if not 0 <= bits <= 64:
            raise ValueError(f"a vector's ring has 1 to 64 bits (0 for float32), not {bits}")
        kind, width = values.dtype.kind, 8 * values.dtype.itemsize
        fits = (kind, width) == ("f", 32) if bits == _FLOAT32 else kind == "u" and width >= bits
        if not fits or values.ndim != 1:
            wanted = "float32" if bits == _FLOAT32 else f"unsigned integers of {bits} bits or more"
            raise ValueError(f"a vector of {wanted}, (d,), is needed, not {values.dtype} {values.shape}")
        self._values = values
        self._digest: bytes | None = None
        self.bits = bits

    @property
    def values(self) -> npt.NDArray[Any]:
        """`(d,)` the elements."""
        return self._values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def packed_bytes(self) -> int:
        """Length of the packed elements in bytes."""
        return _packed_bytes(len(self), self.bits)

    def pack(self) -> bytes:
        """The elements, least significant bit first, without gaps between them."""
        if self.bits == _FLOAT32:
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
        """32 bytes: SHA-256 of the shape and the packed elements, remembered: clients of one host share a vector.

        Args:
            anew: compute it though it is known, as each of the clients would that share this vector here alone.
        """
        if self._digest is None or anew:
            hashed = hashlib.sha256(_vector_header(self))
            hashed.update(self._packed())
            self._digest = hashed.digest()
        return self._digest

    def _packed(self) -> Any:
        """What `pack` returns; of float32 that lie as they are sent, without a copy."""
        if self.bits == _FLOAT32:
            return np.ascontiguousarray(self.values, "<f4").data
        return self.pack()

    @classmethod
    def unpack(cls, data: bytes, bits: int, length: int) -> "Vector":
        """Inverse of `pack`; raises `ProtocolError` when the sizes do not fit, or bits beyond the last element are set.

        What it needs is in proportion to `data`, whatever `length` claims.
        """
        if bits > 64 or len(data) != _packed_bytes(length, bits):
            raise ProtocolError(
                f"a vector of {length} elements of {bits} bits does not have {len(data)} bytes (rings: 1 to 64 bits)"
            )
        if bits == _FLOAT32:
            return cls(np.frombuffer(data, dtype="<f4"), bits)
        width = _word_bytes(bits)
        if bits == 8 * width:
            return cls(np.frombuffer(data, dtype=f"<u{width}"), bits)
        unused = -length * bits % 8
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
    """A vector that stays on the host of the client that made it: its shape is known here, its values are not.

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
        """Raises `ProtocolError`: the values are elsewhere."""
        raise ProtocolError("this vector stays on its host; ask for the sum with `Replies.total`")

    def __len__(self) -> int:
        return self._length


def _word_bytes(bits: int) -> int:
    return 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8


def _packed_bytes(length: int, bits: int) -> int:
    return 4 * length if bits == _FLOAT32 else -(-length * bits // 8)


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one party sends to another.

    A question (server to clients) names its stage and the type of its answer; `as_participant` says whether it
    concerns the receiver's participation (and so starts its client time), `Private` the type of what goes to one
    client alone. `announces` says that it tells of a round (its field `round`) that clients count.
    """

    stage: ClassVar[str] = ""
    Answer: ClassVar[type["Message"] | None] = None
    Private: ClassVar[type["Message"] | None] = None
    as_participant: ClassVar[bool] = True
    announces: ClassVar[bool] = False


class RefusalNotice(Message, frozen=True):
    """What a client answers when it refuses: the name of the failed check and one line for a person."""

    check: Annotated[str, msgspec.Meta(max_length=100)]
    detail: Annotated[str, msgspec.Meta(max_length=500)] = ""


MessageType = TypeVar("MessageType", bound=Message)


def question_name(kind: type[Message]) -> str:
    """What tells a question from all others of a run: several protocols' may belong to one stage."""
    return f"{kind.stage} {kind.__name__}"


def _vector_header(vector: Vector) -> bytes:
    return vector.bits.to_bytes(1, "big") + len(vector).to_bytes(4, "big")


def _shape(header: memoryview) -> tuple[int, int]:
    """Bits and length that a vector's header says."""
    return header[0], int.from_bytes(header[1:_HEADER_BYTES], "big")


def _encode_vector(value: Any) -> msgspec.msgpack.Ext:
    if isinstance(value, Vector):
        return msgspec.msgpack.Ext(_VECTOR, _vector_header(value) + value.pack())
    if isinstance(value, np.integer):
        return int(value)  # type: ignore[return-value]  # anything that msgspec encodes may be returned
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _decode_extension(code: int, data: memoryview) -> Vector:
    if code != _VECTOR or len(data) < _HEADER_BYTES:
        raise ProtocolError(f"unknown or truncated extension {code} in a message")
    return Vector.unpack(bytes(data[_HEADER_BYTES:]), *_shape(data))


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_vector)


@cache
def _decoder(kind: type[Message]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, ext_hook=_decode_extension)


def encode(message: Message) -> bytes:
    """The message as it goes on the wire."""
    return _encoder.encode(message)


def decode(kind: type[MessageType], data: bytes) -> MessageType:
    """The message that `data` encodes; raises `ProtocolError` for anything that is not exactly a `kind`."""
    return _decode_with(_decoder(kind), kind, data)


def _decode_with(decoder: msgspec.msgpack.Decoder[Any], kind: type[MessageType], data: bytes) -> MessageType:
    try:
        message: MessageType = decoder.decode(data)
        return message
    except ProtocolError:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from None


@dataclass(frozen=True)
class Detached:
    """A message whose vectors travel beside it.

    Attributes:
        header: the encoding with a placeholder for each vector.
        vectors: the vectors, in the order of their placeholders.
        size: bytes of the full encoding on the wire.
    """

    header: bytes
    vectors: tuple[Vector, ...]
    size: int


def _extension_size(payload: int) -> int:
    """Bytes of a MessagePack extension with `payload` bytes of data (fixext, ext 8, 16, 32)."""
    if payload in (1, 2, 4, 8, 16):
        return 2 + payload
    return payload + (3 if payload < 2**8 else 4 if payload < 2**16 else 6)


def detach(message: Message) -> Detached:
    """Encode without copying vectors; `size` is exact: ``len(encode(message))``."""
    vectors: list[Vector] = []

    def placeholder(value: Any) -> Any:
        if not isinstance(value, Vector):
            return _encode_vector(value)
        vectors.append(value)
        return msgspec.msgpack.Ext(_PLACEHOLDER, _vector_header(value) + (len(vectors) - 1).to_bytes(4, "big"))

    header = msgspec.msgpack.encode(message, enc_hook=placeholder)
    shrink = _extension_size(_HEADER_BYTES + 4)
    full = sum(_extension_size(_HEADER_BYTES + vector.packed_bytes) for vector in vectors)
    return Detached(header, tuple(vectors), len(header) - shrink * len(vectors) + full)


def attach(kind: type[MessageType], header: bytes, vectors: Sequence[Vector]) -> MessageType:
    """Inverse of `detach`: decode `header`, putting `vectors` in their places.

    Where `vectors` holds an empty stand-in for a vector of another shape, a `RemoteVector` of the shape that the
    header says is put. Raises `ProtocolError` for anything that is not exactly a `kind` with these vectors.
    """
    if not vectors:
        return decode(kind, header)

    def restore(code: int, data: memoryview) -> Vector:
        if code != _PLACEHOLDER or len(data) != _HEADER_BYTES + 4:
            raise ProtocolError(f"unexpected extension {code} in a detached message")
        bits, length = _shape(data)
        try:
            vector = vectors[int.from_bytes(data[_HEADER_BYTES:], "big")]
        except IndexError:
            raise ProtocolError("a detached message names a vector that is not there") from None
        if (vector.bits, len(vector)) == (bits, length):
            return vector
        if len(vector) or bits > 64:
            raise ProtocolError(f"a vector of {len(vector)} elements stands where the header has {length}")
        return RemoteVector(length, bits)

    return _decode_with(msgspec.msgpack.Decoder(kind, ext_hook=restore), kind, header)


def content_digest(message: Message, *, anew: bool = False) -> bytes:
    """32 bytes: SHA-256 of all that a message says, its kind and stage too; equal for whoever decodes the same bytes.

    Vectors count by their `Vector.digest` (for `anew` see there).
    """
    detached = detach(message)
    vectors = [vector.digest(anew=anew) for vector in detached.vectors]
    return hashlib.sha256(
        _CONTENT_DOMAIN + signed_content(question_name(type(message)), detached.header, vectors)
    ).digest()


def signed_content(*parts: object) -> bytes:
    """Canonical bytes of `parts` (ints, bytes, strings, lists of them) to put under a signature or a VRF.

    Ints, bytes and strings have one encoding each in what msgspec writes, and lists carry their lengths, so equal
    bytes mean equal parts. The domain goes to the signature primitive, which frames it.
    """
    return msgspec.msgpack.encode(parts, enc_hook=_encode_vector)
