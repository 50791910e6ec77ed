"""How long a reproduction takes, all of its attempts together."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.errors import RunError
from testbed.files.atomic import atomic_write

FILE = "elapsed.json"


@contextlib.contextmanager
def elapsed(directory: Path) -> Iterator[Callable[[], float]]:
    """Yields what gives the seconds so far; what an attempt took is kept in the directory, stopped or not.

    Once it is finished, a repetition, which finds every run there, leaves the figure as it is.
    """
    file = directory / FILE
    before, finished = _before(file)
    began = time.monotonic()

    def seconds() -> float:
        now = time.monotonic() - began
        return max(before, now) if finished else before + now

    done = False
    try:
        yield seconds
        done = True
    finally:
        with contextlib.suppress(RunError), atomic_write(file, RunError) as out:
            out.write(json.dumps({"seconds": seconds(), "finished": finished or done}).encode())


def _before(file: Path) -> tuple[float, bool]:
    """What earlier attempts took, and whether one was finished; nothing where the file is not there or unreadable."""
    try:
        stored = json.loads(file.read_bytes())
        return float(stored["seconds"]), bool(stored["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, False
