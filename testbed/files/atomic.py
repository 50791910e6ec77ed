"""Files that are there completely or not at all."""

import contextlib
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

    Whatever goes wrong before that, what was there is untouched, and the temporary file is removed. Threads that write
    the same file (a push that still runs when its run goes on) take turns, as they share its temporary name.

    Args:
        path: where the file is to be.
        failed: makes the error that is raised when the file cannot be written, from why, in one line.
    """
    temporary = path.with_name(f".{path.name}.writing")
    with _LOCKS_LOCK:
        turn = _LOCKS.setdefault(os.path.abspath(path), threading.RLock())
    with turn:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise failed(error.strerror or reason(error)) from None
            raise
