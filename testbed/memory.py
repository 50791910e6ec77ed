"""Arrays that a run keeps from round to round, in its checkpoint, with the names of their owners.

Each array has one owner: the module that declares its name, as a constant. A user-defined protocol may use plain
strings. Names are part of the checkpoint's format: a resumed run finds its arrays by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.messages import Message, decode, encode

Memory = dict[str, npt.NDArray[Any]]

StoredMessage = TypeVar("StoredMessage", bound=Message)


class ArrayName(str):
    """Name of one array."""

    __slots__ = ()


@dataclass(frozen=True)
class MessageName(Generic[StoredMessage]):
    """Name of a message that is stored as the bytes of its encoding, (k,) uint8.

    Attributes:
        name: name of the array.
        kind: type of the message.
    """

    name: str
    kind: type[StoredMessage]

    def load(self, memory: Mapping[str, npt.NDArray[Any]]) -> StoredMessage | None:
        """Return the message; None if there is none."""
        stored = memory.get(self.name)
        return None if stored is None else decode(self.kind, stored.tobytes())

    def store(self, memory: Memory, message: StoredMessage) -> None:
        """Store the message in place of the former one."""
        memory[self.name] = np.frombuffer(encode(message), np.uint8)


@dataclass(frozen=True)
class ArrayGroup:
    """Arrays that their owner names itself, with a common prefix.

    Attributes:
        prefix: beginning of their names.
    """

    prefix: str

    def read(self, memory: Mapping[str, npt.NDArray[Any]]) -> Memory:
        """Return the arrays of the group by their names without the prefix."""
        return {name.removeprefix(self.prefix): array for name, array in memory.items() if name.startswith(self.prefix)}

    def take(self, memory: Memory) -> Memory:
        """Return the arrays of the group, and remove them from `memory`."""
        arrays = self.read(memory)
        for name in arrays:
            del memory[self.prefix + name]
        return arrays

    def named(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Memory:
        """Return the arrays by their full names."""
        return {self.prefix + name: array for name, array in arrays.items()}


def memory_copy(memory: Mapping[str, Any]) -> Memory:
    """Return a copy of a memory for a checkpoint.

    Raises:
        RunError: an object that a checkpoint cannot hold.
    """
    arrays = {name: np.array(value) for name, value in memory.items()}
    for name, array in arrays.items():
        # Other kinds need pickle, which readers of checkpoints refuse: it would run code from the file.
        if array.dtype.kind not in "biufc":
            raise RunError(f"selection: memory[{name!r}] must be an array of numbers or booleans, not of {array.dtype}")
    return arrays
