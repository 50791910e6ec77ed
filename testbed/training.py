"""Model broadcast and local training: the protocol between selection and aggregation in a round."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Count, Message, RoundNumber, Vector, content_digest
from testbed.network.contract import Network
from testbed.parties.client import Client, Environment, Role, handles
from testbed.randomness import Randomness
from testbed.records.vocabulary import DIVERGED
from testbed.workload.client_algorithm import LocalTask
from testbed.workload.contract import BatchedWorkload, LocalUpdate, PartlyFrozenWorkload, Workload

# -- client side: questions about training, and the role that answers them ---------------------------------------------


class TrainingReport(Message, frozen=True):
    """The report of a client that has trained; the update itself waits for the aggregation protocol.

    The report is not verified: a malicious client can lie to a server that selects by it. A loss of NaN and a missing
    number of samples mean that the client reports nothing: next to noise that protects a client, both would be releases
    of their own (`Environment.reports_training`).
    """

    samples: Count | None
    loss: float
    squared_loss: float | None = None


class Train(Message, frozen=True):
    """The global model, for training on the client's own data.

    Attributes:
        round: the round, from 1.
        model: `(d,)` float32.

    Example:
        >>> question = Train(round=1, model=Vector(np.zeros(650, np.float32), 0))
        >>> question.stage, len(question.model), question.model.packed_bytes
        ('train', 650, 2600)
    """

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = TrainingReport

    round: RoundNumber
    model: Vector


class StateReference(Message, frozen=True):
    """The private part for one client: the last round with its update in the sum, or 0.

    The client continues from the state that it stored in that round.
    """

    round: RoundNumber


class TrainWithState(Train, frozen=True):
    """As `Train`, for clients that keep a state from round to round (`workload.drift_correction`, `local_layers`)."""

    Private: ClassVar[type[Message] | None] = StateReference


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundUpdate(LocalUpdate):
    """Update of one round, which `trained_update` releases only to that round's aggregation.

    Attributes:
        round: the round that it was trained in.
        question: the server's question, with the model.
    """

    round: int
    question: Train


class TrainedTogether:
    """Updates of the clients of one host for one question, trained as a batch when the first of them is needed.

    Args:
        workload: the batched workload.
        clients: the clients that are asked.
        question: the server's question.
    """

    def __init__(self, workload: BatchedWorkload, clients: Sequence[int], question: Train) -> None:
        self.question = question
        self._workload = workload
        self._waiting = list(clients)
        self._updates: dict[int, LocalUpdate] = {}

    def update(self, client: int) -> LocalUpdate:
        """Return one client's update.

        If training the batch fails, each client is trained alone, so that a client fails only for its own cause.
        """
        if self._waiting:
            # Emptied first: a batch that failed is not tried again for its next client.
            waiting, self._waiting = self._waiting, []
            with contextlib.suppress(Exception):
                self._updates = dict(self._train(waiting))
        update = self._updates.pop(client, None)
        return self._train([client])[client] if update is None else update

    def _train(self, clients: Sequence[int]) -> Mapping[int, LocalUpdate]:
        return self._workload.train_together(clients, self.question.model.values, self.question.round)


class Trainer(Role):
    """The client side: local training, real or (without a workload) none.

    Attributes:
        own_round: the round of its stored state, as the server says; None: the server did not say.

    Example:
        >>> from dataclasses import replace
        >>> class HalfSteps(Trainer):
        ...     def learn(self, workload, message):
        ...         update = super().learn(workload, message)
        ...         return replace(update, delta=update.delta / 2)
        >>> [question.__name__ for question in HalfSteps.questions]
        ['Train', 'TrainWithState']
    """

    own_round: int | None = None

    @classmethod
    def prepare(cls, environment: Environment, clients: Iterable[Client], question: Message) -> None:
        """Train the members clients of a host as one batch if `workload.clients_at_once` allows it."""
        workload = environment.workload
        if isinstance(question, Train) and isinstance(workload, BatchedWorkload) and workload.clients_at_once > 1:
            members = list(clients)
            together = TrainedTogether(workload, [client.number for client in members], question)
            for client in members:
                client.prepared = together

    @handles(Train)
    def on_train(self, message: Train) -> TrainingReport:
        """Train on the client's own data, once per round.

        Raises:
            Refusal: the question does not fit this run or round, or the update is not finite.
        """
        workload, algorithm = self.environment.workload, self.environment.client_algorithm
        if workload is None:
            raise Refusal("train.no-workload", "this run has no workload")
        # Both sides must agree on kept states: without the server's round, a client would train from a wrong state.
        if algorithm.keeps_state == (self.own_round is None):
            raise Refusal("train.algorithm-mismatch", "what clients keep counts in this run, or they keep nothing")
        self._check_round(message.round)
        length = algorithm.payload_length(workload.dimension)
        if message.model.bits or len(message.model) != length:
            raise Refusal("train.dimension-mismatch", f"a model of {len(message.model)}, not {length} float32")
        update = self.learn(workload, message)
        meter("train.parameter_example", _charged_parameters(workload) * self.charged_examples(update))
        delta = np.asarray(update.delta, np.float32)
        if delta.shape != (length,):
            raise Refusal("train.dimension-mismatch", f"the workload made an update {delta.shape}, not ({length},)")
        # NaN or infinity has no encoding in a ring and would spoil the sum of all clients.
        if not np.isfinite(delta).all():
            delta = self.handle_non_finite(delta)
        samples, loss, squared_loss = int(update.samples), float(update.loss), update.squared_loss
        self.client.local_update = RoundUpdate(
            delta, samples, loss, update.examples_processed, squared_loss, round=message.round, question=message
        )
        return self.training_report(self.client.local_update)

    @handles(TrainWithState)
    def on_train_with_state(self, message: TrainWithState, private: StateReference) -> TrainingReport:
        """Train as `on_train` does, from the client's stored state; refuse the state of a later round."""
        # Only a finished round can have the client's update in its sum.
        if private.round >= message.round:
            raise Refusal("train.state-of-later-round", f"the state of round {private.round} in round {message.round}")
        self.own_round = private.round
        return self.on_train(message)

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Return this client's update from the model and its stored state; store the new state."""
        algorithm, states = self.environment.client_algorithm, self.environment.client_states
        number, prepared = self.client.number, self.client.prepared
        # By identity: a client that got another model than its host's batch trains alone.
        if isinstance(prepared, TrainedTogether) and prepared.question is message and not algorithm.keeps_state:
            return prepared.update(number)
        own = algorithm.initial_state
        if states is not None and self.own_round:
            own = states.read(number, self.own_round, len(own))
        update, state = algorithm.local_update(workload, LocalTask(number, message.model.values, own, message.round))
        if states is not None and self.own_round is not None and np.isfinite(state).all():
            states.write(number, message.round, state, self.own_round)  # on_train refuses a state that is not finite
        return update

    def charged_examples(self, update: LocalUpdate) -> int:
        """Return the number of examples that modelled compute charges for."""
        return update.examples_processed

    def handle_non_finite(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return a replacement for an update that is not finite; by default the client refuses instead."""
        raise Refusal(DIVERGED, "the update is not finite; lower the learning rate")

    def training_report(self, update: LocalUpdate) -> TrainingReport:
        """Return the report to the server that precedes the update."""
        if not self.environment.reports_training:
            return TrainingReport(None, float("nan"))
        squared_loss = update.squared_loss
        return TrainingReport(update.samples, update.loss, None if squared_loss is None else float(squared_loss))

    def _check_round(self, number: int) -> None:
        """Check that the round number has not been used before.

        Keys and masks of a seeded run are derived from the number, and two updates under one mask are not hidden. A
        number is used up by the agreement on participants or by the client's decision to take part; in protocols
        without either, by training.
        """
        client, environment = self.client, self.environment
        if number > environment.rounds:
            raise Refusal("train.after-last-round", f"round {number} of {environment.rounds}")
        if environment.participants_are_agreed and client.agreed_participants is None:
            raise Refusal("train.no-agreed-list", "no participant list was agreed on in this round")
        if environment.clients_decide and not client.takes_part:
            raise Refusal("train.not-participating", "this client has not decided to take part in this round")
        if environment.participants_are_agreed or environment.clients_decide:
            if number != client.last_round or client.local_update is not None:
                decided = "participants were agreed on" if environment.participants_are_agreed else "it decided"
                raise Refusal("train.round-reused", f"round {number}; {decided} for {client.last_round}")
        elif number <= client.last_round:
            raise Refusal("train.round-reused", f"round {number} was used before")
        if environment.participation is not None:
            environment.participation.begin(client.number, number)
        # Before training: a crash or a refusal later does not free the number for another model.
        client.last_round = number


def _charged_parameters(workload: Workload) -> int:
    return workload.charged_parameters if isinstance(workload, PartlyFrozenWorkload) else workload.dimension


def training_digest(question: Train, *, anew: bool) -> bytes:
    """Return a digest of the training question: the round, the model and all other fields.

    Only clients that were asked to train the same have equal digests. SHA-256, charged by the byte.

    Args:
        question: as it was sent, or as it arrived.
        anew: hash the model even if this process has its digest already. The result is the same, but it takes as long
            as on a separate device, for measured compute. Modelled compute charges that time in any case.

    Returns:
        32 bytes.
    """
    # Charged even if the digest is cached: on a separate device each client hashes the model itself.
    meter("sha256.byte", question.model.packed_bytes)
    return content_digest(question, anew=anew)


def trained_update(role: Role, round_number: int) -> RoundUpdate:
    """Return the update that this client has trained in this round.

    Args:
        role: the aggregation role of the client.
        round_number: the round.

    Returns:
        The update; `LocalUpdate.delta` is `(d,)` float32.

    Raises:
        Refusal: the client has not trained in this round.

    Example:
        >>> from types import SimpleNamespace
        >>> question = Train(3, Vector(np.zeros(2, np.float32), 0))
        >>> update = RoundUpdate(np.ones(2, np.float32), 5, 0.1, 5, round=3, question=question)
        >>> role = SimpleNamespace(client=SimpleNamespace(local_update=update))  # in a handler: self
        >>> trained_update(role, 3).samples
        5
        >>> trained_update(role, 4)
        Traceback (most recent call last):
        testbed.errors.Refusal: aggregation.no-trained-update: asked for an update of round 4 before its training
    """
    update = role.client.local_update
    if not isinstance(update, RoundUpdate) or update.round != round_number:
        raise Refusal(
            "aggregation.no-trained-update", f"asked for an update of round {round_number} before its training"
        )
    return update


# -- server side: the questions to each group of clients ---------------------------------------------------------------


QuestionGroups = list[tuple[Ids, Train]]
"""Groups of clients, each with its question; the groups are asked one after the other."""


@dataclass(frozen=True)
class TrainingRound:
    """The server's state when training begins.

    Attributes:
        number: the round.
        network: connection to the clients.
        trainers: sorted numbers of the clients that are to train.
        randomness: for the server's own coins.
        workload: the server's knowledge of the training task, such as the architecture; None: no training.
    """

    number: int
    network: Network
    trainers: Ids
    randomness: Randomness
    workload: Workload | None = None


class Broadcast:
    """The honest server's broadcast: all clients get the same model.

    A malicious server overrides `questions_for`, see `TrainingMisbehaviour`.

    Example:
        >>> round_ = TrainingRound(1, network=None, trainers=np.array([2, 5]), randomness=Randomness(7))
        >>> question = Train(1, Vector(np.zeros(3, np.float32), 0))
        >>> [(clients.tolist(), asked is question) for clients, asked in Broadcast().questions_for(round_, question)]
        [([2, 5], True)]
    """

    def questions_for(self, round_: TrainingRound, question: Train) -> QuestionGroups:
        """Return the groups of clients with their questions; aggregation is bound to the first group's question."""
        return [(round_.trainers, question)]
