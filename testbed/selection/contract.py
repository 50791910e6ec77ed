"""What a selection protocol is given, and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import RunError
from testbed.network import Network
from testbed.network.contract import no_ids
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import BeaconAccess
from testbed.randomness import Randomness
from testbed.selection.reports import TrainingReports


class SelectionParameters(BaseModel):
    """What every selection protocol has: how many take part."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stages: ClassVar[tuple[str, ...]] = ()
    """Of a round of the built-in protocol, in order; empty: a user-defined class says them."""
    further_stages: ClassVar[tuple[str, ...]] = ()
    """Those that other settings bring, or that only some rounds have."""

    participants: Annotated[int, Field(gt=0, description="Participants of a round (K; Lotto: s)")] = 10

    if TYPE_CHECKING:  # a field of each subclass

        @property
        def protocol(self) -> str:
            """The name that selects the protocol in an experiment."""

    def stages_of_round(self) -> tuple[str, ...]:
        """The stages with these settings."""
        return self.stages

    @property
    def by_losses(self) -> str:
        """The key by which clients are chosen by the losses that they report; empty where they are not."""
        return ""

    def check(self, population: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) when the parameters do not fit the population."""
        if self.participants > population:
            raise ValueError(f"participants: {self.participants} of a population of {population}; at most {population}")


@dataclass
class SelectionRound:
    """What the server knows when a round begins, and what it has found out when selection ends early.

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
        candidates: how many stand for selection; a protocol sets it as soon as it knows, so that the record of a
            round that is skipped or aborted has it too.
        participants: whom the protocol has chosen, set before it tells them, for the same reason.
        sample_counts: `(n,)` int64 training samples of each client, as it announced them; None: unknown.
        beacon: the way to the randomness beacon; None where the protocol uses none.
        memory: arrays by name that the protocol keeps from round to round, of numbers or booleans. They are in the
            run's checkpoint; what a protocol keeps elsewhere is lost when a run is resumed.
    """

    number: int
    population: int
    network: Network
    participations: npt.NDArray[np.int64]
    directory: Directory
    randomness: Randomness
    experiment_id: bytes
    candidates: int = 0
    participants: Ids = field(default_factory=no_ids)
    sample_counts: npt.NDArray[np.int64] | None = None
    memory: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    beacon: BeaconAccess | None = None

    def rng(self, purpose: str) -> np.random.Generator:
        """The honest server's random generator for one decision of this round."""
        return self.randomness.generator("server", self.number, purpose)

    @property
    def everyone(self) -> Ids:
        """All client numbers."""
        return np.arange(self.population, dtype=np.int64)


def memory_copy(memory: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """A copy of a protocol's memory as a checkpoint holds it; raises `RunError` for what a checkpoint cannot hold."""
    arrays = {name: np.array(kept) for name, kept in memory.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise RunError(f"selection: memory[{name!r}] is no array of numbers or booleans, but of {array.dtype}")
    return arrays


@dataclass(frozen=True)
class Selection:
    """The outcome.

    Attributes:
        participants: sorted client numbers.
        candidates: how many stood for selection (Lotto: |C|; else those available).
        ready: those among the participants that are there when selection ends, and are asked to train; None: all.
        available: those that were there when selection began; None: the protocol does not know.
    """

    participants: Ids
    candidates: int
    ready: Ids | None = None
    available: Ids | None = None


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
        by_losses: whether it chooses by the losses that clients report. A class that overrides `learn` does, unless it
            says otherwise.
    """

    stages: tuple[str, ...] = ()
    needs_registration: bool = False
    participants_agree: bool = False
    batches: Batches | None = None
    by_losses: bool = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "learn" in vars(cls) and "by_losses" not in vars(cls):
            cls.by_losses = True

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
    def beacon_latency_s(self) -> float | None:
        """Seconds, one way, between the server and the randomness beacon that opens its rounds; None: there is none."""
        return None

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Called after local training: what it puts into `SelectionRound.memory` is there in later rounds."""
        return

    def check_files(self) -> None:
        """Read the files that the parameters name; raises `TraceError` where one cannot be used."""
        return
