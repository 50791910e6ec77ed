"""LEAF's folders: training and test parts of users; each user is a client.

Caldas et al. 2018 (arXiv 1812.01097). LEAF's scripts write below ``data/``: ``all_data`` first, ``sampled_data`` and
``rem_user_data`` on request, and at last ``train`` and ``test``, in files such as
``all_data_niid_05_keep_0_train_9.json``. LEAF splits by sample (all users are in both parts) or by user (no user is).
The path may be that of ``data``, of the folder above it, of ``train`` (``test`` is beside it), or of a folder without a
split: then a tenth of each user's samples is held out here, by the seed.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from workloads.data.clients import leaf_json
from workloads.data.clients.owners import Owned, OwnerSelection
from workloads.determinism import Purpose, stream

_HELD_OUT_SHARE = 0.1
_NOT_SPLIT = ("all_data", "sampled_data", "rem_user_data")

Data = TypeVar("Data")
Samples = TypeVar("Samples", bound=Owned)


def json_files(folder: Path) -> list[Path]:
    """Return the json files of a folder in the order of their names; none if it does not exist."""
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def read_users(
    folder: Path, convert: Callable[[Any, Any], Data], *, counts_hold: bool = True
) -> Iterator[tuple[str, Data]]:
    """Yield (user, data) of all users in a folder's files; see `leaf_json.users_of`.

    Args:
        folder: the folder.
        convert: see `leaf_json.users_of`.
        counts_hold: see `leaf_json.users_of`.

    Raises:
        ExperimentError: as there, and for a user in two files.
    """
    file_of: dict[str, Path] = {}
    for file in json_files(folder):
        for user, data in leaf_json.users_of(file, convert, counts_hold=counts_hold):
            if user in file_of:
                raise ExperimentError(
                    f"workload.path: {file}: user {user} is there and in {file_of[user].name}; keep one of the two"
                )
            file_of[user] = file
            yield user, data


def with_train(path: Path) -> Path:
    """Return the folder with ``train``, given this folder, the folder above it or ``train`` itself; else the path."""
    places = [path, path / "data", *([_above(path)] if _name(path) == "train" else [])]
    return next((place for place in places if (place / "train").is_dir()), path)


def _name(path: Path) -> str:
    return Path(os.path.abspath(path)).name  # not resolved: a link may have the name train


def _above(path: Path) -> Path:
    return Path(os.path.abspath(path)).parent


@dataclass(frozen=True)
class LeafFolder:
    """Locations of the parts of a data set.

    Attributes:
        root: LEAF's ``data``, which may also hold ``raw``.
        train: the folder with the users' files.
        test: the folder with the test files; None: the data are not split.
    """

    root: Path
    train: Path
    test: Path | None

    @classmethod
    def find(cls, path: Path) -> Self | None:
        """Return the parts in, or around, a folder; None if there are no json files.

        Raises:
            ExperimentError: a training part without a test part, or the test part alone.
        """
        root = with_train(path)
        if _name(path) == "test" and json_files(_above(path) / "train"):
            raise ExperimentError(f"workload.path: {path} is the test part; give {_above(path)}, the folder above it")
        if json_files(root / "train"):
            if not json_files(root / "test"):
                raise ExperimentError(
                    f"workload.path: {root} has train/*.json and no test/*.json; add LEAF's test part"
                )
            return cls(root, root / "train", root / "test")
        if json_files(path):
            return cls(_above(path) if _name(path) in _NOT_SPLIT else path, path, None)
        return None

    @classmethod
    def needed(cls, path: Path, needed: str) -> Self:
        """Return the parts as `find`; without json files, raise `ExperimentError` that names the `needed` folder."""
        folder = cls.find(path)
        if folder is None:
            places = (path / "all_data", path / "data" / "all_data")
            hint = next(
                (f"; data without a split need their own path: {place}" for place in places if json_files(place)), ""
            )
            raise ExperimentError(
                f"workload.path: {path} has no json files, there or in train; give {needed} (nothing is downloaded)"
                f"{hint}"
            )
        return folder


class LeafUsers(Generic[Samples]):
    """The users of LEAF's files that are clients, with their samples in memory.

    Args:
        folder: location of the files.
        convert: function from a user's ``x`` and ``y`` to samples; raises ValueError with fault and remedy.
        population, seed: of the experiment; the seed chooses the clients if there are more users.
        owner: word for a user in errors.

    Attributes:
        counts: number of training samples of each client.

    Raises:
        ExperimentError: damaged files, too few users, or a test part of another split.
    """

    def __init__(
        self, folder: LeafFolder, convert: Callable[[Any, Any], Samples], population: int, seed: int, owner: str
    ) -> None:
        self.folder, self._convert, self._seed = folder, convert, seed
        selection: OwnerSelection[Samples] = OwnerSelection(population, seed, owner, folder.train)
        users: set[str] = set()
        for user, samples in read_users(folder.train, convert):
            selection.offer(user, samples)
            users.add(user)
        if folder.test is not None:
            _check_one_split(users, folder.test)
        self._clients = [samples for _, samples in selection.clients()]
        self._own = [
            np.arange(len(samples)) if folder.test is not None else self._split(client)[0]
            for client, samples in enumerate(self._clients)
        ]
        self.counts = [len(numbers) for numbers in self._own]

    def _split(self, client: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of a client's training samples (at least one) and of its held-out samples."""
        count = len(self._clients[client])
        order = stream(self._seed, Purpose.HELD_OUT, client).permutation(count)
        # At least one held out and at least one for training; with a single sample, none is held out.
        held_out = min(count - 1, max(1, round(_HELD_OUT_SHARE * count)))
        return np.sort(order[held_out:]), np.sort(order[:held_out])

    def labels(self, client: int) -> NDArray[np.int64]:
        """Return the (n,) labels of a client's training samples."""
        return self._clients[client].labels[self._own[client]]

    def of(self, client: int, numbers: NDArray[np.int64]) -> Samples:
        """Return a client's training samples with these numbers."""
        return self._clients[client].take(self._own[client][numbers])

    def all_of(self, client: int) -> Samples:
        """Return all of a client's training samples."""
        return self._clients[client].take(self._own[client])

    def map(self, change: Callable[[Samples], Samples]) -> None:
        """Replace every client's samples by the results of `change`."""
        for client, samples in enumerate(self._clients):
            self._clients[client] = change(samples)

    def test_parts(self) -> Iterator[Samples]:
        """Yield the held-out samples; the test part is read here, and damage in it is an `ExperimentError`."""
        if self.folder.test is None:
            for client, samples in enumerate(self._clients):
                yield samples.take(self._split(client)[1])
            return
        for _, samples in read_users(self.folder.test, self._convert):
            yield samples


def _check_one_split(users: set[str], test: Path) -> None:
    """Raise `ExperimentError` if the test part does not belong to the training part with these users."""
    tested = {name for file in json_files(test) for name in leaf_json.names_of(file)}
    in_train = len(tested & users)
    # Only some users in both parts: the files are of two splits, and held-out samples may have been trained on.
    if in_train and in_train < len(tested):
        raise ExperimentError(
            f"workload.path: {test}: {in_train} users are also in train, and {len(tested) - in_train} are not; LEAF "
            "splits by sample (all are) or by user (none is): give the train and test parts of one split"
        )
