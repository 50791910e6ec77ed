"""Files that are there completely or not at all."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from testbed.errors import reason


@contextlib.contextmanager
def atomic_write(path: Path, failed: Callable[[str], Exception]) -> Iterator[IO[bytes]]:
    """Write a file under a temporary name beside `path` and rename it when all is on disk.

    Whatever goes wrong before that, what was there is untouched, and the temporary file is removed.

    Args:
        path: where the file is to be.
        failed: makes the error that is raised when the file cannot be written, from why, in one line.
    """
    temporary = path.with_name(f".{path.name}.writing")
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
