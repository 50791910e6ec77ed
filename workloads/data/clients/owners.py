"""Data that come with their owners (writers, photographers, users): one owner is one client.

Where there are more owners than clients, a choice is made by the seed: those whose names have the smallest SHA-256
together with the seed. It depends on no order, a larger population contains a smaller one, and data can be dropped
while they are read.
"""

import hashlib
import heapq
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from workloads.randomness import Purpose, stream

Data = TypeVar("Data")


class OwnerSelection(Generic[Data]):
    """The clients among the owners that are offered, with their data; never more of these than `population`.

    Args:
        population, seed: of the experiment.
        owner: what an owner is called in errors.
        where: the file or folder, for errors.
    """

    def __init__(self, population: int, seed: int, owner: str, where: Path) -> None:
        self._population = population
        self._seed = seed
        self._owner = owner
        self._where = where
        self._largest: list[tuple[int, str]] = []  # negative, so that the heap's first is the one to go
        self._data: dict[str, Data] = {}
        self._offered = 0

    def offer(self, name: str, data: Data) -> None:
        """Take an owner in, or leave it out; each name once."""
        self._offered += 1
        digest = hashlib.sha256(f"testbed/owners/v1 {self._seed} {name}".encode()).digest()
        heapq.heappush(self._largest, (-int.from_bytes(digest), name))
        self._data[name] = data
        if len(self._largest) > self._population:
            del self._data[heapq.heappop(self._largest)[1]]

    def clients(self) -> list[tuple[str, Data]]:
        """(name, data) of each client, in the order of the names.

        Raises:
            ExperimentError: fewer owners than clients.
        """
        if self._offered < self._population:
            raise ExperimentError(
                f"workload.path: {self._where} has {self._offered} {self._owner}s, fewer than population = "
                f"{self._population}; lower population"
            )
        return sorted(self._data.items())


def choose(names: Iterable[str], population: int, seed: int, owner: str, where: Path) -> list[str]:
    """The names of the clients, sorted; see `OwnerSelection`."""
    chosen: OwnerSelection[None] = OwnerSelection(population, seed, owner, where)
    for name in names:
        chosen.offer(name, None)
    return [name for name, _ in chosen.clients()]


def own_samples(count: int, limit: int | None, seed: int, client: int) -> NDArray[np.int64]:
    """Which of an owner's `count` samples its client holds, in their order: all, or `limit` of them by the seed."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(stream(seed, Purpose.OWN_SAMPLES, client).permutation(count)[:limit])


def test_subset(count: int, limit: int | None, seed: int) -> NDArray[np.int64]:
    """Which of `count` held-out samples are evaluated, in their order: all, or `limit` of them by the seed."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(stream(seed, Purpose.TEST_SUBSET).permutation(count)[:limit])


def folder(path: Path | None, needed: str) -> Path:
    """``workload.path`` as a folder that is there.

    Raises:
        ExperimentError: it is not; `needed` says what it must be.
    """
    root = (path or Path()).expanduser()
    if path is None or not root.is_dir():
        raise ExperimentError(f"workload.path: {root} is not a folder that can be read; give {needed}")
    return root
