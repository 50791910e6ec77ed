"""Data that come with their owners (writers, photographers, users): one owner is one client.

Where there are more owners than clients, a choice is made by the seed: those whose names have the smallest SHA-256
together with the seed. It depends on no order, a larger population contains a smaller one, and data can be dropped
while they are read. Data that are made, or opened, when they are first needed are kept while memory allows.

The json files of LEAF: Caldas et al. 2018 (arXiv 1812.01097), as its preprocessing writes them. A data set is a folder
of files ``*.json``, each with some of the users::

    {"users": ["f0001_41", ...], "num_samples": [226, ...], "user_data": {"f0001_41": {"x": [...], "y": [...]}, ...}}

One file is parsed at a time, and in it a user's numbers become what `convert` makes of them before the next user is
read: Python's lists of one user are all that is ever there beside the file's text.
"""

import hashlib
import heapq
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from workloads.determinism import Purpose, stream

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


def sample_counts(
    population: int, each: int | None, seed: int, *, mean: float, deviation: float, minimum: int, maximum: int
) -> NDArray[np.int64]:
    """(population,) int64: `each`, or lognormal with this mean and deviation, within `minimum` and `maximum`."""
    if each is not None:
        return np.full(population, each, dtype=np.int64)
    spread = np.log1p((deviation / mean) ** 2)
    drawn = stream(seed, Purpose.SAMPLE_COUNTS).lognormal(np.log(mean) - spread / 2, np.sqrt(spread), population)
    return np.clip(np.rint(drawn), minimum, maximum).astype(np.int64)


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
    """What `make` gives for each client, the last used ones from memory; safe to call from several threads.

    Args:
        make: from a client to its data, always the same.
        capacity: bytes to keep; a client whose data are larger is made each time.

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
            found = self._data.get(client)
            if found is not None:
                self._data.move_to_end(client)
                return found
        made = self._make(client)
        with self._lock:
            if client not in self._data:
                self._data[client] = made
                self.nbytes += made.nbytes
            while self.nbytes > self._capacity:
                _, oldest = self._data.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made


@dataclass(frozen=True)
class _Converted(Generic[Data]):
    """What became of one user's data."""

    data: Data


@dataclass(frozen=True)
class _Mistake:
    """Why nothing did."""

    text: str


def json_files(folder: Path) -> list[Path]:
    """The json files of a folder, in the order of their names; none when it is not there."""
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def read_users(folder: Path, convert: Callable[[Any, Any], Data]) -> Iterator[tuple[str, Data]]:
    """(user, data) of all users in a folder's files.

    Args:
        folder: with at least one json file.
        convert: from a user's ``x`` and ``y`` to what is kept; raises ValueError with what is wrong and what to do.

    Raises:
        ExperimentError: a file that is damaged or lacks a key, a user without data or a user who is there twice.
    """
    seen: dict[str, Path] = {}
    for file in json_files(folder):
        data = _parsed(file, convert)
        for user in data["users"]:
            if user in seen:
                where = f"and in {seen[user].name}" if seen[user] != file else "twice"
                raise ExperimentError(f"workload.path: {file}: user {user} is there {where}; keep one of the two")
            seen[user] = file
            made = data["user_data"].pop(user, None)
            if isinstance(made, _Mistake):
                raise ExperimentError(f"workload.path: {file}: user {user}: {made.text}")
            if not isinstance(made, _Converted):
                raise ExperimentError(
                    f"workload.path: {file}: user {user} has no x and y in user_data; preprocess the data again"
                )
            yield user, made.data
        for user in data["user_data"]:
            raise ExperimentError(
                f"workload.path: {file}: user {user} is in user_data and not in users; preprocess the data again"
            )


def _parsed(file: Path, convert: Callable[[Any, Any], Data]) -> dict[str, Any]:
    def made(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{max(names, key=names.count)!r} is there twice")
        if not found.keys() >= {"x", "y"}:
            return found
        try:
            return _Converted(convert(found["x"], found["y"]))
        except ValueError as error:
            return _Mistake(str(error))

    try:
        data: Any = json.loads(limits.whole(file, limits.USERS_BYTES), object_pairs_hook=made)
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read as LEAF's json ({error}); replace it with an undamaged copy"
        ) from None
    lacking = [key for key in ("users", "user_data") if not isinstance(data, dict) or key not in data]
    if lacking or not isinstance(data["users"], list) or not isinstance(data["user_data"], dict):
        what = f"lacks {' and '.join(lacking)}" if lacking else "has users or user_data of another kind"
        raise ExperimentError(
            f"workload.path: {file} {what}; LEAF's files are {{users: [...], num_samples: [...], user_data: {{...}}}}"
        )
    return {"users": [str(user) for user in data["users"]], "user_data": data["user_data"]}
