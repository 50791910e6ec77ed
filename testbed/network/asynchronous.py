"""The virtual clock of asynchronous rounds: single clients are asked beside the stages of `ask`.

`dispatch` sends questions to clients. Their answers are computed at once, and arrive as links, devices and availability
determine (`in_flight`). `wait` advances the clock until an exchange ends. Availability models without a clock draw a
dropout for the round in which the client is asked, whenever the answer is due.

Hosts forget the state of each round (`testbed.network.hosts`). State that must outlast a round is fetched and handed
back by `deliver_internal`. This is a message from the testbed to itself: no party sends it, and it costs neither bytes
nor time.
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
    """An emulated network for asynchronous rounds; it takes the arguments of `EmulatedNetwork`.

    Attributes:
        flights: the exchanges in progress.
        questions: the types of the questions of an exchange, in order; set them before the first `dispatch`.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.flights = PendingExchanges(self.links, self.timing.disconnects_visible)
        self.questions: tuple[type[Message], ...] = ()
        self._off_the_record = 0

    async def begin_round(self, round_number: int) -> None:
        """Begin a round; exchanges in progress continue."""
        await super().begin_round(round_number)
        self._off_the_record = 0

    def to_checkpoint(self, round_number: int) -> Memory:
        """Return the state to resume from, including the exchanges in progress."""
        return super().to_checkpoint(round_number) | _IN_FLIGHT.named(self.flights.to_checkpoint())

    def restore(self, memory: Memory) -> None:
        """Restore the state that `to_checkpoint` returned."""
        super().restore(memory)
        self.flights.restore(_IN_FLIGHT.take(memory))

    def online(self, clients: Ids) -> Ids:
        """Return the clients that are connected now, as the server sees them.

        Args:
            clients: `(m,)` int64, sorted client numbers.

        Returns:
            The subset of `clients` that is reachable and has not dropped out in this round.
        """
        presence = self.availability.presence(self.round_number, self.questions[0].stage, self.now_s, clients)
        return clients[presence.reachable & ~self._gone[clients]]

    async def dispatch(self, clients: Ids, questions: Sequence[Message]) -> Ids:
        """Begin an exchange with each of the clients, which must be online.

        Args:
            clients: `(m,)` int64, sorted client numbers.
            questions: the questions in order, of the types `self.questions`; each is sent when the previous one is
                answered.

        Returns:
            Sorted numbers of the clients that will answer every question unless they leave, or the server's limit
            expires.
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
            # Availability models without a clock draw a dropout per stage.
            if position:
                presence = self.availability.presence(self.round_number, stage, self.now_s, clients)
            answering &= ~presence.drops
            stage_data = self._stage_of(question, clients)
            if answering.any():
                _, answers = await self.deliver_internal(question, clients[answering], stage=stage)
                self._check(answers.crashes)
                self._record_answers(answers)
                stage_data.place(answers)
            limit_s, compute_s = self.timing.limit_s(stage, None), stage_data.compute_s * self.speed_factors[clients]
            for at, flight in enumerate(flights):
                down, up = int(stage_data.size_down[at]), int(stage_data.size_up[at])
                outcome, drops = int(stage_data.outcome[at]), bool(presence.drops[at])
                flight.legs.append(PendingQuestion(limit_s, down, up, float(compute_s[at]), outcome, drops))
            # A client that stays silent or refuses gets no further question.
            answering &= stage_data.outcome == ANSWERED
        self.flights.begin(self.now_s, flights)
        self._start_server_work()
        return clients[answering]

    async def wait(self, until_s: float) -> list[PendingExchange]:
        """Advance the clock until an exchange ends, at most to `until_s`; return all ended exchanges, in order.

        Nothing is recorded: see `record`.
        """
        self._finish_server_work()
        over = self.flights.advance(self.now_s)
        while not over and self.now_s < (then_s := min(self.flights.next_s, until_s)) < math.inf:
            self.now_s = then_s
            over = self.flights.advance(then_s)
        self._start_server_work()
        return over

    def record(self, flight: PendingExchange) -> None:
        """Record in this round the questions of an exchange that has ended, one row per question."""
        client = ids([flight.client])
        # Not strict: an exchange may end before its last question.
        for kind, leg in zip(self.questions[: flight.at + 1], flight.legs, strict=False):
            stage = Stage(kind, client, leg.size_down, None, 0)
            stage.size_up[:] = leg.size_up
            stage.outcome[:] = leg.outcome
            if leg.down == 1.0:  # else the question never arrived whole
                # Divided out again, as `Stage.exchanges` multiplies by the factor.
                stage.compute_s[:] = leg.compute_s / self.speed_factors[client]
            stage.arrival_s[:] = leg.received_s
            # A cut-off transfer is charged for whole bytes, and for its share of headers and acknowledgements.
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

    async def deliver_internal(
        self, message: Message, clients: Ids, private: Mapping[int, Message] | None = None, stage: str = ""
    ) -> tuple[tuple[int, int], HostAnswers]:
        """Deliver a message of the testbed to clients; no time passes, and no bytes are counted.

        Args:
            message: the message.
            clients: `(m,)` int64, sorted client numbers.
            private: the private part for each client; None if the message has none.
            stage: stage to record events under; "" for the current one.

        Returns:
            The key under which the hosts keep the answers' vectors, and the answers.
        """
        self._stage = stage or self._stage
        self._off_the_record += 1
        detached = detach(message)
        # Negative, as the keys of stages count up from 0.
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

    async def fetch_internal(self, message: Message, clients: Ids) -> dict[int, tuple[Any, Vector]]:
        """Return the clients' answers to an internal message, each with its vector, by client.

        Args:
            message: the message, as for `deliver_internal`.
            clients: `(m,)` int64, sorted client numbers.
        """
        if not len(clients):
            return {}
        key, answers = await self.deliver_internal(message, clients)
        vectors = await self.hosts.vectors(key, clients)
        kind = type(message).Answer
        assert kind is not None
        return {
            client: (attach(kind, answers.headers[client], (vectors[client],)), vectors[client])
            for client in clients.tolist()
        }

    async def _ask(self, call: Ask) -> Replies:
        """Ask as `EmulatedNetwork` does; for a question of an exchange, read the answers that already exist."""
        if call.kind not in self.questions:
            return await super()._ask(call)
        self._finish_server_work()
        key, answers = await self.deliver_internal(call.message, call.recipients, stage=call.kind.stage)
        stage = self._stage_of(call.message, call.recipients)
        stage.place(answers)
        # The answers have arrived in their exchanges: reading them again takes no time.
        stage.arrival_s[stage.outcome != SILENT] = self.now_s
        self._start_server_work()
        return stage.replies(answers, *self._vectors_at(key), self.now_s, self.now_s)

    @staticmethod
    def _stage_of(question: Message, clients: Ids) -> Stage:
        return Stage(type(question), clients, detach(question).size, None, 0)
