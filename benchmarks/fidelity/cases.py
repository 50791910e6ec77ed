"""Cases on which the virtual clock is compared with TCP: messages of chosen sizes over chosen links, one stage each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.availability import Presence
from testbed.emulation.compute.cost import ComputeModel, meter
from testbed.messages import Message
from testbed.parties.client import Environment, Role, RoleSpec, handles
from testbed.parties.pki import Directory
from testbed.randomness import Randomness

KB, MB = 1_000, 1_000_000


class Loaded(Message, frozen=True):
    """An answer of a chosen size."""

    payload: bytes


class Load(Message, frozen=True):
    """A question of a chosen size, for work and an answer of chosen sizes: one entry for each client."""

    stage: ClassVar[str] = "fidelity-stage"
    Answer: ClassVar[type[Message] | None] = Loaded

    payload: bytes
    answer_bytes: list[int]
    seconds: list[float]


class Loading(Role):
    """A client that computes and answers as the question says."""

    @handles(Load)
    def on_load(self, message: Load) -> Loaded:
        meter("work", message.seconds[self.client.number])
        return Loaded(bytes(message.answer_bytes[self.client.number]))


ROLES = [RoleSpec(Loading, None)]
COMPUTE = ComputeModel(False, {"work": 1.0})


def environment(population: int) -> Environment:
    """Return an environment for clients that need nothing of it."""
    return Environment(
        population=population, randomness=Randomness(1), compute=COMPUTE, directory=Directory.empty(population)
    )


@dataclass(frozen=True)
class Step:
    """The rates of one client's link change.

    Attributes:
        client: number of the client.
        after_s: seconds after the stage's start.
        down_mbit_s, up_mbit_s: the rates from then on.
    """

    client: int
    after_s: float
    down_mbit_s: float
    up_mbit_s: float


@dataclass(frozen=True)
class Case:
    """One stage.

    Attributes:
        name: for the table and ``--cases``.
        down_mbit_s, up_mbit_s: of each client's link.
        question_bytes: payload that every client gets.
        answer_bytes: payload that each client answers.
        server_down_mbit_s, server_up_mbit_s: infinite: not limited.
        seconds: each client's work before it answers; empty: none.
        leaves: clients that leave, and how many seconds after the stage's start.
        step: a change of one link.
        mtu: bytes of the largest IP packet. A token bucket passes one packet at once, which a link would take time
            for: it shows where a message is only a few packets, unless they are small.
    """

    name: str
    down_mbit_s: tuple[float, ...]
    up_mbit_s: tuple[float, ...]
    question_bytes: int
    answer_bytes: tuple[int, ...]
    server_down_mbit_s: float = math.inf
    server_up_mbit_s: float = math.inf
    seconds: tuple[float, ...] = ()
    leaves: Mapping[int, float] = field(default_factory=dict)
    step: Step | None = None
    mtu: int = 1500

    @property
    def clients(self) -> int:
        """How many take part."""
        return len(self.down_mbit_s)

    @property
    def question(self) -> Load:
        """The stage's question."""
        return Load(bytes(self.question_bytes), list(self.answer_bytes), list(self.seconds or (0.0,) * self.clients))


@dataclass
class Leaving:
    """Everybody is there at the start of every stage, and some leave in it (see `Case.leaves`)."""

    leaves: Mapping[int, float]
    comes_back: bool = True

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`."""
        leaves_s = np.array([now_s + self.leaves.get(client, math.inf) for client in clients.tolist()])
        return Presence.of(np.ones(len(clients), np.bool_), None, leaves_s)


def _alike(
    name: str, clients: int, down: float, up: float, question_bytes: int, answer_bytes: int,
    server_down: float = math.inf, server_up: float = math.inf, mtu: int = 1500,
) -> Case:  # fmt: skip
    """Clients with the same links and messages; their rates and the server's in Mbit/s."""
    return Case(
        name, (down,) * clients, (up,) * clients, question_bytes, (answer_bytes,) * clients, server_down, server_up,
        mtu=mtu,
    )  # fmt: skip


_UNEQUAL = (1.0, 5.0, 50.0, 50.0)
_MIXED = (2.0, 2.0, 5.0, 5.0, 10.0, 20.0, 50.0, 100.0)

CASES = (
    _alike("one at 1 Mbit/s", 1, 1, 1, 100 * KB, 100 * KB),
    _alike("one at 10 Mbit/s", 1, 10, 10, MB, MB),
    _alike("one at 44 Mbit/s, 4 MB", 1, 44, 44, 4 * MB, 4 * MB),
    _alike("one at 100 Mbit/s, 4 MB", 1, 100, 100, 4 * MB, 4 * MB),
    _alike("one at 20 down, 4 up", 1, 20, 4, 2 * MB, 500 * KB),
    _alike("100 B at 100 Mbit/s", 1, 100, 100, 100, 100),
    _alike("100 B at 100 Mbit/s, eight", 8, 100, 100, 100, 100),
    _alike("10 kB at 1 Mbit/s", 1, 1, 1, 10 * KB, 10 * KB, mtu=576),
    _alike("10 kB at 10 Mbit/s, eight", 8, 10, 10, 10 * KB, 10 * KB, mtu=576),
    _alike("10 kB, server at 1 Mbit/s, eight", 8, 10, 10, 10 * KB, 10 * KB, 1, 1, mtu=576),
    _alike("two equal", 2, 20, 20, MB, MB),
    Case("four unequal", _UNEQUAL, _UNEQUAL, 100 * KB, (100 * KB,) * 4),
    _alike("eight like 3G: 4 down, 1 up", 8, 4, 1, 200 * KB, 100 * KB),
    _alike("server up shared by eight", 8, 100, 100, MB, KB, server_up=40),
    _alike("server down shared by eight", 8, 100, 100, KB, MB, server_down=40),
    _alike("server both ways, two, 4 MB", 2, 100, 100, 4 * MB, 4 * MB, 80, 80),
    Case("server up, four unequal", _UNEQUAL, _UNEQUAL, 200 * KB, (KB,) * 4, server_up_mbit_s=20),
    Case("server down, four unequal", _UNEQUAL, _UNEQUAL, KB, (200 * KB, 200 * KB, MB, 2 * MB), 20),
    Case("server both ways, eight mixed", _MIXED, _MIXED, 250 * KB, (250 * KB,) * 8, 40, 40),
    Case("answers of 50 kB to 2 MB", (50,) * 4, (50,) * 4, KB, (50 * KB, 200 * KB, MB, 2 * MB), 25, 25),
    Case("starts staggered by work", (50,) * 4, (50,) * 4, KB, (MB,) * 4, 30, 30, (0.0, 0.2, 0.4, 0.6)),
    Case("staggered, eight mixed", _MIXED, _MIXED, 20 * KB, (200 * KB,) * 8, 20, 20, tuple(i * 0.1 for i in range(8))),
    Case("one of four leaves mid-upload", (50,) * 4, (50,) * 4, KB, (MB,) * 4, 20, 20, leaves={1: 0.6}),
    Case("one of two leaves mid-download", (50,) * 2, (50,) * 2, 2 * MB, (KB,) * 2, 20, 20, leaves={0: 0.5}),
    Case("two of eight leave, mixed", _MIXED, _MIXED, KB, (600 * KB,) * 8, 20, 20, leaves={0: 1.0, 7: 0.6}),
    Case("rate falls from 20 to 5", (20.0,), (20.0,), KB, (2 * MB,), step=Step(0, 0.5, 5, 5)),
    Case("rate rises from 4 to 40", (4.0,), (4.0,), 2 * MB, (KB,), step=Step(0, 1.0, 40, 40)),
)
