"""Locks of a run's directory: one process drives the run, and one writes its records."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import RunError

LOCK = ".lock"  # of the process that drives the run
WRITER = ".writer"  # of the one that writes its records
_TRIES, _BETWEEN_S = 10, 0.01  # long enough for a process that only checks the lock (`is_held`)


@contextlib.contextmanager
def run_lock(path: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the run directory `path` by its lock file `name`.

    Args:
        path: the run directory.
        name: `LOCK` or `WRITER`.

    Raises:
        RunError: another process holds it, or the directory cannot be written.
    """
    try:
        descriptor = os.open(path / name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from None
    try:
        if not _taken(descriptor):
            raise RunError(f"{path}: in use by another run; wait until it ends, or give another --out")
        yield
    finally:
        os.close(descriptor)  # releases the lock; the file stays, because removing it would race with another run


def _taken(descriptor: int) -> bool:
    """Take the lock and return True, or return False if another process has it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        except OSError:
            return True  # a file system without locks, as on some clusters: run unguarded
        else:
            return True
    return False


def is_held(path: Path, name: str = LOCK) -> bool | None:
    """Return whether a process holds the run directory `path`; None if its file system does not support locks.

    The check takes a shared lock for an instant and never keeps a run from starting.

    Args:
        path: the run directory.
        name: `LOCK` or `WRITER`.
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
