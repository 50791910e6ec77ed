"""Limits on the size of files that are read: all in one place, each far above the needs of honest files.

A larger file is refused in one line before it is in memory. Whole files are read with `whole` or `text`, which never
read more than the limit, also from pipes and devices, which have no size. Lines are read with `lines`, other parts with
`pieces`, and members of tar files with `SmallHeaders`.
"""

import errno
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MIB, GIB = 1 << 20, 1 << 30
_PIECE_BYTES = 4 * MIB
_OF_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

YAML_BYTES = 64 * MIB
"""Experiment files, also in run directories, and tables of costs: lists of 10^6 numbers fit."""
YAML_NODES = 2_000_000
"""Values in a YAML file, with its aliases expanded."""
YAML_DEPTH = 64
"""Nesting of mappings and lists in a YAML file."""
NUMBER_CHARACTERS = 200
"""Characters of a number in a YAML file."""
NUMBER_KEYS = 1000
"""Keys that are numbers in a YAML file. An attacker could make each lookup in a dict visit all of them."""

LOG_BYTES = 512 * MIB
"""``log.jsonl``: two million rounds."""
LOG_LINE_BYTES = MIB
"""A line of the log; longer ones are skipped, as torn ones are."""
ATTEMPTS_BYTES = 256 * MIB
"""``attempts.json``: the participants of a few rounds."""
SMALL_JSON_BYTES = MIB
"""Small internal files of a directory, such as the state of its mirror."""
ARRAYS_BYTES = 64 * GIB
"""``checkpoint.npz`` and ``aggregates/``: models of 10^9 parameters."""
TABLE_ROWS = 500_000_000
"""Rows of a table or a trace that is read as a whole; larger tables are read in parts."""
TABLE_VALUES = 2_000_000_000
"""Values of a foreign table (a matrix of latencies, a table of devices)."""
TABLE_BYTES = 4 * GIB
"""Memory of a Parquet table that is read as a whole, decoded, unless `TABLE_VARIABLE` says otherwise."""
TABLE_VARIABLE = "TESTBED_TABLE_GIB"
"""Environment variable that replaces `TABLE_BYTES`, in GiB, for the user's own large runs."""
AS_OBJECTS = 16
"""Divisor of the limit for tables of Python objects, which take about this many times the memory."""
LISTED_FILES = 2_000_000
"""Files at a URI."""

TRACE_BYTES = 2 * GIB
"""A trace or a table as text: CSV, JSON, two columns."""
PICKLE_BYTES = 512 * MIB
"""A trace as a pickle."""
IDX_BYTES = 2 * GIB
"""A file of images in MNIST's format, unpacked: EMNIST byclass has 0.6 GB."""
ARCHIVE_BYTES = 4 * GIB
"""All members of a data set's archive, unpacked: CIFAR's have 0.2 GB."""
ARCHIVE_HEADER_BYTES = MIB
"""The names and attributes of one member of an archive."""
USERS_BYTES = 2 * GIB
"""A file with the data of some users (LEAF's JSON), or the text of one."""
NUMBERS_BYTES = 64 * MIB
"""A list of numbers for a command, and a list of words."""


class TooLarge(ValueError):
    """Reason why a file is not read, as the end of a message."""


def table_bytes(as_objects: bool = False) -> int:
    """Return the largest memory, in bytes, of a Parquet table that is read as a whole.

    Args:
        as_objects: whether its values become Python objects afterwards.

    Raises:
        TooLarge: `TABLE_VARIABLE` is not a number of GiB.
    """
    text = os.environ.get(TABLE_VARIABLE, "")
    try:
        most = round(float(text) * GIB) if text else TABLE_BYTES
    except (ValueError, OverflowError):
        raise TooLarge(f"{TABLE_VARIABLE}={text} must be a number of GiB") from None
    return most // AS_OBJECTS if as_objects else most


def whole(path: Path, most: int) -> bytes:
    """Return a file's bytes.

    Args:
        path: the file.
        most: largest number of bytes.

    Raises:
        TooLarge: the file is larger.
        OSError: as `open`.
    """
    with open(path, "rb") as file:
        return read(file, most)


def text(path: Path, most: int, encoding: str = "utf-8") -> str:
    """Return a file's text, with line ends as in Python.

    Args:
        path: the file.
        most: largest number of bytes.
        encoding: encoding of the text.

    Raises:
        TooLarge, OSError: as `whole`.
        UnicodeDecodeError: the file is not text.
    """
    return whole(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read(file: IO[bytes], most: int) -> bytes:
    """Return the rest of an open file.

    Args:
        file: the file.
        most: largest number of bytes.

    Raises:
        TooLarge: the rest is larger.
    """
    return b"".join(pieces(file, most))  # file.read(most) would allocate `most` bytes at once


def pieces(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Yield the rest of an open file in parts; raises as `read`.

    Args:
        file: the file.
        most: largest number of bytes.
    """
    left = most
    # One byte more than allowed, to notice a larger file without its size: pipes and devices have none.
    while piece := file.read(min(left + 1, _PIECE_BYTES)):
        left -= len(piece)
        if left < 0:
            raise TooLarge(f"larger than {size(most)}")
        yield piece


def lines(file: IO[str], most: int) -> Iterator[str]:
    """Yield the lines of an open text file.

    Args:
        file: the file.
        most: largest number of characters.

    Raises:
        TooLarge: the lines have more characters.
    """
    left = most
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise TooLarge(f"larger than {size(most)}")
        yield line


def check_size(path: Path, most: int) -> None:
    """Raise `TooLarge` if a path is not a regular file, or is larger than allowed; for files that other libraries read.

    Args:
        path: the file.
        most: largest number of bytes.
    """
    if not path.is_file():
        raise TooLarge("not a regular file")
    if path.stat().st_size > most:
        raise TooLarge(f"larger than {size(most)}")


def check_regular(path: Path) -> None:
    """Raise OSError for a pipe or a device: reading a pipe may block forever, and a device may have no end.

    Folders and missing files pass: opening them raises the right error.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a pipe or a device, not a regular file; name a file", str(path))


def size(count: int) -> str:
    """Return a number of bytes as text, in GiB or MiB.

    Example:
        >>> size(1 << 31), size(3 << 19)
        ('2 GiB', '1.5 MiB')
    """
    return f"{count // GIB} GiB" if count >= GIB and count % GIB == 0 else f"{count / MIB:.10g} MiB"


class SmallHeaders(tarfile.TarInfo):
    """Tar member with small extended headers; `tarfile` reads headers of any size into memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:  # `tarfile` documents this override
        if self.type in _OF_HEADERS and self.size > ARCHIVE_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of more than {size(ARCHIVE_HEADER_BYTES)}")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # private, so not in the stubs
        return member
