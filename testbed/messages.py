"""Messages: typed structs with one binary encoding (MessagePack, array-like), and their vectors.

Decoding checks types, lengths and sizes, so malformed input is refused immediately with `ProtocolError`.
*Bytes on the wire* are the length of the actual encoding. A `Vector` is packed to its ring's bit width, or as it was
compressed.

Vectors are large, so hosts do not copy them through the encoder: `detach` encodes a message with a placeholder for each
vector and computes the length of the full encoding; the arrays travel beside it. The property
``detach(m).size == len(encode(m))`` is tested.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np

from testbed.errors import ProtocolError
from testbed.vectors.compressed import FORMS, unpacked
from testbed.vectors.dense import HEADER_BYTES, WIDEST_RING, RemoteVector, Vector

__all__ = [
    "MOST_CLIENTS",
    "ClientId",
    "Count",
    "Detached",
    "Digest32",
    "Key32",
    "Message",
    "MessageType",
    "RefusalNotice",
    "RemoteVector",
    "RoundNumber",
    "Signature64",
    "Vector",
    "attach",
    "content_digest",
    "decode",
    "detach",
    "encode",
    "question_name",
    "signed_content",
]

_VECTOR = 1  # MessagePack extension: bits (1 byte, 0 = float32), length (4 bytes), packed or compressed elements
_PLACEHOLDER = 2  # the same header, and the vector's position in `Detached.vectors`
_CONTENT_DOMAIN = b"testbed/message-content/v1"  # keeps these digests apart from all other hashes

Digest32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Key32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature64 = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
MOST_CLIENTS = 2**40
"""Largest population: client numbers and counts on the wire are at most this."""
ClientId = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]
RoundNumber = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""Type of a message's field with a round: 0 to 2**40, checked when the message is decoded (see `Message`)."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]
"""Type of a message's field with a number of clients or samples: 0 to `MOST_CLIENTS`, checked likewise."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message from one party to another.

    Attributes:
        stage: stage of a question (server to clients).
        Answer: type of the answer to a question.
        Private: type of the part for each single client.
        as_participant: whether a question concerns the receiver's participation, and so starts its client time.
        announces: whether a question announces a round (its field `round`) that clients count.

    Example:
        >>> class Score(Message, frozen=True):
        ...     round: RoundNumber
        ...     samples: Count
        >>> encode(Score(round=3, samples=120)).hex()
        '920378'
        >>> decode(Score, encode(Score(3, -1)))
        Traceback (most recent call last):
        testbed.errors.ProtocolError: not a Score: Expected `int` >= 0 - at `$[1]`
    """

    stage: ClassVar[str] = ""
    Answer: ClassVar[type["Message"] | None] = None
    Private: ClassVar[type["Message"] | None] = None
    as_participant: ClassVar[bool] = True
    announces: ClassVar[bool] = False


class RefusalNotice(Message, frozen=True):
    """A client's answer if it refuses: name of the failed check, and one line for people."""

    check: Annotated[str, msgspec.Meta(max_length=100)]
    detail: Annotated[str, msgspec.Meta(max_length=500)] = ""


MessageType = TypeVar("MessageType", bound=Message)


def question_name(kind: type[Message]) -> str:
    """Return a unique name of a question; questions of several protocols may belong to one stage."""
    return f"{kind.stage} {kind.__name__}"


def _shape(header: memoryview) -> tuple[int, int]:
    """Return the bits and the length in a vector's header."""
    return header[0], int.from_bytes(header[1:HEADER_BYTES], "big")


def _encode_vector(value: Any) -> msgspec.msgpack.Ext:
    if isinstance(value, Vector):
        return msgspec.msgpack.Ext(_VECTOR, value.header() + value.pack())
    # Callers index arrays of client numbers; msgspec knows only Python's integers.
    if isinstance(value, np.integer):
        return int(value)  # type: ignore[return-value]  # anything that msgspec encodes may be returned
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _decode_extension(code: int, data: memoryview) -> Vector:
    # Placeholders are valid only between hosts (`attach`), never in bytes from another party.
    if code != _VECTOR or len(data) < HEADER_BYTES:
        raise ProtocolError(f"unknown or truncated extension {code} in a message")
    return unpacked(bytes(data[HEADER_BYTES:]), *_shape(data))


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_vector)


_decoders: dict[type[Message], msgspec.msgpack.Decoder[Any]] = {}
_making_decoders = threading.Lock()


def _decoder(
    kind: type[Message], ext_hook: Callable[[int, memoryview], Vector] | None = None
) -> msgspec.msgpack.Decoder[Any]:
    """Return the cached decoder of `kind`, or a new one with another hook."""
    if ext_hook is None and (decoder := _decoders.get(kind)) is not None:
        return decoder
    # The first decoder of a struct fills tables of the types of its fields. msgspec 0.22 publishes a table before it is
    # complete: a second thread that makes or uses a decoder of these types at that time crashes the process.
    with _making_decoders:
        if ext_hook is not None:
            return msgspec.msgpack.Decoder(kind, ext_hook=ext_hook)
        if kind not in _decoders:
            _decoders[kind] = msgspec.msgpack.Decoder(kind, ext_hook=_decode_extension)
        return _decoders[kind]


def encode(message: Message) -> bytes:
    """Return the encoding of a message on the wire."""
    return _encoder.encode(message)


def decode(kind: type[MessageType], data: bytes) -> MessageType:
    """Return the message that `data` encode.

    Args:
        kind: type of the message.
        data: the encoding.

    Raises:
        ProtocolError: the data are not exactly a `kind`.
    """
    return _decode_with(_decoder(kind), kind, data)


def _decode_with(decoder: msgspec.msgpack.Decoder[Any], kind: type[MessageType], data: bytes) -> MessageType:
    try:
        message: MessageType = decoder.decode(data)
        return message
    # Raised by the extension hook, with a more precise message than msgspec's.
    except ProtocolError:
        raise
    # All errors that hostile bytes can cause: deep nesting ends in RecursionError, absurd lengths in MemoryError.
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from None


@dataclass(frozen=True)
class Detached:
    """A message without its vectors, which travel beside it.

    Attributes:
        header: the encoding with a placeholder for each vector.
        vectors: the vectors, in the order of their placeholders.
        size: bytes of the full encoding on the wire.
    """

    header: bytes
    vectors: tuple[Vector, ...]
    size: int


def _extension_size(payload: int) -> int:
    """Return the bytes of a MessagePack extension with `payload` bytes of data (fixext, ext 8, 16, 32)."""
    if payload in (1, 2, 4, 8, 16):
        return 2 + payload
    return payload + (3 if payload < 2**8 else 4 if payload < 2**16 else 6)


def detach(message: Message) -> Detached:
    """Encode a message without copying vectors; `size` is exactly ``len(encode(message))``."""
    vectors: list[Vector] = []

    def placeholder(value: Any) -> Any:
        if not isinstance(value, Vector):
            return _encode_vector(value)
        vectors.append(value)
        return msgspec.msgpack.Ext(_PLACEHOLDER, value.header() + (len(vectors) - 1).to_bytes(4, "big"))

    # Not the shared encoder: the hook collects the vectors of this call.
    header = msgspec.msgpack.encode(message, enc_hook=placeholder)
    shrink = _extension_size(HEADER_BYTES + 4)
    # An extension's own header grows with its payload, so placeholder and vector differ there, too.
    full = sum(_extension_size(HEADER_BYTES + vector.packed_bytes) for vector in vectors)
    return Detached(header, tuple(vectors), len(header) - shrink * len(vectors) + full)


def attach(kind: type[MessageType], header: bytes, vectors: Sequence[Vector]) -> MessageType:
    """Decode a message from the result of `detach`.

    An empty stand-in for a vector of another shape becomes a `RemoteVector` of the shape in the header.

    Args:
        kind: type of the message.
        header: its encoding with placeholders.
        vectors: its vectors.

    Raises:
        ProtocolError: the data are not exactly a `kind` with these vectors.
    """
    if not vectors:
        return decode(kind, header)

    def restore(code: int, data: memoryview) -> Vector:
        if code != _PLACEHOLDER or len(data) != HEADER_BYTES + 4:
            raise ProtocolError(f"unexpected extension {code} in a detached message")
        bits, length = _shape(data)
        try:
            vector = vectors[int.from_bytes(data[HEADER_BYTES:], "big")]
        except IndexError:
            raise ProtocolError("a detached message refers to a missing vector") from None
        if (vector.bits, len(vector)) == (bits, length):
            return vector
        # Only an empty stand-in may differ from the header: its values stay on the host.
        if len(vector) or (bits > WIDEST_RING and bits not in FORMS):
            raise ProtocolError(f"a vector has {len(vector)} elements, but the header {length}")
        return RemoteVector(length, bits)

    return _decode_with(_decoder(kind, restore), kind, header)


def content_digest(message: Message, *, anew: bool = False) -> bytes:
    """Return the SHA-256 of a message's kind, stage and content, 32 bytes.

    It is equal for all parties that decode the same bytes.

    Args:
        message: the message; its vectors count by their `Vector.digest`.
        anew: see `Vector.digest`.
    """
    detached = detach(message)
    vectors = [vector.digest(anew=anew) for vector in detached.vectors]
    return hashlib.sha256(
        # With the question's name: two questions with equal fields must not have equal digests.
        _CONTENT_DOMAIN + signed_content(question_name(type(message)), detached.header, vectors)
    ).digest()


def signed_content(*parts: object) -> bytes:
    """Return canonical bytes of `parts` (ints, bytes, strings, lists of them), for a signature or a VRF.

    msgspec encodes ints, bytes and strings uniquely, and lists with their lengths, so equal bytes mean equal parts. The
    signature primitive adds the domain.
    """
    return msgspec.msgpack.encode(parts, enc_hook=_encode_vector)
