"""One round: selection, model broadcast and local training, aggregation, model update."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.server_optimizers import FederatedAveraging, ServerOptimizer, next_model
from testbed.arrays import Floats, Ids
from testbed.errors import Refusal, RoundAborted, RoundSkipped
from testbed.messages import Vector
from testbed.network.contract import EXCLUDED, ExcludingNetwork, RoundNetwork, no_ids
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound, TrainingReports, merged, reports_of
from testbed.training import Broadcast, OwnState, Train, TrainingRound, TrainWithState
from testbed.workload.client_algorithm import LAST_ROUND, STATELESS, ClientAlgorithm
from testbed.workload.contract import Workload


@dataclass(frozen=True)
class BufferedUpdates:
    """What was in the buffer of an asynchronous round (`testbed.engine.buffered`); columns aligned.

    Attributes:
        clients: `(k,)` sorted.
        staleness: `(k,)` int64 rounds between the one in which each was sent the model and this one.
        scale: `(k,)` what each update counts of itself for that.
        sent_s: `(k,)` when each was sent the model.
        ready_s: `(k,)` when the server had its update, or knew that it was there.
    """

    clients: Ids
    staleness: Ids
    scale: Floats
    sent_s: Floats
    ready_s: Floats

    @classmethod
    def none(cls) -> "BufferedUpdates":
        """Of a round that had no buffer."""
        return cls(no_ids(), no_ids(), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass
class Outcome:
    """How a round went.

    Attributes:
        state: "completed", "skipped" (nobody admissible) or "aborted"; then the model is as it was.
        reason: empty when completed.
        candidates: how many stood for selection.
        participants: sorted client numbers that were selected (also when the round was aborted after that).
        survivors: those whose update is in the new model.
        model: `(d,)` float32 after the round.
        training_loss: mean over the participants that trained; None when nobody did.
        aggregate: what the aggregation gave; None unless completed.
        buffered: in an asynchronous run: whose updates these were.
    """

    model: npt.NDArray[np.float32]
    state: str = "completed"
    reason: str = ""
    candidates: int = 0
    participants: Ids = field(default_factory=no_ids)
    survivors: Ids = field(default_factory=no_ids)
    training_loss: float | None = None
    aggregate: Aggregate | None = None
    buffered: BufferedUpdates | None = None

    def end_early(self, end: RoundAborted | Refusal) -> None:
        """Nothing has come of the round."""
        self.state = "skipped" if isinstance(end, RoundSkipped) else "aborted"
        name = end.check if isinstance(end, Refusal) else end.reason  # a server refuses, too: wrong sums, strangers
        self.reason = f"{name}: {end.detail}" if end.detail else name


@dataclass(frozen=True)
class Training:
    """What local training has come to.

    Attributes:
        trained: sorted clients that have reported it as done.
        question: what the first of them were asked; aggregation goes by it.
        loss: mean over those that have said one; None: nobody has.
        reports: what the server learns of it; None: nobody was asked.
    """

    trained: Ids
    question: Train
    loss: float | None
    reports: TrainingReports | None


async def run_round(
    start: SelectionRound,
    network: RoundNetwork,
    selection: SelectionProtocol,
    aggregation: AggregationProtocol,
    model: npt.NDArray[np.float32],
    broadcast: Broadcast | None = None,
    workload: Workload | None = None,
    optimizer: ServerOptimizer | None = None,
    algorithm: ClientAlgorithm = STATELESS,
) -> Outcome:
    """Run one round on `network`; a round that ends early costs its time and its bytes, and is not an error.

    Args:
        start: what the server knows of it.
        network: how to reach the clients.
        selection, aggregation, broadcast: the server's sides; by default the model is sent as it is.
        model: `(d,)` float32.
        workload: what the server knows of what is learned.
        optimizer: how the mean becomes the next model; by default it is added.
        algorithm: makes the vector that clients are sent, and the server's step.
    """
    outcome = Outcome(model)
    await network.begin_round(start.number)
    try:
        chosen = await _select(start, network, selection, aggregation)
        begin = TrainingRound(start.number, network, _trainers(aggregation, chosen), start.randomness, workload)
        question = _question(start, model, algorithm)
        training = await _train(begin, Broadcast() if broadcast is None else broadcast, question, start.memory)
        outcome.training_loss = training.loss
        if training.reports is not None:
            selection.learn(start, training.reports)
        aggregate = await aggregation.aggregate(
            AggregationRound(
                number=start.number,
                network=network,
                participants=chosen.participants,
                trained=training.trained,
                directory=start.directory,
                dimension=len(question.model),
                experiment_id=start.experiment_id,
                randomness=start.randomness,
                batches=selection.batches,
                client_rate=selection.client_rate,
                available_samples=_samples_of(start, chosen.available),
                memory=start.memory,
                training=training.question,
                participants_agreed=selection.participants_agree,
            )
        )
        step = algorithm.step(start.memory, aggregate.mean, aggregate.weight, start.number)
        algorithm.commit_states(start.memory, aggregate.survivors, start.number)
        outcome.model = next_model(optimizer or FederatedAveraging(), start.memory, model, step)
        outcome.survivors, outcome.aggregate = aggregate.survivors, aggregate
    except (RoundAborted, Refusal) as end:
        outcome.end_early(end)
    finally:
        network.end_round()
    outcome.candidates, outcome.participants = start.candidates, start.participants
    return outcome


async def skipped_round(
    start: SelectionRound, network: RoundNetwork, model: npt.NDArray[np.float32], reason: str
) -> Outcome:
    """A round in which nobody is asked anything, on record all the same; `reason` says why."""
    await network.begin_round(start.number)
    network.end_round()
    return Outcome(model, "skipped", reason)


async def _select(
    start: SelectionRound, network: RoundNetwork, selection: SelectionProtocol, aggregation: AggregationProtocol
) -> Selection:
    """Who takes part; `start` says so, too, as the records of a round that ends early have it from there."""
    if len(excluded := start.memory.get(EXCLUDED, no_ids())):
        start.network = ExcludingNetwork(network, excluded)
    chosen = await selection.select(start)
    if chosen.available is not None and aggregation.broadcasts_to_all:
        chosen = replace(chosen, participants=chosen.available)
    start.candidates, start.participants = chosen.candidates, chosen.participants
    return chosen


def _trainers(aggregation: AggregationProtocol, chosen: Selection) -> Ids:
    """Who is to train; raises `RoundSkipped` where nobody was drawn and somebody should have been."""
    if not len(chosen.participants) and not aggregation.allows_empty_selection:
        raise RoundSkipped("nobody-selected", f"none of {chosen.candidates} available clients was drawn")
    return chosen.participants if chosen.ready is None else chosen.ready


def _question(start: SelectionRound, model: npt.NDArray[np.float32], algorithm: ClientAlgorithm) -> Train:
    """What an honest server asks all who are to train."""
    kind = TrainWithState if algorithm.keeps_state else Train
    return kind(start.number, Vector(algorithm.payload(model, start.memory), 0))


async def _train(
    begin: TrainingRound, broadcast: Broadcast, question: Train, memory: Mapping[str, npt.NDArray[Any]]
) -> Training:
    """Model broadcast and local training."""
    asked = broadcast.questions_for(begin, question)
    reports, losses, trained = [], [], no_ids()
    for clients, sent in asked:
        if not len(clients):
            continue
        private = None
        if isinstance(sent, TrainWithState):
            private = {client: OwnState(int(memory[LAST_ROUND][client])) for client in clients.tolist()}
        replies = await begin.network.ask(clients, sent, private=private)
        losses += [answer.loss for answer in replies.valid().values() if not math.isnan(answer.loss)]
        reports.append(reports_of(replies, clients))
        trained = np.union1d(trained, replies.ids)
    loss = float(np.mean(losses)) if losses else None
    return Training(trained, asked[0][1], loss, merged(reports) if reports else None)


def _samples_of(start: SelectionRound, available: Ids | None) -> int | None:
    """Training samples of all available clients."""
    if available is None or start.sample_counts is None:
        return None
    return int(start.sample_counts[available].sum())
