"""What clients make of the model and of what they have kept from the rounds before, and what the server makes of it.

What a client keeps is an array of its own, (length,) float32 (`testbed.workload.client_states`). It counts once the
client's update was in a sum; whoever drops out before that has what it had.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.errors import RunError
from testbed.memory import ArrayName, Memory
from testbed.workload.contract import LocalUpdate

LAST_ROUND = ArrayName("client_states/last_round")
"""`(n,)` int64: of each client the last round whose sum had its update; 0: none had."""


@dataclass(frozen=True)
class TaskInfo:
    """What is learned, as far as an algorithm needs to know.

    Attributes:
        dimension: d.
        learning_rate_in: eta by the round.
        total_weight: of all clients of the population.
    """

    dimension: int
    learning_rate_in: Callable[[int], float]
    total_weight: float

    def share(self, weight: float) -> float:
        """|S|/N of clients whose weights add up to this; a client that claims too much makes it no more than 1."""
        return min(1.0, weight / self.total_weight)


@dataclass(frozen=True)
class LocalTask:
    """What one client is to train.

    Attributes:
        client: its number.
        payload: the vector that it was sent, float32.
        own: what it has kept, float32.
        round_number: the round.
    """

    client: int
    payload: npt.NDArray[np.float32]
    own: npt.NDArray[np.float32]
    round_number: int


class ClientAlgorithm(ABC):
    """One algorithm: what clients are sent and make of it, and how the server steps.

    Args:
        info: describes what is learned.
        initial_state: the kept array of a client that was in no sum yet, float32.
    """

    name: ClassVar[str]
    """With which the names of its arrays begin."""
    keeps_state: ClassVar[bool] = True
    """Whether clients keep an array from round to round."""
    arrays: ClassVar[tuple[str, ...]] = ()
    """What the server keeps in a run's memory: as long as what a client keeps, float64, zeros before the first sum."""

    def __init__(self, info: TaskInfo, initial_state: npt.NDArray[np.float32]) -> None:
        self.info = info
        self.initial_state = initial_state

    @property
    def length_name(self) -> ArrayName:
        """The name of the kept array's length, `()` int64, in a run's memory."""
        return ArrayName(f"{self.name}/length")

    def payload_length(self, dimension: int) -> int:
        """Return the length of the vectors sent to and by clients, for a model of `dimension` parameters."""
        return dimension

    def payload(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """`(length,)` what all clients are sent."""
        return model

    @abstractmethod
    def local_update(self, workload: Any, task: LocalTask) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """A client's update, whose ``delta`` is `(length,)`, and what it keeps if that is in a sum."""

    @abstractmethod
    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """`(d,)` the server's step, from the `(length,)` mean of updates of this weight; its memory moves on."""

    def commit_states(self, memory: Memory, survivors: Ids, round_number: int) -> None:
        """From now on what these clients have made in this round is what they have."""
        memory[LAST_ROUND] = memory[LAST_ROUND].copy()
        memory[LAST_ROUND][survivors] = round_number

    def first_memory(self, population: int) -> Memory:
        """The memory of a run that has not had a round."""
        zeros = {f"{self.name}/{array}": np.zeros(len(self.initial_state)) for array in self.arrays}
        return {
            self.length_name: np.array(len(self.initial_state)),
            LAST_ROUND: np.zeros(population, np.int64),
            **zeros,
        }


class Stateless(ClientAlgorithm):
    """Plain local training, as in FedAvg: clients keep nothing, and the server steps by the mean update."""

    name = "stateless"
    keeps_state = False

    def __init__(self) -> None:
        super().__init__(TaskInfo(0, lambda round_number: 0.0, 1.0), np.zeros(0, np.float32))

    def local_update(self, workload: Any, task: LocalTask) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """Train on the client's data."""
        return workload.train(task.client, task.payload, task.round_number), task.own

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """Return the mean update as it is."""
        return mean

    def commit_states(self, memory: Memory, survivors: Ids, round_number: int) -> None:
        """Keep nothing."""

    def first_memory(self, population: int) -> Memory:
        """Return an empty memory."""
        return {}


STATELESS = Stateless()


NAMES = ("scaffold", "feddyn", "local_layers")
"""Of all algorithms."""


def check_memory(memory: Mapping[str, Any], algorithm: ClientAlgorithm, population: int, where: str) -> None:
    """Raise `RunError` where a checkpoint is of another algorithm, or of another model.

    Args:
        memory: the checkpoint's.
        algorithm: the experiment's.
        population: number of clients.
        where: which checkpoint.
    """
    recorded = sorted({name.partition("/")[0] for name in memory}.intersection(NAMES))
    expected = [algorithm.name] if algorithm.keeps_state else []
    advice = "resume with the experiment that began the run"
    if recorded != expected:
        was, now = (", ".join(names) or "clients that keep nothing" for names in (recorded, expected))
        raise RunError(f"{where} is of {was}, the experiment of {now}; {advice}")
    if algorithm.keeps_state:
        first = algorithm.first_memory(population)
        same = all(name in memory and memory[name].shape == array.shape for name, array in first.items())
        if not same or int(memory[algorithm.length_name]) != len(algorithm.initial_state):
            raise RunError(f"{where} has no states of {population} clients of this model; {advice}")
