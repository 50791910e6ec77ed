"""The virtual clock of asynchronous rounds: `ask` as ever, and clients that are asked one by one meanwhile.

`dispatch` asks some clients; their answers are computed at once, and arrive when links, devices and availability say
(`in_flight`). `wait` lets time pass until something is over. A client that a model without a clock drops is drawn for
the round in which it is asked, whenever its answer is due.

Hosts forget each round's state (`testbed.network.hosts`). What has to outlast it is fetched and handed back by
`handed`, a message from this testbed to itself: no party sends it, and it costs neither bytes nor time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.arrays import Ids
from testbed.memory import ArrayGroup, Memory
from testbed.messages import Message, Vector, attach, detach, encode
from testbed.network.contract import Ask, Replies, ids
from testbed.network.emulated import EmulatedNetwork
from testbed.network.exchanges import ANSWERED, SILENT
from testbed.network.hosts import Delivery, HostAnswers
from testbed.network.in_flight import PendingExchange, PendingExchanges, PendingQuestion
from testbed.network.recorder import Stage

_IN_FLIGHT = ArrayGroup("in flight: ")  # of `PendingExchanges`


class AsynchronousNetwork(EmulatedNetwork):
    """See above; the arguments are those of `EmulatedNetwork`.

    Attributes:
        flights: who has been asked, and has not answered.
        questions: what a client is asked in a flight, in order; set before anything is asked.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.flights = PendingExchanges(self.links, self.timing.disconnects_visible)
        self.questions: tuple[type[Message], ...] = ()
        self._off_the_record = 0

    async def begin_round(self, round_number: int) -> None:
        """See `RoundNetwork.begin_round`; those under way stay so."""
        await super().begin_round(round_number)
        self._off_the_record = 0

    def to_checkpoint(self, round_number: int) -> Memory:
        """See `RoundRecorder.to_checkpoint`; with all that is under way."""
        return super().to_checkpoint(round_number) | _IN_FLIGHT.named(self.flights.to_checkpoint())

    def restore(self, memory: Memory) -> None:
        """See `RoundRecorder.restore`."""
        super().restore(memory)
        self.flights.restore(_IN_FLIGHT.take(memory))

    def online(self, clients: Ids) -> Ids:
        """Those of sorted clients, `(m,)`, that are there now: they are connected, and the server sees that."""
        presence = self.availability.presence(self.round_number, self.questions[0].stage, self.now_s, clients)
        return clients[presence.reachable & ~self._gone[clients]]

    async def dispatch(self, clients: Ids, questions: Sequence[Message]) -> Ids:
        """Ask clients who are online, one by one; returns the sorted numbers of those who will answer everything if
        neither their time nor the server's is up before.

        Args:
            clients: `(m,)` sorted.
            questions: in order, of the types of `questions`; each goes when the one before is answered.
        """
        self._finish_server_work()
        self._stage = questions[0].stage
        self.on_stage(self._stage, self.now_s)
        latency_s = self.links.latency_at(self.now_s, clients)
        presence = self._presence(clients)
        flights = [
            PendingExchange(client, self.round_number, late_s, leaves_s)
            for client, late_s, leaves_s in zip(
                clients.tolist(), latency_s.tolist(), presence.leaves_s.tolist(), strict=True
            )
        ]
        answering = np.ones(len(clients), np.bool_)
        for position, question in enumerate(questions):
            stage = type(question).stage
            if position:
                presence = self.availability.presence(self.round_number, stage, self.now_s, clients)
            answering &= ~presence.drops
            asked = self._stage_of(question, clients)
            if answering.any():
                _, answers = await self.handed(question, clients[answering], stage=stage)
                self._check(answers.crashes)
                self._record_answers(answers)
                asked.place(answers)
            limit_s, compute_s = self.timing.limit_s(stage, None), asked.compute_s * self.speed_factors[clients]
            for at, flight in enumerate(flights):
                down, up = int(asked.size_down[at]), int(asked.size_up[at])
                outcome, drops = int(asked.outcome[at]), bool(presence.drops[at])
                flight.legs.append(PendingQuestion(limit_s, down, up, float(compute_s[at]), outcome, drops))
            answering &= asked.outcome == ANSWERED
        self.flights.begin(self.now_s, flights)
        self._start_server_work()
        return clients[answering]

    async def wait(self, until_s: float) -> list[PendingExchange]:
        """Let time pass until something is over, or until `until_s`; all that is over then, in order.

        Nothing of it is recorded: see `record`.
        """
        self._finish_server_work()
        over = self.flights.advance(self.now_s)
        while not over and self.now_s < (then_s := min(self.flights.next_s, until_s)) < math.inf:
            self.now_s = then_s
            over = self.flights.advance(then_s)
        self._start_server_work()
        return over

    def record(self, flight: PendingExchange) -> None:
        """Record in this round what was asked in a flight that is over, a row for each question."""
        client = ids([flight.client])
        for kind, leg in zip(self.questions[: flight.at + 1], flight.legs, strict=False):
            stage = Stage(kind, client, leg.size_down, None, 0)
            stage.size_up[:] = leg.size_up
            stage.outcome[:] = leg.outcome
            if leg.down == 1.0:  # else the question never arrived whole
                stage.compute_s[:] = leg.compute_s / self.speed_factors[client]
            stage.arrival_s[:] = leg.received_s
            for size, share, own, same_way, other_way in (
                (stage.size_down, leg.down, stage.bytes_down, stage.transport_down, stage.transport_up),
                (stage.size_up, leg.up, stage.bytes_up, stage.transport_up, stage.transport_down),
            ):
                headers, acknowledgements = self.links.transport.overhead(size)
                own[:] = np.floor(size * share)
                same_way += np.floor(headers * share).astype(np.int64)
                other_way += np.floor(acknowledgements * share).astype(np.int64)
            stage.ride_on_answers(self.links.transport, self.speed_factors)
            self.exchanges.append(stage.exchanges(leg.sent_s, self.speed_factors))

    async def handed(
        self, message: Message, clients: Ids, private: Mapping[int, Message] | None = None, stage: str = ""
    ) -> tuple[tuple[int, int], HostAnswers]:
        """What hosts make of a message to sorted clients, and where its vectors are: no time passes, and nothing is
        counted.
        """
        self._stage = stage or self._stage
        self._off_the_record += 1
        detached = detach(message)
        key = (self.round_number, -self._off_the_record)
        delivery = Delivery(
            key=key,
            kind=type(message),
            header=detached.header,
            vectors=detached.vectors,
            recipients=clients,
            private=None if private is None else {client: encode(private[client]) for client in clients.tolist()},
        )
        return key, await self.hosts.deliver(delivery)

    async def fetched(self, message: Message, clients: Ids) -> dict[int, tuple[Any, Vector]]:
        """The answers of sorted clients to such a message, and the vector in each."""
        if not len(clients):
            return {}
        key, answers = await self.handed(message, clients)
        vectors = await self.hosts.vectors(key, clients)
        kind = type(message).Answer
        assert kind is not None
        return {
            client: (attach(kind, answers.headers[client], (vectors[client],)), vectors[client])
            for client in clients.tolist()
        }

    async def _ask(self, asked: Ask) -> Replies:
        """As ever; but who was asked in a flight has answered, and what it said is looked at again."""
        if asked.kind not in self.questions:
            return await super()._ask(asked)
        self._finish_server_work()
        key, answers = await self.handed(asked.message, asked.recipients, stage=asked.kind.stage)
        stage = self._stage_of(asked.message, asked.recipients)
        stage.place(answers)
        stage.arrival_s[stage.outcome != SILENT] = self.now_s
        self._start_server_work()
        return stage.replies(answers, *self._vectors_at(key), self.now_s, self.now_s)

    @staticmethod
    def _stage_of(question: Message, clients: Ids) -> Stage:
        return Stage(type(question), clients, detach(question).size, None, 0)
