"""Attempts at a round that may have released its noisy sum: what the privacy ledger needs of a run that was killed.

Where noise comes from the operating system, a round that is run again releases the same updates under fresh noise. So
before the first question of the aggregation's last stage it is written to disk who takes part. What is found there of
a round that is not on record, and is run again, is charged; what is found of recorded rounds is history.

Attempts are kept from the last recorded round on, as the URI that a directory mirrors may be a round behind: whoever
goes on from there runs that round again, too.
"""

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

FILE = "attempts.json"


@dataclass(frozen=True)
class Attempt:
    """One attempt at a round that reached the last stage.

    Attributes:
        round_number: the round.
        participants: its participants, sorted.
    """

    round_number: int
    participants: list[int]


def read(path: Path) -> dict[str, Attempt]:
    """The attempts of the run in a directory, by names that are each attempt's own; none where there is no file.

    Raises:
        RunError: the file is damaged: what it said was released, and must not be forgotten.
    """
    file = path / FILE
    try:
        return decoded(limits.whole(file, limits.ATTEMPTS_BYTES), str(file))
    except FileNotFoundError:
        return {}
    except limits.TooLarge as why:
        raise RunError(f"{file}: {why}, so that it cannot be what a run wrote; put back what was there") from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror}") from None


def decoded(stored: bytes, where: str) -> dict[str, Attempt]:
    """The attempts in the bytes of a file; raises as `read` does."""
    try:
        return {
            str(name): Attempt(int(entry["round_number"]), list(map(int, entry["participants"])))
            for name, entry in json.loads(stored).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{where}: damaged ({type(error).__name__}), and it says whose privacy was spent; start again with another "
            "--out"
        ) from None


def write(path: Path, attempts: Mapping[str, Attempt]) -> None:
    """Put the file in its place, all of it on disk; raises `RunError` when it cannot."""
    file = path / FILE
    with atomic_write(file, lambda why: RunError(f"{file}: cannot write: {why}; rerun with --resume")) as open_file:
        open_file.write(json.dumps({name: vars(attempt) for name, attempt in attempts.items()}).encode())
    with contextlib.suppress(OSError):  # a file system that cannot: the file is in its place, its name may not last
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def add(path: Path, attempt: Attempt) -> None:
    """Keep one more attempt, and of the others those that still matter; raises as `read` and `write` do."""
    kept = {name: other for name, other in read(path).items() if other.round_number >= attempt.round_number - 1}
    write(path, kept | {secrets.token_hex(8): attempt})


def unite(path: Path, others: Mapping[str, Attempt]) -> None:
    """Add what another copy of the same run knows of; raises as `read` and `write` do."""
    here = read(path)
    if not others.keys() <= here.keys():
        write(path, {**here, **others})
