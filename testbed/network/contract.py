"""The one way to communicate: `replies = await network.ask(recipients, message)`."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.counts import rounded_up
from testbed.errors import ProtocolError
from testbed.memory import ArrayName
from testbed.messages import Message, Vector, attach, encode
from testbed.network.hosts import ClientRefusal
from testbed.network.sums import Sum

Gathering = Callable[[Ids], Awaitable[Mapping[int, Vector]]]
Summing = Callable[[Ids, npt.NDArray[np.int64] | None], Awaitable[Sum]]


def ids(clients: Any) -> Ids:
    """Client numbers as a sorted int64 array."""
    numbers = np.asarray(clients, dtype=np.int64)
    if numbers.ndim == 1 and (numbers[1:] > numbers[:-1]).all():
        return numbers  # usually; to sort a million again takes a third of a second
    return np.unique(numbers)


def no_ids() -> Ids:
    """The empty set of clients."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Missing:
    """Who did not answer in time, and why (sorted client numbers). The server sees only `refused` and silence.

    Attributes:
        offline: not reachable when the stage began.
        dropped: left before their answer was complete.
        late: answered after the deadline, or after the quorum was reached.
        refused: answered with a refusal; the reasons are in `refusals`.
        silent: chose not to answer (e.g. not selected), or crashed.
    """

    offline: Ids = field(default_factory=no_ids)
    dropped: Ids = field(default_factory=no_ids)
    late: Ids = field(default_factory=no_ids)
    refused: Ids = field(default_factory=no_ids)
    silent: Ids = field(default_factory=no_ids)
    refusals: tuple[ClientRefusal, ...] = ()


class Replies(Mapping[int, Any]):
    """The answers that arrived in time: a mapping from client number to message, in the order of the numbers.

    Answers are decoded when they are looked at; one that does not decode as the question's `Answer` raises
    `ProtocolError` (use `valid` to drop such clients instead).

    Attributes:
        ids: `(m,)` int64, sorted clients that answered.
        waited_s: seconds from the stage's start until the server continued, by the same clock; at least each latency.
        missing: the others.

    Args:
        kind: the type of the answers.
        headers: the encoded answers, vectors detached, of those that do not share one.
        summing: sums the answers' vectors where they lie.
        latency_s: the attribute, or what makes it when it is first asked for.
        shared: the encoded answer of all others, where a stage has one.
        gathering: brings the answers' vectors to the server; None: nobody asks for them.
    """

    def __init__(
        self,
        kind: type[Message],
        clients: Ids,
        headers: Mapping[int, bytes],
        missing: Missing,
        summing: Summing,
        latency_s: npt.NDArray[np.float64] | Callable[[], npt.NDArray[np.float64]],
        waited_s: float,
        shared: bytes | None = None,
        gathering: Gathering | None = None,
    ) -> None:
        self._kind = kind
        self._headers = headers
        self._shared = shared
        self._decoded: dict[int, Message] = {}
        self._summing = summing
        self._gathering = gathering
        self.ids = clients
        self._latency_s = latency_s
        self.waited_s = waited_s
        self.missing = missing

    @cached_property
    def latency_s(self) -> npt.NDArray[np.float64]:
        """`(m,)` float64, seconds from the stage's start to each answer, by the server's clock."""
        return self._latency_s() if callable(self._latency_s) else self._latency_s

    def __getitem__(self, client: int) -> Any:
        decoded = self._decoded.get(client)
        if decoded is None:
            header = self._headers.get(client, self._shared)
            if header is None or not self._answered(client):
                raise KeyError(client)
            decoded = self._decoded[client] = attach(self._kind, header, _OnHosts())
        return decoded

    def _answered(self, client: int) -> bool:
        position = int(np.searchsorted(self.ids, client))
        return position < len(self.ids) and int(self.ids[position]) == client

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __len__(self) -> int:
        return len(self.ids)

    def valid(self, *, shared: bool = True) -> dict[int, Any]:
        """Decoded answers of those whose answer decodes; the others are treated as non-responsive.

        Args:
            shared: also of those who share one that depends on nothing of their own: there may be millions.
        """
        kept = {}
        for client in self if shared else filter(self._answered, sorted(self._headers)):
            try:
                kept[client] = self[client]
            except ProtocolError:
                continue
        return kept

    async def total(self, clients: Ids | None = None, weights: npt.NDArray[np.int64] | None = None) -> Any:
        """Sum of the answers' vectors over `clients` (default: all that answered), made where the vectors lie.

        Returns `(d,)`: ring elements (their word's dtype), or float64 for float vectors times `weights`.
        """
        return (await self.masked_total(clients, weights)).materialised()

    async def masked_total(self, clients: Ids | None = None, weights: npt.NDArray[np.int64] | None = None) -> Sum:
        """The same sum, with masks that nobody has expanded yet beside it (`testbed.network.masked_vectors`)."""
        chosen = self.ids if clients is None else ids(clients)
        if not np.isin(chosen, self.ids).all():
            raise ProtocolError("asked for the sum over clients that did not answer")
        return await self._summing(chosen, weights)

    async def vectors(self, clients: Ids) -> Mapping[int, Vector]:
        """The vectors of some that answered, where a server is to look at single ones; by client.

        Their way to the server is in the stage's time and bytes already.
        """
        chosen = ids(clients)
        if not np.isin(chosen, self.ids).all():
            raise ProtocolError("asked for vectors of clients that did not answer")
        assert self._gathering is not None
        return await self._gathering(chosen)


class _OnHosts(Sequence[Vector]):
    """Stands for vectors that stay on the hosts: every place holds an empty one, so that headers decode."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return Vector(np.empty(0, np.uint8), 8)


@dataclass(frozen=True, eq=False)
class Ask:
    """One call of `Network.ask`.

    Attributes:
        recipients: `(m,)` int64, sorted client numbers.
        message: what all of them get.
        private: what each of them gets alone; None: nothing.
        deadline_s: seconds from the stage's start after which an answer is late; None: the experiment's.
        quorum: the number of answers at which the stage ends; None: the experiment's.
    """

    recipients: Ids
    message: Message
    private: Mapping[int, Message] | None = None
    deadline_s: float | None = None
    quorum: int | None = None

    def __post_init__(self) -> None:
        if self.kind.Answer is None or not self.kind.stage:
            raise ProtocolError(f"{self.kind.__name__} names no stage, or no type of answer")

    @property
    def kind(self) -> type[Message]:
        """The question's type: it names the stage and the type of the answer."""
        return type(self.message)

    def encoded_private(self) -> dict[int, bytes] | None:
        """The private parts as they go on the wire."""
        return None if self.private is None else {client: encode(part) for client, part in self.private.items()}

    def without(self, clients: Ids) -> "Ask":
        """The same of all recipients but `clients`."""
        kept = np.setdiff1d(self.recipients, clients)
        private = None if self.private is None else {client: self.private[client] for client in kept.tolist()}
        return replace(self, recipients=kept, private=private)


@dataclass(frozen=True)
class Timing:
    """What the server waits for.

    Attributes:
        deadline_s: seconds a stage lasts at most.
        stage_deadlines: stages with their own.
        disconnects_visible: the server learns at once that a client has gone, instead of by timeout.
        stage_quorums: stages in which the server goes on when so many have answered: an int is a number of clients, a
            float (at most 1.0) a share of those asked.
    """

    deadline_s: float
    stage_deadlines: Mapping[str, float] = field(default_factory=dict)
    disconnects_visible: bool = False
    stage_quorums: Mapping[str, int | float] = field(default_factory=dict)

    def limit_s(self, stage: str, asked_for_s: float | None) -> float:
        """Seconds that `stage` lasts at most; what the protocol asked for goes before what the experiment says."""
        return self.stage_deadlines.get(stage, self.deadline_s) if asked_for_s is None else asked_for_s

    def quorum(self, stage: str, asked_for: int | None, recipients: int) -> int | None:
        """How many answers are enough in `stage`; None: the server waits for all."""
        if asked_for is not None or stage not in self.stage_quorums:
            return asked_for
        return rounded_up(self.stage_quorums[stage], recipients)


class Network(ABC):
    """How a server reaches its clients. Protocol code knows nothing else of Ray, time or sockets."""

    async def ask(
        self,
        recipients: Ids,
        message: Message,
        *,
        private: Mapping[int, Message] | None = None,
        deadline_s: float | None = None,
        quorum: int | None = None,
    ) -> Replies:
        """Send `message` to all `recipients`, `private[i]` to client i alone; wait for their answers.

        Args:
            recipients: client numbers.
            message: its class names the stage and the type of the answer.
            private: one per recipient, of the type `message.Private`.
            deadline_s: answers later than this many seconds after the stage's start are late (default: the
                experiment's).
            quorum: continue at this many answers; the rest are late.

        Raises:
            ProtocolError: the message names no stage, or no type of answer.
            CodeCrashed: a client's code has crashed, and that is to end the run.
            RunError: a host of clients cannot continue (live network).
        """
        return await self._ask(Ask(ids(recipients), message, private, deadline_s, quorum))

    @abstractmethod
    async def _ask(self, asked: Ask) -> Replies:
        """What `ask` does; a network implements this."""

    @abstractmethod
    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """The server asks the randomness beacon (`testbed.parties.round_beacon`): bytes and time are accounted.

        Args:
            bytes_up: of the request.
            bytes_down: of the answer.
            round_trip_s: seconds besides what the server's link takes for them.
        """

    @abstractmethod
    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """Add a line to the records' events: what `party` ("server", "client:7") saw or did at the stage
        under way, or at `stage`, which is about to begin."""


class RoundNetwork(Network):
    """A network that rounds are run on: what `testbed.engine.round` needs besides asking."""

    @abstractmethod
    async def begin_round(self, round_number: int) -> None:
        """Start a round at the present time."""

    @abstractmethod
    def end_round(self) -> None:
        """Account the server's work since the last stage."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Let time pass between two rounds."""


EXCLUDED = ArrayName("excluded_clients")
"""`(m,)` int64, sorted: the clients that `ExcludingNetwork` does not ask in later rounds."""


class ExcludingNetwork(Network):
    """A network on which some clients are not asked: those that a protocol has found to misbehave, beyond doubt.

    To those who choose participants they look as if they were offline.

    Args:
        network: where the others are asked.
        clients: who is excluded.
    """

    def __init__(self, network: Network, clients: Ids) -> None:
        self._network = network
        self._clients = clients

    async def _ask(self, asked: Ask) -> Replies:
        return await self._network._ask(asked.without(self._clients))

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """See `Network.consult_beacon`."""
        await self._network.consult_beacon(bytes_up, bytes_down, round_trip_s)

    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """See `Network.record_event`."""
        self._network.record_event(party, kind, detail, stage)
