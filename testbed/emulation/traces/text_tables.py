"""Tables of text with any common separator, with or without a line of column names.

Nothing in a file says whether its first row holds names or data. If columns are requested by name, the row that holds
these names is the line of names. If columns are requested by number, the first row is taken for names only if it cannot
be data; an ambiguous row is refused, with the options that settle it.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from testbed.emulation.traces.decimals import Decimal, DecimalMarks
from testbed.emulation.traces.text_files import MISSING, is_number, shown
from testbed.emulation.traces.timestamps import is_moment
from testbed.errors import TraceError

_SEPARATORS = "\t;,|"
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class TableForm:
    """Facts about a table that its file does not state.

    Attributes:
        header: whether the first row holds names; None: inferred, see the module.
        decimal: the mark before a number's decimals; None: inferred from the cells.
    """

    header: bool | None = None
    decimal: Decimal | None = None


@dataclass(frozen=True)
class TextTable:
    """The rows of a text file.

    Attributes:
        where: the file, for messages.
        names: names of the columns; empty if the first row is data.
        width: number of columns.
        rows: row numbers, from 1 without the line of names, and cells; all rows have `width` cells.
        form: facts about the table from the user.
    """

    where: str
    names: Sequence[str]
    width: int
    rows: Iterator[tuple[int, list[str]]]
    form: TableForm = TableForm()
    _marks: DecimalMarks = field(default_factory=DecimalMarks)

    def place(self, column: str) -> int:
        """Return the position of a column given by name or by number (from 1); raise `TraceError` if there is none."""
        number = _column_number(column)
        if column in self.names:
            named = list(self.names).index(column)
            if number not in (None, named + 1) and self.form.header is None:
                raise TraceError(
                    f"{self.where}: {column} is both the name of column {named + 1} and a column number; give --header "
                    "to use the name, --no-header to use the number"
                )
            return named
        if number is not None and number <= self.width:
            return number - 1
        if not self.names:
            raise TraceError(
                f"{self.where}: no line of column names; give the column's number, 1 to {self.width}, not {column!r}"
            )
        more = ", …" if len(self.names) > _NAMES_SHOWN else ""
        names = ", ".join(map(shown, self.names[:_NAMES_SHOWN])) + more
        raise TraceError(f"{self.where}: no column {shown(column)}; its columns are {names}")

    def places(self, columns: Sequence[str]) -> list[int]:
        """Return the positions of several columns; raise `TraceError` as `place` does, or if two are the same."""
        places: list[int] = []
        for name in columns:
            place = self.place(name)
            if place in places:
                other = columns[places.index(place)]
                raise TraceError(f"{self.where}: {other!r} and {name!r} are one column; name two")
            places.append(place)
        return places

    def cell(self, row: int, cells: list[str], place: int) -> str:
        """Return a cell, with a number in Python's notation; raise `TraceError` if the number is ambiguous."""
        try:
            return self._marks.plain(cells[place])
        except ValueError as why:
            raise TraceError(f"{self.where}: row {row}: {why}") from None


def table_of(
    where: str, lines: Iterator[str], measured: Sequence[str], others: Sequence[str] = (), form: TableForm | None = None
) -> TextTable:
    """Return the table in the lines of a text file.

    The separator is the tab, semicolon, comma or bar that is most frequent in the first line, else white space. Empty
    lines are skipped, and so are leading lines that begin with ``#``, unless they name a column.

    Args:
        where: the file, for messages.
        lines: lines of the file.
        measured: requested columns with times or numbers, by name or number from 1.
        others: the other requested columns.
        form: facts about the table from the user.

    Raises:
        TraceError: an empty file, a first row that can be names or data, a repeated name, or rows that differ in
            length; csv.Error as `csv` does.
    """
    form = form or TableForm()
    nonempty = (line for line in lines if line.strip())
    candidates = () if form.header is False else (*measured, *others)
    first = next((line for line in nonempty if not line.startswith("#") or _is_name_line(line, candidates)), None)
    if first is None:
        raise TraceError(f"{where}: no rows; the file is empty")
    parsed = _parsed(first, nonempty)
    cells = [cell.strip() for cell in next(parsed)]
    has_names = _has_names(where, cells, measured, others) if form.header is None else form.header
    names = tuple(cells) if has_names else ()
    for place, name in enumerate(names):
        if name and name in names[:place]:
            raise TraceError(f"{where}: the column {shown(name)} occurs twice; rename one")
    rows, marks = _rows(where, None if names else cells, parsed, len(cells)), DecimalMarks(form.decimal)
    if _separator(first) == ";":
        # Tabs are not suspicious: logs of latencies in ms have three decimals everywhere, too, and often tabs.
        rows = _with_checked_points(where, rows, marks)
    return TextTable(where, names, len(cells), rows, form, marks)


def _with_checked_points(
    where: str, rows: Iterator[tuple[int, list[str]]], marks: DecimalMarks
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows; raise `TraceError` after the last row if the points in their numbers are ambiguous."""
    yield from rows
    try:
        marks.check_points()
    except ValueError as why:
        raise TraceError(f"{where}: {why}") from None


def _separator(line: str) -> str:
    """Return the most frequent separator of a line; if it is not in the line, white space separates the cells."""
    return max(_SEPARATORS, key=line.count)


def _parsed(first: str, others: Iterator[str]) -> Iterator[list[str]]:
    """Yield the cells of lines, by the separator of the first line."""
    separator = _separator(first)
    if separator in first:
        yield from csv.reader(_with_first(first, others), delimiter=separator, skipinitialspace=True)
    else:
        yield from (line.split() for line in _with_first(first, others))


def _is_name_line(line: str, columns: Sequence[str]) -> bool:
    """Return whether a line that begins with ``#`` holds one of the requested names."""
    names = {name for name in columns if _column_number(name) is None}
    return any(cell.strip() in names for cell in next(_parsed(line, iter(())), []))


def _has_names(where: str, cells: Sequence[str], measured: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether the first row holds the columns' names; raise `TraceError` if it can also be data."""
    if any(name in cells for name in measured if not _can_be_data(name)):
        return True  # a word like "time" in a column of times: not data
    numbers = [number for name in measured if (number := _column_number(name)) is not None]
    if not numbers:
        if any(map(_can_be_data, cells)) and not any(name in cells for name in others):
            raise TraceError(
                f"{where}: no line of column names: its first row begins with {shown(cells[0])}; call the columns by "
                f"number, from 1, not {measured[0]!r}, and say --no-header"
            )
        return True
    for number in numbers:
        if number <= len(cells) and _can_be_data(cells[number - 1]):
            raise TraceError(
                f"{where}: the first row has {shown(cells[number - 1])} in column {number}, so it can be data or a "
                "line of column names; say --no-header if it is data, --header if it is names"
            )
    return True


def _can_be_data(cell: str) -> bool:
    return cell.lower() in MISSING or is_number(cell) or is_number(cell.replace(",", "")) or is_moment(cell)


def _column_number(name: str) -> int | None:
    """Return the column number, from 1, that a name may stand for; None if it is not a number."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 10 and int(name) > 0 else None


def _with_first(first: str, lines: Iterator[str]) -> Iterator[str]:
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
