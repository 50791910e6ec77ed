"""Attempts at releasing a sum, recorded before a round's last stage, so that a lost round is charged for its noise."""

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import RunError
from testbed.files import limits
from testbed.files.atomic import atomic_write
from testbed.records.uploads import ATTEMPTS


@dataclass(frozen=True)
class ReleaseAttempt:
    """One attempt at a round that reached the last aggregation stage.

    Attributes:
        round_number: the round.
        participants: its participants, sorted.
    """

    round_number: int
    participants: list[int]


def read_attempts(path: Path) -> dict[str, ReleaseAttempt]:
    """Return the attempts of the run in a directory, by unique names; empty if there is no file.

    Raises:
        RunError: the file is damaged. Its content says which updates were released and must not be forgotten.
    """
    file = path / ATTEMPTS
    try:
        return decoded_attempts(limits.whole(file, limits.ATTEMPTS_BYTES), str(file))
    except FileNotFoundError:
        return {}
    except limits.TooLarge as why:
        raise RunError(f"{file}: {why}, so a run cannot have written it; restore the original file") from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror}") from None


def decoded_attempts(stored: bytes, where: str) -> dict[str, ReleaseAttempt]:
    """Return the attempts in the content of a file.

    Args:
        stored: the content.
        where: the file's name for error messages.

    Raises:
        RunError: the content is damaged.
    """
    try:
        return {
            str(name): ReleaseAttempt(int(entry["round_number"]), list(map(int, entry["participants"])))
            for name, entry in json.loads(stored).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{where}: damaged ({type(error).__name__}); it records the privacy that clients spent; start again with "
            "another --out"
        ) from None


def write_attempts(path: Path, attempts: Mapping[str, ReleaseAttempt]) -> None:
    """Write the file, completely and to disk.

    Args:
        path: the run directory.
        attempts: by name.

    Raises:
        RunError: the file cannot be written.
    """
    file = path / ATTEMPTS
    with atomic_write(file, lambda why: RunError(f"{file}: cannot write: {why}; rerun with --resume")) as open_file:
        open_file.write(json.dumps({name: vars(attempt) for name, attempt in attempts.items()}).encode())
    # Where the file system cannot sync directories, the file's name may be lost in a crash.
    with contextlib.suppress(OSError):
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def add_attempt(path: Path, attempt: ReleaseAttempt) -> None:
    """Add an attempt, and drop attempts at rounds that no resumed run can repeat.

    Args:
        path: the run directory.
        attempt: the new attempt.

    Raises:
        RunError: the file is damaged or cannot be written.
    """
    # From the last recorded round on: a URI may be a round behind, and a run resumed from there repeats that round.
    relevant = {
        name: other for name, other in read_attempts(path).items() if other.round_number >= attempt.round_number - 1
    }
    # A random name: another machine may add an attempt at the same round, and both count (`unite_attempts`).
    write_attempts(path, relevant | {secrets.token_hex(8): attempt})


def unite_attempts(path: Path, others: Mapping[str, ReleaseAttempt]) -> None:
    """Add the attempts that another copy of the same run has.

    Args:
        path: the run directory.
        others: attempts of the other copy, by name.

    Raises:
        RunError: the file is damaged or cannot be written.
    """
    here = read_attempts(path)
    if not others.keys() <= here.keys():
        write_attempts(path, {**here, **others})
