"""One run directory, one process: an advisory lock that dies with its holder, however that dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import RunError


@contextlib.contextmanager
def held(path: Path, name: str = ".lock") -> Iterator[None]:
    """Hold the run directory `path` by its lock file `name`; raises `RunError` when another process does."""
    try:
        descriptor = os.open(path / name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path}: in use by another run; wait for it to end, or give another --out") from None
        except OSError:
            pass  # a file system without locks (some cluster ones): better to run unguarded than not at all
        yield
    finally:
        os.close(descriptor)  # gives the lock back; the file stays, because removing it would race with another run
