"""The json files of LEAF: Caldas et al. 2018 (arXiv 1812.01097), as its preprocessing writes them.

A data set is a folder of files ``*.json``, each with some of the users::

    {"users": ["f0001_41", ...], "num_samples": [226, ...], "user_data": {"f0001_41": {"x": [...], "y": [...]}, ...}}

One file is parsed at a time, and in it a user's numbers become what `convert` makes of them before the next user is
read: Python's lists of one user are all that is ever there beside the file's text.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from testbed.errors import ExperimentError
from testbed.files import limits

Data = TypeVar("Data")


class _Made(Generic[Data]):
    """What became of one user's data, or why nothing did."""

    def __init__(self, convert: Callable[[Any, Any], Data], x: Any, y: Any) -> None:
        self.data: Data | None = None
        self.wrong = ""
        try:
            self.data = convert(x, y)
        except ValueError as error:
            self.wrong = str(error)


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
            if not isinstance(made, _Made):
                raise ExperimentError(
                    f"workload.path: {file}: user {user} has no x and y in user_data; preprocess the data again"
                )
            if made.wrong:
                raise ExperimentError(f"workload.path: {file}: user {user}: {made.wrong}")
            yield user, made.data  # type: ignore[misc]
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
        return _Made(convert, found["x"], found["y"]) if found.keys() >= {"x", "y"} else found

    try:
        data = json.loads(limits.whole(file, limits.USERS_BYTES), object_pairs_hook=made)
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
    data["users"] = [str(user) for user in data["users"]]
    return data
