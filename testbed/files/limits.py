"""How much is read of a file, whoever wrote it: all limits in one place, each far above what honest files need.

A file that is larger is refused in one line before it is in memory. What is read as a whole is read through
`whole` or `text`, which never take more than their limit, also from what has no size (a pipe, a device); what is read
line by line goes through `lines`, what is read in stretches through `pieces`; what lies in a tar is of `SmallHeaders`.
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
"""Experiment files, also those of run directories, and tables of costs: lists of 10^6 numbers fit."""
YAML_NODES = 2_000_000
"""Values in a YAML file, with what its aliases stand for written out."""
YAML_DEPTH = 64
"""Mappings and lists within one another in a YAML file."""
NUMBER_CHARACTERS = 200
"""Of a number in a YAML file."""
NUMBER_KEYS = 1000
"""Keys in a YAML file that are numbers: these can be chosen so that a dict has to look at all of them for each."""

LOG_BYTES = 512 * MIB
"""``log.jsonl``: two million rounds."""
LOG_LINE_BYTES = MIB
"""A line of it; longer ones are left out, as torn ones are."""
ATTEMPTS_BYTES = 256 * MIB
"""``attempts.json``: the participants of a few rounds."""
SMALL_JSON_BYTES = MIB
"""What the testbed keeps for itself in a directory (where it is mirrored, up to where)."""
ARRAYS_BYTES = 64 * GIB
"""``checkpoint.npz`` and ``aggregates/``: models of 10^9 parameters."""
TABLE_ROWS = 500_000_000
"""Rows of a table or a trace that is read as a whole; larger tables are read in stretches."""
TABLE_VALUES = 2_000_000_000
"""Values of a foreign table (a matrix of latencies, a table of devices)."""
TABLE_BYTES = 4 * GIB
"""Memory of a Parquet table that is read as a whole, decoded, unless `TABLE_VARIABLE` says otherwise."""
TABLE_VARIABLE = "TESTBED_TABLE_GIB"
"""The environment variable that replaces `TABLE_BYTES`, in GiB, for large runs of one's own."""
AS_OBJECTS = 16
"""A table whose values become Python objects may have this part of it: each takes about as many times the room."""
LISTED_FILES = 2_000_000
"""Files at a URI."""

TRACE_BYTES = 2 * GIB
"""A trace or a table as text: CSV, JSON, two columns."""
PICKLE_BYTES = 512 * MIB
"""A trace as a pickle."""
IDX_BYTES = 2 * GIB
"""A file of images as MNIST has it, unpacked: EMNIST byclass has 0.6 GB."""
ARCHIVE_BYTES = 4 * GIB
"""All that lies in a data set's archive, unpacked: CIFAR's have 0.2 GB."""
ARCHIVE_HEADER_BYTES = MIB
"""The names and attributes of one of its members."""
USERS_BYTES = 2 * GIB
"""A file with the data of some users (LEAF's JSON), or the text of one."""
NUMBERS_BYTES = 64 * MIB
"""A list of numbers for a command, and a list of words."""


class TooLarge(ValueError):
    """Why a file is not read, as the end of a message."""


def table_bytes(as_objects: bool = False) -> int:
    """Return how many bytes of memory a Parquet table may take that is read as a whole.

    Args:
        as_objects: whether its values become Python objects afterwards.

    Raises:
        TooLarge: `TABLE_VARIABLE` is set to no number of GiB.
    """
    text = os.environ.get(TABLE_VARIABLE, "")
    try:
        most = round(float(text) * GIB) if text else TABLE_BYTES
    except (ValueError, OverflowError):
        raise TooLarge(f"{TABLE_VARIABLE}={text} is no number of GiB") from None
    return most // AS_OBJECTS if as_objects else most


def whole(path: Path, most: int) -> bytes:
    """A file's bytes; raises `TooLarge` when there are more than `most`, else OSError as `open` does."""
    with open(path, "rb") as file:
        return read(file, most)


def text(path: Path, most: int, encoding: str = "utf-8") -> str:
    """A file's text, its ends of lines as in Python; raises as `whole`, and UnicodeDecodeError."""
    return whole(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read(file: IO[bytes], most: int) -> bytes:
    """What is left of an open file; raises `TooLarge` when that is more than `most` bytes."""
    return b"".join(pieces(file, most))  # all at once would make room for all at once


def pieces(file: IO[bytes], most: int) -> Iterator[bytes]:
    """What is left of an open file, a stretch at a time; raises `TooLarge` when that is more than `most` bytes."""
    left = most
    while piece := file.read(min(left + 1, _PIECE_BYTES)):
        left -= len(piece)
        if left < 0:
            raise TooLarge(f"larger than {size(most)}")
        yield piece


def lines(file: IO[str], most: int) -> Iterator[str]:
    """The lines of an open text file; raises `TooLarge` when they have more than `most` characters."""
    left = most
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise TooLarge(f"larger than {size(most)}")
        yield line


def check_size(path: Path, most: int) -> None:
    """Raise `TooLarge` when a file that another library will read has more than `most` bytes, or is no file."""
    if not path.is_file():
        raise TooLarge("not a regular file")
    if path.stat().st_size > most:
        raise TooLarge(f"larger than {size(most)}")


def check_regular(path: Path) -> None:
    """Raise OSError for a pipe or a device: reading a pipe waits for ever, and a device need not end.

    Folders and files that do not exist pass: opening them says what is wrong.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a regular file but a pipe or a device; name a file", str(path))


def size(count: int) -> str:
    """Bytes for a person."""
    return f"{count // GIB} GiB" if count >= GIB and count % GIB == 0 else f"{count / MIB:.10g} MiB"


class SmallHeaders(tarfile.TarInfo):
    """A member of a tar whose extended headers are small: `tarfile` reads these into memory, whatever their size."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:  # to be overridden, as `tarfile` says
        if self.type in _OF_HEADERS and self.size > ARCHIVE_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of more than {size(ARCHIVE_HEADER_BYTES)}")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # private, so not in the stubs
        return member
