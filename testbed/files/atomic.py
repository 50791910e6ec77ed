"""Files that are there completely or not at all."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from testbed.errors import reason

_LOCKS: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()  # by path, while somebody writes there
_LOCKS_LOCK = threading.Lock()


@contextlib.contextmanager
def atomic_write(path: Path, failed: Callable[[str], Exception]) -> Iterator[IO[bytes]]:
    """Write a file under a temporary name beside `path` and rename it when all is on disk.

    Whatever goes wrong before that, what was there is untouched, and the temporary file is removed. Threads and
    processes that write the same file (a push that still runs when its run goes on) take turns, as they share its
    temporary name; processes only where the file system has locks.

    Args:
        path: where the file is to be.
        failed: makes the error that is raised when the file cannot be written, from why, in one line.
    """
    temporary = path.with_name(f".{path.name}.writing")
    with _LOCKS_LOCK:
        turn = _LOCKS.setdefault(os.path.abspath(path), threading.RLock())
    with turn:
        try:
            with _opened(temporary) as file:
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(temporary, path)
                except BaseException:
                    with contextlib.suppress(OSError):
                        temporary.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise failed(error.strerror or reason(error)) from None


@contextlib.contextmanager
def _opened(temporary: Path) -> Iterator[IO[bytes]]:
    """The empty temporary file, locked until it is closed: another process that has it finishes first."""
    while True:
        with open(temporary, "wb", opener=_as_it_is) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(file, temporary):  # else who had it has renamed it meanwhile
                file.truncate(0)
                yield file
                return


def _as_it_is(path: str, flags: int) -> int:
    """Open a file without truncating it: it may be another's. A link in a foreign directory leads nowhere else."""
    return os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _is_still(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
