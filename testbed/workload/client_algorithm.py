"""Algorithms of local training, with the state that each client keeps between rounds and the server's step.

A client's state is an array, (length,) float32 (`testbed.workload.client_states`). A new state counts only once the
client's update was in a sum; a client that drops out earlier keeps its former state.
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
"""(n,) int64: for each client, the last round with its update in the sum; 0: none."""


@dataclass(frozen=True)
class TaskInfo:
    """The learning task, as far as an algorithm depends on it.

    Attributes:
        dimension: d.
        learning_rate_in: returns the learning rate eta of a round.
        total_weight: weight of all clients of the population.
    """

    dimension: int
    learning_rate_in: Callable[[int], float]
    total_weight: float

    def share(self, weight: float) -> float:
        """Return |S|/N, the share of clients with this total weight, at most 1."""
        return min(1.0, weight / self.total_weight)  # a client may claim too large a weight


@dataclass(frozen=True)
class LocalTask:
    """One client's training in one round.

    Attributes:
        client: the client's number.
        payload: (length,) float32, the vector that the client received.
        own: float32, the state that the client has kept.
        round_number: the round.
    """

    client: int
    payload: npt.NDArray[np.float32]
    own: npt.NDArray[np.float32]
    round_number: int


class ClientAlgorithm(ABC):
    """A federated learning algorithm: payload to clients, local update, server's step.

    Args:
        info: the learning task.
        initial_state: float32, the state of a client that was in no sum yet.
    """

    name: ClassVar[str]
    """Prefix of the names of the algorithm's arrays."""
    keeps_state: ClassVar[bool] = True
    """Whether clients keep an array between rounds."""
    arrays: ClassVar[tuple[str, ...]] = ()
    """Arrays of the server in a run's memory: float64, of a client state's length, zeros before the first sum."""

    def __init__(self, info: TaskInfo, initial_state: npt.NDArray[np.float32]) -> None:
        self.info = info
        self.initial_state = initial_state

    @property
    def length_name(self) -> ArrayName:
        """Name, in a run's memory, of the () int64 length of a client's state."""
        return ArrayName(f"{self.name}/length")

    def payload_length(self, dimension: int) -> int:
        """Return the length of the vectors that clients receive and send, for a model of `dimension` parameters."""
        return dimension

    def payload(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """Return the (length,) vector that all clients receive."""
        return model

    @abstractmethod
    def local_update(self, workload: Any, task: LocalTask) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """Train one client.

        Args:
            workload: the workload, with the capabilities that the algorithm needs.
            task: the client's training.

        Returns:
            the update, with a (length,) ``delta``, and the state that the client keeps once the update is in a sum.
        """

    @abstractmethod
    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """Return the (d,) step of the server's model, and update the server's arrays.

        Args:
            memory: the run's memory; changed.
            mean: (length,) weighted mean of the clients' updates.
            weight: total weight of these clients.
            round_number: the round.
        """

    def commit_states(self, memory: Memory, survivors: Ids, round_number: int) -> None:
        """Make the states from this round the current states of the clients in the sum.

        Args:
            memory: the run's memory; changed.
            survivors: the clients in the sum.
            round_number: the round.
        """
        memory[LAST_ROUND] = memory[LAST_ROUND].copy()
        memory[LAST_ROUND][survivors] = round_number

    def first_memory(self, population: int) -> Memory:
        """Return the memory of a run before its first round."""
        zeros = {f"{self.name}/{array}": np.zeros(len(self.initial_state)) for array in self.arrays}
        return {
            self.length_name: np.array(len(self.initial_state)),
            LAST_ROUND: np.zeros(population, np.int64),
            **zeros,
        }


class Stateless(ClientAlgorithm):
    """Plain local training, as in FedAvg: clients keep no state, and the server steps by the mean update."""

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
"""Names of all algorithms with client states."""


def check_memory(memory: Mapping[str, Any], algorithm: ClientAlgorithm, population: int, where: str) -> None:
    """Raise `RunError` if a checkpoint belongs to another algorithm or another model.

    Args:
        memory: the checkpoint's memory.
        algorithm: the experiment's algorithm.
        population: number of clients.
        where: the checkpoint, for the message.
    """
    # Arrays begin with their algorithm's name, so the checkpoint itself says which algorithm wrote it.
    recorded = sorted({name.partition("/")[0] for name in memory}.intersection(NAMES))
    expected = [algorithm.name] if algorithm.keeps_state else []
    advice = "resume with the experiment that began the run"
    # States of another algorithm would be read as this one's: a control variate is no gradient.
    if recorded != expected:
        was, now = (", ".join(names) or "no client states" for names in (recorded, expected))
        raise RunError(f"{where} was written with {was}, but the experiment has {now}; {advice}")
    if algorithm.keeps_state:
        first = algorithm.first_memory(population)
        same = all(name in memory and memory[name].shape == array.shape for name, array in first.items())
        # The length, too: another model may have states for the same number of clients.
        if not same or int(memory[algorithm.length_name]) != len(algorithm.initial_state):
            raise RunError(f"{where} does not have the states of {population} clients of this model; {advice}")
