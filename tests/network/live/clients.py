"""Live networks over real sockets on loopback, and beside each the emulated network that it should agree with."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from testbed.messages import Message
from testbed.network.contract import Replies
from testbed.network.exchanges import OUTCOMES, Exchanges
from testbed.network.live import Address, LiveClients, LiveNetwork, wire
from testbed.network.live.reports import HostReport

CONNECT_S = 30.0


class LiveWorld:
    """The clients of an `emulated.World`, asked over TCP.

    Args:
        world: gives links, devices, availability, timing and the hosts.
        absent: numbers of clients that do not connect by themselves.
        options: of `LiveNetwork`.
    """

    def __init__(self, world: Any, absent: tuple[int, ...] = (), **options: Any) -> None:
        reference = world.network
        self.everybody = world.everybody
        self.stages: list[tuple[str, float]] = []
        self.network = LiveNetwork(
            reference.links, reference.speed_factors, reference.availability, reference.timing, reference.compute,
            lambda stage, now_s: self.stages.append((stage, now_s)), reference.on_crash,
            **{"confirming": self.confirming} | options,
        )  # fmt: skip
        self._hosts = reference.hosts.hosts
        self._absent = absent
        self.address: Address
        self.groups: list[LiveClients] = []

    def connect(self, host: int = 0) -> LiveClients:
        """Let the clients of a host connect."""
        here = self._hosts[host]
        group = LiveClients(here, self.address, [c for c in here.numbers.tolist() if c not in self._absent])
        group.start()
        self.groups.append(group)
        return group

    async def confirming(self, client: int, key: tuple[int, int]) -> HostReport | None:
        """Return the connected hosts' report about a client."""
        return next((one for group in self.groups if (one := group.crash_report(client, key))), None)

    def on_delivery(self, host: int, call: Callable[[], None]) -> None:
        """Call this in the event loop each time that a question has reached a handler of the host."""
        here, loop = self._hosts[host], asyncio.get_running_loop()
        deliver = here.deliver

        def delivering(delivery: Any) -> Any:
            loop.call_soon_threadsafe(call)
            return deliver(delivery)

        here.deliver = delivering

    def run(self, script: Callable[["LiveWorld"], Awaitable[Any]]) -> Any:
        """Run `script` while the network is open and all clients are connected."""

        async def inside() -> Any:
            self.address = await self.network.open()
            try:
                for host in range(len(self._hosts)):
                    self.connect(host)
                await self.network.wait_for_clients(len(self.everybody) - len(self._absent), CONNECT_S)
                return await script(self)
            finally:
                await self.network.close()
                for group in self.groups:
                    await asyncio.to_thread(group.close)

        return asyncio.run(inside())

    async def ask(self, *questions: Message, number: int = 1, **keys: Any) -> list[Replies]:
        """Ask everybody these questions, one after the other, in one round."""
        await self.network.begin_round(number)
        replies = [await self.network.ask(self.everybody, question, **keys) for question in questions]
        self.network.end_round()
        return replies

    def round(self, *questions: Message, **keys: Any) -> list[Replies]:
        """One round, and nothing else."""
        result: list[Replies] = self.run(lambda world: world.ask(*questions, **keys))
        return result

    def exchanges(self, stage: int = 0) -> Exchanges:
        return self.network.exchanges[stage]

    def outcomes(self, stage: int = 0) -> list[str]:
        return [OUTCOMES[code] for code in self.network.exchanges[stage].outcome]

    def events(self, kind: str) -> list[tuple[str, str]]:
        return [(event.party, event.detail) for event in self.network.events if event.kind == kind]


class Impostor:
    """A hand-made client that sends the data of a test."""

    def __init__(self, address: Address, client: int) -> None:
        self.address = address
        self.client = client

    async def knock(self, token: bytes | None = None) -> bool:
        """Greet; returns whether the server says welcome."""
        self.stream = await wire.connected(self.address.host, self.address.port)
        challenged = await wire.receive_exactly(self.stream, wire.CHALLENGE_BYTES)
        await wire.send_all(self.stream, wire.greeting(token or self.address.token, challenged, self.client))
        try:
            header = await wire.receive_exactly(self.stream, wire.QUESTION_HEADER)
        except ConnectionError:
            return False
        return wire.QuestionHeader.unpack(header).kind == wire.WELCOME

    async def question(self) -> wire.QuestionHeader:
        """Wait for a question and read it."""
        header = wire.QuestionHeader.unpack(await wire.receive_exactly(self.stream, wire.QUESTION_HEADER))
        size = header.name_bytes + header.common_bytes + (header.private_bytes or 0)
        await wire.receive_exactly(self.stream, size)
        return header

    async def answer(self, data: bytes) -> None:
        """Send these bytes."""
        await wire.send_all(self.stream, data)

    async def hears_nothing_more(self) -> bool:
        """Wait until the server has cut the connection."""
        try:
            await wire.receive_exactly(self.stream, 1)
        except ConnectionError:
            return True
        return False

    def leave(self) -> None:
        wire.cut(self.stream)
