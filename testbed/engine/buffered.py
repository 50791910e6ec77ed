"""A round of an asynchronous run: a buffer of K updates, filled as they arrive.

C clients train at any time, each on the model that it was sent. When a client has finished or is lost, its place goes
to another client, drawn from those that are online and idle, which is sent the current model. When K clients have
finished, the protocol of the experiment aggregates their updates, the model makes its step, and the next round begins.
All other clients continue to train during the aggregation; free places are filled again with the new model.

`plain`: a client sends its update as soon as it is trained (FedBuff, see `testbed.aggregation.buffered`). Under
`secagg` and `secagg-plus` a client that has finished reports this, and keeps its update and its place until the
protocol runs among K such clients.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.aggregation.buffered import Keep, Recall, StoredUpdate, recalls, staleness_weight
from testbed.arrays import Ids
from testbed.engine.round import BufferedUpdates, Cohort, Server
from testbed.errors import RoundSkipped
from testbed.experiment.asynchronous import Asynchronous
from testbed.experiment.schema import Experiment
from testbed.memory import ArrayGroup, Memory
from testbed.messages import Message, Vector
from testbed.network.asynchronous import AsynchronousNetwork
from testbed.network.contract import EXCLUDED, ids, no_ids
from testbed.network.in_flight import PendingExchange, packed, unpacked
from testbed.selection.contract import SelectionRound, attach_selection_state
from testbed.training import Train

_BUFFER = ArrayGroup("buffered: ")


@dataclass
class PendingUpdate:
    """A client's update until it is aggregated.

    Attributes:
        round: round in which the client was sent the model.
        update: the update.
        flight: the client's exchange once it has ended; None: in progress.
    """

    round: int
    update: StoredUpdate
    flight: PendingExchange | None = None


class Buffer:
    """The state of asynchronous training that outlasts a round.

    Args:
        memory: arrays kept from round to round; the arrays that `keep_in` stored are removed from it.
        population: number of clients n.

    Attributes:
        pending: updates in progress and finished updates, by client.
        times_drawn: `(n,)` number of times that each client was sent the model.
    """

    def __init__(self, memory: Memory, population: int) -> None:
        saved = _BUFFER.take(memory)
        self.pending: dict[int, PendingUpdate] = {}
        self.times_drawn = saved.get("drawn", np.zeros(population, np.int64))
        if "deltas" in saved:
            for (client, *counts), loss, delta in zip(
                saved["counts"].tolist(), saved["losses"].tolist(), saved["deltas"], strict=True
            ):
                number, samples, examples = counts
                self.pending[client] = PendingUpdate(number, StoredUpdate(samples, loss, examples, Vector(delta, 0)))
        for flight in unpacked(saved) if "flights" in saved else ():
            self.pending[flight.client].flight = flight

    def keep_in(self, memory: Memory) -> None:
        """Store the buffer in the arrays that are kept from round to round."""
        # All in the checkpoint, at 4 bytes per parameter and waiting client: every round begins from these arrays,
        # so that a resumed run gives the same results.
        saved = {"drawn": self.times_drawn}
        if self.pending:
            rows = [(client, entry.round, entry.update) for client, entry in self.pending.items()]
            saved["counts"] = np.array(
                [(c, number, entry.samples, entry.examples) for c, number, entry in rows], np.int64
            )
            saved["losses"] = np.array([entry.loss for _, _, entry in rows], np.float64)
            saved["deltas"] = np.stack([entry.delta.values for _, _, entry in rows])
        if flights := [entry.flight for entry in self.pending.values() if entry.flight is not None]:
            saved |= packed(flights)
        memory.update(_BUFFER.named(saved))

    @property
    def ready(self) -> list[int]:
        """The clients that have finished, in the order in which they finished."""
        finished = [(entry.flight.end_s, client) for client, entry in self.pending.items() if entry.flight is not None]
        return [client for _, client in sorted(finished)]


class _Filling:
    """The process that fills the buffer of one round: it sends the model to clients and tracks finished ones."""

    def __init__(
        self,
        start: SelectionRound,
        network: AsynchronousNetwork,
        experiment: Experiment,
        upload: Message | None,
        model: npt.NDArray[np.float32],
        buffer: Buffer,
    ) -> None:
        assert experiment.asynchronous is not None
        self._section: Asynchronous = experiment.asynchronous
        self._start, self._network, self._model, self._buffer = start, network, model, buffer
        self._upload = upload
        self._size = experiment.selection.participants
        self._evenly = experiment.selection.draws_singly == "least-drawn"
        self._sent_to: set[int] = set()  # in this round: a round's number serves a client once
        self._draws = 0

    async def begin(self) -> int:
        """Process the exchanges that ended during the last aggregation; return the number of available clients."""
        # Updates that wait have become one round older.
        for client in self._buffer.ready:
            self._throw_away_if_stale(client)
        self._note(await self._network.wait(self._network.now_s))
        return len(self._idle())

    async def fill(self) -> list[int]:
        """Return the first K clients that have finished; raises `RoundSkipped` when there is nobody to wait for."""
        network, comes_back = self._network, self._network.availability.comes_back
        if self._upload is None:
            await self._send_model()  # places of clients that finished during the aggregation are free
        while len(ready := self._usable()) < self._size:  # the places of a full buffer get the next model
            await self._send_model()
            if not len(network.flights):
                if comes_back:
                    await network.pause(self._section.redraw_s)
                raise RoundSkipped("too-few-available", f"{len(ready)} of {self._size} have finished, nobody trains")
            waits = self._places_taken() < self._section.concurrency or len(ready) < len(self._buffer.ready)
            # Clients may come online meanwhile and take a free place, so look again in between.
            again_s = network.now_s + self._section.redraw_s if comes_back and waits else math.inf
            self._note(await network.wait(again_s))
        return ready[: self._size]

    def _places_taken(self) -> int:
        """Return the number of clients that train, or hold their updates until the buffer is aggregated."""
        # With secure aggregation a finished client keeps its place: otherwise more updates would be trained than the
        # slow protocol consumes, and all of them would be stale.
        holding = 0 if self._upload is not None else len(self._usable())
        return len(self._network.flights) + holding

    def _usable(self) -> list[int]:
        """Return the finished clients in order; if updates are still with the clients, only those visibly online."""
        ready = self._buffer.ready
        if self._upload is not None or not self._network.timing.disconnects_visible:
            return ready
        there = set(self._network.online(ids(sorted(ready))).tolist())
        return [client for client in ready if client in there]

    def _note(self, over: Sequence[PendingExchange]) -> None:
        """Process the exchanges that have ended."""
        for flight in over:
            if flight.answered:
                self._buffer.pending[flight.client].flight = flight
                self._throw_away_if_stale(flight.client)
            else:
                self._buffer.pending.pop(flight.client, None)
                self._network.record(flight)

    def _throw_away_if_stale(self, client: int) -> None:
        entry, most = self._buffer.pending[client], self._section.max_staleness
        staleness = self._start.number - entry.round
        if most is not None and staleness > most:
            del self._buffer.pending[client]
            if entry.flight is not None:
                self._network.record(entry.flight)
            self._network.record_event(f"client:{client}", "stale-update", f"{staleness} rounds old, at most {most}")

    async def _send_model(self) -> None:
        """Give free places to clients that are online and idle, as far as there are such."""
        network, start = self._network, self._start
        free = self._section.concurrency - self._places_taken()
        if free <= 0 or not len(there := self._idle()):
            return
        generator = start.rng(f"dispatch {self._draws}")
        self._draws += 1
        clients = self._draw_clients(there, min(free, len(there)), generator)
        self._sent_to.update(clients.tolist())
        self._buffer.times_drawn[clients] += 1
        question = Train(start.number, Vector(self._model, 0))
        further = [] if self._upload is None else [self._upload]
        answering = await network.dispatch(clients, [question, *further])
        # Hosts forget a round's state when the next begins, so the updates are stored here until they are aggregated.
        for client, (update, _) in (await network.fetch_internal(Keep(start.number), answering)).items():
            self._buffer.pending[client] = PendingUpdate(start.number, update)

    def _idle(self) -> Ids:
        """Return the sorted clients that are online and can be sent the model."""
        start = self._start
        left_out = start.memory.get(EXCLUDED, no_ids()).tolist()
        busy = {*self._buffer.pending, *self._network.flights, *self._sent_to, *left_out}
        return self._network.online(np.setdiff1d(start.everyone, ids(sorted(busy)), assume_unique=True))

    def _draw_clients(self, there: Ids, count: int, generator: np.random.Generator) -> Ids:
        """Draw `count` of the clients in `there`: uniformly, or those that were sent the model least often."""
        if not self._evenly:
            return np.sort(generator.choice(there, count, replace=False))
        # Shuffled before the stable sort, so that ties are broken at random.
        shuffled = generator.permutation(there)
        return np.sort(shuffled[np.argsort(self._buffer.times_drawn[shuffled], kind="stable")[:count]])


class BufferedClients:
    """The `Collect` of asynchronous rounds: fills a buffer with the updates of K clients.

    Args:
        network: the way to the clients.
        experiment: with a section `asynchronous`.
    """

    def __init__(self, network: AsynchronousNetwork, experiment: Experiment) -> None:
        self._network, self._experiment = network, experiment

    async def __call__(self, start: SelectionRound, server: Server, model: npt.NDArray[np.float32]) -> Cohort:
        """See `testbed.engine.round.Collect`."""
        upload = server.aggregation.upload_question(start.number)
        self._network.questions = (Train,) if upload is None else (Train, type(upload))
        buffer = Buffer(start.memory, start.population)
        filling = _Filling(start, self._network, self._experiment, upload, model, buffer)
        try:
            candidates = await filling.begin()
            with attach_selection_state(candidates):
                chosen = ids(await filling.fill())
            # Used up from here on: a dropout during the protocol, or an aborted round, loses them.
            chosen_updates = {client: buffer.pending.pop(client) for client in chosen.tolist()}
        finally:
            # Even if the round is skipped or aborted: exchanges in progress go on in the next one.
            buffer.keep_in(start.memory)
        flights = [entry.flight for entry in chosen_updates.values() if entry.flight is not None]
        for flight in flights:
            self._network.record(flight)
        # NaN: a client that reports no loss.
        losses = [entry.update.loss for entry in chosen_updates.values() if not math.isnan(entry.update.loss)]
        with attach_selection_state(candidates, chosen):
            updates = recalls({client: (entry.round, entry.update) for client, entry in chosen_updates.items()})
            await self._network.deliver_internal(Recall(start.number), chosen, updates)
        loss = float(np.mean(losses)) if losses else None
        buffered = self._updates(flights, start.number)
        return Cohort(start, chosen, candidates, chosen, loss, buffered=buffered)

    def _updates(self, flights: Sequence[PendingExchange], number: int) -> BufferedUpdates:
        assert self._experiment.asynchronous is not None
        staleness = np.array([number - flight.round for flight in flights], np.int64)
        exponent = self._experiment.asynchronous.staleness_exponent
        return BufferedUpdates(
            clients=ids([flight.client for flight in flights]),
            staleness=staleness,
            scale=np.array([staleness_weight(tau, exponent) for tau in staleness.tolist()]),
            sent_s=np.array([flight.legs[0].sent_s for flight in flights]),
            ready_s=np.array([flight.end_s for flight in flights]),
        )
