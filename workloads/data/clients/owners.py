"""Data that come with their owners (writers, photographers, users): one owner is one client.

Where there are more owners than clients, a choice is made by the seed: those whose names have the smallest SHA-256
together with the seed. It depends on no order, a larger population contains a smaller one, and data can be dropped
while they are read. Data that are made, or opened, when they are first needed are kept while memory allows.
"""

import hashlib
import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.determinism import Purpose, stream

Data = TypeVar("Data")


class Owned(Protocol):
    """Some samples with labels."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64."""

    def __len__(self) -> int: ...

    def take(self, numbers: NDArray[np.int64]) -> Self:
        """The samples with the given numbers, int64."""


Samples = TypeVar("Samples", bound=Owned)


@dataclass(frozen=True, slots=True)
class LabelledValues:
    """Samples that are rows of one array.

    Attributes:
        values: (n, ...) whatever a sample is: numbers of words, the name of a file.
        labels: (n,) int64.
    """

    values: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> "LabelledValues":
        """The samples with the given numbers, int64."""
        return LabelledValues(self.values[numbers], self.labels[numbers])


def joined(parts: list[LabelledValues]) -> LabelledValues:
    """All samples of at least one part, in this order."""
    return LabelledValues(
        np.concatenate([part.values for part in parts]), np.concatenate([part.labels for part in parts])
    )


_OwnerData = TypeVar("_Given", bound=Owned, covariant=True)


class OwnerFiles(Protocol[_OwnerData]):
    """Files of which some owners are clients.

    Attributes:
        counts: the training samples of each client.
    """

    counts: list[int]

    def labels(self, client: int) -> NDArray[np.int64]:
        """(n,) of a client's training samples."""

    def of(self, client: int, numbers: NDArray[np.int64]) -> _OwnerData:
        """A client's training samples with these numbers."""

    def test_parts(self) -> Iterator[_OwnerData]:
        """The held-out samples."""


class OwnedSamples(Generic[Samples]):
    """Each client's samples of its owner's files, and the held-out samples.

    Args:
        files: with the owners who are clients.
        joined: from at least one part to all their samples.
        section: samples_per_client, test_samples.
        seed: of the experiment, which chooses where there are more.

    Attributes:
        counts: (population,) int64, the training samples of each client.
    """

    def __init__(
        self,
        files: OwnerFiles[Samples],
        joined: Callable[[list[Samples]], Samples],
        section: WorkloadSection,
        seed: int,
    ) -> None:
        self._files, self._joined = files, joined
        self._test_samples, self._seed = section.test_samples, seed
        self._own = [
            own_samples(count, section.samples_per_client, seed, client) for client, count in enumerate(files.counts)
        ]
        self.counts = np.array([len(own) for own in self._own], dtype=np.int64)

    def of(self, client: int) -> Samples:
        """One client's training samples."""
        return self._files.of(client, self._own[client])

    def held_out(self) -> Samples:
        """Of the test part, all or a seeded choice; files for it alone are first read here.

        Raises:
            ExperimentError: files that are damaged, or without a sample.
        """
        parts = list(self._files.test_parts())
        if not sum(map(len, parts)):
            raise ExperimentError("workload.path: no sample is left to be held out; add a test part")
        samples = self._joined(parts)
        return samples.take(test_subset(len(samples), self._test_samples, self._seed))

    def label_counts(self, classes: int) -> NDArray[np.int64]:
        """(population, classes) int64."""
        rows = [np.bincount(self._files.labels(client)[own], minlength=classes) for client, own in enumerate(self._own)]
        return np.stack(rows).astype(np.int64)


class OwnerSelection(Generic[Data]):
    """The clients among the owners that are offered, with their data; never more of these than `population`.

    Args:
        population, seed: of the experiment.
        owner: word for an owner in errors.
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
        ExperimentError: it is not; the message names the `needed` folder.
    """
    root = (path or Path()).expanduser()
    if path is None or not root.is_dir():
        raise ExperimentError(f"workload.path: {root} is not a folder that can be read; give {needed}")
    return root


def sample_counts(
    population: int, each: int | None, seed: int, *, mean: float, deviation: float, minimum: int, maximum: int
) -> NDArray[np.int64]:
    """(population,) int64: `each`, or lognormal with this mean and deviation, within `minimum` and `maximum`."""
    if each is not None:
        return np.full(population, each, dtype=np.int64)
    spread = np.log1p((deviation / mean) ** 2)
    counts = stream(seed, Purpose.SAMPLE_COUNTS).lognormal(np.log(mean) - spread / 2, np.sqrt(spread), population)
    return np.clip(np.rint(counts), minimum, maximum).astype(np.int64)


def class_counts(weights: NDArray[np.float64], samples: int, seed: int, client: int) -> NDArray[np.int64]:
    """(classes,) int64: how many of a client's `samples` are of each class; its mix is drawn from Dir(weights)."""
    random = stream(seed, Purpose.CLASS_MIX, client)
    return random.multinomial(samples, random.dirichlet(weights))


def in_groups(count: int, each: int) -> Iterator[tuple[int, int]]:
    """(owner's number, its samples) for `count` samples of owners with `each`; the last one may have fewer."""
    for owner, start in enumerate(range(0, count, each)):
        yield owner, min(each, count - start)


CACHE_BYTES = 256 * 2**20
"""Bytes that one process keeps."""


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_Data = TypeVar("_Data", bound=_Sized)


class ClientDataCache(Generic[_Data]):
    """A cache of `make`: each client's data, the last used ones from memory; safe to call from several threads.

    Args:
        make: from a client to its data, always the same.
        capacity: bytes to keep; larger data of a client are made each time.

    Attributes:
        nbytes: of all data that are kept.
    """

    def __init__(self, make: Callable[[int], _Data], capacity: int = CACHE_BYTES) -> None:
        self._make = make
        self._capacity = capacity
        self._data: OrderedDict[int, _Data] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def __call__(self, client: int) -> _Data:
        """The client's data; not to be changed."""
        with self._lock:
            data = self._data.get(client)
            if data is not None:
                self._data.move_to_end(client)
                return data
        made = self._make(client)
        with self._lock:
            if client not in self._data:
                self._data[client] = made
                self.nbytes += made.nbytes
            while self.nbytes > self._capacity:
                _, oldest = self._data.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made
