"""Messages: typed structs with one binary encoding (MessagePack, array-like), and the vectors they carry.

Decoding checks types, lengths and sizes, so malformed input is refused at the door with `ProtocolError`.
*Bytes on the wire* is the length of the actual encoding. A `Vector` is packed to its ring's bit width, or as it was
compressed.

Vectors are large, so hosts do not copy them through the encoder: `detach` encodes a message with each vector
replaced by a placeholder and says how long the full encoding is; the arrays travel beside it. The property
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
_CONTENT_DOMAIN = b"testbed/message-content/v1"

Digest32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Key32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature64 = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
MOST_CLIENTS = 2**40
"""Of a population: client numbers and counts on the wire go no further."""
ClientId = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]
RoundNumber = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLIENTS)]


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


def _shape(header: memoryview) -> tuple[int, int]:
    """Bits and length that a vector's header says."""
    return header[0], int.from_bytes(header[1:HEADER_BYTES], "big")


def _encode_vector(value: Any) -> msgspec.msgpack.Ext:
    if isinstance(value, Vector):
        return msgspec.msgpack.Ext(_VECTOR, value.header() + value.pack())
    if isinstance(value, np.integer):
        return int(value)  # type: ignore[return-value]  # anything that msgspec encodes may be returned
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _decode_extension(code: int, data: memoryview) -> Vector:
    if code != _VECTOR or len(data) < HEADER_BYTES:
        raise ProtocolError(f"unknown or truncated extension {code} in a message")
    return unpacked(bytes(data[HEADER_BYTES:]), *_shape(data))


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_vector)


_decoders: dict[type[Message], msgspec.msgpack.Decoder[Any]] = {}
_making_decoders = threading.Lock()


def _decoder(
    kind: type[Message], ext_hook: Callable[[int, memoryview], Vector] | None = None
) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of `kind`: its own, kept one, or a new one with another hook.

    The first decoder of a struct fills tables that belong to the type, also those of the types of its fields. msgspec
    0.22 publishes a table before it is complete, so that a second thread that makes or uses a decoder of the same types
    crashes the process. Therefore all decoders are made under one lock, and kept ones are found only once complete.
    """
    if ext_hook is None and (decoder := _decoders.get(kind)) is not None:
        return decoder
    with _making_decoders:
        if ext_hook is not None:
            return msgspec.msgpack.Decoder(kind, ext_hook=ext_hook)
        if kind not in _decoders:
            _decoders[kind] = msgspec.msgpack.Decoder(kind, ext_hook=_decode_extension)
        return _decoders[kind]


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
        return msgspec.msgpack.Ext(_PLACEHOLDER, value.header() + (len(vectors) - 1).to_bytes(4, "big"))

    header = msgspec.msgpack.encode(message, enc_hook=placeholder)
    shrink = _extension_size(HEADER_BYTES + 4)
    full = sum(_extension_size(HEADER_BYTES + vector.packed_bytes) for vector in vectors)
    return Detached(header, tuple(vectors), len(header) - shrink * len(vectors) + full)


def attach(kind: type[MessageType], header: bytes, vectors: Sequence[Vector]) -> MessageType:
    """Inverse of `detach`: decode `header`, putting `vectors` in their places.

    Where `vectors` holds an empty stand-in for a vector of another shape, a `RemoteVector` of the shape that the
    header says is put. Raises `ProtocolError` for anything that is not exactly a `kind` with these vectors.
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
            raise ProtocolError("a detached message names a vector that is not there") from None
        if (vector.bits, len(vector)) == (bits, length):
            return vector
        if len(vector) or (bits > WIDEST_RING and bits not in FORMS):
            raise ProtocolError(f"a vector of {len(vector)} elements stands where the header has {length}")
        return RemoteVector(length, bits)

    return _decode_with(_decoder(kind, restore), kind, header)


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
