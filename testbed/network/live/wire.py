"""The wire format of the live network: a fixed header, then the real encodings of the messages.

A connection begins with a challenge from the server and the client's answer to it (its number, and an HMAC over both
under the run's token, which itself never travels). From then on the server sends questions and the client answers.

    question:  kind, round, stage, latency, factor, lengths, last announced | its name | common part | private part
    answer:    status, round, stage, client, compute seconds, seconds behind, PKI bytes, length | answer

*Bytes on the wire* are those of the common part, the private part and the answer: exactly as `testbed.messages`
encodes them. The headers belong to the testbed (`question_overhead`, `ANSWER_OVERHEAD`: about 90 and 61 bytes) and are
not counted. Nothing is unpickled; every length is checked against a limit before a byte of it is read.

The sockets are plain non-blocking ones, read and written in pieces of a chosen size: asyncio's streams read ahead and
write behind, but here the bytes that got through must be known when a transfer is stopped.
"""

import asyncio
import fcntl
import hashlib
import hmac
import math
import os
import resource
import socket
import struct
import termios
from dataclasses import dataclass
from typing import Any, NamedTuple

from testbed.errors import ClusterError, ProtocolError

LARGEST_PART = 1 << 30  # bytes of one part of a frame
_MAGIC = b"SLN1"  # changes with the format
_NONCE_BYTES, _DIGEST_BYTES = 16, 32
_CHALLENGE = struct.Struct(f"!4s{_NONCE_BYTES}s")
_GREETING = struct.Struct(f"!4sQ{_DIGEST_BYTES}s")
_QUESTION = struct.Struct("!BQIHddQQQ")
_ANSWER = struct.Struct("!BQIQddQQQ")
_NO_PRIVATE = 2**64 - 1

CHALLENGE_BYTES, GREETING_BYTES = _CHALLENGE.size, _GREETING.size
QUESTION_HEADER, ANSWER_OVERHEAD = _QUESTION.size, _ANSWER.size

WELCOME, QUESTION, LOSING, GOODBYE = range(4)
"""The server's messages: welcome; a question; a question at which the receiver drops out; end of the run."""

ANSWERED, SILENT, REFUSED, CRASHED, FAILED = range(5)
"""A client's messages: an answer; silence (not a protocol message); a refusal; its handler crashed; its host cannot
continue. The body of the last two is a line of text."""


class FramingError(ProtocolError):
    """A frame that is not one, or longer than allowed: the connection is cut."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a live network, and the secret that proves that a client belongs to the run.

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


class QuestionHeader(NamedTuple):
    """The header of a question; the fields are in the order in which they are sent.

    Attributes:
        kind: WELCOME, QUESTION, LOSING or GOODBYE.
        round_number: the round.
        number: the stage within the round.
        name_bytes: length of the name that follows.
        common_bytes: length of the common part.
        private_bytes: length of the private part; None if there is none.
        latency_s: seconds that the client waits before the question counts as received.
        speed_factor: factor of the client's compute seconds.
        last_announced: the last announced round that the client knows of.
    """

    kind: int
    round_number: int = 0
    number: int = 0
    name_bytes: int = 0
    latency_s: float = 0.0
    speed_factor: float = 1.0
    common_bytes: int = 0
    private_bytes: int | None = None
    last_announced: int = 0

    def pack(self) -> bytes:
        """Encode the header."""
        private = _NO_PRIVATE if self.private_bytes is None else self.private_bytes
        return _QUESTION.pack(*self._replace(private_bytes=private))

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> "QuestionHeader":
        """Decode a header; raises `FramingError`."""
        header = cls(*_unpacked(_QUESTION, data))
        private = header.private_bytes
        if private == _NO_PRIVATE:
            header = header._replace(private_bytes=None)
        if header.kind > GOODBYE or max(header.common_bytes, header.private_bytes or 0) > LARGEST_PART:
            raise FramingError(f"a question of kind {header.kind} with {header.common_bytes} and {private} bytes")
        _check_seconds(header.latency_s, header.speed_factor)
        return header


class AnswerHeader(NamedTuple):
    """The header of an answer; the fields are in the order in which they are sent.

    Attributes:
        status: ANSWERED, SILENT, REFUSED, CRASHED or FAILED.
        round_number: the round of the question.
        number: the stage of the question within the round.
        client: number of the client.
        compute_s: seconds of work on the reference machine.
        behind_s: seconds by which the answer left later than the device would have sent it, because the host was
            overloaded (or, if that is more, the delay of an earlier answer of the host when it was cut off).
        pki_up: bytes that the handler sent to the PKI.
        pki_down: bytes that the handler received from the PKI.
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
        """Encode the header."""
        return _ANSWER.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | bytearray, largest: int = LARGEST_PART) -> "AnswerHeader":
        """Decode a header; raises `FramingError`, also when the answer has more than `largest` bytes."""
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
    """Return the bytes of a question's frame that belong to the testbed."""
    return QUESTION_HEADER + len(name.encode())


def challenge(nonce: bytes) -> bytes:
    """Return the server's first message, for a nonce of 16 fresh random bytes."""
    return _CHALLENGE.pack(_MAGIC, nonce)


def greeting(token: bytes, challenged: bytes | bytearray, client: int) -> bytes:
    """Return the answer of `client` to a challenge.

    Args:
        token: the run's 32 secret bytes.
        challenged: the challenge as received.
        client: number of the client.

    Raises:
        FramingError: the other side is not a live network.
    """
    magic, nonce = _unpacked(_CHALLENGE, challenged)
    if magic != _MAGIC:
        raise FramingError("not a live network of this version")
    return _GREETING.pack(_MAGIC, client, _proof(token, nonce, client))


def greeted(token: bytes, nonce: bytes, data: bytes | bytearray) -> int:
    """Return the number of the client that sent this greeting.

    Args:
        token: the run's 32 secret bytes.
        nonce: the 16 bytes of the challenge.
        data: the greeting as received.

    Raises:
        FramingError: the client does not know the token.
    """
    magic, client, proof = _unpacked(_GREETING, data)
    # In constant time, or the duration would reveal the proof byte by byte.
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


BUFFER_BYTES = 1 << 17  # of a throttled connection: small, so that the sender waits until its bytes are received
_KEEP_ALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))  # seconds, seconds, probes
_SPARE = 128  # files that a process opens besides its connections
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)


def allow(count: int) -> None:
    """Make sure that this process may open `count` more sockets; raises `ClusterError`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + count + _SPARE if os.path.isdir("/proc/self/fd") else 2 * count + _SPARE
    if soft != resource.RLIM_INFINITY and needed > soft:
        if hard != resource.RLIM_INFINITY and needed > hard:
            raise ClusterError(
                f"live mode needs {needed} open files in one process, the system allows {hard}; spread the clients "
                "over more hosts, or raise the limit (ulimit -Hn)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def listening(host: str, backlog: int, *, small_buffers: bool) -> socket.socket:
    """Return a socket that listens on a free port of `host`.

    Args:
        host: name or address.
        backlog: connections that may wait to be accepted.
        small_buffers: for throttled connections.

    Raises:
        ClusterError: the port cannot be opened.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterError(f"cannot listen on {host!r}: {error.strerror or error}") from None
    try:
        prepare(listener, small_buffers=small_buffers)  # accepted sockets inherit
        listener.bind(where)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ClusterError(f"cannot listen on {host!r}: {error.strerror or error}") from None
    return listener


async def connected(host: str, port: int) -> socket.socket:
    """Connect to a live network.

    Args:
        host: name or address.
        port: TCP port.

    Raises:
        OSError: no connection.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, where = addresses[0]
    stream = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(stream, small_buffers=False)
        await loop.sock_connect(stream, where)
    except BaseException:
        stream.close()
        raise
    return stream


def prepare(stream: socket.socket, *, small_buffers: bool) -> None:
    """Set socket options: non-blocking, no delay for small messages, dead peers are noticed within half a minute.

    Args:
        stream: a connected socket.
        small_buffers: whether the kernel's buffers are limited to `BUFFER_BYTES`, so that a sender's pace is a link's.
    """
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if small_buffers:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)


def cut(stream: socket.socket) -> None:
    """Close at once: bytes still in the buffers are not delivered. No task may be using the socket."""
    if stream.fileno() < 0:
        return
    try:
        # Linger of 0 s: the kernel drops its buffers and sends a reset instead of the rest of the message.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        stream.close()


def unacknowledged_bytes(stream: socket.socket) -> int:
    """Return the number of written bytes that the other side has not acknowledged."""
    answer = fcntl.ioctl(stream, termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])


async def receive_into(stream: socket.socket, view: memoryview) -> int:
    """Read the available bytes, at least one; return their number.

    Args:
        stream: a non-blocking socket.
        view: the memory to write to; its size is the largest number of bytes.

    Raises:
        ConnectionError: the other side has hung up.
    """
    count = await asyncio.get_running_loop().sock_recv_into(stream, view)
    if count == 0:
        raise ConnectionResetError("the other side has hung up")
    return count


async def receive_exactly(stream: socket.socket, size: int) -> bytearray:
    """Return the next `size` bytes.

    Args:
        stream: a non-blocking socket.
        size: number of bytes.

    Raises:
        ConnectionError: the other side has hung up.
    """
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        got += await receive_into(stream, view[got:])
    return data


async def send_some(stream: socket.socket, view: memoryview | bytes, *, more_follows: bool = False) -> int:
    """Write as much of `view` as the socket takes; return the number of bytes.

    Args:
        stream: a non-blocking socket.
        view: the bytes, at least one.
        more_follows: more bytes follow at once, so that the kernel may wait for them.

    Returns:
        Bytes written, at least one.

    Raises:
        OSError: the connection is lost.
    """
    flags = _MORE_FOLLOWS if more_follows else 0
    while True:
        try:
            return stream.send(view, flags)
        except (BlockingIOError, InterruptedError):
            await _writable(stream)


async def send_all(stream: socket.socket, data: memoryview | bytes, *, more_follows: bool = False) -> None:
    """Write all of `data`.

    Args:
        stream: a non-blocking socket.
        data: the bytes.
        more_follows: more bytes follow at once, so that the kernel may wait for them.

    Raises:
        OSError: the connection is lost.
    """
    view = memoryview(data)
    while len(view):
        view = view[await send_some(stream, view, more_follows=more_follows) :]


async def _writable(stream: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        # The callback may run again before `remove_writer`.
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(stream, on_writable)
    try:
        await ready
    finally:
        loop.remove_writer(stream)
