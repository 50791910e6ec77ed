"""The json files of LEAF: Caldas et al. 2018 (arXiv 1812.01097), as its preprocessing writes them.

A data set is a folder of files ``*.json``, each with some of the users::

    {"users": ["f0001_41", ...], "num_samples": [226, ...], "user_data": {"f0001_41": {"x": [...], "y": [...]}, ...}}

One file is parsed at a time, and in it a user's numbers become what `convert` makes of them before the next user is
read: Python's lists of one user are all that is ever there beside the file's text.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from testbed.errors import ExperimentError
from testbed.files import limits

Data = TypeVar("Data")


@dataclass(frozen=True)
class _Converted(Generic[Data]):
    """What became of one user's data."""

    data: Data


@dataclass(frozen=True)
class _Mistake:
    """Why nothing did."""

    text: str


def files(folder: Path) -> list[Path]:
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
    for file in files(folder):
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
