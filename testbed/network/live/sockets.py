"""TCP sockets whose bytes are counted: plain non-blocking sockets, read and written in pieces of a chosen size.

asyncio's streams read ahead and write behind; here a transfer that is stopped must know what got through.
"""

import asyncio
import fcntl
import os
import resource
import socket
import struct
import termios

from testbed.errors import ClusterError

BUFFER_BYTES = 1 << 17  # of a throttled connection: what is sent is soon received, or the sender waits
_KEEP_ALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))  # seconds, seconds, probes
_SPARE = 128  # files that a process opens besides
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
    """A socket that listens on a free port of `host`; raises `ClusterError`."""
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
    """A connection to `host`; raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, where = found[0]
    stream = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(stream, small_buffers=False)
        await loop.sock_connect(stream, where)
    except BaseException:
        stream.close()
        raise
    return stream


def prepare(stream: socket.socket, *, small_buffers: bool) -> None:
    """Non-blocking, small messages leave at once, a dead peer is noticed within half a minute."""
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
    """Close at once: what is still in the buffers is not delivered. No task may be using the socket."""
    if stream.fileno() < 0:
        return
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        stream.close()


def unacknowledged_bytes(stream: socket.socket) -> int:
    """Bytes that were written and that the other side has not acknowledged."""
    answer = fcntl.ioctl(stream, termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])


async def receive_into(stream: socket.socket, view: memoryview) -> int:
    """Read what is there, at least one byte, into `view`; raises `ConnectionError` when the other side has hung up."""
    count = await asyncio.get_running_loop().sock_recv_into(stream, view)
    if count == 0:
        raise ConnectionResetError("the other side has hung up")
    return count


async def receive_exactly(stream: socket.socket, size: int) -> bytearray:
    """The next `size` bytes; raises `ConnectionError`."""
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        got += await receive_into(stream, view[got:])
    return data


async def send_some(stream: socket.socket, view: memoryview | bytes, *, more_follows: bool = False) -> int:
    """Write as much of `view` as the socket takes, at least one byte; raises `OSError`."""
    flags = _MORE_FOLLOWS if more_follows else 0
    while True:
        try:
            return stream.send(view, flags)
        except (BlockingIOError, InterruptedError):
            await _writable(stream)


async def send_all(stream: socket.socket, data: memoryview | bytes, *, more_follows: bool = False) -> None:
    """Write all of `data`; raises `OSError`."""
    view = memoryview(data)
    while len(view):
        view = view[await send_some(stream, view, more_follows=more_follows) :]


async def _writable(stream: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(stream, on_writable)
    try:
        await ready
    finally:
        loop.remove_writer(stream)
