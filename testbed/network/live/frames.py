"""Frames of the live network: a fixed header, then the real encodings of the messages.

A connection begins with a challenge from the server and the client's answer to it (its number, and an HMAC over both
under the run's token, which itself never travels). From then on the server sends questions and the client answers.

    question:  kind, round, stage, latency, factor, lengths, last announced | its name | common part | private part
    answer:    status, round, stage, client, compute seconds, seconds behind, PKI bytes, length | answer

*Bytes on the wire* are those of the common part, the private part and the answer: exactly what `testbed.messages`
encodes. The headers belong to the testbed (`question_overhead`, `ANSWER_OVERHEAD`: about 90 and 61 bytes) and are not
counted. Nothing is unpickled; every length is checked against a limit before a byte of it is read.
"""

import hashlib
import hmac
import math
import struct
from dataclasses import dataclass
from typing import Any

from testbed.errors import ProtocolError

LARGEST_PART = 1 << 30  # bytes of one part of a frame
_MAGIC = b"SLN1"
_NONCE_BYTES, _DIGEST_BYTES = 16, 32
_CHALLENGE = struct.Struct(f"!4s{_NONCE_BYTES}s")
_GREETING = struct.Struct(f"!4sQ{_DIGEST_BYTES}s")
_QUESTION = struct.Struct("!BQIHddQQQ")
_ANSWER = struct.Struct("!BQIQddQQQ")
_NO_PRIVATE = 2**64 - 1

CHALLENGE_BYTES, GREETING_BYTES = _CHALLENGE.size, _GREETING.size
QUESTION_HEADER, ANSWER_OVERHEAD = _QUESTION.size, _ANSWER.size

WELCOME, QUESTION, LOSING, GOODBYE = range(4)
"""What the server sends: you are known; a question; a question that its receiver is lost on; the run is over."""

ANSWERED, SILENT, REFUSED, CRASHED, FAILED = range(5)
"""What a client says: an answer; nothing (not a protocol message); a refusal; its handler crashed; its host cannot go
on. The body of the last two is a `Crash`, encoded, and a line of text."""


class FramingError(ProtocolError):
    """A frame that is not one, or longer than allowed: the connection is cut."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a live network listens, and what proves that somebody belongs to the run.

    Attributes:
        host: name or address.
        port: TCP port.
        token: 32 secret bytes.
    """

    host: str
    port: int
    token: bytes

    def __repr__(self) -> str:
        return f"Address({self.host!r}, {self.port}, <token>)"


@dataclass(frozen=True, slots=True)
class QuestionHeader:
    """What precedes a question.

    Attributes:
        kind: WELCOME, QUESTION, LOSING or GOODBYE.
        round_number, number: which round, and which stage within it.
        latency_s: seconds that the client waits before the question counts as received.
        speed_factor: what the client's compute seconds are multiplied with.
        name_bytes, common_bytes: lengths of what follows; private_bytes: None where there is no private part.
        last_announced: the last announced round that the client knows of.
    """

    kind: int
    round_number: int = 0
    number: int = 0
    latency_s: float = 0.0
    speed_factor: float = 1.0
    name_bytes: int = 0
    common_bytes: int = 0
    private_bytes: int | None = None
    last_announced: int = 0

    def pack(self) -> bytes:
        """The header's bytes."""
        private = _NO_PRIVATE if self.private_bytes is None else self.private_bytes
        return _QUESTION.pack(
            self.kind,
            self.round_number,
            self.number,
            self.name_bytes,
            self.latency_s,
            self.speed_factor,
            self.common_bytes,
            private,
            self.last_announced,
        )

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> "QuestionHeader":
        """The header that `data` holds; raises `FramingError`."""
        fields = _unpacked(_QUESTION, data)
        kind, round_number, number, name_bytes, latency_s, speed_factor, common_bytes, private, last_announced = fields
        private_bytes = None if private == _NO_PRIVATE else private
        if kind > GOODBYE or max(common_bytes, private_bytes or 0) > LARGEST_PART:
            raise FramingError(f"a question of kind {kind} with {common_bytes} and {private} bytes")
        _check_seconds(latency_s, speed_factor)
        return cls(
            kind=kind,
            round_number=round_number,
            number=number,
            latency_s=latency_s,
            speed_factor=speed_factor,
            name_bytes=name_bytes,
            common_bytes=common_bytes,
            private_bytes=private_bytes,
            last_announced=last_announced,
        )


@dataclass(frozen=True, slots=True)
class AnswerHeader:
    """What precedes an answer.

    Attributes:
        status: ANSWERED, SILENT, REFUSED, CRASHED or FAILED.
        round_number, number: of the question.
        client: who answers.
        compute_s: seconds of work on the reference machine.
        behind_s: how much later the answer left than the device would have sent it, since the host had more to do (or,
            where that is more, how late an earlier answer of the host's was when it was cut off).
        pki_up, pki_down: bytes exchanged with the PKI by the handler.
        length: bytes of the answer.
    """

    status: int
    round_number: int
    number: int
    client: int
    compute_s: float = 0.0
    behind_s: float = 0.0
    pki_up: int = 0
    pki_down: int = 0
    length: int = 0

    def pack(self) -> bytes:
        """The header's bytes."""
        return _ANSWER.pack(
            self.status,
            self.round_number,
            self.number,
            self.client,
            self.compute_s,
            self.behind_s,
            self.pki_up,
            self.pki_down,
            self.length,
        )

    @classmethod
    def unpack(cls, data: bytes | bytearray, largest: int = LARGEST_PART) -> "AnswerHeader":
        """The header that `data` holds; raises `FramingError`, also when the answer has more than `largest` bytes."""
        header = cls(*_unpacked(_ANSWER, data))
        if header.status > FAILED:
            raise FramingError(f"an answer of status {header.status}")
        if header.length > largest:
            raise FramingError(f"an answer of {header.length} bytes; at most {largest} are taken")
        if max(header.pki_up, header.pki_down) > LARGEST_PART:
            raise FramingError("an answer that claims more than a GiB of PKI look-ups")
        _check_seconds(header.compute_s, header.behind_s)
        return header


def question_overhead(name: str) -> int:
    """Bytes of a question's frame that are the testbed's own."""
    return QUESTION_HEADER + len(name.encode())


def challenge(nonce: bytes) -> bytes:
    """What the server says first: 16 fresh random bytes."""
    return _CHALLENGE.pack(_MAGIC, nonce)


def greeting(token: bytes, challenged: bytes | bytearray, client: int) -> bytes:
    """What `client` says to a challenge; raises `FramingError` when the other side is not a live network."""
    magic, nonce = _unpacked(_CHALLENGE, challenged)
    if magic != _MAGIC:
        raise FramingError("not a live network of this version")
    return _GREETING.pack(_MAGIC, client, _proof(token, nonce, client))


def greeted(token: bytes, nonce: bytes, data: bytes | bytearray) -> int:
    """The number of the client that has sent this greeting; raises `FramingError` if it does not know the token."""
    magic, client, proof = _unpacked(_GREETING, data)
    if magic != _MAGIC or not hmac.compare_digest(proof, _proof(token, nonce, client)):
        raise FramingError("a greeting without the run's token")
    return int(client)


def _proof(token: bytes, nonce: bytes, client: int) -> bytes:
    return hmac.digest(token, b"testbed/live/greeting/v1" + nonce + client.to_bytes(8, "big"), hashlib.sha256)


def _unpacked(layout: struct.Struct, data: bytes | bytearray) -> tuple[Any, ...]:
    try:
        return layout.unpack(data)
    except struct.error as error:
        raise FramingError(f"not a frame: {error}") from None


def _check_seconds(*values: float) -> None:
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise FramingError("a frame with seconds that are negative or not finite")
