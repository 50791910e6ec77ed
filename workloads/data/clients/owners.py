"""Data that come with their owners (writers, photographers, users): one owner is one client.

If there are more owners than clients, the seed chooses: the owners with the smallest SHA-256 of name and seed are
clients. The choice does not depend on an order, a larger population contains a smaller one, and data can be dropped
while they are read. Data that are made or opened on first use are kept while memory allows.
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
    """Samples with labels."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels, (n,) int64."""

    def __len__(self) -> int: ...

    def take(self, numbers: NDArray[np.int64]) -> Self:
        """Return the samples with the given numbers, int64."""


Samples = TypeVar("Samples", bound=Owned)


@dataclass(frozen=True, slots=True)
class LabelledValues:
    """Samples that are rows of one array.

    Attributes:
        values: (n, ...) samples: for example word numbers, or file names.
        labels: (n,) int64.
    """

    values: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: NDArray[np.int64]) -> "LabelledValues":
        """Return the samples with the given numbers, int64."""
        return LabelledValues(self.values[numbers], self.labels[numbers])


def join_values(parts: list[LabelledValues]) -> LabelledValues:
    """Return all samples of at least one part, in this order."""
    return LabelledValues(
        np.concatenate([part.values for part in parts]), np.concatenate([part.labels for part in parts])
    )


_OwnerData = TypeVar("_OwnerData", bound=Owned, covariant=True)


class OwnerFiles(Protocol[_OwnerData]):
    """Files of owners, some of which are clients.

    Attributes:
        counts: number of training samples of each client.
    """

    counts: list[int]

    def labels(self, client: int) -> NDArray[np.int64]:
        """Return the (n,) labels of a client's training samples."""

    def of(self, client: int, numbers: NDArray[np.int64]) -> _OwnerData:
        """Return a client's training samples with these numbers."""

    def test_parts(self) -> Iterator[_OwnerData]:
        """Yield the held-out samples."""


class OwnedSamples(Generic[Samples]):
    """Each client's samples in its owner's files, and the held-out samples.

    Args:
        files: files with the owners that are clients.
        joined: function that joins at least one part.
        section: samples_per_client, test_samples.
        seed: of the experiment; chooses samples if there are more than needed.

    Attributes:
        counts: (population,) int64, the number of training samples of each client.
    """

    def __init__(
        self,
        files: OwnerFiles[Samples],
        join_values: Callable[[list[Samples]], Samples],
        section: WorkloadSection,
        seed: int,
    ) -> None:
        self._files, self._joined = files, join_values
        self._test_samples, self._seed = section.test_samples, seed
        self._own = [
            own_samples(count, section.samples_per_client, seed, client) for client, count in enumerate(files.counts)
        ]
        self.counts = np.array([len(own) for own in self._own], dtype=np.int64)

    def of(self, client: int) -> Samples:
        """Return one client's training samples."""
        return self._files.of(client, self._own[client])

    def held_out(self) -> Samples:
        """Return the test part, all or a seeded choice; its files are first read here.

        Raises:
            ExperimentError: files that are damaged, or without a sample.
        """
        parts = list(self._files.test_parts())
        if not sum(map(len, parts)):
            raise ExperimentError("workload.path: no sample is left to be held out; add a test part")
        samples = self._joined(parts)
        return samples.take(test_subset(len(samples), self._test_samples, self._seed))

    def label_counts(self, classes: int) -> NDArray[np.int64]:
        """Return (population, classes) int64 samples of each label at each client."""
        rows = [np.bincount(self._files.labels(client)[own], minlength=classes) for client, own in enumerate(self._own)]
        return np.stack(rows).astype(np.int64)


class OwnerSelection(Generic[Data]):
    """The selection of clients among offered owners, with their data, never more than `population` of them.

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
        self._largest: list[tuple[int, str]] = []  # negative, so that the heap's first entry is the one to remove
        self._data: dict[str, Data] = {}
        self._offered = 0

    def offer(self, name: str, data: Data) -> None:
        """Add an owner, or leave it out; each name once."""
        self._offered += 1
        # By a digest of the name: the choice does not depend on the order in which owners are read.
        digest = hashlib.sha256(f"testbed/owners/v1 {self._seed} {name}".encode()).digest()
        heapq.heappush(self._largest, (-int.from_bytes(digest), name))
        self._data[name] = data
        if len(self._largest) > self._population:
            # At once: files may have many times more owners than memory holds.
            del self._data[heapq.heappop(self._largest)[1]]

    def clients(self) -> list[tuple[str, Data]]:
        """Return (name, data) of each client, in the order of the names.

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
    """Return the names of the clients, sorted; see `OwnerSelection`.

    Args:
        names: names of the owners.
        population, seed, owner, where: see `OwnerSelection`.
    """
    chosen: OwnerSelection[None] = OwnerSelection(population, seed, owner, where)
    for name in names:
        chosen.offer(name, None)
    return [name for name, _ in chosen.clients()]


def own_samples(count: int, limit: int | None, seed: int, client: int) -> NDArray[np.int64]:
    """Return the numbers of an owner's samples that its client holds, in their order.

    Args:
        count: number of the owner's samples.
        limit: number of samples to choose by the seed; None: all.
        seed: of the experiment.
        client: number of the client.
    """
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(stream(seed, Purpose.OWN_SAMPLES, client).permutation(count)[:limit])


def test_subset(count: int, limit: int | None, seed: int) -> NDArray[np.int64]:
    """Return the numbers of the held-out samples that are evaluated, in their order.

    Args:
        count: number of held-out samples.
        limit: number of samples to choose by the seed; None: all.
        seed: of the experiment.
    """
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(stream(seed, Purpose.TEST_SUBSET).permutation(count)[:limit])


def folder(path: Path | None, needed: str) -> Path:
    """Return ``workload.path`` as an existing folder.

    Args:
        path: the path; None: not set.
        needed: the folder that is needed, for the message.

    Raises:
        ExperimentError: the folder does not exist.
    """
    root = (path or Path()).expanduser()
    if path is None or not root.is_dir():
        raise ExperimentError(f"workload.path: {root} is not a readable folder; give {needed}")
    return root


def sample_counts(
    population: int, each: int | None, seed: int, *, mean: float, deviation: float, minimum: int, maximum: int
) -> NDArray[np.int64]:
    """Return the number of samples of each client, fixed or lognormal.

    Args:
        population: number of clients.
        each: number of samples of every client; None: lognormal.
        seed: of the experiment.
        mean, deviation: of the lognormal numbers.
        minimum, maximum: bounds of the numbers.

    Returns:
        (population,) int64.
    """
    if each is not None:
        return np.full(population, each, dtype=np.int64)
    # Parameters of the logarithm that give the log-normal numbers this mean and deviation.
    spread = np.log1p((deviation / mean) ** 2)
    counts = stream(seed, Purpose.SAMPLE_COUNTS).lognormal(np.log(mean) - spread / 2, np.sqrt(spread), population)
    return np.clip(np.rint(counts), minimum, maximum).astype(np.int64)


def class_counts(weights: NDArray[np.float64], samples: int, seed: int, client: int) -> NDArray[np.int64]:
    """Return the number of a client's samples of each class; its mix is drawn from Dir(weights).

    Args:
        weights: (classes,) float64 parameters of the Dirichlet distribution.
        samples: number of the client's samples.
        seed: of the experiment.
        client: number of the client.

    Returns:
        (classes,) int64.
    """
    random = stream(seed, Purpose.CLASS_MIX, client)
    return random.multinomial(samples, random.dirichlet(weights))


def in_groups(count: int, each: int) -> Iterator[tuple[int, int]]:
    """Yield (owner's number, its number of samples) for `count` samples of owners with `each`; the last may have fewer.

    Args:
        count: number of samples.
        each: samples per owner.

    Example:
        >>> list(in_groups(5, 2))
        [(0, 2), (1, 2), (2, 1)]
    """
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
        make: function from a client to its data, always the same.
        capacity: bytes to keep; larger data of a client are made each time.

    Attributes:
        nbytes: bytes of all cached data.
    """

    def __init__(self, make: Callable[[int], _Data], capacity: int = CACHE_BYTES) -> None:
        self._make = make
        self._capacity = capacity
        self._data: OrderedDict[int, _Data] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def __call__(self, client: int) -> _Data:
        """Return the client's data, which must not be changed."""
        with self._lock:
            data = self._data.get(client)
            if data is not None:
                self._data.move_to_end(client)
                return data
        # Without the lock: making takes long, and two threads that make the same data get equal results.
        made = self._make(client)
        with self._lock:
            if client not in self._data:
                self._data[client] = made
                self.nbytes += made.nbytes
            while self.nbytes > self._capacity:
                _, oldest = self._data.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made
