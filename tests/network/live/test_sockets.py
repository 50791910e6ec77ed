"""The limits of the operating system are met with one line."""

import asyncio
import resource
import socket

import pytest

from testbed.errors import ClusterError
from testbed.network.live import wire
from tests.messages_named import naming


def test_the_limit_of_open_files_is_raised_as_far_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, 100_000)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, values: limits.append(values))
    wire.allow(1)
    assert len(limits) == 1
    wire.allow(5000)
    assert 5000 < limits[-1][0] < 10_000
    assert limits[-1][1] == 100_000
    with pytest.raises(ClusterError, match=naming(100000)):
        wire.allow(200_000)


def test_some_bytes_are_written_when_the_other_side_does_not_read() -> None:
    async def script() -> tuple[int, int]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        data = bytes(1 << 22)
        taken = await wire.send_some(ours, data)
        rest = asyncio.ensure_future(wire.send_all(ours, data[taken:]))
        received = await wire.receive_exactly(theirs, len(data))
        await rest
        theirs.close()
        with pytest.raises(OSError):
            await wire.send_all(ours, data)
        ours.close()
        wire.cut(ours)  # twice does no harm
        return taken, len(received)

    taken, received = asyncio.run(script())
    assert 0 < taken < received == 1 << 22


def test_unacknowledged_bytes_are_those_not_yet_received() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ours.setblocking(False)
            written = ours.send(bytes(1 << 22))
            assert 0 < wire.unacknowledged_bytes(ours) <= written
