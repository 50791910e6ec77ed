"""Text files of other people's traces: lines of bounded length, gzip or not, and cells by whatever separates them."""

import contextlib
import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from testbed.errors import TraceError, reason
from testbed.files import limits

_LONGEST_LINE = 1 << 20
_SEPARATORS = "\t;,|"
_NAMES_SHOWN = 8


@contextlib.contextmanager
def text_lines(path: Path, what: str) -> Iterator[Iterator[str]]:
    """The lines of a text file, or of one in gzip (`.gz`), while it is open; what goes wrong becomes a `TraceError`.

    Args:
        path: the file.
        what: what it should be, for messages.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield _bounded(cast("IO[str]", file))
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not text (UTF-8); {what}") from None
    except limits.TooLarge as why:
        raise TraceError(f"{path}: {why}; split it") from None
    except csv.Error as error:
        raise TraceError(f"{path}: not CSV: {reason(error)}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{path}: not gzip, or truncated; {what}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


def _bounded(file: IO[str]) -> Iterator[str]:
    """A small file in gzip may hold a line of any length, so lines are limited, too."""
    left = limits.TRACE_BYTES
    while line := file.readline(_LONGEST_LINE + 1):
        left -= len(line)
        if left < 0:
            raise limits.TooLarge(f"larger than {limits.size(limits.TRACE_BYTES)}")
        if len(line) > _LONGEST_LINE:
            raise limits.TooLarge(f"a line is longer than {limits.size(_LONGEST_LINE)}")
        yield line


def is_number(cell: str) -> bool:
    """Whether Python reads it as a number (also ``nan`` and ``inf``)."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def shown(cell: str) -> str:
    """A cell or a name for a message, however long."""
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}…")


@dataclass(frozen=True)
class TextTable:
    """The rows of a text file.

    Attributes:
        where: the file, for messages.
        names: of the columns; empty if the first row is one of numbers.
        rows: their numbers, from 1 without the line of names, and their cells, all as many.
        decimal_comma: whether ``1,5`` is one and a half: something else separates the cells.
    """

    where: str
    names: Sequence[str]
    rows: Iterator[tuple[int, list[str]]]
    decimal_comma: bool

    def place(self, wanted: str) -> int:
        """Where the column is that is called `wanted`, or has that number (from 1); raises `TraceError`."""
        if wanted in self.names:
            return list(self.names).index(wanted)
        if wanted.isascii() and wanted.isdigit() and 0 < int(wanted) <= (len(self) or 10**9):
            return int(wanted) - 1
        if not self.names:
            raise TraceError(f"{self.where}: no line of column names; give the column's number, from 1, not {wanted!r}")
        more = ", …" if len(self) > _NAMES_SHOWN else ""
        found = ", ".join(map(shown, self.names[:_NAMES_SHOWN])) + more
        raise TraceError(f"{self.where}: no column {shown(wanted)}; its columns are {found}")

    def __len__(self) -> int:
        return len(self.names)

    def cell(self, row: int, cells: list[str], place: int) -> str:
        """The cell at a place, a decimal comma made a point."""
        if place >= len(cells):
            raise TraceError(f"{self.where}: row {row}: no column {place + 1}; it has {len(cells)} values")
        text = cells[place]
        if self.decimal_comma and text.count(",") == 1 and is_number(text.replace(",", ".")):
            return text.replace(",", ".")
        return text


def table_of(where: str, lines: Iterator[str], *, header: bool = False) -> TextTable:
    """The table in the lines of a text file.

    The cells are separated by the tab, semicolon, comma or bar that is most frequent in the first line, else by white
    space. The first line holds names if no cell of it is a number, or `header` says so. Empty lines are skipped, and
    lines before the first that begin with ``#`` (not with `header`). Raises `TraceError` for an empty file, and rows
    that differ in length, csv.Error as `csv` does.
    """
    kept = (line for line in lines if line.strip())
    first = next((line for line in kept if header or not line.startswith("#")), None)
    if first is None:
        raise TraceError(f"{where}: no rows; the file is empty")
    separator = max(_SEPARATORS, key=first.count)
    if separator in first:
        parsed: Iterator[list[str]] = csv.reader(_chained(first, kept), delimiter=separator, skipinitialspace=True)
    else:
        separator = " "
        parsed = (line.split() for line in _chained(first, kept))
    cells = [cell.strip() for cell in next(parsed)]
    names = tuple(cells) if header or not any(map(is_number, cells)) else ()
    for place, name in enumerate(names):
        if name and name in names[:place]:
            raise TraceError(f"{where}: the column {shown(name)} stands twice")
    return TextTable(where, names, _rows(where, None if names else cells, parsed, len(cells)), separator != ",")


def _chained(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _rows(
    where: str, first: list[str] | None, parsed: Iterator[list[str]], width: int
) -> Iterator[tuple[int, list[str]]]:
    row = 0
    if first is not None:
        row = 1
        yield row, first
    for cells in parsed:
        row += 1
        if len(cells) != width:
            raise TraceError(f"{where}: row {row}: {len(cells)} values, not {width}; correct it")
        yield row, [cell.strip() for cell in cells]
