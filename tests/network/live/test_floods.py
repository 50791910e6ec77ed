"""Strangers that connect and stay silent keep no client out, from any address. 127.0.0.x stand for addresses."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from testbed.network.live import admission, wire
from testbed.network.live.admission import PER_ADDRESS, STRANGERS, Admission, network_of
from testbed.network.live.wire import Address
from tests.messages_named import naming

PATIENT_S = 20.0


@asynccontextmanager
async def opened(population: int) -> AsyncIterator[tuple[Admission, Address, list[str]]]:
    strangers: list[str] = []
    door = Admission(population, strangers.append)
    try:
        yield door, await door.open("127.0.0.1", small_buffers=True), strangers
    finally:
        await door.close()


async def connected(address: Address, source: str) -> socket.socket:
    """A connection from `source` that has been accepted: the server has said its challenge."""
    stream = socket.socket()
    wire.prepare(stream, small_buffers=False)
    stream.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(stream, (address.host, address.port))
    return stream


async def greeted(stream: socket.socket, address: Address, client: int) -> bool:
    challenged = await wire.receive_exactly(stream, wire.CHALLENGE_BYTES)
    await wire.send_all(stream, wire.greeting(address.token, challenged, client))
    header = await wire.receive_exactly(stream, wire.QUESTION_HEADER)
    return wire.QuestionHeader.unpack(header).kind == wire.WELCOME


async def is_cut(stream: socket.socket) -> bool:
    try:
        while await asyncio.get_running_loop().sock_recv(stream, 64):
            pass
    except OSError:
        pass
    return True


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a script in which silent connections have unlimited time."""
    monkeypatch.setattr(admission, "GREETING_S", 600.0)
    return lambda script: asyncio.run(asyncio.wait_for(script(), 120))


@pytest.mark.parametrize("source", ["127.0.0.2", "127.0.0.3"])
def test_one_address_cannot_keep_others_or_itself_out(silent: Callable[..., None], source: str) -> None:
    async def script() -> None:
        async with opened(1) as (door, address, strangers):
            held = [await connected(address, "127.0.0.2") for _ in range(2 * STRANGERS)]
            genuine = await connected(address, source)
            assert await asyncio.wait_for(greeted(genuine, address, 0), PATIENT_S)
            assert len(door) == 1
            await asyncio.gather(*(asyncio.wait_for(is_cut(one), PATIENT_S) for one in held[: len(strangers)]))
            assert 2 * STRANGERS - PER_ADDRESS - 1 <= len(strangers) <= 2 * STRANGERS - PER_ADDRESS + 1
            assert "127.0.0.2" in strangers[0]
            for stream in (*held, genuine):
                stream.close()

    silent(script)


def test_many_addresses_cannot_keep_others_out(silent: Callable[..., None]) -> None:
    async def script() -> None:
        async with opened(1) as (door, address, strangers):
            sources = [f"127.0.1.{host}" for host in range(1, 9)]
            held = [await connected(address, source) for _ in range(2 * STRANGERS // 8) for source in sources]
            genuine = await connected(address, "127.0.0.3")
            assert await asyncio.wait_for(greeted(genuine, address, 0), PATIENT_S)
            assert len(door) == 1
            assert len(strangers) >= STRANGERS - 1
            for stream in (*held, genuine):
                stream.close()

    silent(script)


def test_strangers_displace_only_those_of_their_own_address(silent: Callable[..., None]) -> None:
    """A client that is slow to answer is not cut off because another address floods."""

    async def script() -> None:
        async with opened(1) as (_, address, _strangers):
            slow = await connected(address, "127.0.0.3")
            held = [await connected(address, "127.0.0.2") for _ in range(2 * STRANGERS)]
            await asyncio.wait_for(is_cut(held[0]), PATIENT_S)
            assert await asyncio.wait_for(greeted(slow, address, 0), PATIENT_S)
            for stream in (*held, slow):
                stream.close()

    silent(script)


def test_a_host_of_many_clients_that_connect_at_once_is_let_in_whole() -> None:
    population = 3 * PER_ADDRESS

    async def script() -> None:
        async with opened(population) as (door, address, strangers):
            streams = [await connected(address, "127.0.0.1") for _ in range(population)]
            welcome = await asyncio.gather(*(greeted(one, address, client) for client, one in enumerate(streams)))
            assert all(welcome)
            assert len(door) == population
            assert strangers == []
            for stream in streams:
                stream.close()

    asyncio.run(script())


def test_a_silent_connection_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert admission.GREETING_S <= 2
    monkeypatch.setattr(admission, "GREETING_S", 0.05)

    async def script() -> None:
        async with opened(1) as (_, address, strangers):
            stream = await connected(address, "127.0.0.1")
            await asyncio.wait_for(is_cut(stream), PATIENT_S)
            assert len(strangers) == 1
            assert re.search(naming("127.0.0.1", "0.05 s"), strangers[0])
            stream.close()

    asyncio.run(script())


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert network_of("127.0.0.2") == "127.0.0.2"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("fe80::1%eth0") == "fe80::/64"
