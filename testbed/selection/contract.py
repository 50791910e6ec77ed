"""The selection contract: parameters, the state that a protocol receives, its outcome, and training reports."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Floats, Ids
from testbed.batches import Batches
from testbed.errors import Refusal, RoundAborted
from testbed.memory import Memory
from testbed.network import Network
from testbed.network.contract import Replies
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import BeaconAccess
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.randomness import Randomness
from testbed.selection.supply import Supply


class SelectionParameters(BaseModel):
    """Settings of every selection protocol; a subclass adds the keys of a user-defined protocol.

    Example:
        >>> from pydantic import Field
        >>> class TurnParameters(SelectionParameters):
        ...     start: int = Field(0, ge=0, description="The client that participates first")
        >>> section = TurnParameters(participants=5, start=3)
        >>> section.expected_participants(population=20)
        5
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stages: ClassVar[tuple[str, ...]] = ()
    """Stages of a round, in order. Empty for user-defined protocols: their class declares the stages."""
    further_stages: ClassVar[tuple[str, ...]] = ()
    """Stages that occur only with other settings or only in some rounds."""
    draws_singly: ClassVar[Literal["uniformly", "least-drawn"] | None] = None
    """How asynchronous rounds draw one client at a time: uniformly, or among the clients drawn least often so far.

    None: the protocol needs whole rounds.
    """
    needs_rounds: ClassVar[str] = "it chooses among the clients that are available when a round begins"
    """Why the protocol cannot draw one client at a time; part of the error message."""

    participants: Annotated[int, Field(gt=0, description="Participants of a round (K; Lotto: s)")] = 10

    if TYPE_CHECKING:  # a field of each subclass

        @property
        def protocol(self) -> str:
            """The name that selects the protocol in an experiment."""

    def stages_of_round(self) -> tuple[str, ...]:
        """Return the stages of a round with these settings."""
        return self.stages

    @property
    def announced_membership(self) -> str | None:
        """How a round's participants are told their batches; None where clients know the batches, or there are none."""
        return None

    @property
    def uses_reported_losses(self) -> str:
        """The key that makes selection depend on reported losses; empty where selection ignores losses."""
        return ""

    def expected_participants(self, population: int) -> float:
        """Return the mean number of participants in a round, if all clients are available and eligible."""
        return self.participants

    def participation_pattern(self, rounds: int) -> ParticipationPattern | None:
        """Return the guaranteed spacing of one client's rounds; None if a client may be chosen in any round.

        Args:
            rounds: rounds of the run.
        """
        return None

    def check_asynchronous(self) -> None:
        """Check that asynchronous rounds support these settings.

        Raises:
            ValueError: they do not; the message is one line that begins with the whole key.
        """

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the clients that a round needs and how likely they are available.

        Args:
            population: number of clients n.
            online: probability that a client is online, the same for all.

        Returns:
            None where a round needs no minimum, or where only a user-defined class knows the minimum.
        """
        keys = ("selection.participants", "population", "availability")
        return Supply("available clients", self.participants, population, online, keys)

    def check(self, population: int) -> None:
        """Check that the parameters fit the population.

        Args:
            population: number of clients n.

        Raises:
            ValueError: they do not; the message is one line with the key and the allowed values.
        """
        if self.participants > population:
            raise ValueError(f"participants: {self.participants} of a population of {population}; at most {population}")


@dataclass(frozen=True)
class SelectionRound:
    """The server's state when a round begins.

    Attributes:
        number: the round, from 1.
        population: number of clients n.
        network: the way to ask clients.
        participations: `(n,)` int64, number of rounds so far for which each client was selected (Multi-RoundSecAgg,
            Algorithm 2, line 10). Includes rounds in which the client dropped out and rounds that were aborted:
            otherwise a client that always drops out would keep the lowest count, and fair protocols would select it
            again and again.
        directory: the PKI's bulletin board.
        randomness: for the server's own draws.
        experiment_id: 16 bytes that identify this experiment; part of signed content and of the input to draws.
        sample_counts: `(n,)` int64, training samples that each client announced; None: unknown.
        beacon: access to the randomness beacon; None where the protocol uses none.
        memory: arrays (numbers or booleans) by name that the protocol keeps from round to round. Checkpoints contain
            only these arrays: state kept elsewhere is lost when a run is resumed (`testbed.memory`).

    Example:
        >>> from testbed.parties.pki import Directory
        >>> round_ = SelectionRound(1, 4, None, np.zeros(4, np.int64), Directory.empty(4), Randomness(7), bytes(16))
        >>> round_.everyone.tolist()
        [0, 1, 2, 3]
        >>> round_.rng("participants").random() == round_.rng("participants").random()  # by purpose
        True
    """

    number: int
    population: int
    network: Network
    participations: npt.NDArray[np.int64]
    directory: Directory
    randomness: Randomness
    experiment_id: bytes
    sample_counts: npt.NDArray[np.int64] | None = None
    memory: Memory = field(default_factory=dict)
    beacon: BeaconAccess | None = None

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the honest server's random generator for one decision of this round.

        Args:
            purpose: name of the decision; part of the seed.
        """
        return self.randomness.generator("server", self.number, purpose)

    @property
    def everyone(self) -> Ids:
        """`(n,)` int64, all client numbers."""
        return np.arange(self.population, dtype=np.int64)


@contextmanager
def attach_selection_state(candidates: int, participants: Ids | None = None) -> Iterator[None]:
    """Attach candidates and participants to an error that ends the round inside the block.

    The record of a skipped or aborted round takes them from the error. An inner block wins over an outer block.

    Args:
        candidates: number of candidates.
        participants: sorted client numbers, if the round already has participants.
    """
    try:
        yield
    except (RoundAborted, Refusal) as end:
        # An inner block has set them already, and knows more.
        if end.candidates is None:
            end.candidates, end.participants = candidates, participants
        raise


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection.

    Attributes:
        participants: sorted client numbers.
        candidates: number of candidates (Lotto: |C|; other protocols: number of available clients).
        ready: the participants still available when selection ends, which are asked to train; None: all.
        available: the clients available when selection began; None: the protocol does not know.
        round_number: the round number that clients were told; None: the number of this round.

    Example:
        >>> selection = Selection(np.array([2, 3, 7]), candidates=10)
        >>> selection.participants.tolist(), selection.candidates
        ([2, 3, 7], 10)
    """

    participants: Ids
    candidates: int
    ready: Ids | None = None
    available: Ids | None = None
    round_number: int | None = None


@dataclass(frozen=True)
class TrainingReports:
    """Results of one round's local training that selection may use in later rounds.

    All arrays are aligned with `clients`. Response times are the server's own measurement. Losses and sample counts are
    claims of the clients and may be false.

    Attributes:
        clients: `(m,)` int64, sorted clients that trained and answered in time.
        samples: `(m,)` int64, training samples that each client reports; 0 if it reports none.
        loss: `(m,)` float64, mean training loss that each client reports.
        squared_loss: `(m,)` float64, mean squared loss that each client reports; the square of the mean loss if the
            workload reports no squared loss. Values that are negative or not finite count as 0.
        latency_s: `(m,)` float64, seconds from the start of the stage to each answer, measured by the server.
        unheard: `(k,)` int64, sorted clients that were asked to train and did not answer in time.
        waited_s: seconds that the server waited for them, by its own clock; at least the largest latency.

    Example:
        >>> clients, samples, loss = np.array([3, 8]), np.array([10, 40]), np.array([0.5, 0.2])
        >>> latency_s, unheard = np.array([1.5, 0.8]), np.array([9])
        >>> reports = TrainingReports(clients, samples, loss, loss**2, latency_s, unheard, waited_s=2.0)
        >>> reports.quality.tolist()
        [5.0, 8.0]
    """

    clients: Ids
    samples: Ids
    loss: Floats
    squared_loss: Floats
    latency_s: Floats
    unheard: Ids
    waited_s: float

    @property
    def quality(self) -> Floats:
        """`(m,)` float64: data quality |B_i| sqrt(mean Loss(k)^2), Oort's statistical utility (OSDI 2021, eq. 2)."""
        return self.samples.astype(np.float64) * np.sqrt(self.squared_loss)


def merge_reports(reports: Sequence[TrainingReports]) -> TrainingReports:
    """Merge the training reports of groups that share no client and were asked one after the other.

    Args:
        reports: at least one; the groups are disjoint.
    """
    if len(reports) == 1:
        return reports[0]
    clients = np.concatenate([part.clients for part in reports])
    order = np.argsort(clients)

    def joined(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate(list(parts))[order]

    return TrainingReports(
        clients=clients[order],
        samples=joined(part.samples for part in reports),
        loss=joined(part.loss for part in reports),
        squared_loss=joined(part.squared_loss for part in reports),
        latency_s=joined(part.latency_s for part in reports),
        unheard=np.sort(np.concatenate([part.unheard for part in reports])),
        waited_s=max(part.waited_s for part in reports),
    )


def training_reports(trained: Replies, recipients: Ids) -> TrainingReports:
    """Return the training reports of one `Train` question; answers that do not decode are left out.

    Args:
        trained: the replies to `Train`.
        recipients: sorted numbers of all clients that were asked.
    """
    answers = trained.valid()
    clients = np.fromiter(answers, np.int64, len(answers))
    samples = np.array([answer.samples or 0 for answer in answers.values()], np.int64)
    loss = np.array([answer.loss for answer in answers.values()], np.float64)
    squared = [
        answer.loss * answer.loss if answer.squared_loss is None else answer.squared_loss for answer in answers.values()
    ]
    squared_loss = np.array(squared, np.float64)
    latency_s = trained.latency_s[np.searchsorted(trained.ids, clients)]
    unheard = np.setdiff1d(recipients, clients)
    return TrainingReports(
        clients=clients,
        samples=samples,
        # Clients may report anything, and one NaN would spread to the utilities of all.
        loss=np.where(np.isfinite(loss), loss, 0.0),
        squared_loss=np.where(np.isfinite(squared_loss) & (squared_loss >= 0), squared_loss, 0.0),
        latency_s=latency_s,
        unheard=unheard,
        waited_s=trained.waited_s,
    )


class SelectionProtocol(ABC):
    """Server side of a selection protocol; base class of user-defined protocols, too.

    A user-defined class may have the attribute `Parameters`, a subclass of `SelectionParameters` that declares the
    keys of its section in the experiment. Properties of this class may be class attributes of the subclass.

    Args:
        parameters: the section of the experiment.
        population: number of clients n.

    Attributes:
        stages: stages of a round, in order; built-in protocols declare them in their parameters.
        needs_registration: whether clients must be registered with the PKI.
        participants_agree: whether clients verify the list of participants; aggregation must then use that list.
        batches: groups of clients that may only be summed together; None: any clients may be summed.
        clients_know_batches: whether clients know the batches before the first round; otherwise selection announces
            the batches of each round.
        clients_pin_batches: whether clients keep their first batch, and refuse others.
        uses_reported_losses: whether selection depends on losses that clients report. Defaults to True in a class that
            overrides `learn`.

    Example:
        >>> import asyncio
        >>> from testbed.parties.pki import Directory
        >>> class Rotation(SelectionProtocol):  # takes turns, whether the clients are available or not
        ...     roles = ()
        ...     async def select(self, round_):
        ...         first = (round_.number - 1) * self.parameters.participants
        ...         turn = (first + np.arange(self.parameters.participants)) % self.population
        ...         return Selection(np.sort(turn), candidates=self.population)
        >>> rotation = Rotation(SelectionParameters(participants=3), population=5)
        >>> round_ = SelectionRound(2, 5, None, np.zeros(5, np.int64), Directory.empty(5), Randomness(7), bytes(16))
        >>> asyncio.run(rotation.select(round_)).participants.tolist()
        [0, 3, 4]
    """

    stages: tuple[str, ...] = ()
    needs_registration: bool = False
    participants_agree: bool = False
    batches: Batches | None = None
    clients_know_batches: bool = True
    clients_pin_batches: bool = False
    uses_reported_losses: bool = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # `learn` receives losses: assume that an override uses them.
        if "learn" in vars(cls) and "uses_reported_losses" not in vars(cls):
            cls.uses_reported_losses = True

    def __init__(self, parameters: Any, population: int) -> None:
        self.parameters = parameters
        self.population = population

    @property
    @abstractmethod
    def roles(self) -> Sequence[RoleSpec]:
        """The client side of the protocol, for all clients."""

    @abstractmethod
    async def select(self, round_: SelectionRound) -> Selection:
        """Choose the participants of a round.

        Raises:
            RoundSkipped: too few clients are available; nothing was sent to participants.
            RoundAborted: the protocol failed.
        """

    @property
    def minimum_participants(self) -> int:
        """The fewest participants that an honest server selects; clients refuse to be summed with fewer."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """The most participants that a round can have."""
        return int(self.parameters.participants)

    @property
    def client_rate(self) -> float | None:
        """The probability of drawing each available client, if draws are independent; None: they are not."""
        return None

    @property
    def clients_decide(self) -> bool:
        """Whether each client decides at selection if it takes part; a client then trains only if it decided to."""
        return False

    @property
    def beacon_latency_s(self) -> float | None:
        """One-way latency [s] between the server and the randomness beacon; None: the protocol uses no beacon."""
        return None

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Use the training reports of a round; state goes into `SelectionRound.memory` for later rounds."""
        return

    def check_files(self) -> None:
        """Read the files that the parameters name.

        Raises:
            TraceError: a file cannot be used.
        """
        return
