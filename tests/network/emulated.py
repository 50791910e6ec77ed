"""A network of clients that act as the question says, for examples worked out by hand."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from testbed.emulation.availability import Presence
from testbed.emulation.compute.cost import ComputeModel, meter
from testbed.emulation.links import ClientLinks
from testbed.errors import Refusal
from testbed.messages import Message, Vector, encode
from testbed.network.contract import Replies, Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.network.exchanges import OUTCOMES
from testbed.parties.client import Environment, Role, RoleSpec, handles
from testbed.parties.host import LocalHosts
from testbed.parties.pki import Directory
from testbed.randomness import Randomness

MB = 1e6  # bytes per second
COSTS = {"work": 1.0, "ring.add.element": 0.001, "float.add.element": 0.002}


class Reply(Message, frozen=True):
    """An answer of a chosen size."""

    payload: bytes
    vector: Vector | None = None


class Secret(Message, frozen=True):
    """A private part."""

    payload: bytes


class Question(Message, frozen=True):
    """Asks for `seconds` of work, an answer of `answer_size` bytes, and misbehaviour of some clients."""

    stage: ClassVar[str] = "question"
    Answer: ClassVar[type[Message] | None] = Reply
    Private: ClassVar[type[Message] | None] = Secret

    payload: bytes = b""
    seconds: float = 0.0
    answer_size: int = 0
    silent: tuple[int, ...] = ()
    refusing: tuple[int, ...] = ()
    looking_up: int = 0
    crashing: tuple[int, ...] = ()
    vector: tuple[int, ...] = ()


class Greeting(Message, frozen=True):
    """To be answered alike."""

    stage: ClassVar[str] = "greeting"
    Answer: ClassVar[type[Message] | None] = Reply
    as_participant: ClassVar[bool] = False


class Lost(Message, frozen=True):
    """A question without a stage."""

    Answer: ClassVar[type[Message] | None] = Reply


class Answering(Role):
    """A role that acts as the question says."""

    @handles(Question)
    def on_question(self, message: Question, private: Secret | None = None) -> Reply | None:
        meter("work", message.seconds)
        if self.client.number in message.silent:
            return None
        if self.client.number in message.refusing:
            raise Refusal("test.refused", "as asked")
        if self.client.number in message.crashing:
            raise ZeroDivisionError("a fault")
        if message.looking_up:
            self.environment.look_up(range(message.looking_up))
        if message.vector:
            return Reply(b"", Vector(np.array(message.vector, np.uint32) + self.client.number, 32))
        return of_size(message.answer_size) if message.answer_size else Reply(b"")

    @staticmethod
    @handles(Greeting, stateless=True)
    def on_greeting(environment: Environment, message: Greeting) -> Reply:
        meter("work", 2)
        return of_size(1000)


class Everybody:
    """An availability model: online except for named clients; dropouts by stage, or for good at a virtual time."""

    def __init__(
        self,
        offline: Mapping[int, set[int]] | None = None,
        drops: Mapping[str, set[int]] | None = None,
        leaves: Mapping[int, float] | None = None,
        comes_back: bool = False,
    ):
        self.offline = offline or {}
        self.dropping = drops or {}
        self.leaving = leaves or {}
        self.comes_back = comes_back

    def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Presence:
        away = np.isin(clients, list(self.offline.get(round_number, set())))
        drops = np.isin(clients, list(self.dropping.get(stage, set())) if round_number == 1 else [])
        leaves_s = np.array([self.leaving.get(client, np.inf) for client in clients.tolist()])
        return Presence.of(~away & (now_s < leaves_s), drops, leaves_s)


def of_size(size: int) -> Reply:
    """Return a reply with an encoding of exactly `size` bytes."""
    reply = Reply(bytes(size - (len(encode(Reply(bytes(size)))) - size)))
    assert len(encode(reply)) == size
    return reply


def question_of_size(size: int, **keys: Any) -> Question:
    """Return a question with an encoding of exactly `size` bytes."""
    question = Question(bytes(size - (len(encode(Question(bytes(size), **keys))) - size)), **keys)
    assert len(encode(question)) == size
    return question


class World:
    """A network of `Answering` clients; by default 1 MB/s, 50 ms and a server of unlimited bandwidth."""

    def __init__(
        self,
        clients: int = 1,
        *,
        down: Any = MB,
        up: Any = MB,
        latency: Any = 0.05,
        server_down: float = 1e12,
        server_up: float = 1e12,
        factors: Any = 1.0,
        availability: Any = None,
        hosts: int = 1,
        measured: bool = False,
        on_crash: Any = "raise",
        transport: Any = None,
        **timing: Any,
    ) -> None:
        def each(value: Any) -> Any:
            return np.broadcast_to(np.asarray(value, np.float64), clients).copy()

        compute = ComputeModel(measured, COSTS)
        environment = Environment(
            population=clients, randomness=Randomness(1), compute=compute, directory=Directory.empty(clients)
        )
        self.stages: list[tuple[str, float]] = []
        links = ClientLinks(each(down), each(up), each(latency), server_down, server_up)
        self.hosts = LocalHosts(clients, environment, [RoleSpec(Answering, None)], hosts=hosts, on_crash=on_crash)
        self.network = EmulatedNetwork(
            self.hosts,
            links if transport is None else replace(links, transport=transport),
            each(factors),
            availability or Everybody(),
            Timing(timing.pop("deadline_s", 100.0), **timing),
            compute,
            lambda stage, now_s: self.stages.append((stage, now_s)),
            on_crash,
        )
        self.everybody = np.arange(clients)

    def round(self, *questions: Message, number: int = 1, **keys: Any) -> list[Replies]:
        """Ask everybody these questions, one after the other, in one round."""

        async def ask() -> list[Replies]:
            await self.network.begin_round(number)
            replies = [await self.network.ask(self.everybody, question, **keys) for question in questions]
            self.network.end_round()
            return replies

        return asyncio.run(ask())

    def outcomes(self, stage: int = 0) -> list[str]:
        return [OUTCOMES[code] for code in self.network.exchanges[stage].outcome]

    @property
    def now_s(self) -> float:
        return self.network.now_s
