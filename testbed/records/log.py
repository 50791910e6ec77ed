"""A run's log for operators: one JSON object per line in ``log.jsonl``.

Wall-clock times, rates and restarts are only in the log. Results are never computed from it, and it may differ between
identical runs; results are in the tables.

Several processes may write to the same log: the process that drives the run, its coordinator, or a process that resumes
it on another machine. `RunLog.read` skips torn and empty lines.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from testbed.display import visible
from testbed.errors import RunError
from testbed.files import limits

FILE = "log.jsonl"


class RunLog:
    """The log of the run in a directory. No file stays open: the directory may be moved, mirrored or deleted.

    Args:
        directory: the run's directory, which has to exist.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def write(self, event: str, **fields: Any) -> bool:
        """Append ``{"time": now, "event": event, **fields}``, time in ISO 8601, UTC, milliseconds.

        Args:
            event: name of the event, e.g. ``"round-ended"`` (docs/how-to/monitoring.md lists them).
            fields: JSON values; NumPy scalars and arrays become numbers and lists, numbers that are not finite
                become null, anything else its `str`. Units are in the names: ``wall_s``, ``bytes_up``.

        Returns:
            Whether the line is in the file. A log that cannot be written (full disk, directory gone) is no reason to
            end a run: nothing is raised.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"time": now, "event": event} | {name: _plain(value) for name, value in fields.items()}
        # No NaN, which is no JSON; and no control characters of a foreign text, which a terminal would obey.
        line = visible(json.dumps(entry, ensure_ascii=False, allow_nan=False)).encode() + b"\n"
        try:
            # O_APPEND: the kernel does not interleave appended writes of several processes (a network file system may).
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                size = os.fstat(file).st_size
                # A line torn by a kill or a full disk: begin a new line, so that only the torn one is lost. If another
                # process is writing the line just now, this adds an empty line, which `read` skips.
                if size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line
                return os.write(file, line) == len(line)
            finally:
                os.close(file)
        except OSError:
            return False

    def read(self) -> list[dict[str, Any]]:
        """Return all entries in the order of writing; empty if there is no log.

        Torn lines (in particular a half-written last line) and lines too long for an entry are skipped.

        Raises:
            RunError: the file cannot be read, or is larger than `limits.LOG_BYTES`.
        """
        entries = []
        try:
            with open(self.path, "rb") as file:
                for line in _lines(file):
                    with contextlib.suppress(ValueError, RecursionError):  # of JSON and of UTF-8 alike
                        entry = json.loads(line)
                        if isinstance(entry, dict) and "event" in entry:
                            entries.append(entry)
        except FileNotFoundError:
            return []
        except limits.TooLarge as why:
            raise RunError(f"{self.path}: {why}; move it elsewhere, no result depends on it") from None
        except OSError as error:
            raise RunError(f"{self.path}: cannot read: {error.strerror or error}") from None
        return entries


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of an open file, except lines too long for an entry."""
    left, goes_on = limits.LOG_BYTES, False
    while piece := file.readline(limits.LOG_LINE_BYTES):
        left -= len(piece)
        if left < 0:
            raise limits.TooLarge(f"larger than {limits.size(limits.LOG_BYTES)}")
        ends = piece.endswith(b"\n")
        if not goes_on and (ends or len(piece) < limits.LOG_LINE_BYTES):
            yield piece
        goes_on = not ends


def _plain(value: Any) -> Any:
    """Return `value` as a JSON value."""
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    return str(value)
