"""Atomic writes: a file exists completely or not at all."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from testbed.errors import reason

_LOCKS: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()  # by path, while a thread writes there
_LOCKS_LOCK = threading.Lock()


@contextlib.contextmanager
def atomic_write(path: Path, failed: Callable[[str], Exception]) -> Iterator[IO[bytes]]:
    """Write a file under a temporary name beside `path`, and rename it when all data are on disk.

    After any earlier error the former file is untouched, and the temporary file is removed. Threads and processes that
    write the same file (such as a push that still runs when its run resumes) take turns, as they share the temporary
    name; processes do so only if the file system has locks.

    Args:
        path: the file to write.
        failed: returns the error to raise if the file cannot be written, from the reason in one line.
    """
    # In the same directory, as a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.writing")
    with _LOCKS_LOCK:
        turn = _LOCKS.setdefault(os.path.abspath(path), threading.RLock())
    with turn:
        try:
            with _opened(temporary) as file:
                try:
                    yield file
                    file.flush()
                    # Before the rename: after a power failure the new name must not point to missing data.
                    os.fsync(file.fileno())
                    os.replace(temporary, path)
                # KeyboardInterrupt, too: a stopped run must not leave its temporary file.
                except BaseException:
                    with contextlib.suppress(OSError):
                        temporary.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise failed(error.strerror or reason(error)) from None


@contextlib.contextmanager
def _opened(temporary: Path) -> Iterator[IO[bytes]]:
    """Yield the empty temporary file, locked until it is closed; another process that holds it finishes first."""
    while True:
        with open(temporary, "wb", opener=_as_it_is) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(file, temporary):  # else its former holder has renamed it meanwhile
                file.truncate(0)
                yield file
                return


def _as_it_is(path: str, flags: int) -> int:
    """Open a file without truncating it, as another process may hold it, and without following symbolic links."""
    # O_NONBLOCK: opening a pipe of this name would wait forever.
    return os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _is_still(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
