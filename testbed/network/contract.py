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
    """Return client numbers as a sorted int64 array without duplicates.

    Example:
        >>> ids([5, 2, 2]).tolist()
        [2, 5]
    """
    # Sorted and unique: callers search these arrays by bisection.
    numbers = np.asarray(clients, dtype=np.int64)
    if numbers.ndim == 1 and (numbers[1:] > numbers[:-1]).all():
        return numbers  # usually; to sort a million again takes a third of a second
    return np.unique(numbers)


def no_ids() -> Ids:
    """Return the empty set of clients."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Missing:
    """The clients that did not answer in time, by reason (sorted client numbers).

    The server itself sees only `refused` and silence.

    Attributes:
        offline: not reachable when the stage began.
        dropped: left before their answer was complete.
        late: answered after the deadline, or after the quorum was reached.
        refused: answered with a refusal; the reasons are in `refusals`.
        silent: did not answer by choice (e.g. not selected), or crashed.
        refusals: the refusals of `refused`.
    """

    offline: Ids = field(default_factory=no_ids)
    dropped: Ids = field(default_factory=no_ids)
    late: Ids = field(default_factory=no_ids)
    refused: Ids = field(default_factory=no_ids)
    silent: Ids = field(default_factory=no_ids)
    refusals: tuple[ClientRefusal, ...] = ()


class Replies(Mapping[int, Any]):
    """The answers that arrived in time: a mapping from client number to message, in the order of the numbers.

    An answer is decoded when it is read. If it does not decode as the question's `Answer`, reading it raises
    `ProtocolError`; `valid` drops the clients with such answers instead.

    Attributes:
        ids: `(m,)` int64, sorted numbers of the clients that answered.
        waited_s: seconds from the stage's start until the server continued, by the same clock; at least each latency.
        missing: the clients that did not answer in time.

    Args:
        kind: the type of the answers.
        headers: encoded answers, with vectors detached, of the clients that do not give the shared answer.
        summing: sums the answers' vectors on the hosts that hold them.
        latency_s: the attribute, or a function that computes it on first use.
        shared: encoded answer of all other clients, if the stage has a shared answer.
        gathering: moves the answers' vectors to the server; None if single vectors are never needed.
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
            # A late client has a header, too: only membership in `ids` counts.
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
        """Return the decoded answers by client; clients whose answer does not decode count as not responding.

        Args:
            shared: include the clients that give the shared answer; there may be millions of them.
        """
        decoded = {}
        for client in self if shared else filter(self._answered, sorted(self._headers)):
            try:
                decoded[client] = self[client]
            # Clients may send anything: one malformed answer must not abort the round of all others.
            except ProtocolError:
                continue
        return decoded

    async def total(self, clients: Ids | None = None, weights: npt.NDArray[np.int64] | None = None) -> Any:
        """Return the sum of the answers' vectors, computed on the hosts that hold them.

        Args:
            clients: the clients to sum over; None: all that answered.
            weights: `(m,)` int64 factors for float vectors; None for ring vectors.

        Returns:
            `(d,)`: ring elements (in their word's dtype), or float64 for float vectors times `weights`.

        Raises:
            ProtocolError: some of `clients` did not answer.
        """
        return (await self.masked_total(clients, weights)).materialised()

    async def masked_total(self, clients: Ids | None = None, weights: npt.NDArray[np.int64] | None = None) -> Sum:
        """Return the same sum with unexpanded masks kept separate (`testbed.network.masked_vectors`)."""
        chosen = self.ids if clients is None else ids(clients)
        if not np.isin(chosen, self.ids).all():
            raise ProtocolError("asked for the sum over clients that did not answer")
        return await self._summing(chosen, weights)

    async def vectors(self, clients: Ids) -> Mapping[int, Vector]:
        """Return single vectors by client, for servers that inspect them.

        Time and bytes of the transfer are part of the stage already.

        Raises:
            ProtocolError: some of `clients` did not answer.
        """
        chosen = ids(clients)
        if not np.isin(chosen, self.ids).all():
            raise ProtocolError("asked for vectors of clients that did not answer")
        assert self._gathering is not None
        return await self._gathering(chosen)


class _OnHosts(Sequence[Vector]):
    """Placeholder for vectors that stay on the hosts: every item is an empty vector, so that headers decode."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return Vector(np.empty(0, np.uint8), 8)


@dataclass(frozen=True, eq=False)
class Ask:
    """One call of `Network.ask`.

    Attributes:
        recipients: `(m,)` int64, sorted client numbers.
        message: the message to all recipients.
        private: the private message to each recipient; None if there are none.
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
        """Return the private parts as encoded for the wire."""
        return None if self.private is None else {client: encode(part) for client, part in self.private.items()}

    def without(self, clients: Ids) -> "Ask":
        """Return this call without the recipients `clients`."""
        recipients = np.setdiff1d(self.recipients, clients)
        private = None if self.private is None else {client: self.private[client] for client in recipients.tolist()}
        return replace(self, recipients=recipients, private=private)


@dataclass(frozen=True)
class Timing:
    """Deadlines and quorums of the stages.

    Attributes:
        deadline_s: maximum duration of a stage, seconds.
        stage_deadlines: other maximum durations, by stage.
        disconnects_visible: the server learns at once that a client has gone, instead of by timeout.
        stage_quorums: the quorum by stage at which the server continues: an int is a number of answers, a float (at
            most 1.0) a share of the recipients.
    """

    deadline_s: float
    stage_deadlines: Mapping[str, float] = field(default_factory=dict)
    disconnects_visible: bool = False
    stage_quorums: Mapping[str, int | float] = field(default_factory=dict)

    def limit_s(self, stage: str, asked_for_s: float | None) -> float:
        """Return the maximum duration of `stage` in seconds; the protocol's value overrides the experiment's."""
        return self.stage_deadlines.get(stage, self.deadline_s) if asked_for_s is None else asked_for_s

    def quorum(self, stage: str, asked_for: int | None, recipients: int) -> int | None:
        """Return the number of answers at which `stage` ends; None: the server waits for all."""
        if asked_for is not None or stage not in self.stage_quorums:
            return asked_for
        return rounded_up(self.stage_quorums[stage], recipients)


class Network(ABC):
    """The server's connection to its clients; it hides Ray, time and sockets from protocol code."""

    async def ask(
        self,
        recipients: Ids,
        message: Message,
        *,
        private: Mapping[int, Message] | None = None,
        deadline_s: float | None = None,
        quorum: int | None = None,
    ) -> Replies:
        """Send `message` to all `recipients` and wait for their answers.

        Args:
            recipients: client numbers.
            message: the question; its class names the stage and the type of the answer.
            private: one message per recipient, of the type `message.Private`; each goes to that client alone.
            deadline_s: answers later than this many seconds after the stage's start are late (default: the
                experiment's).
            quorum: number of answers at which the stage ends; the remaining answers are late.

        Returns:
            The answers in time, and the clients that are missing.

        Raises:
            ProtocolError: the message names no stage, or no type of answer.
            CodeCrashed: a client's code crashed, and the run is configured to end then.
            RunError: a host of clients cannot continue (live network).
        """
        return await self._ask(Ask(ids(recipients), message, private, deadline_s, quorum))

    @abstractmethod
    async def _ask(self, call: Ask) -> Replies:
        """Implement `ask`; each network overrides this method."""

    @abstractmethod
    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """Account a request of the server to the randomness beacon (`testbed.parties.round_beacon`).

        Args:
            bytes_up: bytes of the request.
            bytes_down: bytes of the answer.
            round_trip_s: seconds in addition to the transfer times on the server's link.
        """

    @abstractmethod
    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """Add an event to the records.

        Args:
            party: the party concerned, such as "server" or "client:7".
            kind: name of the event.
            detail: one line.
            stage: a stage that is about to begin; None: the current stage.
        """


class RoundNetwork(Network):
    """A network on which rounds can be run: the methods that `testbed.engine.round` needs besides `ask`."""

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
"""`(m,)` int64, sorted numbers of the clients that `ExcludingNetwork` does not ask in later rounds."""


class ExcludingNetwork(Network):
    """A network that does not ask clients with proven misbehaviour.

    In the selection of participants, excluded clients look as if they were offline.

    Args:
        network: the network for all other clients.
        clients: `(m,)` int64, sorted numbers of the excluded clients.
    """

    def __init__(self, network: Network, clients: Ids) -> None:
        self._network = network
        self._clients = clients

    async def _ask(self, call: Ask) -> Replies:
        return await self._network._ask(call.without(self._clients))

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """Forward the request to the underlying network."""
        await self._network.consult_beacon(bytes_up, bytes_down, round_trip_s)

    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """Forward the event to the underlying network."""
        self._network.record_event(party, kind, detail, stage)
