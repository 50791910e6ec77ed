"""The contract of selection: parameters, the state given to a protocol, its outcome, and reports of training."""

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
    """What every selection protocol has: how many take part."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stages: ClassVar[tuple[str, ...]] = ()
    """Of a round of the built-in protocol, in order; empty: a user-defined class says them."""
    further_stages: ClassVar[tuple[str, ...]] = ()
    """Those that other settings bring, or that only some rounds have."""
    draws_singly: ClassVar[Literal["uniformly", "least-drawn"] | None] = None
    """How asynchronous rounds draw one client at a time: among all, or among those drawn least often so far; None: the
    protocol needs whole rounds."""
    needs_rounds: ClassVar[str] = "it chooses among those who are there when a round begins"
    """Why the protocol cannot draw one client at a time, for the error message."""

    participants: Annotated[int, Field(gt=0, description="Participants of a round (K; Lotto: s)")] = 10

    if TYPE_CHECKING:  # a field of each subclass

        @property
        def protocol(self) -> str:
            """The name that selects the protocol in an experiment."""

    def stages_of_round(self) -> tuple[str, ...]:
        """The stages with these settings."""
        return self.stages

    @property
    def uses_reported_losses(self) -> str:
        """The key by which clients are chosen by the losses that they report; empty where they are not."""
        return ""

    def expected_participants(self, population: int) -> float:
        """Participants of a round, on average, where all are available and none is ineligible."""
        return self.participants

    def participation_pattern(self, rounds: int) -> ParticipationPattern | None:
        """What is sure of the rounds of one client among so many; None: it may be chosen for any of them."""
        return None

    def check_asynchronous(self) -> None:
        """Raise `ValueError` (one line that begins with a whole key) for settings that asynchronous rounds lack."""

    def supply(self, population: int, online: float) -> Supply | None:
        """What a round needs and how likely it is there, where each client is online with the probability `online`.

        None: a round needs nobody in particular, or only a user-defined class knows.
        """
        keys = ("selection.participants", "population", "availability")
        return Supply("available clients", self.participants, population, online, keys)

    def check(self, population: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) when the parameters do not fit the population."""
        if self.participants > population:
            raise ValueError(f"participants: {self.participants} of a population of {population}; at most {population}")


@dataclass(frozen=True)
class SelectionRound:
    """What the server knows when a round begins.

    Attributes:
        number: the round, from 1.
        population: number of clients n.
        network: how to reach them.
        participations: `(n,)` int64 rounds so far for which each client was selected, also where it then dropped out
            or the round was aborted (Multi-RoundSecAgg, Algorithm 2, line 10). Counting its sums instead, a client that
            always drops out would have the fewest for ever, and the fair protocols would choose it again and again.
        directory: the PKI's bulletin board.
        randomness: for the server's own draws.
        experiment_id: 16 bytes that tell this experiment from others; part of what is signed and drawn on.
        sample_counts: `(n,)` int64 training samples of each client, as it announced them; None: unknown.
        beacon: the way to the randomness beacon; None where the protocol uses none.
        memory: arrays by name that the protocol keeps from round to round, of numbers or booleans. They are in the
            run's checkpoint; what a protocol keeps elsewhere is lost when a run is resumed (`testbed.memory`).
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
        """The honest server's random generator for one decision of this round."""
        return self.randomness.generator("server", self.number, purpose)

    @property
    def everyone(self) -> Ids:
        """All client numbers."""
        return np.arange(self.population, dtype=np.int64)


@contextmanager
def ending_with(candidates: int, participants: Ids | None = None) -> Iterator[None]:
    """Attach the state of selection to an error that ends the round inside the block, unless an inner block has.

    The record of a round that is skipped or aborted has its candidates and participants from there.
    """
    try:
        yield
    except (RoundAborted, Refusal) as end:
        if end.candidates is None:
            end.candidates, end.participants = candidates, participants
        raise


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection.

    Attributes:
        participants: sorted client numbers.
        candidates: how many stood for selection (Lotto: |C|; else those available).
        ready: those among the participants that are there when selection ends, and are asked to train; None: all.
        available: those that were there when selection began; None: the protocol does not know.
        round_number: the number of the round that clients were told; None: its own.
    """

    participants: Ids
    candidates: int
    ready: Ids | None = None
    available: Ids | None = None
    round_number: int | None = None


@dataclass(frozen=True)
class TrainingReports:
    """What a server has learned from one round's local training, and may choose by in later rounds: the answers to
    `Train`, as arrays aligned with `clients`.

    Two sources, not equally good: response times are the server's own measurement, losses and sample counts are what
    clients say, and can be lies.

    Attributes:
        clients: `(m,)` int64, sorted clients that trained and answered in time.
        samples: `(m,)` int64, training samples that each says it holds; 0 where it does not say.
        loss: `(m,)` float64, mean training loss that each reports.
        squared_loss: `(m,)` float64, mean squared loss that each reports, or its squared mean loss where the workload
            does not say. A report that is not finite, or here negative, counts as 0.
        latency_s: `(m,)` float64, seconds from the start of the stage to each answer, as the server has measured.
        unheard: `(k,)` int64, sorted clients that were asked to train and have not answered in time.
        waited_s: seconds that the server has waited for them, by its own clock; at least each latency.
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


def merged(reports: Sequence[TrainingReports]) -> TrainingReports:
    """The reports of groups that share no client and were asked one after the other, as one."""
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


def reports_of(trained: Replies, asked: Ids) -> TrainingReports:
    """The reports in the answers to `Train`, which `asked` were sent; answers that do not decode are none."""
    said = trained.valid()
    clients = np.fromiter(said, np.int64, len(said))
    samples = np.array([answer.samples or 0 for answer in said.values()], np.int64)
    loss = np.array([answer.loss for answer in said.values()], np.float64)
    squared = [
        answer.loss * answer.loss if answer.squared_loss is None else answer.squared_loss for answer in said.values()
    ]
    squared_loss = np.array(squared, np.float64)
    latency_s = trained.latency_s[np.searchsorted(trained.ids, clients)]
    unheard = np.setdiff1d(asked, clients)
    return TrainingReports(
        clients=clients,
        samples=samples,
        loss=np.where(np.isfinite(loss), loss, 0.0),
        squared_loss=np.where(np.isfinite(squared_loss) & (squared_loss >= 0), squared_loss, 0.0),
        latency_s=latency_s,
        unheard=unheard,
        waited_s=trained.waited_s,
    )


class SelectionProtocol(ABC):
    """Server side of a selection protocol. User-defined ones inherit from it, too, and say what differs from the
    defaults.

    A class may have one attribute more, `Parameters`: a subclass of `SelectionParameters` that says which keys its
    section of the experiment has. What is a property here may be a class attribute there.

    Args:
        parameters: the section of the experiment.
        population: number of clients n.

    Attributes:
        stages: its stages, in order; built-in ones have those that their parameters declare.
        needs_registration: whether clients must be registered with the PKI.
        participants_agree: whether clients verify the list of participants; then aggregation must insist on it.
        batches: groups of clients whose updates may only be summed together; None: anybody's may.
        uses_reported_losses: whether selection depends on the losses that clients report. True for a class that
            overrides `learn`, unless the class sets it.
    """

    stages: tuple[str, ...] = ()
    needs_registration: bool = False
    participants_agree: bool = False
    batches: Batches | None = None
    uses_reported_losses: bool = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "learn" in vars(cls) and "uses_reported_losses" not in vars(cls):
            cls.uses_reported_losses = True

    def __init__(self, parameters: Any, population: int) -> None:
        self.parameters = parameters
        self.population = population

    @property
    @abstractmethod
    def roles(self) -> Sequence[RoleSpec]:
        """The client side, for all clients."""

    @abstractmethod
    async def select(self, round_: SelectionRound) -> Selection:
        """Choose the participants; raises `RoundSkipped` or `RoundAborted`."""

    @property
    def minimum_participants(self) -> int:
        """An honest server never has fewer, so clients refuse to be summed with fewer."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """A round never has more."""
        return int(self.parameters.participants)

    @property
    def client_rate(self) -> float | None:
        """The probability with which it draws each available client, independently; None: it draws otherwise."""
        return None

    @property
    def clients_decide(self) -> bool:
        """Whether each client says itself, at selection, if it takes part; then it trains only if it does."""
        return False

    @property
    def beacon_latency_s(self) -> float | None:
        """Seconds, one way, between the server and the randomness beacon that opens its rounds; None: there is none."""
        return None

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Called after local training: what it puts into `SelectionRound.memory` is there in later rounds."""
        return

    def check_files(self) -> None:
        """Read the files that the parameters name; raises `TraceError` where one cannot be used."""
        return
