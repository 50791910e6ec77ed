"""Duration of a reproduction over all its attempts."""

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
    """Measure the block's duration, and keep it in the directory, whether the block finishes or fails.

    Args:
        directory: existing directory of the reproduction.

    Yields:
        A function that returns the seconds of all attempts so far. After the reproduction has finished, a repetition,
        which only reads finished runs, leaves the number unchanged.
    """
    file = directory / FILE
    before, finished = _before(file)
    began = time.monotonic()

    def seconds() -> float:
        now = time.monotonic() - began
        return max(before, now) if finished else before + now  # a repetition reads finished runs only

    done = False
    try:
        yield seconds
        done = True
    finally:
        with contextlib.suppress(RunError), atomic_write(file, RunError) as out:  # a result is worth more than its time
            out.write(json.dumps({"seconds": seconds(), "finished": finished or done}).encode())


def _before(file: Path) -> tuple[float, bool]:
    """Return the seconds of earlier attempts and whether one finished; (0, False) without a readable file."""
    try:
        stored = json.loads(file.read_bytes())
        return float(stored["seconds"]), bool(stored["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, False
