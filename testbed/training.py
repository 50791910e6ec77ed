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

# -- client side: messages of training, and the role that trains -------------------------------------------------------


class TrainingReport(Message, frozen=True):
    """A client's report that it has trained; the update itself waits for the aggregation protocol.

    A client may lie, and so influence a server that selects by reports. A loss of NaN and a missing number of samples
    mean "not reported": beside noise that protects a client both would be releases of their own
    (`Environment.reports_training`).
    """

    samples: Count | None
    loss: float
    squared_loss: float | None = None


class Train(Message, frozen=True):
    """The global model, for training on the client's own data."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = TrainingReport

    round: RoundNumber
    model: Vector


class StateReference(Message, frozen=True):
    """Private part for one client: the round of its current state, 0 for none.

    This is the last round with the client's update in its sum.
    """

    round: RoundNumber


class TrainWithState(Train, frozen=True):
    """`Train` for clients that keep state between rounds (`workload.drift_correction`, `local_layers`)."""

    Private: ClassVar[type[Message] | None] = StateReference


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundUpdate(LocalUpdate):
    """Update of one round, which `trained_update` releases only to that round's aggregation.

    Attributes:
        round: the round of the training.
        question: the server's question, with the model.
    """

    round: int
    question: Train


class TrainedTogether:
    """Batched training of a host's clients for one question, run when the first client needs its update.

    Args:
        workload: trains the clients.
        clients: the clients that were asked.
        question: the server's question.
    """

    def __init__(self, workload: BatchedWorkload, clients: Sequence[int], question: Train) -> None:
        self.question = question
        self._workload = workload
        self._waiting = list(clients)
        self._updates: dict[int, LocalUpdate] = {}

    def update(self, client: int) -> LocalUpdate:
        """Return one client's update.

        If batched training fails, each client is trained alone, so that it fails only for its own reason.
        """
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            with contextlib.suppress(Exception):
                self._updates = dict(self._train(waiting))
        update = self._updates.pop(client, None)
        return self._train([client])[client] if update is None else update

    def _train(self, clients: Sequence[int]) -> Mapping[int, LocalUpdate]:
        return self._workload.train_together(clients, self.question.model.values, self.question.round)


class Trainer(Role):
    """Client side: local training, real, or none without a workload.

    Attributes:
        own_round: round of the client's state, from the server's question; None without one.
    """

    own_round: int | None = None

    @classmethod
    def prepare(cls, environment: Environment, clients: Iterable[Client], question: Message) -> None:
        """Train the clients of a host together, with `workload.clients_at_once`."""
        workload = environment.workload
        if isinstance(question, Train) and isinstance(workload, BatchedWorkload) and workload.clients_at_once > 1:
            recipients = list(clients)
            together = TrainedTogether(workload, [client.number for client in recipients], question)
            for client in recipients:
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
        if algorithm.keeps_state == (self.own_round is None):
            raise Refusal("train.other-algorithm", "what clients keep counts in this run, or they keep nothing")
        self._check_round(message.round)
        length = algorithm.payload_length(workload.dimension)
        if message.model.bits or len(message.model) != length:
            raise Refusal("train.dimension", f"a model of {len(message.model)}, not {length} float32")
        update = self.learn(workload, message)
        meter("train.parameter_example", _charged_parameters(workload) * self.charged_examples(update))
        delta = np.asarray(update.delta, np.float32)
        if delta.shape != (length,):
            raise Refusal("train.dimension", f"the workload made an update {delta.shape}, not ({length},)")
        if not np.isfinite(delta).all():
            delta = self.handle_non_finite(delta)
        samples, loss, squared_loss = int(update.samples), float(update.loss), update.squared_loss
        self.client.local_update = RoundUpdate(
            delta, samples, loss, update.examples_processed, squared_loss, round=message.round, question=message
        )
        return self.told(self.client.local_update)

    @handles(TrainWithState)
    def on_train_with_state(self, message: TrainWithState, private: StateReference) -> TrainingReport:
        """Train as `on_train`, from the client's state of an earlier round.

        Raises:
            Refusal: the state is from this round or a later one.
        """
        if private.round >= message.round:
            raise Refusal("train.later-state", f"the state of round {private.round} in round {message.round}")
        self.own_round = private.round
        return self.on_train(message)

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Return this client's update from the model and its state; the new state is stored."""
        algorithm, states = self.environment.client_algorithm, self.environment.client_states
        number, prepared = self.client.number, self.client.prepared
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
        """Return the number of examples that modelled compute charges."""
        return update.examples_processed

    def handle_non_finite(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Handle an update that is not finite: the honest client refuses."""
        raise Refusal(DIVERGED, "the update is not finite; lower the learning rate")

    def told(self, update: LocalUpdate) -> TrainingReport:
        """Return the client's report to the server before it is asked for the update."""
        if not self.environment.reports_training:
            return TrainingReport(None, float("nan"))
        squared_loss = update.squared_loss
        return TrainingReport(update.samples, update.loss, None if squared_loss is None else float(squared_loss))

    def _check_round(self, number: int) -> None:
        """Refuse a round number that cannot be used, and mark it as used.

        Keys and masks of a seeded run depend on the round number, and two updates under one mask are not hidden, so
        each number serves once. If participants are agreed on, or decide for themselves, that step has used the number;
        otherwise training does.
        """
        client, environment = self.client, self.environment
        if number > environment.rounds:
            raise Refusal("train.round-beyond-the-last", f"round {number} of {environment.rounds}")
        if environment.participants_are_agreed and client.agreed_participants is None:
            raise Refusal("train.not-agreed", "no participant list was agreed on in this round")
        if environment.clients_decide and not client.takes_part:
            raise Refusal("train.not-taking-part", "this client has not decided to take part in this round")
        if environment.participants_are_agreed or environment.clients_decide:
            if number != client.last_round or client.local_update is not None:
                decided = "participants were agreed on" if environment.participants_are_agreed else "it decided"
                raise Refusal("train.round-used", f"round {number}; {decided} for {client.last_round}")
        elif number <= client.last_round:
            raise Refusal("train.round-used", f"round {number} was used before")
        if environment.participation is not None:
            environment.participation.begin(client.number, number)
        client.last_round = number


def _charged_parameters(workload: Workload) -> int:
    return workload.charged_parameters if isinstance(workload, PartlyFrozenWorkload) else workload.dimension


def training_digest(question: Train, *, anew: bool) -> bytes:
    """Return the SHA-256 of a training task (round, model and the rest of `question`), 32 bytes.

    Only clients with the same task share the digest. It is charged by the byte.

    Args:
        question: the question, as sent or as received.
        anew: whether to hash the model again, although another party of this process has. The result is the same;
            measured compute needs the time that a separate device would take, while modelled compute charges this time.
    """
    meter("sha256.byte", question.model.packed_bytes)
    return content_digest(question, anew=anew)


def trained_update(role: Role, round_number: int) -> RoundUpdate:
    """Return the update that this client has trained in this round.

    Args:
        role: the client's role.
        round_number: the round.

    Raises:
        Refusal: nothing was trained in this round.
    """
    update = role.client.local_update
    if not isinstance(update, RoundUpdate) or update.round != round_number:
        raise Refusal("aggregation.nothing-trained", f"asked for an update of round {round_number} before its training")
    return update


# -- server side: the clients that are asked, and their questions ------------------------------------------------------


Asked = list[tuple[Ids, Train]]
"""Groups of clients with their questions; the groups are asked one after the other."""


@dataclass(frozen=True)
class TrainingRound:
    """State of the server when training begins.

    Attributes:
        number: the round.
        network: the network to the clients.
        trainers: sorted numbers of the clients that are to train.
        randomness: for the server's own random choices.
        workload: the server's knowledge of the workload, such as the architecture; None: nothing.
    """

    number: int
    network: Network
    trainers: Ids
    randomness: Randomness
    workload: Workload | None = None


class Broadcast:
    """Honest server: all clients get the same model. A malicious server overrides `questions_for`."""

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        """Return the questions of a round by group; aggregation uses the first group's question."""
        return [(round_.trainers, question)]
