"""One round: selection, model broadcast and local training, aggregation, model update."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.server_optimizers import FederatedAveraging, ServerOptimizer, next_model
from testbed.arrays import Floats, Ids
from testbed.errors import Refusal, RoundAborted, RoundSkipped, RunError
from testbed.messages import Vector
from testbed.network.contract import EXCLUDED, ExcludingNetwork, RoundNetwork, no_ids
from testbed.selection.contract import (
    Selection,
    SelectionProtocol,
    SelectionRound,
    attach_selection_state,
    merge_reports,
    training_reports,
)
from testbed.training import Broadcast, StateReference, Train, TrainingRound, TrainWithState
from testbed.workload.client_algorithm import LAST_ROUND, STATELESS, ClientAlgorithm
from testbed.workload.contract import Workload


@dataclass(frozen=True)
class BufferedUpdates:
    """The buffer of an asynchronous round (`testbed.engine.buffered`) as aligned columns; empty in other rounds.

    Attributes:
        clients: `(k,)` sorted.
        staleness: `(k,)` int64 rounds between the one in which each was sent the model and this one.
        scale: `(k,)` factor in [0, 1] of each update for its staleness.
        sent_s: `(k,)` seconds of the run's clock at which each was sent the model.
        ready_s: `(k,)` seconds at which the server had its update, or knew that it was there.
    """

    clients: Ids = field(default_factory=no_ids)
    staleness: Ids = field(default_factory=no_ids)
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    sent_s: Floats = field(default_factory=lambda: np.zeros(0))
    ready_s: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass
class Outcome:
    """The result of a round.

    Attributes:
        state: "completed", "skipped" (no admissible participants) or "aborted"; the model changes only if completed.
        reason: empty if completed.
        candidates: number of clients that stood for selection.
        participants: sorted numbers of the selected clients (also if the round was aborted later).
        survivors: participants with an update in the new model.
        model: `(d,)` float32 after the round.
        training_loss: mean over the participants that trained; None if none did.
        aggregate: the result of the aggregation; None unless completed.
        buffered: the updates of an asynchronous round.
    """

    model: npt.NDArray[np.float32]
    state: str = "completed"
    reason: str = ""
    candidates: int = 0
    participants: Ids = field(default_factory=no_ids)
    survivors: Ids = field(default_factory=no_ids)
    training_loss: float | None = None
    aggregate: Aggregate | None = None
    buffered: BufferedUpdates = field(default_factory=BufferedUpdates)

    def end_early(self, end: RoundAborted | Refusal) -> None:
        """Record why the round has no result, and the state of selection where selection has ended it."""
        # Selection attaches them (`attach_selection_state`); later errors leave the round's own as they are.
        if end.candidates is not None:
            self.candidates = end.candidates
            self.participants = no_ids() if end.participants is None else end.participants
        self.state = "skipped" if isinstance(end, RoundSkipped) else "aborted"
        name = end.check if isinstance(end, Refusal) else end.reason  # a server refuses, too: wrong sums, strangers
        self.reason = f"{name}: {end.detail}" if end.detail else name


@dataclass(frozen=True)
class Server:
    """The server's side of all protocols of a run.

    Attributes:
        selection, aggregation: the protocols.
        broadcast: decides which model each client is sent.
        optimizer: makes the next model from the mean update.
        algorithm: makes the vector that clients are sent, and the server's step from the mean of theirs.
        workload: the learning task as far as the server knows it; None: not at all.
    """

    selection: SelectionProtocol
    aggregation: AggregationProtocol
    broadcast: Broadcast = field(default_factory=Broadcast)
    optimizer: ServerOptimizer = field(default_factory=FederatedAveraging)
    algorithm: ClientAlgorithm = STATELESS
    workload: Workload | None = None


@dataclass(frozen=True)
class Cohort:
    """The clients whose updates a round aggregates.

    Attributes:
        start: the server's state before the round, with the announced round number.
        participants: sorted client numbers.
        candidates: number of clients that stood for selection.
        trained: sorted clients that have reported the end of training.
        loss: mean over the clients that reported a loss; None: none did.
        question: the question that aggregation is bound to; None: clients were asked in different rounds.
        available: sorted clients that were available when selection began; None: unknown.
        buffered: the updates of an asynchronous round.
    """

    start: SelectionRound
    participants: Ids
    candidates: int
    trained: Ids
    loss: float | None
    question: Train | None = None
    available: Ids | None = None
    buffered: BufferedUpdates = field(default_factory=BufferedUpdates)

    def aggregation_round(self, server: Server, dimension: int) -> AggregationRound:
        """Return the state of the server before aggregation, for vectors of `dimension` numbers."""
        start, selection = self.start, server.selection
        samples = None
        if self.available is not None and start.sample_counts is not None:
            samples = int(start.sample_counts[self.available].sum())
        return AggregationRound(
            number=start.number,
            network=start.network,
            participants=self.participants,
            trained=self.trained,
            directory=start.directory,
            dimension=dimension,
            experiment_id=start.experiment_id,
            randomness=start.randomness,
            batches=selection.batches,
            client_rate=selection.client_rate,
            available_samples=samples,
            memory=start.memory,
            training=self.question,
            participants_agreed=selection.participants_agree,
        )


Collect = Callable[[SelectionRound, Server, npt.NDArray[np.float32]], Awaitable[Cohort]]
"""Finds clients and has them train the `(d,)` model; raises `RoundSkipped`, `RoundAborted` or `Refusal`."""


class Round:
    """One round: clients train, their updates are aggregated, the model makes its step.

    Selection and training are `collect`: `selected_clients`, or `testbed.engine.buffered` in asynchronous rounds.

    Args:
        start: the state of the server before the round.
        network: the way to the clients.
        server: the server's side of the protocols.
        model: `(d,)` float32.
        collect: finds the clients and has them train.

    Attributes:
        outcome: the result as far as the round has come.
    """

    def __init__(
        self,
        start: SelectionRound,
        network: RoundNetwork,
        server: Server,
        model: npt.NDArray[np.float32],
        collect: Collect,
    ) -> None:
        self._start, self._network, self._server, self._collect = start, network, server, collect
        self.outcome = Outcome(model)

    async def run(self) -> Outcome:
        """Run the round. A round that ends early costs its time and its bytes, and is no error."""
        outcome, server, memory, model = self.outcome, self._server, self._start.memory, self.outcome.model
        await self._network.begin_round(self._start.number)
        try:
            cohort = await self._collect(self._start, server, model)
            outcome.candidates, outcome.participants = cohort.candidates, cohort.participants
            outcome.training_loss, outcome.buffered = cohort.loss, cohort.buffered
            number, length = cohort.start.number, server.algorithm.payload_length(len(model))
            aggregate = await _aggregate(server.aggregation, cohort.aggregation_round(server, length))
            step = server.algorithm.step(memory, aggregate.mean, aggregate.weight, number)
            server.algorithm.commit_states(memory, aggregate.survivors, number)
            # The model changes only after everything that may end the round early.
            outcome.model = next_model(server.optimizer, memory, model, step)
            outcome.survivors, outcome.aggregate = aggregate.survivors, aggregate
        except (RoundAborted, Refusal) as end:
            outcome.end_early(end)
        finally:
            self._network.end_round()
        return outcome

    async def skip(self, reason: str) -> Outcome:
        """Record a round in which nobody is asked anything."""
        await self._network.begin_round(self._start.number)
        self._network.end_round()
        self.outcome.state, self.outcome.reason = "skipped", reason
        return self.outcome


async def _aggregate(protocol: AggregationProtocol, start: AggregationRound) -> Aggregate:
    """Return the result of aggregation; raises `RunError` for anything else that a class of the user's own returns."""
    result: Any = await protocol.aggregate(start)
    # A class of the user's own may forget to return: an error here names it, not a later attribute.
    if isinstance(result, Aggregate):
        return result
    got = "nothing" if result is None else f"no Aggregate but {type(result).__name__}"
    where = f"round {start.number}: aggregate of {type(protocol).__name__}"
    raise RunError(f"{where} returned {got}; return Aggregate(mean, weight, survivors)")


async def selected_clients(start: SelectionRound, server: Server, model: npt.NDArray[np.float32]) -> Cohort:
    """Select participants and train them: the `Collect` of a synchronous round.

    Args:
        start: the server's state before the round.
        server: the server's protocols.
        model: `(d,)` float32, the global model.
    """
    selecting, aggregation = start, server.aggregation
    if len(excluded := start.memory.get(EXCLUDED, no_ids())):
        # Selection alone is told: excluded clients cannot be participants of any later stage.
        selecting = replace(start, network=ExcludingNetwork(start.network, excluded))
    chosen = await _select(server.selection, selecting)
    if chosen.available is not None and aggregation.broadcasts_to_all:
        chosen = replace(chosen, participants=chosen.available)
    # Clients take part in the round that was announced to them, even if a malicious server announced another number.
    number = start.number if chosen.round_number is None else chosen.round_number
    with attach_selection_state(chosen.candidates, chosen.participants):
        if not len(chosen.participants) and not aggregation.allows_empty_selection:
            raise RoundSkipped("nobody-selected", f"none of {chosen.candidates} available clients was drawn")
        trainers = chosen.participants if chosen.ready is None else chosen.ready
        return await _train(replace(start, number=number), server, model, trainers, chosen)


async def _select(protocol: SelectionProtocol, start: SelectionRound) -> Selection:
    """Return the outcome of selection; raises `RunError` for anything else that a class of the user's own returns."""
    try:
        chosen: Any = await protocol.select(start)
    except FrozenInstanceError as error:
        error.add_note(_TO_KEEP if str(error).endswith("'memory'") else _TO_TELL)
        raise
    if not isinstance(chosen, Selection):
        got = "nothing" if chosen is None else f"no Selection but {type(chosen).__name__}"
    elif not all(_are_ids(clients) for clients in (chosen.participants, chosen.ready) if clients is not None):
        got = "clients that are no array of whole numbers"
    else:
        return chosen
    advice = "return Selection(np.array([...], np.int64), candidates=...)"
    raise RunError(f"round {start.number}: select of {type(protocol).__name__} returned {got}; {advice}")


_TO_TELL = (
    "(return Selection(participants, candidates=...) or raise RoundSkipped(..., candidates=...), and change nothing)"
)
_TO_KEEP = "(put arrays into round_.memory by their names instead)"


def _are_ids(clients: Any) -> bool:
    return isinstance(clients, np.ndarray) and clients.ndim == 1 and np.issubdtype(clients.dtype, np.integer)


async def _train(
    start: SelectionRound, server: Server, model: npt.NDArray[np.float32], trainers: Ids, chosen: Selection
) -> Cohort:
    """Broadcast the model to `trainers`, and collect their reports."""
    payload = Vector(server.algorithm.payload(model, start.memory), 0)
    question = (TrainWithState if server.algorithm.keeps_state else Train)(start.number, payload)
    begin = TrainingRound(start.number, start.network, trainers, start.randomness, server.workload)
    groups = server.broadcast.questions_for(begin, question)
    reports, losses, trained = [], [], no_ids()
    for clients, asked_question in groups:
        if not len(clients):
            continue
        private = None
        if isinstance(asked_question, TrainWithState):
            private = {client: StateReference(int(start.memory[LAST_ROUND][client])) for client in clients.tolist()}
        replies = await start.network.ask(clients, asked_question, private=private)
        # `valid` drops malformed reports; their senders have trained nevertheless, and stay in `trained`.
        losses += [answer.loss for answer in replies.valid().values() if not math.isnan(answer.loss)]
        reports.append(training_reports(replies, clients))
        trained = np.union1d(trained, replies.ids)
    if reports:
        server.selection.learn(start, merge_reports(reports))
    loss = float(np.mean(losses)) if losses else None
    first = groups[0][1]  # aggregation is bound to the question to the first group
    return Cohort(start, chosen.participants, chosen.candidates, trained, loss, first, chosen.available)
