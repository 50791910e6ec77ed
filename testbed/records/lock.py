"""One run directory, one process: an advisory lock that dies with its holder, however that dies."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import RunError

LOCK = ".lock"  # of the process that drives the run
WRITER = ".writer"  # of the one that writes its records
_TRIES, _BETWEEN_S = 10, 0.01  # somebody who only looks (`is_held`) is gone by then


@contextlib.contextmanager
def held(path: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the run directory `path` by its lock file `name`; raises `RunError` when another process does."""
    try:
        descriptor = os.open(path / name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from None
    try:
        if not _taken(descriptor):
            raise RunError(f"{path}: in use by another run; wait for it to end, or give another --out")
        yield
    finally:
        os.close(descriptor)  # gives the lock back; the file stays, because removing it would race with another run


def _taken(descriptor: int) -> bool:
    """Take the lock, if nobody has it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        except OSError:
            return True  # a file system without locks (some cluster ones): better to run unguarded than not at all
        else:
            return True
    return False


def is_held(path: Path, name: str = LOCK) -> bool | None:
    """Whether a process holds the run directory `path`; None when its file system cannot tell.

    Looks for an instant only, and shares the lock with others who look: it keeps nobody from running.
    """
    try:
        descriptor = os.open(path / name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
