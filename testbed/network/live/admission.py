"""Authentication of connections to a live network: strangers are turned away before they can say anything.

A connection is *unknown* until it has authenticated. The number of unknown connections is limited to the number of
missing clients plus a margin, and the number per address is limited too. Beyond the limit, the connections that have
been silent for longest are cut off. A client answers the challenge at once, so strangers that connect and stay silent
keep no client out, and a client that is cut off connects again (`clients.LiveClients`). A flood of connections that are
not accepted yet can still fill the machine's queue; there is no defence against that.
"""

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Callable
from functools import partial

from testbed.errors import ClusterError
from testbed.network.live import wire
from testbed.network.live.wire import (
    GOODBYE,
    GREETING_BYTES,
    WELCOME,
    Address,
    FramingError,
    QuestionHeader,
    challenge,
    greeted,
)

GREETING_S = 2.0  # time limit for authentication
STRANGERS = 256  # unknown connections at the same time, in addition to the number of missing clients
PER_ADDRESS = 128  # unknown connections from one address


def connecting_s(clients: int) -> float:
    """Return the seconds after which clients that have not connected are given up: starting takes a few ms each."""
    return 60 + 0.05 * clients


def network_of(host: str) -> str:
    """Return the part of an address that counts as one peer.

    For IPv6 it is the /64 network, which belongs to one host or household.
    """
    plain = host.partition("%")[0]  # a link-local address names its interface
    return str(ipaddress.ip_network((plain, 64), strict=False)) if ":" in plain else plain


class Connection:
    """One client's connection. Either a stage uses it (`taken`), or it rests and is watched.

    Args:
        client: the number that has been proved at the door.
        stream: the socket.
        on_lost: called with this connection when it ends while it rests.
    """

    def __init__(self, client: int, stream: socket.socket, on_lost: Callable[["Connection"], None]) -> None:
        self.client = client
        self.stream = stream
        self.taken = False
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()

    @property
    def alive(self) -> bool:
        """Whether it has not been cut."""
        return self.stream.fileno() >= 0

    def release(self) -> None:
        """Watch the connection between stages: anything that arrives is a hang-up or a violation of the protocol."""
        self.taken = False
        self._loop.add_reader(self.stream, self._disturbed)

    def take(self) -> None:
        """Take the connection for a stage."""
        self._loop.remove_reader(self.stream)
        self.taken = True

    def _disturbed(self) -> None:
        self.cut()
        self._on_lost(self)

    def cut(self) -> None:
        """End it at once. While it is taken, only the task that uses it may do so."""
        if self.alive:
            if not self.taken:
                self._loop.remove_reader(self.stream)
            wire.cut(self.stream)


class Admission:
    """The listener: it asks new connections for the run's token, and tracks connected clients.

    Args:
        population: clients are numbered 0..population-1.
        on_stranger: called with one line about each stranger that was turned away.
    """

    def __init__(self, population: int, on_stranger: Callable[[str], None]) -> None:
        self._population = population
        self._on_stranger = on_stranger
        self._connections: dict[int, Connection] = {}
        self._awaited: dict[int, list[asyncio.Future[Connection]]] = {}
        self._changed = asyncio.Event()
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown: dict[str, dict[asyncio.Task[None], None]] = {}  # by address, the oldest first

    async def open(self, host: str, *, small_buffers: bool) -> Address:
        """Begin to listen on a free port of `host`; raises `ClusterError`."""
        self._token = secrets.token_bytes(32)
        self._listener = wire.listening(host, min(4096, self._population + 16), small_buffers=small_buffers)
        self._start(self._accept(self._listener))
        return Address(host, self._listener.getsockname()[1], self._token)

    async def close(self) -> None:
        """Tell everybody that the run is over, and stop listening."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        goodbye = QuestionHeader(GOODBYE).pack()
        for connection in list(self._connections.values()):
            # A connection in use belongs to a stage's task, which may be in the middle of a frame.
            if connection.alive and not connection.taken:
                connection.take()
                try:
                    connection.stream.send(goodbye)
                except OSError:
                    connection.cut()
                connection.stream.close()
        self._connections.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __len__(self) -> int:
        """Return the number of connected clients."""
        return sum(connection.alive for connection in self._connections.values())

    async def wait_for(self, count: int, timeout_s: float) -> None:
        """Wait until `count` clients are connected; raises `ClusterError` when that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ClusterError(
                f"{len(self)} of {count} clients have connected within {timeout_s:g} s; are their hosts running?"
            ) from None

    def is_connected(self, client: int) -> bool:
        """Return whether the client has a connection now."""
        connection = self._connections.get(client)
        return connection is not None and connection.alive

    async def connection(self, client: int) -> Connection:
        """Wait until the client is connected; return the connection, taken."""
        connection = self._connections.get(client)
        if connection is None or not connection.alive:
            awaited: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(client, []).append(awaited)
            try:
                connection = await awaited
            finally:
                self._awaited[client].remove(awaited)
        connection.take()
        return connection

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                stream, where = await loop.sock_accept(listener)
            except OSError as error:  # e.g. no file descriptors left
                self._on_stranger(f"a connection could not be accepted: {error.strerror or error}")
                # Without the pause, the loop would spin until a descriptor is free, and starve the clients.
                await asyncio.sleep(0.1)
                continue
            address = network_of(str(where[0]))
            self._make_room(address)
            task = self._start(self._admit(stream, str(where[0])))
            self._unknown.setdefault(address, {})[task] = None
            task.add_done_callback(partial(self._forget_unknown, address))
            await asyncio.sleep(0)  # those that have answered come before those that connect

    def _make_room(self, address: str) -> None:
        """Make room for a connection from `address`: cut off silent connections beyond the limits, the oldest first."""
        missing = max(0, self._population - len(self._connections))
        while True:
            if len(self._unknown.get(address, ())) >= missing + PER_ADDRESS:
                crowded = address
            elif sum(map(len, self._unknown.values())) >= missing + STRANGERS:
                crowded = max(self._unknown, key=lambda peer: len(self._unknown[peer]))
            else:
                return
            oldest = next(iter(self._unknown[crowded]))
            # Now, not when the task has ended: otherwise the loop would find the same connection again.
            self._forget_unknown(crowded, oldest)
            oldest.cancel()
            self._on_stranger(f"{crowded} has too many connections that do not authenticate")

    def _forget_unknown(self, address: str, task: "asyncio.Task[None]") -> None:
        tasks = self._unknown.get(address, {})
        tasks.pop(task, None)
        if not tasks:
            self._unknown.pop(address, None)

    def _start(self, work: "asyncio._CoroutineLike[None]") -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _admit(self, stream: socket.socket, where: str) -> None:
        try:
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(GREETING_S):
                # Fresh for each connection: a greeting that was overheard cannot be replayed.
                nonce = secrets.token_bytes(16)
                await wire.send_all(stream, challenge(nonce))
                client = greeted(self._token, nonce, await wire.receive_exactly(stream, GREETING_BYTES))
                self._check_free(client)
                await wire.send_all(stream, QuestionHeader(WELCOME).pack())
            self._check_free(client)
        except TimeoutError:
            self._on_stranger(f"{where} did not authenticate within {GREETING_S:g} s")
            wire.cut(stream)
        except FramingError as error:
            self._on_stranger(f"{where}: {error}")
            wire.cut(stream)
        except OSError:  # has thought better of it
            wire.cut(stream)
        except BaseException:
            wire.cut(stream)
            raise
        else:
            self._enter(Connection(client, stream, self._lost))

    def _check_free(self, client: int) -> None:
        if client >= self._population:
            raise FramingError(f"client {client} is outside the population of {self._population}")
        if (present := self._connections.get(client)) is not None and present.alive:
            raise FramingError(f"client {client} is connected already")

    def _enter(self, connection: Connection) -> None:
        self._connections[connection.client] = connection
        connection.release()
        self._changed.set()
        for awaited in self._awaited.get(connection.client, ()):
            # A stage that has ended cancels its futures.
            if not awaited.done():
                awaited.set_result(connection)

    def _lost(self, connection: Connection) -> None:
        # The client may have connected again in the meantime.
        if self._connections.get(connection.client) is connection:
            del self._connections[connection.client]
