"""Text files from other sources: lines of bounded length, optionally in gzip."""

import contextlib
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from testbed.errors import TraceError, reason
from testbed.files import limits

_LONGEST_LINE = 1 << 20
_JSON = re.compile(r"\s*(\{\s*(\"|\}|$)|\[\s*([\[{\"\d\]-]|$))")

MISSING = frozenset({"", "-", "--", "na", "n/a", "nan", "null", "none", "\\n"})
r"""Cells, in lower case, that stand for a missing measurement; ``\\N`` is the export of databases."""


@contextlib.contextmanager
def reading(path: Path, expected: str, advice: str = "split it") -> Iterator[None]:
    """Turn errors of reading a file into a `TraceError` of one line; refuse pipes and devices.

    Args:
        path: the file.
        expected: the expected content, for messages.
        advice: remedy for a file that is too large.
    """
    try:
        limits.check_regular(path)
        yield
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not a text file (UTF-8); {expected}") from None
    except limits.TooLarge as error:
        raise TraceError(f"{path}: {error}; {advice}") from None
    except csv.Error as error:
        raise TraceError(f"{path}: not CSV: {reason(error)}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{path}: not gzip, or truncated; {expected}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or reason(error)}") from None


def check_not_empty(path: Path, needed: str) -> None:
    """Check that a file is not empty.

    Args:
        path: the file.
        needed: required content, for the message.

    Raises:
        TraceError: the file is empty.
        OSError: as `open`.
    """
    with open(path, "rb") as file:
        if not file.read(1):
            raise TraceError(f"{path}: the file is empty; it needs {needed}")


@contextlib.contextmanager
def text_lines(path: Path, expected: str) -> Iterator[Iterator[str]]:
    """Open a text file, or one in gzip (`.gz`), as an iterator of lines; turn errors into a `TraceError`.

    Args:
        path: the file.
        expected: the expected content, for messages.

    Raises:
        TraceError: one line: the file cannot be read, is not text, too large, or JSON.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with reading(path, expected), opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield _bounded(path, cast("IO[str]", file), expected)


def _bounded(path: Path, file: IO[str], expected: str) -> Iterator[str]:
    """Yield lines of bounded length; a small file in gzip may hold a line of any length."""
    left = limits.TRACE_BYTES
    blank = True
    while line := file.readline(_LONGEST_LINE + 1):
        # Before the length is checked: JSON is often one long line, and "split it" would be the wrong advice.
        if blank and _JSON.match(line):
            raise TraceError(f"{path}: this is JSON; write its values as rows of text (CSV); {expected}")
        blank = blank and not line.strip()
        left -= len(line)
        if left < 0:
            raise limits.TooLarge(f"larger than {limits.size(limits.TRACE_BYTES)}")
        if len(line) > _LONGEST_LINE:
            raise limits.TooLarge(f"a line is longer than {limits.size(_LONGEST_LINE)}")
        yield line


def is_number(cell: str) -> bool:
    """Return whether Python reads the cell as a number (also ``nan`` and ``inf``)."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def shown(value: object) -> str:
    """Return a value or name for a message, shortened; a container by its type alone."""
    if not isinstance(value, str | int | float):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() >= 200:
        return "a huge number"
    return repr(value if not isinstance(value, str) or len(value) <= 40 else f"{value[:40]}…")
