"""A round of an asynchronous run: a buffer of K updates, whenever they come.

C clients train at any time, each on the model that it was sent. One that is lost or has finished leaves its place to
another, drawn from those that are online and idle, which is sent the model of that moment. When K have finished, the
protocol of the experiment aggregates them, the model makes its step, and the next round begins. While they are
aggregated the others go on; their places are given away again with the new model.

`plain`: an update is on its way as soon as it is there (FedBuff, see `testbed.aggregation.buffered`). Under `secagg`
and `secagg-plus` a client that has finished says so and holds its update, and its place: else more would be trained
than a slow protocol takes, and all would be old. When K have finished, the protocol runs among them.
Whoever is lost in it is lost to the buffer, too: those K updates are used, or gone when the round is aborted.

What is under way, and what has finished and waits, is among the arrays of the run's checkpoint: for each such client
its update, 4 bytes a parameter. Every round begins with what the checkpoint has, so a resumed run is the same run.
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
from testbed.selection.contract import SelectionRound, ending_with
from testbed.training import Train

_BUFFER = ArrayGroup("buffered: ")


@dataclass
class Held:
    """What a client has learned, until it is aggregated.

    Attributes:
        round: in which the client was sent the model.
        kept: its update.
        flight: how that went; None: it is under way.
    """

    round: int
    kept: StoredUpdate
    flight: PendingExchange | None = None


class Buffer:
    """What outlasts a round.

    Args:
        memory: what is kept from round to round, of which this takes what `keep_in` has put there.
        population: number of clients n.

    Attributes:
        held: by client; of those that are under way, and of those that have finished.
        drawn: `(n,)` how often each client was sent the model.
    """

    def __init__(self, memory: Memory, population: int) -> None:
        saved = _BUFFER.take(memory)
        self.held: dict[int, Held] = {}
        self.drawn = saved.get("drawn", np.zeros(population, np.int64))
        if "deltas" in saved:
            for (client, *counts), loss, delta in zip(
                saved["counts"].tolist(), saved["losses"].tolist(), saved["deltas"], strict=True
            ):
                number, samples, examples = counts
                self.held[client] = Held(number, StoredUpdate(samples, loss, examples, Vector(delta, 0)))
        for flight in unpacked(saved) if "flights" in saved else ():
            self.held[flight.client].flight = flight

    def keep_in(self, memory: Memory) -> None:
        """Put all of it into what is kept from round to round."""
        saved = {"drawn": self.drawn}
        if self.held:
            kept = [(client, one.round, one.kept) for client, one in self.held.items()]
            saved["counts"] = np.array([(c, number, one.samples, one.examples) for c, number, one in kept], np.int64)
            saved["losses"] = np.array([one.loss for _, _, one in kept], np.float64)
            saved["deltas"] = np.stack([one.delta.values for _, _, one in kept])
        if flights := [one.flight for one in self.held.values() if one.flight is not None]:
            saved |= packed(flights)
        memory.update(_BUFFER.named(saved))

    @property
    def ready(self) -> list[int]:
        """Who has finished, in the order in which they have."""
        finished = [(one.flight.end_s, client) for client, one in self.held.items() if one.flight is not None]
        return [client for _, client in sorted(finished)]


class _Filling:
    """Sends the model to clients, and notes who has finished, until the buffer of one round is full."""

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
        self._wanted = experiment.selection.participants
        self._evenly = experiment.selection.draws_singly == "least-drawn"
        self._asked: set[int] = set()  # in this round: a round's number serves a client once
        self._draws = 0

    async def begin(self) -> int:
        """Note who has finished while the last buffer was aggregated, and count the clients that can be asked."""
        for client in self._buffer.ready:
            self._throw_away_if_stale(client)
        self._note(await self._network.wait(self._network.now_s))
        return len(self._idle())

    async def fill(self) -> list[int]:
        """Return the first K clients that have finished; raises `RoundSkipped` when there is nobody to wait for."""
        network, comes_back = self._network, self._network.availability.comes_back
        if self._upload is None:
            await self._send_model()  # nobody waits for the aggregation of those who have finished meanwhile
        while len(ready := self._usable()) < self._wanted:  # a full buffer's places are given the model that it makes
            await self._send_model()
            if not len(network.flights):
                if comes_back:
                    await network.pause(self._section.redraw_s)
                raise RoundSkipped("too-few-available", f"{len(ready)} of {self._wanted} have finished, nobody trains")
            waits = self._places_taken() < self._section.concurrency or len(ready) < len(self._buffer.ready)
            again_s = network.now_s + self._section.redraw_s if comes_back and waits else math.inf
            self._note(await network.wait(again_s))
        return ready[: self._wanted]

    def _places_taken(self) -> int:
        """By clients that train, and by those that hold their updates until the buffer is theirs."""
        holding = 0 if self._upload is not None else len(self._usable())
        return len(self._network.flights) + holding

    def _usable(self) -> list[int]:
        """Who has finished, in that order; where updates are still with their clients, those that the server sees."""
        ready = self._buffer.ready
        if self._upload is not None or not self._network.timing.disconnects_visible:
            return ready
        there = set(self._network.online(ids(sorted(ready))).tolist())
        return [client for client in ready if client in there]

    def _note(self, over: Sequence[PendingExchange]) -> None:
        """What has become of clients that were sent the model."""
        for flight in over:
            if flight.answered:
                self._buffer.held[flight.client].flight = flight
                self._throw_away_if_stale(flight.client)
            else:
                self._buffer.held.pop(flight.client, None)
                self._network.record(flight)

    def _throw_away_if_stale(self, client: int) -> None:
        held, most = self._buffer.held[client], self._section.max_staleness
        staleness = self._start.number - held.round
        if most is not None and staleness > most:
            del self._buffer.held[client]
            if held.flight is not None:
                self._network.record(held.flight)
            self._network.record_event(f"client:{client}", "stale", f"{staleness} rounds old, at most {most}")

    async def _send_model(self) -> None:
        """Give free places to clients that are online and idle, as far as there are such."""
        network, start = self._network, self._start
        free = self._section.concurrency - self._places_taken()
        if free <= 0 or not len(there := self._idle()):
            return
        generator = start.rng(f"dispatch {self._draws}")
        self._draws += 1
        clients = self._drawn(there, min(free, len(there)), generator)
        self._asked.update(clients.tolist())
        self._buffer.drawn[clients] += 1
        question = Train(start.number, Vector(self._model, 0))
        further = [] if self._upload is None else [self._upload]
        answering = await network.dispatch(clients, [question, *further])
        for client, (kept, _) in (await network.fetched(Keep(start.number), answering)).items():
            self._buffer.held[client] = Held(start.number, kept)

    def _idle(self) -> Ids:
        """Who is online, and can be sent the model: sorted."""
        start = self._start
        left_out = start.memory.get(EXCLUDED, no_ids()).tolist()
        busy = {*self._buffer.held, *self._network.flights, *self._asked, *left_out}
        return self._network.online(np.setdiff1d(start.everyone, ids(sorted(busy)), assume_unique=True))

    def _drawn(self, there: Ids, count: int, generator: np.random.Generator) -> Ids:
        """So many of those who are there: uniformly, or those who were sent the model least often."""
        if not self._evenly:
            return np.sort(generator.choice(there, count, replace=False))
        shuffled = generator.permutation(there)
        return np.sort(shuffled[np.argsort(self._buffer.drawn[shuffled], kind="stable")[:count]])


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
            with ending_with(candidates):
                chosen = ids(await filling.fill())
            held = {client: buffer.held.pop(client) for client in chosen.tolist()}
        finally:
            buffer.keep_in(start.memory)
        flights = [one.flight for one in held.values() if one.flight is not None]
        for flight in flights:
            self._network.record(flight)
        losses = [one.kept.loss for one in held.values() if not math.isnan(one.kept.loss)]
        with ending_with(candidates, chosen):
            updates = recalls({client: (one.round, one.kept) for client, one in held.items()})
            await self._network.handed(Recall(start.number), chosen, updates)
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
