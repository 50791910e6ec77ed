"""What a selection protocol is given, and what it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Ids
from testbed.errors import RunError
from testbed.network import Network
from testbed.network.contract import no_ids
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import BeaconAccess
from testbed.randomness import Randomness


class SelectionParameters(BaseModel):
    """What every selection protocol has: how many take part."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    participants: Annotated[int, Field(gt=0, description="Participants of a round (K; Lotto: s)")] = 10

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


def recalled(memory: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
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


class SelectionProtocol(Protocol):
    """Server side of a selection protocol. A user's own class has the same attributes.

    It may have another, `Parameters`: a subclass of `SelectionParameters` that says which keys its section has.

    Attributes:
        stages: its stages, in order.
        needs_registration: whether clients must be registered with the PKI.
        roles: the client side.

    Six more are optional: `participants_agree` (bool: clients verify the list, and aggregation must insist on it),
    `batches` (`Batches`: clients whose updates may only be summed together),
    `maximum_participants` (int: when a round may have more than ``parameters.participants``),
    `client_rate` (float: the probability with which it draws each available client, independently),
    `minimum_participants` (int: an honest server never has fewer, so clients refuse to be summed with fewer) and
    ``learn(round_, reports)``, called after local training with that round and its `TrainingReports`: what it puts
    into `SelectionRound.memory` is there in later rounds.
    """

    stages: ClassVar[tuple[str, ...]]
    needs_registration: ClassVar[bool]

    def __init__(self, parameters: Any, population: int) -> None: ...

    @property
    def roles(self) -> list[RoleSpec]:
        """The client side, for all clients."""

    async def select(self, round_: SelectionRound) -> Selection:
        """Choose the participants; raises `RoundSkipped` or `RoundAborted`."""
