"""Arrays that a run keeps from round to round, in its checkpoint, and the names of their owners.

Each array has one owner: the module that declares its name, as a constant. A user-defined protocol may use plain
strings. Names are part of the checkpoint's format: a run that is resumed finds its arrays by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.messages import Message, decode, encode

Memory = dict[str, npt.NDArray[Any]]

StoredMessage = TypeVar("Kept", bound=Message)


class ArrayName(str):
    """The name of one array."""

    __slots__ = ()


@dataclass(frozen=True)
class MessageName(Generic[StoredMessage]):
    """The name of a message that is kept as the bytes of its encoding, `(k,)` uint8.

    Attributes:
        name: of the array.
        kind: the message's type.
    """

    name: str
    kind: type[StoredMessage]

    def load(self, memory: Mapping[str, npt.NDArray[Any]]) -> StoredMessage | None:
        """Return the message; None: none is kept."""
        stored = memory.get(self.name)
        return None if stored is None else decode(self.kind, stored.tobytes())

    def store(self, memory: Memory, message: StoredMessage) -> None:
        """Keep the message instead of the former one."""
        memory[self.name] = np.frombuffer(encode(message), np.uint8)


@dataclass(frozen=True)
class ArrayGroup:
    """Arrays that their owner names itself, under a common prefix.

    Attributes:
        prefix: the beginning of their names.
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
    """Copy a memory as a checkpoint holds it; raises `RunError` for an object that a checkpoint cannot hold."""
    arrays = {name: np.array(value) for name, value in memory.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise RunError(f"selection: memory[{name!r}] is no array of numbers or booleans, but of {array.dtype}")
    return arrays
