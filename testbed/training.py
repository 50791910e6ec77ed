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

# -- client side: what clients are asked to train, and the role that does ----------------------------------------------


class TrainingReport(Message, frozen=True):
    """Training is done; the update itself waits for the aggregation protocol.

    What it says is the client's word: a server that chooses by it can be lied to. A loss that is not a number says
    nothing, and neither does a missing number of samples: beside noise that is to protect a client both would be
    releases of their own (`Environment.reports_training`).
    """

    samples: Count | None
    loss: float
    squared_loss: float | None = None


class Train(Message, frozen=True):
    """The global model, to be trained on the client's own data."""

    stage: ClassVar[str] = "train"
    Answer: ClassVar[type[Message] | None] = TrainingReport

    round: RoundNumber
    model: Vector


class StateReference(Message, frozen=True):
    """To one client alone: the last round whose sum had its update, 0: none had. What it made there is what it has."""

    round: RoundNumber


class TrainWithState(Train, frozen=True):
    """The same, where clients keep something from round to round (`workload.drift_correction`, `local_layers`)."""

    Private: ClassVar[type[Message] | None] = StateReference


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundUpdate(LocalUpdate):
    """The update of one round, which `trained_update` hands to that round's aggregation alone.

    Attributes:
        round: the round that it was trained in.
        question: what the server asked, the model in it.
    """

    round: int
    question: Train


class TrainedTogether:
    """What the clients of one host learn from one question, trained together when the first of them needs it.

    Args:
        workload: what trains them.
        clients: those that are asked.
        question: what the server asks.
    """

    def __init__(self, workload: BatchedWorkload, clients: Sequence[int], question: Train) -> None:
        self.question = question
        self._workload = workload
        self._waiting = list(clients)
        self._updates: dict[int, LocalUpdate] = {}

    def update(self, client: int) -> LocalUpdate:
        """One client's. Where training all of them fails, each is trained alone: it fails only for its own cause."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            with contextlib.suppress(Exception):
                self._updates = dict(self._train(waiting))
        update = self._updates.pop(client, None)
        return self._train([client])[client] if update is None else update

    def _train(self, clients: Sequence[int]) -> Mapping[int, LocalUpdate]:
        return self._workload.train_together(clients, self.question.model.values, self.question.round)


class Trainer(Role):
    """Client side: local training, real or (without a workload) none.

    Attributes:
        own_round: the round of what it has kept, as the server says; None: it was not told.
    """

    own_round: int | None = None

    @classmethod
    def prepare(cls, environment: Environment, clients: Iterable[Client], question: Message) -> None:
        """With `workload.clients_at_once`: those of a host are trained together."""
        workload = environment.workload
        if isinstance(question, Train) and isinstance(workload, BatchedWorkload) and workload.clients_at_once > 1:
            recipients = list(clients)
            together = TrainedTogether(workload, [client.number for client in recipients], question)
            for client in recipients:
                client.prepared = together

    @handles(Train)
    def on_train(self, message: Train) -> TrainingReport:
        """Train on the client's own data, once in a round; refuses to hand on an update that is not finite."""
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
        """As `on_train`, from what this client has kept of a round; refuses to begin with a later one's."""
        if private.round >= message.round:
            raise Refusal("train.later-state", f"the state of round {private.round} in round {message.round}")
        self.own_round = private.round
        return self.on_train(message)

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """What this client makes of the model, and of what it has kept; what it then has is kept beside that."""
        algorithm, states = self.environment.client_algorithm, self.environment.client_states
        number, prepared = self.client.number, self.client.prepared
        if isinstance(prepared, TrainedTogether) and prepared.question is message and not algorithm.keeps_state:
            return prepared.update(number)
        own = algorithm.initial_state
        if states is not None and self.own_round:
            own = states.read(number, self.own_round, len(own))
        update, state = algorithm.local_update(workload, LocalTask(number, message.model.values, own, message.round))
        if states is not None and self.own_round is not None and np.isfinite(state).all():
            states.write(number, message.round, state, self.own_round)  # a state that is not finite: refused below
        return update

    def charged_examples(self, update: LocalUpdate) -> int:
        """How many examples modelled compute is charged for."""
        return update.examples_processed

    def handle_non_finite(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What is handed on instead of an update that is not finite: nothing, the client refuses."""
        raise Refusal(DIVERGED, "the update is not finite; lower the learning rate")

    def told(self, update: LocalUpdate) -> TrainingReport:
        """What the server hears of it before it asks for the update."""
        if not self.environment.reports_training:
            return TrainingReport(None, float("nan"))
        squared_loss = update.squared_loss
        return TrainingReport(update.samples, update.loss, None if squared_loss is None else float(squared_loss))

    def _check_round(self, number: int) -> None:
        """A round number serves once: keys and masks of a seeded run come from it, and two updates under one mask are
        not hidden. Where participants are agreed on, or decide for themselves, that has used the number; elsewhere
        training does.
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
    """32 bytes that only those have in common who were asked to train the same: the round, the model, and all else that
    `question` says. SHA-256, charged by the byte.

    Args:
        question: as it was sent, or as it arrived.
        anew: hash the model though somebody in this process has. Results are the same; it takes the time that it takes
            on a device of its own, for measured compute. With modelled compute the charge is that time.
    """
    meter("sha256.byte", question.model.packed_bytes)
    return content_digest(question, anew=anew)


def trained_update(role: Role, round_number: int) -> RoundUpdate:
    """The update that this client has trained in this round; refuses when it has none."""
    update = role.client.local_update
    if not isinstance(update, RoundUpdate) or update.round != round_number:
        raise Refusal("aggregation.nothing-trained", f"asked for an update of round {round_number} before its training")
    return update


# -- server side: who is asked to train what ---------------------------------------------------------------------------


Asked = list[tuple[Ids, Train]]
"""Who is asked to train what; the groups are asked one after the other."""


@dataclass(frozen=True)
class TrainingRound:
    """What the server knows when training begins.

    Attributes:
        number: the round.
        network: how to reach the clients.
        trainers: sorted numbers of the clients that are to train.
        randomness: for the server's own coins.
        workload: what it knows of what is learned, the architecture among it; None: nothing.
    """

    number: int
    network: Network
    trainers: Ids
    randomness: Randomness
    workload: Workload | None = None


class Broadcast:
    """The honest server: everybody is sent the same model. A malicious one overrides `questions_for`."""

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        """Who is asked what; aggregation goes by what the first group is asked."""
        return [(round_.trainers, question)]
